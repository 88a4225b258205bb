"""What files of rules have in common: tables of TOML, checked, with errors that name file, rule and key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from sparktop.errors import ConfigError
from sparktop.model.change import Change
from sparktop.model.engine import EngineKind
from sparktop.model.finding import Remedy

_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\.[a-z0-9]+(?:-[a-z0-9]+)*")
_REMEDY = ("title", "steps", "cost", "action", "change")
_CHANGE = ("flags", "environment", "options", "image", "remove")
_FLAG = ("-", "{flag}")
"""How a flag's name begins; {flag} is what a rule's regex has called so."""
_ENGINES = tuple(kind.value for kind in EngineKind)


def tables(text: str, source: str, key: str) -> list[tuple[Any, str]]:
    """The [[key]] tables of a file, each with its place for messages; other tables are left to their own readers.

    Raises:
        ConfigError: not TOML, or no list of tables.
    """
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: {error}", hint="it must be TOML; the README shows a rule") from error
    rows = raw.get(key, [])
    if not isinstance(rows, list):
        raise ConfigError(f"{source}: `{key}` must be a list of tables", hint=f"write [[{key}]] with two brackets")
    return [(row, f"{source}: {key} {number}") for number, row in enumerate(rows, 1)]


def opened(row: Any, place: str, known: Sequence[str], required: Sequence[str]) -> tuple[Mapping[str, Any], str]:
    """A table with no unknown key and no missing one, and its place with its id.

    Raises:
        ConfigError: naming the key, and the nearest right one.
    """
    if not isinstance(row, Mapping):
        raise ConfigError(f"{place} is no table")
    name = row.get("id")
    if isinstance(name, str):
        place = f"{place} ({name})"
    for key in row:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            raise ConfigError(f"{place}: unknown key `{key}`", hint=f"did you mean `{near[0]}`?" if near else "")
    if missing := [key for key in required if key not in row]:
        raise ConfigError(f"{place}: `{missing[0]}` is missing")
    if not isinstance(name, str) or not _ID.fullmatch(name):
        raise ConfigError(f"{place}: an id is `area.name` in lower case with dashes")
    return row, place


def distinct(ids: Iterable[str], source: str) -> None:
    """Raises ConfigError where two rules of a file have one id."""
    seen: set[str] = set()
    for name in ids:
        if name in seen:
            raise ConfigError(f"{source}: two rules are called {name}", hint="give one another id")
        seen.add(name)


def typed(row: Mapping[str, Any], key: str, kind: type, place: str) -> Any:
    """A value of that type."""
    value = row[key]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        wanted = {str: "a text in quotes", int: "a whole number", bool: "true or false"}[kind]
        raise ConfigError(f"{place}: `{key}` wants {wanted}")
    return value


def choice(value: Any, key: str, kind: Any, place: str) -> Any:
    """A member of an enumeration by its value."""
    try:
        return kind(value)
    except ValueError:
        raise ConfigError(f"{place}: `{key}` is one of {', '.join(each.value for each in kind)}") from None


def listed(value: Any, key: str, place: str) -> Sequence[Any]:
    """A list."""
    if not isinstance(value, list):
        raise ConfigError(f"{place}: `{key}` wants a list")
    return value


def texts(value: Any, key: str, place: str) -> tuple[str, ...]:
    """A list of texts."""
    if not all(isinstance(entry, str) for entry in listed(value, key, place)):
        raise ConfigError(f"{place}: `{key}` wants a list of texts")
    return tuple(value)


def check_regex(regex: str, key: str, place: str) -> None:
    """Raises ConfigError where it is no regular expression."""
    try:
        re.compile(regex)
    except re.error as error:
        raise ConfigError(f"{place}: `{key}` is no regular expression: {error}") from error


def remedies(row: Mapping[str, Any], place: str, *, keys: Sequence[str] = _REMEDY) -> tuple[Remedy, ...]:
    """The `remedy` tables of a rule, which may have these keys."""
    return tuple(_remedy(entry, place, keys) for entry in listed(row.get("remedy", []), "remedy", place))


def _remedy(entry: Any, place: str, keys: Sequence[str]) -> Remedy:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("title"), str):
        raise ConfigError(f"{place}: a remedy wants a `title`")
    if unknown := [key for key in entry if key not in keys]:
        raise ConfigError(f"{place}: unknown key `{unknown[0]}` in a remedy", hint=f"it has {', '.join(keys)}")
    return Remedy(
        title=entry["title"],
        steps=texts(entry.get("steps", []), "steps", place),
        cost=typed(entry, "cost", str, place) if "cost" in entry else "",
        action=typed(entry, "action", str, place) if "action" in entry else None,
        change=_change(entry["change"], place, (*_CHANGE, *_ENGINES)) if "change" in entry else None,
    )


def _change(entry: Any, place: str, keys: Sequence[str]) -> Change:
    """`change = { flags = { "--enforce-eager" = "" }, remove = ["--quantization"], sglang = { ... } }`; what `remove`
    names is a flag where it begins with a dash, else a variable."""
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{place}: `change` wants a table")
    if unknown := [key for key in entry if key not in keys]:
        near = get_close_matches(unknown[0], keys, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"it has {', '.join(keys)}"
        raise ConfigError(f"{place}: unknown key `{unknown[0]}` in a change", hint=hint)
    removed = texts(entry.get("remove", []), "remove", place)
    flags: dict[str, str | None] = {name: None for name in removed if name.startswith(_FLAG)}
    environment: dict[str, str | None] = {name: None for name in removed if not name.startswith(_FLAG)}
    for key, kept in (("flags", flags), ("environment", environment)):
        given = entry.get(key, {})
        if not isinstance(given, Mapping) or not all(isinstance(value, str) for value in given.values()):
            raise ConfigError(f"{place}: `{key}` of a change wants a table of texts")
        kept.update(given)
    if strange := [name for name in flags if not name.startswith(_FLAG)]:
        raise ConfigError(f"{place}: `{strange[0]}` is no flag", hint=f"write it as it is typed: --{strange[0]}")
    return Change(
        flags=flags,
        environment=environment,
        options=dict(entry.get("options", {})),
        image=typed(entry, "image", str, place) if "image" in entry else None,
        by_engine={name: _change(entry[name], place, _CHANGE) for name in _ENGINES if name in entry},
    )
