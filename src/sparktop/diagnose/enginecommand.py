"""What a command line starts: which engine, which model, which port. Pure; for processes and for containers.

A process counts only where it is the server itself: `docker run ... vllm serve`, `bash -c "vllm serve"` and
`grep vllm serve` have the same words. A container's command may hold the server anywhere, also inside a shell's string.
Facts: facts/engines.md sections 5, 6.1.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparktop.model.engine import EngineKind

DEFAULT_PORT: Mapping[EngineKind, int] = {EngineKind.VLLM: 8000, EngineKind.SGLANG: 30000}
_PYTHON = re.compile(r"(?:pypy|python)[\d.]*t?$")
_SEPARATORS = frozenset({"&&", "||", ";", "|", "&", "then", "do"})
_HUB_PATH = re.compile(r"models--([^/]+?)--([^/]+)(?:/|$)")
_FLAG = re.compile(r"--?[A-Za-z]")
SWITCH = re.compile(r"(?:enable|disable|no|trust|enforce|skip|use|allow|log)-|headless$|async-scheduling$|O[\d.]")
"""Flags that take no value, by how they are named: the word after one may be the model."""
_VALUED_PYTHON_FLAGS = ("-X", "-W", "-c")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCommand:
    """An engine's command line, as far as an observer needs it."""

    kind: EngineKind
    model: str | None = None
    """As ORG/NAME where it can be told, else its path, else the name it is served under."""
    port: int
    host: str | None = None
    is_worker: bool = False
    """A further node's part of a server: it serves no HTTP."""
    metrics_off: str = ""
    """What to change so that it gives figures; empty where they should be there."""


def of_process(argv: Sequence[str]) -> EngineCommand | None:
    """The engine that this process itself is; None for wrappers and everything else."""
    found = server_at(argv, 0) if argv else None
    return _described(found[0], _arguments(argv, found[1])) if found else None


def of_container(argv: Sequence[str]) -> EngineCommand | None:
    """The engine that a container's entrypoint and command will start, also through a wrapper or `sh -c`."""
    for words in (argv, *(_shell_words(part) for part in argv if " " in part)):
        for start in range(len(words)):
            found = server_at(words, start)
            if found is not None:
                return _described(found[0], _arguments(words, found[1]))
    return None


def joins_ray(argv: Sequence[str]) -> bool:
    """Whether a command only joins the Ray of another node: an engine's worker is put there by its head."""
    text = " ".join(argv)
    return "ray start" in text and "--address" in text and "--head" not in text


def kind_of_image(image: str) -> EngineKind | None:
    """The engine an image is made for, by its name."""
    lowered = image.lower()
    if "sglang" in lowered:
        return EngineKind.SGLANG
    return EngineKind.VLLM if "vllm" in lowered else None


def version_of_image(image: str) -> str | None:
    """The engine's version where an upstream image's tag is one; NVIDIA's tags (26.05-py3) are not."""
    match = re.search(r"(?:vllm-openai|lmsysorg/sglang)[^:]*:v?(\d+\.\d+\.\d+(?:\.?(?:rc|post|dev)\d+)*)", image)
    return match[1] if match else None


def server_at(words: Sequence[str], at: int) -> tuple[EngineKind, int] | None:
    """(kind, index of its first argument) when a server's command begins at this word."""
    program = _base(words[at])
    if _PYTHON.match(program):
        return _python_server(words, at + 1)
    if program in ("vllm", "sglang") and at + 1 < len(words) and words[at + 1] == "serve":
        return EngineKind(program), at + 2
    return None


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
    if _base(script) in ("vllm", "sglang"):
        return server_at(words, at)
    if script.endswith("sglang/launch_server.py"):
        return EngineKind.SGLANG, at + 1
    if "/vllm/entrypoints/" in script and script.endswith("api_server.py"):
        return EngineKind.VLLM, at + 1
    return None


def _arguments(words: Sequence[str], start: int) -> Sequence[str]:
    """The server's own arguments: up to where a shell would begin another command."""
    out = []
    for word in words[start:]:
        if word in _SEPARATORS or word.startswith((">", "2>", "|")):
            break
        out.append(word.removesuffix(";"))
        if word.endswith(";"):
            break
    return out


def _described(kind: EngineKind, arguments: Sequence[str]) -> EngineCommand:
    flags, loose = _flags(arguments)
    model = flags.get("model-path") or flags.get("model")
    if not model and kind is EngineKind.VLLM and loose:
        model = loose[0]
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
    )


def _flags(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Flags with their first value (underscores count as dashes), and the words that belong to none."""
    flags: dict[str, str] = {}
    loose: list[str] = []
    name: str | None = None
    for word in arguments:
        if _FLAG.match(word):
            name, joined, value = word.lstrip("-").partition("=")
            name = name.replace("_", "-")
            flags.setdefault(name, value)
            if joined or SWITCH.match(name):
                name = None
        elif name is not None:
            flags[name] = flags[name] or word
            name = None
        else:
            loose.append(word)
    return flags, loose


def _shell_words(text: str) -> list[str]:
    lexer = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:  # an open quote
        return text.split()


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _port(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and 0 < int(text[:6]) < 65536 else None


def _model_name(model: str) -> str:
    match = _HUB_PATH.search(model)
    return f"{match[1]}/{match[2]}" if match else model
