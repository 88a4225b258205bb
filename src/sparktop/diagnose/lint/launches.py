"""What a command starts: engines, in containers or not, through shells and launchers, each as a specification."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from sparktop.diagnose.enginecommand import kind_of_image, server_at
from sparktop.diagnose.lint.arguments import flags_of
from sparktop.diagnose.lint.dockerrun import DockerRun, docker_run, variable
from sparktop.diagnose.lint.images import family_of, version_of
from sparktop.diagnose.lint.place import Document, Word
from sparktop.diagnose.lint.shellwords import Variables, commands
from sparktop.diagnose.lint.spec import Family, Item, Launcher, LaunchSpec, SourceKind
from sparktop.model.engine import EngineKind

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_ONLY_TALK = frozenset({
    "echo", "printf", "grep", "egrep", "pgrep", "pkill", "ps", "man", "which", "alias", "curl", "cat", "kill",
    "hf", "wget", "test", "[", "[[",
})  # fmt: skip
_SHELLS = frozenset(["bash", "sh", "dash", "zsh"])
_EXPORTS = frozenset(["export", "declare", "typeset", "readonly", "local"])
_DOCKERS = frozenset(["docker", "podman", "nerdctl"])
CLUSTER = "node-"
"""run_cluster.sh names its container node-NUMBER."""
MAX_DEPTH = 5
"""So many shells within shells are read."""


@dataclass(slots=True, kw_only=True)
class Scope:
    """What is known where a command runs."""

    document: Document
    kind: SourceKind
    variables: Variables = field(default_factory=dict)
    exported: dict[str, Item] = field(default_factory=dict)
    base: LaunchSpec | None = None
    """The container that the command runs in, without an engine yet."""
    prelude: list[str] = field(default_factory=list)
    depth: int = 0
    found: list[LaunchSpec] = field(default_factory=list)
    containers: dict[str, LaunchSpec] = field(default_factory=dict)
    """Containers started earlier in the same text, for `docker exec`."""


def read_script(source: Word, scope: Scope, *, strict: bool = False) -> None:
    """Find every engine that a shell text starts, into `scope.found`.

    Raises:
        UnclosedQuote: with `strict`, see `shellwords.commands`.
    """
    for words in commands(source, scope.variables, strict=strict):
        rest = _assigned(words, scope)
        if not rest:
            continue
        if not read_command(rest, scope):
            scope.prelude.append(" ".join(word.text for word in rest)[:2000])


def read_command(words: Sequence[Word], scope: Scope, own: Sequence[Item] = ()) -> bool:
    """Find what one command starts; whether it was an engine, a container or a launcher. `own`: variables before it."""
    texts = [word.text for word in words]
    bases = [text.rpartition("/")[2] for text in texts]
    if not bases or bases[0] in _ONLY_TALK or scope.depth > MAX_DEPTH:
        return False
    own = [*own, *_leading(words)]
    for index, base in enumerate(bases):
        following = texts[index + 1] if index + 1 < len(texts) else ""
        if base in _DOCKERS and (following == "run" or texts[index + 1 : index + 3] == ["container", "run"]):
            return read_docker_run(words[index + (2 if following == "run" else 3) :], scope, words[index])
        if base in _DOCKERS and following == "exec":
            return _docker_exec(words[index + 2 :], scope)
        if base == "run_cluster.sh":
            return _run_cluster(words[index + 1 :], scope, words[index])
        if base == "launch-cluster.sh":
            return _launch_cluster(words[index + 1 :], scope, words[index], own)
        if base == "ray" and following == "start":
            scope.found.append(_placed(words[index:], scope, own, is_ray_start=True, name="ray start"))
            return True
        if base in _SHELLS or (base == "ssh" and index == 0):
            inner, rest = _shell_text(words[index + 1 :], is_ssh=base == "ssh")
            if inner is not None:
                _read_inner(inner, scope, own, rest)
                return True
        if server := server_at(texts, index):
            _engine(server[0], words[server[1] :], scope, own, words[index])
            return True
    return False


def read_docker_run(words: Sequence[Word], scope: Scope, begin: Word) -> bool:
    """A `docker run` line: its container, and the engine in it."""
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
    """What runs in a container: a server in its command, an image that is one, or nothing known to be an engine."""
    words = [entrypoint, *command] if entrypoint and entrypoint.text else list(command)
    inner = Scope(
        document=scope.document,
        kind=scope.kind,
        variables=scope.variables,
        base=base,
        depth=scope.depth + 1,
        prelude=[],
    )
    if words and read_command(words, inner) and inner.found:
        scope.found += [replace(spec, misplaced=tuple(misplaced)) for spec in inner.found]
        scope.containers.update(inner.containers)
        return
    kind = kind_of_image(base.image.value or "") if base.image else None
    if kind is None and any(item.name in _ENGINE_ONLY for item in misplaced):
        kind = EngineKind.SGLANG
    if kind is None:
        return
    is_server = bool(command) and not (entrypoint and entrypoint.text)
    # A community image that has an engine's name may be a router or an exporter: a model tells.
    names_model = any(re.match(r"--model(?:[-_]path)?(?:=|\Z)", word.text) for word in command)
    is_server = is_server and (base.family is Family.VLLM_OPENAI or names_model)
    arguments = command if is_server else ()
    _engine(kind, arguments, inner, (), None, has_command=is_server or bool(misplaced), misplaced=misplaced)
    scope.found += inner.found


_ENGINE_ONLY = frozenset({"mem-fraction-static", "moe-runner-backend", "context-length", "speculative-eagle-topk"})
"""Flags that only SGLang has."""


def container_spec(run: DockerRun, scope: Scope, begin: Word | None) -> LaunchSpec:
    """The container that a `docker run` describes, before it is known what runs in it."""
    image = (
        Item(name="image", value=run.image.text, span=run.image.span, value_span=run.image.span) if run.image else None
    )
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
        environment=tuple(_taken_over(item, scope) for item in run.environment),
        knows_environment=not run.has_env_file,
        has_container=True,
        options=options,
    )


def _taken_over(item: Item, scope: Scope) -> Item:
    """`-e NAME` alone takes the caller's value."""
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
) -> None:
    arguments = list(arguments)
    flags, loose = flags_of(arguments, kind)
    spec = _placed([begin] if begin else [], scope, own)
    model = next((flag for flag in flags if flag.name in ("model-path", "model")), None)
    if model is None and loose and not loose[0].text.startswith('"$'):
        model = Item(name="model", value=loose[0].text, span=loose[0].span, value_span=loose[0].span)
    image = spec.image.value or "" if spec.image else ""
    all_flags = (*flags, *misplaced)
    scope.found.append(
        replace(
            spec,
            engine=kind,
            version=version_of(image, kind),
            has_command=has_command,
            flags=all_flags,
            misplaced=tuple(misplaced),
            model=model,
            is_open=_is_open(flags, loose),
            nodes=max(spec.nodes, nodes_of(all_flags)),
            prelude="\n".join((spec.prelude, *scope.prelude)).strip(),
        )
    )


def _is_open(flags: Sequence[Item], loose: Sequence[Word]) -> bool:
    """Whether further arguments come from somewhere else; one variable alone is the model's name."""
    texts = [word.text for word in loose[1:]] + [text for item in flags for text in item.rest]
    first = [word.text for word in loose[:1] if word.text in ("$@", "$*", "...", "…")]
    return any(text.startswith("$") or text in ("...", "…") for text in (*first, *texts))


def nodes_of(flags: Sequence[Item]) -> int:
    """How many Sparks the flags ask for: each has one GPU."""

    def number(*names: str) -> int:
        values = [item.number for item in flags if item.name in names]
        return int(values[-1]) if values and values[-1] and 1 <= values[-1] <= 64 else 1

    ranks = number("tensor-parallel-size") * number("pipeline-parallel-size")
    return max(ranks, number("nnodes"))


def _placed(begin: Sequence[Word], scope: Scope, own: Iterable[Item], **more: object) -> LaunchSpec:
    """A specification with what the scope knows of its container and variables."""
    exported = {**scope.exported, **{item.name: item for item in own}}
    base = scope.base or LaunchSpec(document=scope.document, kind=scope.kind, has_container=False)
    given = {item.name: item for item in base.environment}
    return replace(
        base,
        span=base.span or (begin[0].span if begin else None),
        environment=tuple({**given, **exported}.values()),
        **more,  # type: ignore[arg-type]
    )


def _assigned(words: list[Word], scope: Scope) -> list[Word]:
    """Take in `NAME=value`s that stand alone and exports; the command that is left (with those before it)."""
    heads = [word for word in words if word.text not in ("then", "do", "else", "!", "{")]
    is_export = bool(heads) and heads[0].text in _EXPORTS
    given = [word for word in (heads[1:] if is_export else heads) if not (is_export and word.text.startswith("-"))]
    if heads and (is_export or all(_ASSIGNMENT.match(word.text) for word in given)):
        for word in given:
            name, equals, _ = word.text.partition("=")
            name = name.removesuffix("+")
            if equals:
                scope.variables[name] = [word.part(word.text.index("=") + 1)]
            if is_export and name in scope.variables and scope.variables[name]:
                value = scope.variables[name][0]
                scope.exported[name] = Item(
                    name=name, value=value.text, span=word.span if equals else value.span, value_span=value.span
                )
        return []
    return words


def _leading(words: Sequence[Word]) -> list[Item]:
    """Variables given before a command, by the shell or by `env`."""
    found = []
    for word in words:
        if _ASSIGNMENT.match(word.text):
            found.append(variable(word))
        elif word.text not in ("env", "sudo", "exec", "nohup", "time", "-E", "setsid", "then", "do"):
            break
    return found


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


def _read_inner(inner: Word, scope: Scope, own: Iterable[Item], parameters: Sequence[Word] = ()) -> None:
    given = {"@": tuple(parameters)} if parameters else {}  # `exec "$@"`: what is shifted before is not looked at
    nested = replace(
        scope,
        variables={**scope.variables, **given},
        exported={**scope.exported, **{item.name: item for item in own}},
        prelude=[],
        depth=scope.depth + 1,
    )
    read_script(inner, nested)


def _docker_exec(words: Sequence[Word], scope: Scope) -> bool:
    """`docker exec [OPTIONS] NAME COMMAND`: in a container that the same text started, or one not described."""
    run = docker_run(words, is_exec=True)
    named = run.image.text if run.image else ""
    known = scope.containers.get(named)
    if known is None and scope.containers and ("$" in named or len(scope.containers) == 1):
        known = scope.containers.get(CLUSTER) or list(scope.containers.values())[-1]
    base = known or LaunchSpec(document=scope.document, kind=scope.kind, launcher=Launcher.BARE, name=named)
    base = replace(
        base,
        environment=(*base.environment, *run.environment),
        knows_environment=base.knows_environment and not run.has_env_file,
        span=None,
        is_exec=True,
    )
    inner = replace(scope, base=base, exported={}, prelude=[], depth=scope.depth + 1)
    return read_command(run.command, inner)


def _run_cluster(words: Sequence[Word], scope: Scope, begin: Word) -> bool:
    """`run_cluster.sh IMAGE HEAD_IP --head|--worker HF_HOME [docker options]` (vLLM's examples, NVIDIA's playbook)."""
    plain = [word for word in words[:4] if not word.text.startswith("--")]
    run = docker_run(list(words[4:]) if len(words) > 4 else [])
    run.image = plain[0] if plain else None
    base = replace(container_spec(run, scope, begin), launcher=Launcher.RUN_CLUSTER, nodes=2, name="run_cluster.sh")
    given = {"network": "host", "gpus": "all", "mount": "~/.cache/huggingface:/root/.cache/huggingface"}
    base = replace(base, options=(*base.options, *(Item(name=name, value=value) for name, value in given.items())))
    scope.containers[CLUSTER] = base
    inner = replace(scope, base=base, exported={})
    scope.found.append(_placed([begin], inner, (), is_ray_start=True))
    return True


def _launch_cluster(words: Sequence[Word], scope: Scope, begin: Word, own: Sequence[Item]) -> bool:
    """spark-vllm-docker's launcher: it finds interfaces and sets NCCL's variables itself (facts/engines.md 5.1)."""
    environment: list[Item] = []
    options = {"network": "host", "gpus": "all", "ipc": "host", "privileged": None}
    nodes = 1 if any(word.text == "--solo" for word in words) else 2
    image: Item | None = None
    rest: Sequence[Word] = ()
    for index, word in enumerate(words):
        value = words[index + 1] if index + 1 < len(words) else None
        if word.text in ("-e", "--env") and value:
            environment.append(variable(value, word))
        elif word.text in ("-n", "--nodes") and value:
            nodes = max(1, len([host for host in value.text.split(",") if host]))
        elif word.text == "-t" and value:
            image = Item(name="image", value=value.text, span=value.span, value_span=value.span)
        elif word.text == "exec":
            rest = words[index + 1 :]
            break
    base = LaunchSpec(
        document=scope.document,
        kind=scope.kind,
        launcher=Launcher.EUGR,
        name="launch-cluster.sh",
        span=begin.span,
        image=image,
        family=Family.COMMUNITY,
        environment=tuple(environment),
        has_container=True,
        options=tuple(Item(name=name, value=value) for name, value in options.items()),
        nodes=nodes,
    )
    inner = replace(scope, base=base, exported={}, depth=scope.depth + 1)
    if rest and read_command(rest, inner):
        return True
    _engine(EngineKind.VLLM, (), inner, (), begin, has_command=False)
    return True
