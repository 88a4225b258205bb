"""What was proven or measured earlier, in one file of this machine: read at the start, written after each chapter."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sparktop import sanitise
from sparktop.bounds import list_of, real, seconds_of
from sparktop.bringup.catalogue import BY_ID
from sparktop.errors import ConfigError
from sparktop.files import opened, private_folder, read_json, write_private
from sparktop.model.bringup import CheckResult, Gauge, Key
from sparktop.model.finding import Remedy
from sparktop.model.state import State

VERSION = 2
"""1 had only rows that passed, without subject, state and remedies."""
READABLE = (1, VERSION)
Words = Mapping[str, Any]


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
            with self._alone():
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
    def _alone(self) -> Iterator[None]:
        with open(opened(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT), "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _is_kept(row: CheckResult) -> bool:
    """Whether it stands until its basis changes: it passed, or a run has measured it."""
    return bool(row.basis) and row.proven_wall_s is not None


def _is_news(row: CheckResult) -> bool:
    """Whether it takes back what is kept: no look takes back a measurement, which its basis alone ends."""
    return row.state not in (State.SKIPPED, State.UNREACHED) and not BY_ID[row.check].measured_by


def _words(row: CheckResult) -> Words:
    return {
        "check": row.check,
        "nodes": list(row.nodes),
        "subject": row.subject,
        "state": str(row.state),
        "found": row.found,
        **(
            {"remedies": [{name: getattr(one, name) for name in _OF_REMEDY} for one in row.remedies]}
            if row.remedies
            else {}
        ),
        "gauges": [asdict(gauge) for gauge in row.gauges],
        "basis": dict(row.basis),
        "wall_s": row.proven_wall_s,
    }


_OF_REMEDY = ("title", "steps", "action", "options")


def _row(item: object) -> CheckResult | None:
    """The row; None where it is none, or of a check that is no more."""
    words = sanitise.mapping(item)
    try:
        if words.get("check") not in BY_ID:
            return None
        return CheckResult(
            check=words["check"],
            nodes=tuple(map(_line, list_of(words["nodes"]))),
            subject=_line(words.get("subject", "")),
            state=State(words.get("state", State.PASSED)),
            found=_line(words["found"]),
            remedies=tuple(map(_remedy, list_of(words.get("remedies", ())))),
            gauges=tuple(map(_gauge, list_of(words.get("gauges", ())))),
            basis={_line(name): _line(value) for name, value in dict(words["basis"]).items()},
            proven_wall_s=seconds_of(words["wall_s"]),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _remedy(item: object) -> Remedy:
    words = sanitise.mapping(item)
    options = [list_of(option) for option in list_of(words.get("options", ()))]
    action = words.get("action")
    return Remedy(
        title=_line(words["title"]),
        steps=tuple(map(_line, list_of(words.get("steps", ())))),
        action=None if action is None else _line(action),
        options=tuple((_line(name), _line(value)) for name, value in options),
    )


def _gauge(item: object) -> Gauge:
    words = sanitise.mapping(item)
    low, high = list_of(words["healthy"])
    return Gauge(
        label=_line(words["label"]),
        value=real(words["value"]),
        unit=_line(words["unit"]),
        healthy=(real(low), real(high)),
        state=State(words["state"]),
    )


def _line(value: object) -> str:
    """A text of the file.

    Raises:
        TypeError: it is no text.
    """
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} in place of a text")
    return sanitise.line(value, limit=LONGEST_TEXT)


LONGEST_TEXT = 4000
"""Of a basis: the addresses of all interfaces."""
