"""Reading a scenario's TOML with errors that name the file, the key and the nearest key that would be one."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from sparktop.errors import ConfigError
from sparktop.sim.tracks import Track


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
    {"nodes", "containers", "processes", "engines", "interfaces", "rdma", "units", "reactions", "models"}
)
_APPENDED = frozenset({"kernel", "log", "faults"})


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` laid over `base`: tables key by key, nodes and their parts by name, logs appended, the rest replaced."""
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
    """One table of a scenario file; every key is asked for by type, and what is left over is an error."""

    def __init__(self, raw: Mapping[str, Any], file: str, where: str = "") -> None:
        self._raw = raw
        self._file = file
        self._where = where
        self._asked: set[str] = set()

    def path(self, key: str) -> str:
        """The key with all its parents, as the file's reader would name it."""
        return f"{self._where}.{key}" if self._where else key

    def error(self, key: str, message: str, hint: str | None = None) -> ConfigError:
        """An error about one key of this table."""
        return ConfigError(f"{self._file}: {self.path(key)}: {message}", hint=hint)

    def __contains__(self, key: object) -> bool:
        self._asked.add(str(key))
        return key in self._raw

    def text(self, key: str, default: str | None = None) -> str:
        value = self._take(key, default)
        if not isinstance(value, str):
            raise self.error(key, f"must be a string, not {_kind(value)}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
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
        value = self._take(key, default)
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, not {_kind(value)}")
        return value

    def choice(self, key: str, choices: Iterable[str], default: str | None = None) -> str:
        value = self.text(key, default)
        if value not in (known := [str(each) for each in choices]):
            raise self.error(key, f"{value!r} is none of {', '.join(known)}", nearest(value, known))
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._take(key, [])
        if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
            raise self.error(key, "must be a list of strings")
        return tuple(value)

    def numbers(self, key: str) -> tuple[float, ...]:
        value = self._take(key, [])
        if not isinstance(value, list) or not all(_is_number(part) for part in value):
            raise self.error(key, "must be a list of numbers")
        return tuple(float(part) for part in value)

    def track(self, key: str, default: float | None = None) -> Track:
        """A number that stands still, or a list of [second, value] in ascending order."""
        value = self._take(key, default)
        if isinstance(value, int | float) and not isinstance(value, bool):
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

    def tracks(self, key: str, defaults: Mapping[str, float]) -> dict[str, Track]:
        """A table of tracks: exactly the names in `defaults`."""
        inner = self.section(key)
        found = {name: inner.track(name, default) for name, default in defaults.items()}
        inner.done()
        return found

    def section(self, key: str) -> Section:
        value = self._take(key, {})
        if not isinstance(value, dict):
            raise self.error(key, f"must be a table, not {_kind(value)}")
        return Section(value, self._file, self.path(key))

    def sections(self, key: str) -> list[Section]:
        value = self._take(key, [])
        if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
            raise self.error(key, f"must be tables, written [[{self.path(key)}]]")
        return [
            Section(row, self._file, f"{self.path(key)}[{row.get('name', index)}]") for index, row in enumerate(value)
        ]

    def done(self) -> None:
        """Every key of the table must have been asked for.

        Raises:
            ConfigError: one wasn't; with the nearest that would have been.
        """
        for key in self._raw:
            if key not in self._asked:
                raise self.error(key, "is not a key here", nearest(key, sorted(self._asked)))

    def _take(self, key: str, default: Any) -> Any:
        self._asked.add(key)
        if key in self._raw:
            return self._raw[key]
        if default is None:
            near = nearest(key, [k for k in self._raw if k not in self._asked])
            raise self.error(key, "is missing", near)
        return default


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _kind(value: object) -> str:
    return {
        bool: "true or false",
        str: "a string",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "a table",
    }.get(type(value), type(value).__name__)


def nearest(word: str, known: Iterable[str]) -> str | None:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else None
