"""Read a scenario's TOML; errors name the file, the key and the nearest valid key."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType
from typing import Any, TypeGuard, TypeVar, get_args, get_type_hints

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


class Section:
    """One table of a scenario file; every key is read by type, and an unread key is an error."""

    def __init__(self, raw: Mapping[str, Any], file: str, where: str = "") -> None:
        self._raw = raw
        self._file = file
        self._where = where
        self._asked: set[str] = set()

    def path(self, key: str) -> str:
        """The key with all its parents."""
        return f"{self._where}.{key}" if self._where else key

    def error(self, key: str, message: str, hint: str | None = None) -> ConfigError:
        """An error about one key of this table."""
        return ConfigError(f"{self._file}: {self.path(key)}: {message}", hint=hint)

    def __contains__(self, key: object) -> bool:
        self._asked.add(str(key))
        return key in self._raw

    def text(self, key: str, default: str | None = None) -> str:
        return self._typed(key, default, str)

    def number(self, key: str, default: float | None = None) -> float:
        value = self._take(key, default)
        if not _is_number(value):
            raise self.error(key, f"must be a number, not {_kind(value)}")
        return float(value)

    def optional_number(self, key: str) -> float | None:
        return self.number(key) if key in self else None

    def whole(self, key: str, default: int | None = None) -> int:
        value = self.number(key, default)
        if value != int(value):
            raise self.error(key, f"must be a whole number, not {value}")
        return int(value)

    def flag(self, key: str, default: bool = False) -> bool:
        return self._typed(key, default, bool)

    def choice(self, key: str, choices: Iterable[str], default: str | None = None) -> str:
        value = self.text(key, default)
        if value not in (choice_texts := [str(choice) for choice in choices]):
            raise self.error(key, f"{value!r} is none of {', '.join(choice_texts)}", nearest(value, choice_texts))
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        return self._list(key, lambda part: isinstance(part, str), "a list of strings")

    def numbers(self, key: str) -> tuple[float, ...]:
        return self._list(key, _is_number, "a list of numbers")

    def track(self, key: str, default: float | None = None) -> Track:
        """A constant number, or a list of [second, value] in ascending order."""
        value = self._take(key, default)
        if _is_number(value):
            return Track.constant(float(value))
        if not isinstance(value, list) or not value:
            raise self.error(key, "must be a number or a list of [second, value]")
        points: list[tuple[float, float]] = []
        for point in value:
            if not isinstance(point, list) or len(point) != 2 or not all(_is_number(part) for part in point):
                raise self.error(key, f"{point!r} is not a [second, value] pair")
            if points and point[0] < points[-1][0]:
                raise self.error(
                    key, f"second {point[0]} comes after {points[-1][0]}", "put keyframes in order of time"
                )
            points.append((float(point[0]), float(point[1])))
        return Track.of(points)

    def tracks(self, key: str, defaults: Mapping[str, float], period_s: float | None) -> dict[str, Track]:
        """A table of tracks: exactly the names in `defaults`; all repeat after `period_s`."""
        inner = self.section(key)
        result = {name: inner.track(name, default).repeating(period_s) for name, default in defaults.items()}
        inner.done()
        return result

    def section(self, key: str) -> Section:
        return Section(self._typed(key, {}, dict), self._file, self.path(key))

    def sections(self, key: str) -> list[Section]:
        rows = self._list(key, lambda row: isinstance(row, dict), f"tables, written [[{self.path(key)}]]")
        return [
            Section(row, self._file, f"{self.path(key)}[{row.get('name', index)}]") for index, row in enumerate(rows)
        ]

    def read(self, cls: type[_T], keys: str, /, **given: Any) -> _T:
        """The table as an object, of which `given` are fields that are read otherwise.

        Args:
            keys: the other fields, each "field" or "field=key": their types and defaults are the object's.
        """
        types, defaults = get_type_hints(cls), {field.name: field.default for field in fields(cls)}  # type: ignore[arg-type]
        for word in keys.split():
            name, _, key = word.partition("=")
            given[name] = self._value(key or name, types[name], defaults[name])
        self.done()
        return cls(**given)

    def _value(self, key: str, kind: Any, default: Any) -> Any:
        if key not in self and default is not MISSING:
            return default
        kinds = [part for part in get_args(kind) if part is not NoneType] if NoneType in get_args(kind) else [kind]
        readers: dict[Any, Callable[[str], Any]] = {
            str: self.text,
            float: self.number,
            int: self.whole,
            bool: self.flag,
            Track: self.track,
        }
        return self.texts(key) if kinds[0] == tuple[str, ...] else readers[kinds[0]](key)

    def done(self) -> None:
        """Check that every key of the table has been read.

        Raises:
            ConfigError: an unknown key; with the nearest valid one.
        """
        for key in self._raw:
            if key not in self._asked:
                raise self.error(key, "is not a key here", nearest(key, sorted(self._asked)))

    def _typed(self, key: str, default: Any, kind: type[_T]) -> _T:
        value = self._take(key, default)
        if not isinstance(value, kind):
            raise self.error(key, f"must be {_KINDS[kind]}, not {_kind(value)}")
        return value

    def _list(self, key: str, is_part: Callable[[object], bool], description: str) -> tuple[Any, ...]:
        value = self._take(key, [])
        if not isinstance(value, list) or not all(map(is_part, value)):
            raise self.error(key, f"must be {description}")
        return tuple(value)

    def _take(self, key: str, default: Any) -> Any:
        self._asked.add(key)
        if key in self._raw:
            return self._raw[key]
        if default is None:
            near = nearest(key, [k for k in self._raw if k not in self._asked])
            raise self.error(key, "is missing", near)
        return default


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


_KINDS: dict[type, str] = {
    bool: "true or false",
    str: "a string",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "a table",
}


def _kind(value: object) -> str:
    return _KINDS.get(type(value), type(value).__name__)


def nearest(word: str, known: Iterable[str]) -> str | None:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else None
