"""What was proven or measured earlier, in one file of this machine: read at the start, written after each chapter."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from sparktop import sanitise
from sparktop.bounds import seconds_of
from sparktop.bringup.catalogue import BY_ID
from sparktop.errors import ConfigError
from sparktop.files import opened, private_folder, read_json, write_private
from sparktop.model.bringup import CheckResult, Key
from sparktop.model.state import State

VERSION = 2
"""1 had only rows that passed, without subject, state and remedies."""
READABLE = (1, VERSION)


class ResultFile:
    """The file of kept rows; several consoles may write to it, each its own rows."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Mapping[Key, CheckResult]:
        """The kept rows; none where there is no file, or it can't be read."""
        file = read_json(self._path)
        if file.get("version") not in READABLE:
            return {}
        rows = [row for item in sanitise.items(file.get("proven")) if (row := _row(item)) is not None]
        return {row.key: row for row in rows}

    def keep(self, rows: Iterable[CheckResult]) -> None:
        """Add the rows that passed or were measured, and forget those that a look found otherwise.

        Raises:
            ConfigError: the file can't be written.
        """
        news = [row for row in rows if not row.is_kept and (_is_kept(row) or _is_news(row))]
        if not news:
            return
        try:
            private_folder(self._path.parent)
            with self._locked():
                proven = dict(self.read())
                for row in news:
                    proven.pop(row.key, None)
                    if _is_kept(row):
                        proven[row.key] = row
                words = {"version": VERSION, "proven": [_words(row) for row in proven.values()]}
                write_private(self._path, json.dumps(words, indent=1) + "\n")
        except OSError as error:
            raise ConfigError(
                f"{self._path} can't be written: {error.strerror or error}", hint="what was proven is not kept"
            ) from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with open(opened(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT), "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _is_kept(row: CheckResult) -> bool:
    """Whether it stands until its basis changes: it passed, or a run has measured it."""
    return bool(row.basis) and row.proven_wall_s is not None


def _is_news(row: CheckResult) -> bool:
    """Whether it takes back what is kept: no look takes back a measurement, which its basis alone ends."""
    return row.state not in (State.SKIPPED, State.UNREACHED) and not BY_ID[row.check].measured_by


def _words(row: CheckResult) -> Mapping[str, Any]:
    words = msgspec.to_builtins(row, enc_hook=dict)  # what it doesn't know is a mapping that can't be changed
    return {"wall_s": words.pop("proven_wall_s"), **words}


def _row(item: object) -> CheckResult | None:
    """The row; None where it is none, or of a check that is no more."""
    words = {"state": State.PASSED, **sanitise.mapping(_cleaned(item))}
    try:
        proven_wall_s = seconds_of(words["wall_s"])
        row = msgspec.convert({**words, "proven_wall_s": proven_wall_s, "is_kept": False}, CheckResult)
    except (KeyError, TypeError, ValueError):
        return None
    return row if row.check in BY_ID else None


def _cleaned(value: Any) -> Any:
    """What a file holds, with its texts sanitised."""
    if isinstance(value, Mapping):
        return {_cleaned(name): _cleaned(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    return sanitise.line(value, limit=LONGEST_TEXT) if isinstance(value, str) else value


LONGEST_TEXT = 4000
"""Of a basis: the addresses of all interfaces."""
