"""What is shown, as JSON-ready data: objects by their fields, enums by their values. Pure."""

from __future__ import annotations

from typing import Any

import msgspec


def plain(value: object) -> Any:
    """A value of ours as JSON-ready data; a set is sorted."""
    return msgspec.to_builtins(value, str_keys=True, order="deterministic", enc_hook=dict)


def fields(thing: object, *names: str) -> dict[str, Any]:
    """These fields of a thing."""
    return {name: plain(getattr(thing, name)) for name in names}


def fields_or_none(thing: object, *names: str) -> dict[str, Any]:
    """These fields; None for an empty text."""
    return {name: value or None for name, value in fields(thing, *names).items()}
