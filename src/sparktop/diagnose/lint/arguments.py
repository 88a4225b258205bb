"""An engine's argument words as flags: dashes and underscores are one, `--flag=value` and `--flag value` too."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sparktop.diagnose.enginecommand import SWITCH
from sparktop.diagnose.lint.place import Word, hull
from sparktop.diagnose.lint.spec import Item
from sparktop.model.engine import EngineKind

_FLAG = re.compile(r"-{1,2}[A-Za-z]")
_OPTIMISATION = re.compile(r"-O(\d)\Z")

_ALIASES: Mapping[str, str] = {
    "tp": "tensor-parallel-size",
    "tp-size": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "pp-size": "pipeline-parallel-size",
    "pipeline-parallelism": "pipeline-parallel-size",
    "dp": "data-parallel-size",
    "dp-size": "data-parallel-size",
    "cc": "compilation-config",
    "sc": "speculative-config",
    "q": "quantization",
    "O": "optimization-level",
    "kv-cache-memory": "kv-cache-memory-bytes",
}
_SINGLE_DASH = frozenset({"tp", "pp", "dp", "cc", "sc", "q", "O", "n", "r", "asc", "ac", "dcp", "pcp", "dpa", "dpp"})

_SWITCHES = frozenset({"headless", "async-scheduling", "is-embedding", "help", "version"})


def flags_of(words: Sequence[Word], engine: EngineKind | None) -> tuple[list[Item], list[Word]]:
    """The flags in order, and the words that belong to none (the model's name)."""
    flags: list[Item] = []
    loose: list[Word] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not is_flag(word.text):
            loose.append(word)
            continue
        if level := _OPTIMISATION.match(word.text):
            flags.append(Item(name="optimization-level", value=level[1], span=word.span))
            continue
        name, equals, _ = word.text.partition("=")
        name = plain(name)
        if equals:
            value = word.part(len(word.text.partition("=")[0]) + 1)
            flags.append(Item(name=name, value=value.text, span=word.span, value_span=value.span))
            continue
        values: list[Word] = []
        if not is_switch(name):
            limit = 1 if engine is not None and not loose and name == "model" else None
            while index < len(words) and not _FLAG.match(words[index].text) and len(values) != limit:
                values.append(words[index])
                index += 1
        flags.append(
            Item(
                name=name,
                value=values[0].text if values else None,
                rest=tuple(value.text for value in values[1:]),
                span=hull(word, values[-1] if values else None),
                value_span=hull(values[0], values[-1]) if values else None,
            )
        )
    return flags, loose


def is_switch(name: str) -> bool:
    """Whether a flag of this name takes no value."""
    return name in _SWITCHES or SWITCH.match(name) is not None


def is_flag(text: str) -> bool:
    """Whether a word begins a flag: two dashes, or one where the engines have a short one."""
    return _FLAG.match(text) is not None and (text[1] == "-" or _is_short(text))


def _is_short(text: str) -> bool:
    head = re.split(r"[=.]", text[1:])[0]
    return head in _SINGLE_DASH or _OPTIMISATION.match(text) is not None


def plain(name: str) -> str:
    """A flag's name without its dashes, underscores as dashes, aliases by their long name; what follows a dot stays."""
    name = name.lstrip("-").replace("_", "-")
    head, dot, key = name.partition(".")
    head = _ALIASES.get(head, head)
    return f"{head}{dot}{key}"
