"""What earlier looks have proven, in one file of this machine: read at the start, written after each chapter."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparktop.bringup.catalogue import BY_ID
from sparktop.config import write_private
from sparktop.errors import ConfigError
from sparktop.model.bringup import CheckResult, CheckState

VERSION = 1
LARGEST_BYTES = 4 << 20
Key = tuple[str, tuple[str, ...]]


class Kept:
    """The file of proven rows; several consoles may write to it, each its own rows."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Mapping[Key, CheckResult]:
        """The proven rows; none where there is no file, or it can't be read."""
        try:
            if self._path.stat().st_size > LARGEST_BYTES:
                return {}
            raw = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(raw, dict) or raw.get("version") != VERSION or not isinstance(raw.get("proven"), list):
            return {}
        rows = [row for item in raw["proven"] if (row := _row(item)) is not None]
        return {row.key: row for row in rows}

    def keep(self, rows: Iterable[CheckResult]) -> None:
        """Add the rows that passed, and forget those that did not.

        Raises:
            ConfigError: the file can't be written.
        """
        rows = [row for row in rows if not row.is_kept and row.state is not CheckState.SKIPPED]
        if not rows:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._alone():
                proven = dict(self.read())
                for row in rows:
                    proven.pop(row.key, None)
                    if row.state is CheckState.PASSED and row.basis:
                        proven[row.key] = row
                words = {"version": VERSION, "proven": [_words(row) for row in proven.values()]}
                write_private(self._path, json.dumps(words, indent=1) + "\n")
        except OSError as error:
            raise ConfigError(
                f"{self._path} can't be written: {error.strerror or error}", hint="what was proven is not kept"
            ) from error

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with open(self._path.with_suffix(".lock"), "a", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _words(row: CheckResult) -> dict[str, Any]:
    return {
        "check": row.check,
        "nodes": list(row.nodes),
        "found": row.found,
        "basis": dict(row.basis),
        "wall_s": row.proven_wall_s,
    }


def _row(item: Any) -> CheckResult | None:
    if not isinstance(item, dict):
        return None
    check, nodes, found = item.get("check"), item.get("nodes"), item.get("found")
    basis, wall_s = item.get("basis"), item.get("wall_s")
    if not isinstance(check, str) or check not in BY_ID or not isinstance(found, str):
        return None
    if not isinstance(nodes, list) or not all(isinstance(node, str) for node in nodes):
        return None
    if not isinstance(basis, dict) or not all(isinstance(value, str) for value in basis.values()):
        return None
    if not isinstance(wall_s, int | float):
        return None
    return CheckResult(
        check=check,
        nodes=tuple(nodes),
        state=CheckState.PASSED,
        found=found,
        basis=basis,
        proven_wall_s=float(wall_s),
    )
