"""Which engine a command line starts, with which model and port; for processes and containers. Pure.

A process counts only where it is the server itself: `docker run ... vllm serve`, `bash -c "vllm serve"` and `grep
vllm serve` have the same words. A container's command may have the server anywhere, also in a shell's string. Facts:
docs/facts/engines.md sections 5, 6.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache

from sparktop.cmdline.engine_argv import parsed, values_of
from sparktop.cmdline.engine_flags import polar
from sparktop.cmdline.shell import Variables, commands
from sparktop.cmdline.source import Word
from sparktop.dataclass import dataclass
from sparktop.model.engine import Engine, EngineKind

DEFAULT_PORT: Mapping[EngineKind, int] = {EngineKind.VLLM: 8000, EngineKind.SGLANG: 30000}
_PYTHON = re.compile(r"(?:pypy|python)[\d.]*t?$")
_HUB_PATH = re.compile(r"models--([^/]+?)--([^/]+)(?:/|$)")
_VALUED_PYTHON_FLAGS = ("-X", "-W", "-c")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCommand:
    """An engine's command line, as far as an observer needs it."""

    kind: EngineKind
    model: str | None = None
    """ORG/NAME where that can be told, else its path, else the name it is served under."""
    port: int
    host: str | None = None
    is_worker: bool = False
    """A worker node's part of a server, which serves no HTTP."""
    metrics_off: str = ""
    """What to change so that it exports metrics; empty where it should."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """Each flag's value by its canonical name; "" for a switch, `no-NAME` for one that is off."""

    def value(self, *names: str) -> str | None:
        """A flag's value, "" for a switch; None where it isn't set."""
        return next((self.flags[name] for each in names if (name := polar(each, self.kind)) in self.flags), None)

    def has(self, *names: str) -> bool:
        """Whether a flag is set."""
        return self.value(*names) is not None

    def count(self, name: str) -> int:
        """A flag's value as a number of nodes or ranks: 1 where it isn't set, or is none."""
        text = self.value(name) or ""
        return int(text) if text.isdecimal() and 0 < int(text[:4]) < 1000 else 1


def of_process(argv: Sequence[str]) -> EngineCommand | None:
    """The engine that this process is; None for wrappers and other processes."""
    server = server_at(argv, 0) if argv else None
    return _engine_command(server[0], tuple(argv[server[1] :])) if server else None


def of_container(argv: Sequence[str]) -> EngineCommand | None:
    """The engine that a container's entrypoint and command start, also through a wrapper or `sh -c`."""
    for words in _simple_commands(argv):
        if server := server_in(words):
            return _engine_command(server[0], tuple(words[server[1] :]))
    return None


def _simple_commands(argv: Sequence[str]) -> Iterator[Sequence[str]]:
    """The command itself, and those of every text in it that a shell may run."""
    yield argv
    for text in argv:
        if " " in text:
            yield from ([word.text for word in command] for command in commands(Word(text), Variables()))


def command_of(engine: Engine) -> EngineCommand:
    """An engine's command, read once for each command line; without a known server, its words are taken for flags."""
    return _command(engine.argv or (engine.container.argv if engine.container else ()), engine.kind)


@lru_cache(maxsize=512)
def _command(argv: tuple[str, ...], kind: EngineKind) -> EngineCommand:
    return of_process(argv) or of_container(argv) or _engine_command(kind, argv)


def joins_ray(argv: Sequence[str]) -> bool:
    """Whether a command only joins another node's Ray: the head starts the engine's worker there."""
    text = " ".join(argv)
    return "ray start" in text and "--address" in text and "--head" not in text


def kind_of_image(image: str) -> EngineKind | None:
    """The engine that an image contains, by its name."""
    lowered = image.lower()
    if "sglang" in lowered:
        return EngineKind.SGLANG
    return EngineKind.VLLM if "vllm" in lowered else None


def version_of_image(image: str) -> str | None:
    """The engine's version, where an upstream image's tag is one; NVIDIA's tags (26.05-py3) are not."""
    match = re.search(r"(?:vllm-openai|lmsysorg/sglang)[^:]*:v?(\d+\.\d+\.\d+(?:\.?(?:rc|post|dev)\d+)*)", image)
    return match[1] if match else None


def server_at(words: Sequence[str], at: int) -> tuple[EngineKind, int] | None:
    """(kind, index of its first argument) where a server's command begins at this word."""
    program = words[at].rpartition("/")[2]
    if _PYTHON.match(program):
        return _python_server(words, at + 1)
    if program in ("vllm", "sglang") and at + 1 < len(words) and words[at + 1] == "serve":
        return EngineKind(program), at + 2
    return None


def server_in(words: Sequence[str]) -> tuple[EngineKind, int] | None:
    """(kind, index of its first argument) of the first server among these words."""
    return next(filter(None, (server_at(words, at) for at in range(len(words)))), None)


def _python_server(words: Sequence[str], at: int) -> tuple[EngineKind, int] | None:
    while at < len(words) and words[at].startswith("-") and words[at] != "-m":
        if words[at] == "-c":
            return None
        at += 2 if words[at] in _VALUED_PYTHON_FLAGS else 1
    if at + 1 >= len(words):
        return None
    if words[at] == "-m":
        module = words[at + 1]
        if module.startswith("vllm.entrypoints."):
            is_cli = module.startswith("vllm.entrypoints.cli")
            if is_cli and (at + 2 >= len(words) or words[at + 2] != "serve"):
                return None
            return EngineKind.VLLM, at + 3 if is_cli else at + 2
        if module == "sglang.launch_server":
            return EngineKind.SGLANG, at + 2
        if module in ("sglang", "vllm") and at + 2 < len(words) and words[at + 2] == "serve":
            return EngineKind(module), at + 3
        return None
    script = words[at]
    if script.rpartition("/")[2] in ("vllm", "sglang"):
        return server_at(words, at)
    if script.endswith("sglang/launch_server.py"):
        return EngineKind.SGLANG, at + 1
    if "/vllm/entrypoints/" in script and script.endswith("api_server.py"):
        return EngineKind.VLLM, at + 1
    return None


@lru_cache(maxsize=512)
def _engine_command(kind: EngineKind, arguments: tuple[str, ...]) -> EngineCommand:
    flags = values_of(arguments, kind)
    model = flags.get("model")
    if not model and kind is EngineKind.VLLM and (loose := parsed(arguments, kind)[1]):
        model = arguments[loose[0]]
    model = model or flags.get("served-model-name")
    metrics_off = ""
    if kind is EngineKind.SGLANG and "enable-metrics" not in flags:
        metrics_off = "started without --enable-metrics: add it to see its figures"
    if kind is EngineKind.VLLM and "disable-log-stats" in flags:
        metrics_off = "started with --disable-log-stats: leave it out to see its figures"
    return EngineCommand(
        kind=kind,
        model=_model_name(model) if model else None,
        port=_port(flags.get("port")) or DEFAULT_PORT[kind],
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
