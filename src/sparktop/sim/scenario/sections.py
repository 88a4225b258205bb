"""Read a scenario's TOML by the types of its objects; errors name the file, the key and the nearest valid key."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeGuard, TypeVar, get_args, get_origin, get_type_hints

from sparktop.errors import ConfigError
from sparktop.sim.scenario.tracks import Track

_T = TypeVar("_T")


def parse(path: Path) -> dict[str, Any]:
    """A TOML file as plain data.

    Raises:
        ConfigError: it can't be read or isn't TOML; the message has the line.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: can't be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not TOML: {error}", hint="correct that line; see https://toml.io") from error


_BY_NAME = frozenset(
    {"nodes", "containers", "processes", "engines", "interfaces", "rdma", "units", "reactions", "models", "answers"}
)
_APPENDED = frozenset({"kernel", "log", "faults"})


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` merged into `base`: tables key by key, nodes and their parts by name, logs appended, other values
    replaced."""
    result = dict(base)
    for key, value in over.items():
        old = base.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            result[key] = merged(old, value)
        elif key in _BY_NAME and _tables(old) and _tables(value):
            result[key] = _by_name(old, value)
        elif key in _APPENDED and _tables(old) and _tables(value):
            result[key] = [*old, *value]
        else:
            result[key] = value
    return result


def _by_name(base: list[dict[str, Any]], over: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = list(base)
    for row in over:
        at = next((i for i, old in enumerate(rows) if old.get("name") == row.get("name")), None)
        if at is None:
            rows.append(row)
        elif not row.get("absent"):
            rows[at] = merged(rows[at], row)
        else:
            del rows[at]
    return rows


def _tables(value: Any) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(value, list) and all(isinstance(row, dict) for row in value)


def read(cls: type[_T], raw: Mapping[str, Any], where: str) -> _T:
    """A table as an object, each key as the field of that name by its type.

    Raises:
        ConfigError: an unknown or missing key, or a value of another type.
    """
    types, declared = get_type_hints(cls), {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    for key in raw:
        if key not in declared:
            raise ConfigError(f"{where}.{key}: is not a key here", hint=nearest(key, declared))
    for name, field in declared.items():
        if name not in raw and field.default is MISSING and field.default_factory is MISSING:
            raise ConfigError(f"{where}.{name}: is missing")
    return cls(**{key: _value(types[key], value, f"{where}.{key}") for key, value in raw.items()})


def _value(kind: Any, value: Any, where: str) -> Any:
    if get_origin(kind) is UnionType:
        (kind,) = (part for part in get_args(kind) if part is not NoneType)
    if kind is Track:
        return track(value, where)
    if kind is float and _is_number(value):
        return float(value)
    if kind in (str, bool, int) and type(value) is kind:
        return value
    if get_origin(kind) is Literal or (isinstance(kind, type) and issubclass(kind, StrEnum)):
        choices = [str(choice) for choice in get_args(kind) or kind]
        if value not in choices:
            raise ConfigError(f"{where}: {value!r} is none of {', '.join(choices)}", hint=nearest(str(value), choices))
        return kind(value) if isinstance(kind, type) else value
    if get_origin(kind) is tuple and isinstance(value, list):
        parts = get_args(kind)
        kinds = [parts[0]] * len(value) if parts[-1] is Ellipsis else parts
        if len(kinds) == len(value):
            names = [row.get("name", at) if isinstance(row, dict) else at for at, row in enumerate(value)]
            return tuple(
                _value(*pair, f"{where}[{name}]")
                for pair, name in zip(zip(kinds, value, strict=True), names, strict=True)
            )
    if get_origin(kind) is Mapping and isinstance(value, dict):
        return {key: _value(get_args(kind)[1], part, f"{where}.{key}") for key, part in value.items()}
    if is_dataclass(kind) and isinstance(value, dict):
        return read(kind, value, where)  # type: ignore[arg-type]
    raise ConfigError(f"{where}: {value!r} is no {getattr(kind, '__name__', kind)}")


def track(value: Any, where: str) -> Track:
    """A constant number, or a list of [second, value] in ascending order."""
    points = [[0.0, value]] if _is_number(value) else value
    if not isinstance(points, list) or not points:
        raise ConfigError(f"{where}: must be a number or a list of [second, value]")
    for point in points:
        if not isinstance(point, list) or len(point) != 2 or not all(_is_number(part) for part in point):
            raise ConfigError(f"{where}: {point!r} is not a [second, value] pair")
    if points != sorted(points, key=lambda point: point[0]):
        raise ConfigError(f"{where}: put keyframes in order of time")
    return Track.of([(float(second), float(part)) for second, part in points])


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def nearest(word: str, known: Iterable[str]) -> str | None:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else None
