"""How a process table tells engines, from their files in model/kinds: regular expressions that travel with the probe.

They only choose what the probe shows with its command line; `cmdline.engine_command` decides what is an engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from sparktop.model.engine import EngineKind

_HOSTS = ("python", "pypy", "ray", "pt_main_thread", "uvicorn", "uv$")
"""Commands that an engine may run under, other than its own."""


def engine_marks() -> Mapping[str, str]:
    """`comm` and `title` match the beginning of a process's name, `command` is in its command line, `unit` in an
    ExecStart of a service that may start an engine; all in any case."""
    traits = [kind.traits for kind in EngineKind]
    programs = [program for each in traits for program in each.programs]
    titles = [re.escape(title) for each in traits for title in each.titles]
    command = [rf"\b{re.escape(program)}\b" for program in programs]
    command += [rf"\b{_globbed(module)}" for each in traits for module in each.modules]
    command += [rf"(?:^|[\s/]){_globbed(script.rpartition('/')[2])}\b" for each in traits for script in each.scripts]
    units = [r"\bdocker\b", r"\bpodman\b", *(re.split(r"\W", kind)[0] for kind in EngineKind), *command]
    return {
        "comm": _any([*_HOSTS, *(re.escape(program.split()[0][:15]) for program in programs), *titles]),
        "title": _any(titles),
        "command": _any(command),
        "unit": _any(units),
    }


def _globbed(text: str) -> str:
    """A pattern whose "*" stands for characters of one word, so few that no long word is slow to search."""
    return r"\S{0,80}".join(re.escape(part) for part in text.split("*"))


def _any(alternatives: Iterable[str]) -> str:
    return "|".join(dict.fromkeys(alternatives))
