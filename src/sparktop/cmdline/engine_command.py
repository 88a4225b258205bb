"""Which engine a command line starts, with which model and port; for processes and containers. Pure.

A process counts only where it is the server itself: `docker run ... vllm serve`, `bash -c "vllm serve"` and `grep
vllm serve` have the same words. A container's command may have the server anywhere, also in a shell's string. Facts:
docs/facts/engines.md sections 5, 6.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache, lru_cache

from sparktop.cmdline.engine_argv import parsed, values_of
from sparktop.cmdline.engine_flags import polar
from sparktop.cmdline.source import Word
from sparktop.model.engine import Container, Endpoint, Engine, EngineCommand, EngineKind

_PYTHON = re.compile(r"(?:pypy|python)[\d.]*t?$")
_HUB_PATH = re.compile(r"models--([^/]+?)--([^/]+)(?:/|$)")
_VALUED_PYTHON_FLAGS = ("-X", "-W", "-c")
_OFF = ("", "0", "false", "off", "disabled")
"""Values of a variable that leave its flag as it is."""


def of_process(argv: Sequence[str], environment: Sequence[str] = (), image: str = "") -> EngineCommand | None:
    """The engine that this process is, in a container of this image; None for wrappers and other processes."""
    server = server_at(argv, 0, image) if argv else None
    return _engine_command(server[0], tuple(argv[server[1] :]), tuple(environment)) if server else None


def of_container(argv: Sequence[str], environment: Sequence[str] = (), image: str = "") -> EngineCommand | None:
    """The engine that a container's entrypoint and command start, also through a wrapper or `sh -c`."""
    for words in _simple_commands(argv):
        if server := server_in(words, image):
            return _engine_command(server[0], tuple(words[server[1] :]), tuple(environment))
    return None


def _simple_commands(argv: Sequence[str]) -> Iterator[Sequence[str]]:
    """The command itself, and those of every text in it that a shell may run."""
    yield argv
    from sparktop.cmdline.shell import Variables, commands

    for text in argv:
        if " " in text:
            yield from ([word.text for word in command] for _, command in commands(Word(text), Variables()))


def command_of(
    kind: EngineKind, argv: Sequence[str], environment: Sequence[str] = (), container: Container | None = None
) -> EngineCommand:
    """An engine's command, of its process or its container; without a known server in it, its words are taken for
    flags."""
    image, words = (container.image, tuple(argv) or container.argv) if container else ("", tuple(argv))
    return _command(words, kind, tuple(environment) if kind.traits.variables else (), image)


@lru_cache(maxsize=512)
def _command(argv: tuple[str, ...], kind: EngineKind, environment: tuple[str, ...], image: str) -> EngineCommand:
    found = of_process(argv, environment, image) or of_container(argv, environment, image)
    command = found or replace(_engine_command(kind, argv, environment), is_known=False)
    return replace(command, joins_ray=True) if joins_ray(argv) else command


def with_argv(engine: Engine, argv: Sequence[str]) -> Engine:
    """The engine as if it ran with these words."""
    command = command_of(engine.kind, argv, engine.environment, engine.container)
    return replace(engine, argv=tuple(argv), command=command)


def joins_ray(argv: Sequence[str]) -> bool:
    """Whether a command only joins another node's Ray: the head starts the engine's worker there."""
    text = " ".join(argv)
    return "ray start" in text and "--address" in text and "--head" not in text


def kind_of_image(image: str) -> EngineKind | None:
    """The engine that an image contains, by its name."""
    lowered = image.lower()
    kinds = reversed(EngineKind)  # vLLM is in the names of others' images
    return next((kind for kind in kinds if any(text in lowered for text in kind.traits.images)), None)


def version_of_image(image: str) -> str | None:
    """The engine's version, where an upstream image's tag is one; NVIDIA's tags (26.05-py3) are not."""
    match = re.search(r"([^:]*):v?(\d+\.\d+\.\d+(?:\.?(?:rc|post|dev)\d+)*)", image)
    return (
        match[2] if match and any(name in match[1] for kind in EngineKind if (name := kind.traits.releases)) else None
    )


def started_by(container: Container) -> EngineCommand | None:
    """The engine that a container starts; read once for each command, as it is asked at every look at a node."""
    return _started(tuple(container.argv), tuple(container.environment), container.image)


_started = lru_cache(maxsize=512)(of_container)


def is_exec(container: Container | None, endpoint: Endpoint | None, pids: Sequence[int]) -> bool:
    """Whether `docker exec` put the engine into its container, whose own command starts none; a rank of Ray's, which
    serves nowhere, is started by its head."""
    if container is None or started_by(container) is not None or not (container.argv or pids):
        return False
    return endpoint is not None or not joins_ray(container.argv)


def server_at(words: Sequence[str], at: int, image: str = "") -> tuple[EngineKind, int] | None:
    """(kind, index of its first argument) where a server's command begins at this word."""
    program = words[at].rpartition("/")[2]
    if _PYTHON.match(program):
        return _python_server(words, at + 1, image)
    begins = _programs().get(program, ())
    if at and words[at - 1].startswith("-"):  # a bare name may be an option's value: `--name llama-server`
        begins = [(kind, rest) for kind, rest in begins if rest]
    return _following(words, at, begins)


def server_in(words: Sequence[str], image: str = "") -> tuple[EngineKind, int] | None:
    """(kind, index of its first argument) of the first server among these words."""
    return next(filter(None, (server_at(words, at, image) for at in range(len(words)))), None)


_Begins = Sequence[tuple[EngineKind, list[str]]]
"""Engines, and the words that must follow."""


@cache
def _programs() -> Mapping[str, _Begins]:
    """By their names."""
    programs: dict[str, list[tuple[EngineKind, list[str]]]] = {}
    for kind in EngineKind:
        for name, *rest in map(str.split, kind.traits.programs):
            programs.setdefault(name, []).append((kind, rest))
    return programs


@cache
def _modules() -> Sequence[tuple[str, EngineKind, list[str]]]:
    named = [(kind, module.split()) for kind in EngineKind for module in kind.traits.modules]
    return [(name, kind, rest) for kind, (name, *rest) in named]


def _following(words: Sequence[str], at: int, begins: _Begins) -> tuple[EngineKind, int] | None:
    ends = ((kind, at + 1 + len(rest)) for kind, rest in begins if list(words[at + 1 : at + 1 + len(rest)]) == rest)
    return next(ends, None)


def _python_server(words: Sequence[str], at: int, image: str) -> tuple[EngineKind, int] | None:
    while at < len(words) and words[at].startswith("-") and words[at] != "-m":
        if words[at] == "-c":
            return None
        at += 2 if words[at] in _VALUED_PYTHON_FLAGS else 1
    is_module = at < len(words) and words[at] == "-m"
    if at + is_module >= len(words):
        return None
    if is_module:
        first = next(((kind, rest) for name, kind, rest in _modules() if fnmatchcase(words[at + 1], name)), None)
        return _following(words, at + 1, [first]) if first else None
    if (name := words[at].rpartition("/")[2]) in _programs():
        return _following(words, at, _programs()[name])
    own = kind_of_image(image) if image else None
    scripts = ((kind, script) for kind in EngineKind for script in kind.traits.scripts)
    return next(((kind, at + 1) for kind, script in scripts if _is_script(words[at], script, kind is own)), None)


def _is_script(path: str, script: str, is_at_home: bool) -> bool:
    return fnmatchcase(path, script) or (is_at_home and path.rpartition("/")[2] == script.rpartition("/")[2])


@lru_cache(maxsize=512)
def _engine_command(kind: EngineKind, arguments: tuple[str, ...], environment: tuple[str, ...] = ()) -> EngineCommand:
    traits = kind.traits
    variables = (variable.partition("=") for variable in environment if traits.variables)
    given = {traits.variables[name]: value for name, _, value in variables if name in traits.variables}
    flags = {name: value for name, value in given.items() if value not in _OFF} | dict(values_of(arguments, kind))
    model = next((flags[name] for name in traits.model_flags[:1] if flags.get(name)), None)
    if not model and traits.is_model_positional and (loose := parsed(arguments, kind)[1]):
        model = arguments[loose[0]]
    model = model or next((flags[name] for name in traits.model_flags if flags.get(name)), None)
    metrics_off = ""
    if (name := traits.metrics_on) and polar(name, kind) not in flags:
        metrics_off = f"started without {name}: add it to see its figures"
    if (name := traits.metrics_off) and polar(name, kind) in flags:
        metrics_off = f"started with {name}: leave it out to see its figures"
    return EngineCommand(
        kind=kind,
        model=_model_name(model) if model else None,
        port=_port(flags.get("port")) or traits.port,
        host=flags.get("host") or None,
        is_worker="headless" in flags or (flags.get("node-rank") or "0") != "0",
        metrics_off=metrics_off,
        flags=flags,
    )


def _port(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and 0 < int(text[:6]) < 65536 else None


def _model_name(model: str) -> str:
    match = _HUB_PATH.search(model)
    return f"{match[1]}/{match[2]}" if match else model
