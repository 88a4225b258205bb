"""Reads shell text and commands into a LaunchSpec for every engine they start, in containers, shells and launchers."""

from __future__ import annotations

import re
import shlex
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import Any

from sparktop.cmdline.docker_run import MORE, PROGRAMS, DockerRun, docker_run, split_mount, variable
from sparktop.cmdline.engine_argv import flags_of
from sparktop.cmdline.engine_command import kind_of_image, server_at
from sparktop.cmdline.shell import RESERVED, UNREAD, Variables, commands
from sparktop.cmdline.source import Document, Item, Span, Word, hull, item_of, joined
from sparktop.dataclass import dataclass
from sparktop.engines.images import Family, family_of, version_of
from sparktop.errors import ConfigError
from sparktop.launchspec.folder import from_folder, with_folders
from sparktop.launchspec.read import layout
from sparktop.launchspec.spec import Branch, Doubt, Launcher, LaunchSpec, SourceKind
from sparktop.model.engine import VERSIONED, EngineKind

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_ONLY_MENTION = frozenset({
    "echo", "printf", "grep", "egrep", "pgrep", "pkill", "ps", "man", "which", "alias", "curl", "cat", "kill",
    "hf", "wget", "test", "[", "[[",
})  # fmt: skip
"""Commands that may name an engine in their arguments but start none."""
_BEFORE = re.compile(rf"(?:{'|'.join(map(re.escape, RESERVED))})\Z|[A-Za-z_]\w*=")
"""What may stand before a command's program: `while IFS= read`."""
_SHELLS = frozenset(["bash", "sh", "dash", "zsh"])
_NAMES = {
    **dict.fromkeys(("read", "mapfile", "readarray", "unset"), slice(1, None)),
    **dict.fromkeys(("for", "select"), slice(1, 2)),
    "getopts": slice(2, 3),
}
"""Commands that change variables, and which of their words name these."""
_ELEMENT = re.compile(r"([A-Za-z_]\w*)\[[^]]*\]\+?=")
_COMPUTED = re.compile(r"\b([A-Za-z_]\w*+)\s*+(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))|(?:\+\+|--)([A-Za-z_]\w*+)")
"""A variable that arithmetic changes."""
_LOCALS = frozenset(["declare", "typeset", "local"])
"""In a function these set the function's own."""
_SETS = _LOCALS | {"export", "readonly"}
CLUSTER = "node-"
"""run_cluster.sh names its containers node-NUMBER."""
MAX_LAUNCHES = 500
"""A text that starts more engines is no launch configuration."""
COMMAND_CHARS = 2000
"""What is kept of a command that runs before an engine."""
MAX_DEPTH = 5
"""Shells nested deeper than this are not read."""
Beside = Callable[[str], str | None]
"""The text of a file by its path from the document's folder; None where it isn't there."""


@dataclass(slots=True, kw_only=True)
class Scope:
    """What is known at the point where a command runs, and the specifications found so far."""

    document: Document
    kind: SourceKind
    beside: Beside = lambda path: None
    variables: Variables = field(default_factory=Variables)
    exported: dict[str, Item] = field(default_factory=dict)
    base: LaunchSpec | None = None
    """The container the command runs in, not yet with an engine."""
    prelude: list[str] = field(default_factory=list)
    shell: tuple[str, ...] = ()
    """The shell in the container that runs the commands, with its options: `bash -lc`."""
    before: str = ""
    """Its text before the current command."""
    depth: int = 0
    specs: list[LaunchSpec] = field(default_factory=list)
    containers: dict[str, LaunchSpec] = field(default_factory=dict)
    """Containers started earlier in the same text, for `docker exec`."""
    branches: list[Branch] = field(default_factory=list)
    doubts: list[Doubt] = field(default_factory=list)
    cuts: list[Item] = field(default_factory=list)
    stops: list[Item] = field(default_factory=list)
    """Commands that stop a container or an engine."""

    def inside(self, base: LaunchSpec) -> Scope:
        """In this container."""
        return replace(self, base=base, exported={}, prelude=[], depth=self.depth + 1)


def read_script(source: Word, scope: Scope, *, strict: bool = False) -> None:
    """Add every engine that a shell text starts to `scope.specs`.

    Raises:
        UnclosedQuote: only with `strict`; see `shell.commands`.
    """
    source, cuts = layout.continued(source)
    scope.cuts += [Item(name="comment", span=cut) for cut in cuts]
    found = tuple(layout.branches(source, scope.document))
    scope.branches += found
    scope.doubts += [branch for branch in found if branch.head != "{"]
    functions = layout.functions(source)
    known: tuple[dict[str, Any], ...] = (scope.variables, scope.exported)
    hidden: list[tuple[int, dict[str, Any], str, Any]] = []  # by a function, until its end: what the name was
    for start, words in commands(source, scope.variables, strict=strict):
        scope.before = source.text[:start]
        while words[0].text == "}" and hidden and hidden[-1][0] <= start:
            _, values, name, value = hidden.pop()
            values.pop(name, None)
            if value is not None:
                values[name] = value
        at = bisect_left(functions, (start + 1, 0)) - 1
        for name in _local_names(words) if at >= 0 and start < functions[at][1] else ():
            hidden += [(functions[at][1], values, name, values.pop(name, None)) for values in known]
        command = _without_assignments(words, scope)
        for name in _changed([word.text for word in command]):
            if name in scope.variables:
                scope.variables[name] = UNREAD
            if (item := scope.exported.pop(name, None)) is not None and command[0].text != "unset":
                scope.exported[name] = replace(item, value=f"${name}", value_span=None)
        if command and not _is_sourcing(command, scope) and not read_command(command, scope):
            text = " ".join(_typed(word.text) for word in command)[:COMMAND_CHARS]
            scope.prelude.append(text)
            if _STOP.match(text):
                scope.stops.append(Item(name="command", value=text, span=_own_place(command)))


def _local_names(words: Sequence[Word]) -> Iterator[str]:
    """The variables that a command in a function makes the function's own."""
    names = [word.text for word in words if word.text not in RESERVED]
    if names[:1] and names[0] in _LOCALS:
        yield from (name.partition("=")[0].removesuffix("+") for name in names[1:] if not name.startswith("-"))


def _changed(words: Sequence[str]) -> Iterator[str]:
    """The variables that a command changes to what isn't read."""
    words = words[next((at for at, word in enumerate(words) if not _BEFORE.match(word)), 0) :]
    if not words:
        return
    named = words[2:3] if words[:2] == ["printf", "-v"] else words[_NAMES.get(words[0], slice(0))]
    yield from (name.partition("[")[0] for name in named)
    if element := _ELEMENT.match(words[0]):
        yield element[1]
    if words[0] == "let" or any(word.startswith("((") for word in words):
        yield from (match[1] or match[2] for match in _COMPUTED.finditer(" ".join(words).removeprefix("let ")))


def _typed(word: str) -> str:
    """A word as it is typed, in quotes where it needs some; as written where a shell fills it in."""
    return shlex.quote(word) if re.search(r"[\s'\"\\]", word) and not re.search(r"[$`]", word) else word


def _own_place(words: Iterable[Word]) -> Span | None:
    """Where a command stands: what its variables hold stands further up."""
    return max((word.span for word in words if word.span), default=None)


def _is_sourcing(words: Sequence[Word], scope: Scope) -> bool:
    """Read a sourced file that lies beside the document; note what another, or an unknown text for `eval`, may set."""
    file = " ".join(word.text for word in words[1:])
    is_unknown_text = words[0].text == "eval" and file.startswith(("$", "`"))
    if not is_unknown_text and (words[0].text not in (".", "source") or file.endswith("bin/activate")):
        return False
    path = from_folder(file) or (file if re.fullmatch(r"[\w.-][\w./-]*", file) else None)
    text = scope.beside(path) if path and not is_unknown_text and scope.depth <= MAX_DEPTH else None
    if text is not None:
        read_script(Word(text), replace(scope, depth=scope.depth + 1))  # its places aren't the document's
        return True
    for name, values in list(scope.variables.items()):
        spans = [value.span for value in values if value.span]
        if not spans:
            del scope.variables[name]  # nothing until then: what it holds isn't known
        scope.doubts += [Doubt(start=span[0], end=span[1], reason=f"what `{file[:60]}` sets") for span in spans]
    return True


def read_command(words: Sequence[Word], scope: Scope) -> bool:
    """Read one command; True if it starts an engine, a container or a launcher."""
    texts = [word.text for word in words]
    bases = [text.rpartition("/")[2] for text in texts]
    first = next((base for base in bases if base not in RESERVED), "")
    if not first or first in _ONLY_MENTION or scope.depth > MAX_DEPTH:
        return False
    if len(scope.specs) > MAX_LAUNCHES:
        raise too_many(scope.document.name)
    own = _leading_variables(words)
    for index, base in enumerate(bases):
        following = texts[index + 1] if index + 1 < len(texts) else ""
        if base in PROGRAMS and (following == "run" or texts[index + 1 : index + 3] == ["container", "run"]):
            return read_docker_run(words[index + (2 if following == "run" else 3) :], scope, words[index + 1])
        if base in PROGRAMS and following == "exec":
            return _docker_exec(words[index + 2 :], scope)
        if base == "run_cluster.sh":
            return _run_cluster(words[index + 1 :], scope, words[index])
        if base in ("-e", "--env") and "=" in following:  # of `docker compose run`
            own.append(variable(words[index + 1], words[index]))
        if base == "launch-cluster.sh" and scope.base is None:
            return _launch_cluster(words[index + 1 :], scope, words[index])
        if base == "ray" and following == "start":
            scope.specs.append(_spec(words[index:], scope, own, is_ray_start=True, name="ray start"))
            return True
        if base == "eval" and index == 0:
            _read_inner(joined(words[1:], " "), scope, own)
            return True
        if base in _SHELLS or (base == "ssh" and index == 0):
            inner, parameters = _shell_text(words[index + 1 :], is_ssh=base == "ssh")
            if inner is not None:
                at = next(at for at, word in enumerate(words) if word is inner)
                _read_inner(inner, scope, own, parameters, () if base == "ssh" else texts[index:at])
                return True
        if (server := server_at(texts, index)) and server[0] in VERSIONED:
            _engine(server[0], words[server[1] :], scope, own, words[index], wrapper=texts[:index])
            return True
    return _mounted_script(words, scope, own)


def _mounted_script(words: Sequence[Word], scope: Scope, own: Iterable[Item]) -> bool:
    """Read a script that lies beside the document and is mounted into the container: `bash /start.sh`."""
    program = words[0].text.rpartition("/")[2]
    script = next((word.text for word in words[program in _SHELLS :] if not word.text.startswith("-")), "")
    for item in scope.base.options_of("mount") if scope.base and script.startswith("/") else ():
        source, _, rest = split_mount(item.value or "")
        target = rest.partition(":")[0]
        inside = script.removeprefix(target.rstrip("/"))
        path = from_folder(source) if target and inside != script and inside[:1] in ("", "/") else None
        if path is None or (text := scope.beside(f"{path}{inside}".lstrip("/"))) is None:
            continue
        shell = [program if program in _SHELLS else "bash", "-c"]
        _read_inner(Word(text), scope, own, shell=shell)  # its places aren't the document's
        return True
    return False


def too_many(name: str) -> ConfigError:
    """The error for a text with more than can be looked at."""
    return ConfigError(
        f"{name} starts too many engines, or with too many values, for a launch configuration",
        hint=f"at most {MAX_LAUNCHES}: split it, or for a log: sparktop explain FILE",
    )


def read_docker_run(words: Sequence[Word], scope: Scope, begin: Word) -> bool:
    """Read a `docker run` command: its container and the engine in it."""
    run = docker_run(words)
    if run.image is None and not run.misplaced:
        return False
    base = container_spec(run, scope, begin)
    scope.containers[base.name] = base
    read_container(base, run.entrypoint, run.command, scope, run.misplaced)
    return True


def read_container(
    base: LaunchSpec, entrypoint: Word | None, command: Sequence[Word], scope: Scope, misplaced: Sequence[Item] = ()
) -> None:
    """Read what runs in a container: a server in its command, an image that is one, or no known engine."""
    words = [entrypoint, *command] if entrypoint and entrypoint.text else list(command)
    own = {item.name: [Word(item.value)] for item in base.environment if item.value is not None and item.is_known}
    variables = Variables(scope.variables)
    variables.update(own)
    inner = replace(scope.inside(base), variables=variables, specs=[], containers={})
    if words and read_command(words, inner) and inner.specs:
        repeated = _program(command) if entrypoint is None and base.family is Family.VLLM_OPENAI else None
        scope.specs += [
            replace(spec, misplaced=tuple(misplaced), repeated=spec.repeated or repeated) for spec in inner.specs
        ]
        scope.containers.update(inner.containers)
        return
    kind, guess = kind_of_image(base.image_name), ""
    kind = kind if kind in VERSIONED else None
    given = {word.text[2:].partition("=")[0].replace("_", "-") for word in command if word.text.startswith("--")}
    given |= {item.name for item in misplaced}
    told = next((engine for engine, own in _ENGINE_ONLY.items() if given & own), None)
    has_entrypoint = bool(entrypoint and entrypoint.text)
    has_wrapper = told is not None and has_entrypoint and not misplaced
    names_model = any(re.match(r"--model(?:[-_]path)?(?:=|\Z)", word.text) for word in command)
    is_plain = base.family is Family.VLLM_OPENAI or (kind is not None and names_model)
    if told and not misplaced and not is_plain and (kind is None or not has_entrypoint):
        guess = "what the image starts: its entrypoint, in the Dockerfile that it is built from"
    if has_wrapper:
        serve = next((index for index, word in enumerate(command[:3]) if word.text == "serve"), -1)
        command = command[serve + 1 :]
    kind = kind or told
    # A community image named after an engine may be a router or an exporter; only an engine has a model.
    is_server = not has_entrypoint and (base.family is Family.VLLM_OPENAI or names_model)
    is_server = bool(command) and (is_server or has_wrapper or bool(guess))
    if kind is None or not (is_server or misplaced or not words or _stays(base, words)):
        return
    arguments = command if is_server else ()
    own_words = () if is_server else [word.text for word in words]
    has_command = is_server or bool(misplaced)
    _engine(kind, arguments, inner, (), None, has_command=has_command, misplaced=misplaced, wrapper=own_words)
    scope.specs += [replace(spec, guess=guess) for spec in inner.specs]


def _stays(base: LaunchSpec, words: Sequence[Word]) -> bool:
    """Whether a container without a server in its command may get one: in a shell, or by `docker exec`."""
    return base.option("rm") is None or base.option("detach") is not None or words[-1].text.split("/")[-1] in _SHELLS


_ENGINE_ONLY = {
    EngineKind.VLLM: frozenset({"gpu-memory-utilization", "max-model-len", "max-num-seqs"}),
    EngineKind.SGLANG: frozenset({"mem-fraction-static", "moe-runner-backend", "speculative-eagle-topk"}),
}
"""Flags that no other engine has."""


def container_spec(run: DockerRun, scope: Scope, begin: Word | None) -> LaunchSpec:
    """The container of a `docker run` command, before its engine is known."""
    image = item_of("image", run.image) if run.image else None
    name = image.value if image and image.value else ""
    options = tuple(run.options)
    return LaunchSpec(
        document=scope.document,
        kind=scope.kind,
        launcher=Launcher.DOCKER,
        name=next((item.value or "" for item in options if item.name == "name"), ""),
        span=begin.span if begin else None,
        image=image,
        family=family_of(name),
        environment=tuple(_with_caller_value(item, scope) for item in run.environment),
        knows_environment=not run.has_env_file and not any(item.name == MORE for item in options),
        has_container=True,
        options=options,
    )


def _with_caller_value(item: Item, scope: Scope) -> Item:
    """`-e NAME` without a value takes the caller's value."""
    exported = scope.exported.get(item.name) if item.value == f"${item.name}" else None
    return replace(item, value=exported.value) if exported else item


def _engine(
    kind: EngineKind,
    arguments: Sequence[Word],
    scope: Scope,
    own: Iterable[Item],
    begin: Word | None,
    *,
    has_command: bool = True,
    misplaced: Sequence[Item] = (),
    wrapper: Sequence[str] = (),
) -> None:
    arguments = list(arguments)
    repeated = None
    again = server_at([word.text for word in arguments], 0) if arguments else None
    if again or (arguments and arguments[0].text == "serve"):
        # The entrypoint of another image may be `vllm`, not the server.
        is_sure = again or begin or (scope.base and scope.base.family is Family.VLLM_OPENAI)
        repeated = _program(arguments) if is_sure else None
        arguments = arguments[again[1] if again else 1 :]
    spec = _spec([begin, *arguments] if begin else [], scope, own)
    start = spec.span[0] if spec.span else -1
    version = version_of(spec.image_name, kind)
    flags, loose = flags_of(arguments, kind, version)
    model = next((flag for flag in flags if flag.name == "model"), None)
    more = loose
    if model is None and loose and not loose[0].text.startswith('"$') and "[" not in loose[0].text:
        model, more = item_of("model", loose[0]), loose[1:]
    all_flags = (*flags, *misplaced)
    scope.specs.append(
        replace(
            spec,
            begin=begin.span if begin else None,
            engine=kind,
            version=version,
            has_command=has_command,
            wrapper=tuple(wrapper),
            flags=all_flags,
            misplaced=tuple(misplaced),
            repeated=repeated,
            model=model,
            elsewhere=_elsewhere(flags, more),
            doubts=(*scope.doubts, *layout.defaults(scope.document)),
            cuts=_cuts_in(scope.cuts, start, [*all_flags, *spec.options, spec.image, model]),
            stopped=_stopped(scope, start, spec.name),
            nodes=max(spec.nodes, nodes_of(all_flags)),
            prelude="\n".join((spec.prelude, *scope.prelude)).strip(),
            shell=() if scope.shell and layout.is_open(scope.before) else scope.shell,
            before=scope.before if scope.shell else "",
            exported=tuple(scope.exported) if scope.shell else (),
        )
    )


def _program(words: Sequence[Word]) -> Item:
    """The words that begin a command: `vllm serve`, `python3 -m MODULE`, else the first."""
    texts = [word.text for word in words]
    server = server_at(texts, 0)
    count = server[1] if server else 1
    return Item(name="command", spelled=" ".join(texts[:count]), span=hull(words[0], words[count - 1]))


def _elsewhere(flags: Sequence[Item], more: Sequence[Word]) -> tuple[str, ...]:
    """Where more arguments come from; `more` is without the model's name."""
    texts = [word.text for word in more] + [text for item in flags for text in item.rest]
    words = [text for text in texts if text.startswith("$") or text in ("...", "…")]
    words = [text for text in words if not re.fullmatch(r"\$\{\w+:?\+--[\w-]+\}", text)]  # a switch, or nothing
    files = [f"--config {item.value}" for item in flags if item.name == "config"]
    return (*words, *files)


def _cuts_in(cuts: Iterable[Item], start: int, items: Iterable[Item | None]) -> tuple[Item, ...]:
    """The cuts between a command's start and the last thing that is given after them."""
    end = max((span[1] for item in items if item for span in (item.span, item.value_span) if span), default=start)
    return tuple(cut for cut in cuts if cut.span and start < cut.span[0] < end)


_STOP = re.compile(
    r"(?:(?:then|do|else|if|!|\{|\S*sudo|-\S+) )*"
    r"(?:\S*(?:docker|podman|nerdctl) (?:container )?(?:stop|kill|rm (?:\S+ )*?(?:--force|-\w*f))\b"
    r"|(?:systemctl.* stop|pkill) .*(?:vllm|sglang))"
)
_LOOKS = re.compile(r"MemAvailable|meminfo|\bfree +-|nvidia-smi|wait\w*_mem|mem\w*_wait|sleep +(?:[6-9]\d|\d{3,})\b")
"""A look at memory, or a wait of a minute."""


def _stopped(scope: Scope, start: int, name: str) -> Item | None:
    """The last command that stops the container of this name, or an engine, before a script starts one again."""
    if not scope.stops or scope.kind is not SourceKind.SHELL or _LOOKS.search(scope.document.text[: max(start, 0)]):
        return None
    for stop in reversed(scope.stops):
        text = stop.value or ""
        is_its = (name and f" {name} " in f"{text} ") or "ps -" in text or "vllm" in text or "sglang" in text
        if is_its and stop.span and layout.runs_before(scope.branches, stop.span[0], start):
            return stop
    return None


def nodes_of(flags: Sequence[Item]) -> int:
    """How many Sparks the flags ask for: each has one GPU."""

    def number(*names: str) -> int:
        values = [item.number for item in flags if item.name in names]
        return int(values[-1]) if values and values[-1] and 1 <= values[-1] <= 64 else 1

    ranks = number("tensor-parallel-size") * number("pipeline-parallel-size")
    return max(ranks, number("nnodes"))


def _spec(begin: Sequence[Word], scope: Scope, own: Iterable[Item], **fields: object) -> LaunchSpec:
    """A specification with what the scope knows about container and variables."""
    exported = {**scope.exported, **{item.name: item for item in own}}
    base = scope.base or LaunchSpec(document=scope.document, kind=scope.kind, has_container=False)
    container_variables = {item.name: item for item in base.environment}
    return replace(
        base,
        span=base.span or (begin[0].span or _own_place(begin) if begin else None),
        environment=tuple({**container_variables, **exported}.values()),
        **fields,  # type: ignore[arg-type]
    )


def _without_assignments(words: list[Word], scope: Scope) -> list[Word]:
    """Record lone `NAME=value` words and exports in the scope; returns the command that is left."""
    heads = [word for word in words if word.text not in ("then", "do", "else", "!", "{")]
    is_export = bool(heads) and heads[0].text in _SETS
    has_x = is_export and (heads[0].text == "export" or any(re.match(r"-\w*x", word.text) for word in heads))
    assignments = [
        word for word in (heads[1:] if is_export else heads) if not (is_export and word.text.startswith("-"))
    ]
    if heads and (is_export or all(_ASSIGNMENT.match(word.text) for word in assignments)):
        for word in assignments:
            named, equals, _ = word.text.partition("=")
            name = named.removesuffix("+")
            if equals:
                value, rest = word.part(word.text.index("=") + 1), list[Word]()
                if name != named and name in scope.variables:
                    first, *rest = scope.variables.words(name) or [Word(f"${name}")]
                    value = joined([first, value])
                folder = with_folders(value.text, scope.variables)
                scope.variables[name] = [value if folder == value.text else Word(folder), *rest]
            if (has_x or name in scope.exported) and scope.variables.words(name):
                value = scope.variables[name][0]
                scope.exported[name] = item_of(name, value, word if equals else None)
        return []
    return words


def _leading_variables(words: Sequence[Word]) -> list[Item]:
    """Variables set before a command, by the shell or by `env`."""
    variables = []
    for word in words:
        if _ASSIGNMENT.match(word.text):
            variables.append(variable(word))
        elif word.text not in ("env", "sudo", "exec", "nohup", "time", "-E", "setsid", "then", "do"):
            break
    return variables


def _shell_text(words: Sequence[Word], *, is_ssh: bool) -> tuple[Word | None, Sequence[Word]]:
    """The text that `bash -c TEXT NAME PARAMETER...` or `ssh HOST TEXT` runs, and its positional parameters."""
    if is_ssh:
        return next((word for word in words if " " in word.text), None), ()
    for index, word in enumerate(words):
        if re.match(r"-[a-z]*c[a-z]*\Z", word.text):
            return (words[index + 1] if index + 1 < len(words) else None), words[index + 3 :]
        if not word.text.startswith(("-", "+")):
            break
    return None, ()


def _read_inner(
    inner: Word, scope: Scope, own: Iterable[Item], parameters: Sequence[Word] = (), shell: Sequence[str] = ()
) -> None:
    positional = {"@": tuple(parameters)} if parameters else {}  # `exec "$@"`: an earlier `shift` is ignored
    variables = Variables(scope.variables)
    variables.update(positional)
    nested = replace(
        scope,
        variables=variables,
        exported={**scope.exported, **{item.name: item for item in own}},
        prelude=[],
        shell=tuple(shell),
        depth=scope.depth + 1,
    )
    read_script(inner, nested)


def _docker_exec(words: Sequence[Word], scope: Scope) -> bool:
    """Read `docker exec [OPTIONS] NAME COMMAND`, in a container of the same text or an unknown one."""
    run = docker_run(words, is_exec=True)
    name = run.image.text if run.image else ""
    container = scope.containers.get(name)
    if container is None and scope.containers and ("$" in name or len(scope.containers) == 1):
        container = scope.containers.get(CLUSTER) or list(scope.containers.values())[-1]
    base = container or LaunchSpec(document=scope.document, kind=scope.kind, launcher=Launcher.BARE, name=name)
    base = replace(
        base,
        environment=(*base.environment, *run.environment),
        knows_environment=base.knows_environment and not run.has_env_file,
        span=None,
        is_exec=True,
    )
    inner = scope.inside(base)
    return read_command(run.command, inner)


def _run_cluster(words: Sequence[Word], scope: Scope, begin: Word) -> bool:
    """Read `run_cluster.sh IMAGE HEAD_IP --head|--worker HF_HOME [docker options]`.

    It is among vLLM's examples and in NVIDIA's playbook.
    """
    plain = [word for word in words[:4] if not word.text.startswith("--")]
    run = docker_run(list(words[4:]) if len(words) > 4 else [])
    run.image = plain[0] if plain else None
    base = replace(container_spec(run, scope, begin), launcher=Launcher.RUN_CLUSTER, nodes=2, name="run_cluster.sh")
    options = {"network": "host", "gpus": "all", "mount": "~/.cache/huggingface:/root/.cache/huggingface"}
    base = replace(base, options=(*base.options, *(Item(name=name, value=value) for name, value in options.items())))
    scope.containers[CLUSTER] = base
    scope.specs.append(_spec([begin], scope.inside(base), (), is_ray_start=True))
    return True


_NO_LAUNCH = frozenset(["stop", "status", "-h", "--help", "--check-config"])
"""Words behind launch-cluster.sh with which it starts nothing."""


def _launch_cluster(words: Sequence[Word], scope: Scope, begin: Word) -> bool:
    """Read a spark-vllm-docker launch, which sets NCCL's variables itself (docs/facts/engines.md section 5.1)."""
    environment: list[Item] = []
    options = {"network": "host", "gpus": "all", "ipc": "host", "privileged": None}
    nodes, name = 1 if any(word.text == "--solo" for word in words) else 2, "launch-cluster.sh"
    image: Item | None = None
    command: Sequence[Word] = ()
    for index, word in enumerate(words):
        value = words[index + 1] if index + 1 < len(words) else None
        if word.text in ("-e", "--env") and value:
            environment.append(variable(value, word))
        elif word.text in ("-n", "--nodes") and value:
            nodes = max(1, len([host for host in value.text.split(",") if host]))
        elif word.text == "-t" and value:
            image = item_of("image", value)
        elif word.text == "--name" and value:
            name = value.text
        elif word.text == "exec":
            command = words[index + 1 :]
            break
        elif word.text in _NO_LAUNCH:
            return False
    base = LaunchSpec(
        document=scope.document,
        kind=scope.kind,
        launcher=Launcher.EUGR,
        name=name,
        span=begin.span,
        image=image,
        family=Family.COMMUNITY,
        environment=tuple(environment),
        has_container=True,
        options=tuple(Item(name=name, value=value) for name, value in options.items()),
        nodes=nodes,
    )
    inner = scope.inside(base)
    if command and read_command(command, inner):
        return True
    scope.containers[name] = base
    _engine(EngineKind.VLLM, (), inner, (), begin, has_command=False)
    return True
