"""What holds of every text that may be shown: no control character, nothing that reorders or hides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from sparktop import sanitise


def unclean(value: Any) -> list[str]:
    """The texts in it, at any depth, that a terminal would take for more than text."""
    return [text for text in _texts(value) if sanitise.line(text, limit=len(text) + 1) != text]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if not isinstance(value, Enum):
            yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from _texts(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, tuple | list | set | frozenset):
        for item in value:
            yield from _texts(item)
