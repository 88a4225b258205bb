"""Parses and checks the TOML tables of rule files; errors name file, rule and key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sparktop.errors import ConfigError, nearest
from sparktop.model.change import Change
from sparktop.model.engine import EngineKind
from sparktop.model.finding import Remedy
from sparktop.text.expression import BadExpression, expression

_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\.[a-z0-9]+(?:-[a-z0-9]+)*")
_REMEDY = ("title", "steps", "cost", "action", "change", "engine")
_CHANGE = ("flags", "environment", "options", "image", "remove")
_FLAG = ("-", "{flag}")
"""How a flag's name begins; {flag} is filled in by a rule's regex."""
_ENGINES = tuple(kind.value for kind in EngineKind)


def tables(text: str, source: str, key: str) -> list[tuple[Any, str]]:
    """The [[key]] tables of a file, each with its place for error messages; other tables are ignored.

    Raises:
        ConfigError: malformed TOML, or the key holds no list of tables.
    """
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # tomllib's own, and those of numbers and nesting
        raise ConfigError(f"{source}: {error}", hint="it must be TOML; docs/operating.md shows a rule") from error
    rows = raw.get(key, [])
    if not isinstance(rows, list):
        raise ConfigError(f"{source}: `{key}` must be a list of tables", hint=f"write [[{key}]] with two brackets")
    return [(row, f"{source}: {key} {number}") for number, row in enumerate(rows, 1)]


def checked_table(
    row: Any, place: str, allowed: Sequence[str], required: Sequence[str]
) -> tuple[Mapping[str, Any], str]:
    """Check a table for unknown and missing keys; returns it with its place including its id.

    Raises:
        ConfigError: names the key, and the nearest valid one.
    """
    if not isinstance(row, Mapping):
        raise ConfigError(f"{place} is no table")
    name = row.get("id")
    if isinstance(name, str):
        place = f"{place} ({name})"
    for key in row:
        if key not in allowed:
            near = nearest(key, allowed)
            raise ConfigError(f"{place}: unknown key `{key}`", hint=f"did you mean `{near}`?" if near else "")
    if missing := [key for key in required if key not in row]:
        raise ConfigError(f"{place}: `{missing[0]}` is missing")
    if not isinstance(name, str) or not _ID.fullmatch(name):
        raise ConfigError(f"{place}: an id is `area.name` in lower case with dashes")
    return row, place


def check_distinct(ids: Iterable[str], source: str) -> None:
    """Raises ConfigError if two rules of a file share an id."""
    seen_ids: set[str] = set()
    for name in ids:
        if name in seen_ids:
            raise ConfigError(f"{source}: two rules are called {name}", hint="give one another id")
        seen_ids.add(name)


def value_of_type(row: Mapping[str, Any], key: str, kind: type, place: str) -> Any:
    """The value of a key, checked to be of a type."""
    value = row[key]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        type_text = {str: "a text in quotes", int: "a whole number", bool: "true or false"}[kind]
        raise ConfigError(f"{place}: `{key}` wants {type_text}")
    return value


def choice(value: Any, key: str, kind: Any, place: str) -> Any:
    """The enumeration member with this value."""
    try:
        return kind(value)
    except ValueError:
        raise ConfigError(f"{place}: `{key}` is one of {', '.join(member.value for member in kind)}") from None


def checked_list(value: Any, key: str, place: str) -> Sequence[Any]:
    """A value, checked to be a list."""
    if not isinstance(value, list):
        raise ConfigError(f"{place}: `{key}` wants a list")
    return value


def checked_texts(value: Any, key: str, place: str) -> tuple[str, ...]:
    """A list of strings, checked."""
    if not all(isinstance(entry, str) for entry in checked_list(value, key, place)):
        raise ConfigError(f"{place}: `{key}` wants a list of texts")
    return tuple(value)


def check_regex(regex: str, key: str, place: str) -> None:
    """Raises ConfigError if it is no regular expression that can be searched in bounded time."""
    try:
        expression(regex, is_tested=False).check()
    except BadExpression as error:
        raise ConfigError(
            f"{place}: `{key}` is no regular expression that can be searched in bounded time: {error}",
            hint="looking around and repeating a group are not known; a log rule's `unless` says what must be absent",
        ) from error


def remedies(row: Mapping[str, Any], place: str, *, keys: Sequence[str] = _REMEDY) -> tuple[Remedy, ...]:
    """The `remedy` tables of a rule; `keys` are the allowed ones."""
    return tuple(_remedy(entry, place, keys) for entry in checked_list(row.get("remedy", []), "remedy", place))


def _remedy(entry: Any, place: str, keys: Sequence[str]) -> Remedy:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("title"), str):
        raise ConfigError(f"{place}: a remedy wants a `title`")
    if unknown := [key for key in entry if key not in keys]:
        raise ConfigError(f"{place}: unknown key `{unknown[0]}` in a remedy", hint=f"it has {', '.join(keys)}")
    return Remedy(
        title=entry["title"],
        steps=checked_texts(entry.get("steps", []), "steps", place),
        cost=value_of_type(entry, "cost", str, place) if "cost" in entry else "",
        action=value_of_type(entry, "action", str, place) if "action" in entry else None,
        change=_change(entry["change"], place, (*_CHANGE, *_ENGINES)) if "change" in entry else None,
        engine=choice(entry["engine"], "engine", EngineKind, place).value if "engine" in entry else "",
    )


def _change(entry: Any, place: str, keys: Sequence[str]) -> Change:
    """The change in `change = { flags = { "--enforce-eager" = "" }, remove = ["--quantization"], sglang = { ... } }`.

    A name in `remove` is a flag if it begins with a dash, else a variable.
    """
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{place}: `change` wants a table")
    if unknown := [key for key in entry if key not in keys]:
        near = nearest(unknown[0], keys)
        hint = f"did you mean `{near}`?" if near else f"it has {', '.join(keys)}"
        raise ConfigError(f"{place}: unknown key `{unknown[0]}` in a change", hint=hint)
    removed = checked_texts(entry.get("remove", []), "remove", place)
    flags: dict[str, str | None] = {name: None for name in removed if name.startswith(_FLAG)}
    environment: dict[str, str | None] = {name: None for name in removed if not name.startswith(_FLAG)}
    for key, target in (("flags", flags), ("environment", environment)):
        table = entry.get(key, {})
        if not isinstance(table, Mapping) or not all(isinstance(value, str) for value in table.values()):
            raise ConfigError(f"{place}: `{key}` of a change wants a table of texts")
        target.update(table)
    if strange := [name for name in flags if not name.startswith(_FLAG)]:
        raise ConfigError(f"{place}: `{strange[0]}` is no flag", hint=f"write it as it is typed: --{strange[0]}")
    return Change(
        flags=flags,
        environment=environment,
        options=dict(entry.get("options", {})),
        image=value_of_type(entry, "image", str, place) if "image" in entry else None,
        by_engine={name: _change(entry[name], place, _CHANGE) for name in _ENGINES if name in entry},
    )
