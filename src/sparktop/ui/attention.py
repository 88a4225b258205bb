"""What the operator has acknowledged or put off: kept for the session, and in a file for the next one."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from sparktop.clock import Clock
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Phase

SNOOZE_S = 3600.0
FORGOTTEN_S = 7 * 86_400.0
"""An acknowledgement whose finding nobody has seen for so long is dropped."""
MAX_KEPT = 500
_RANK = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}

Key = tuple[str, tuple[str, ...], str]


class Standing(StrEnum):
    """Where a finding stands with the operator."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    SNOOZED = "snoozed"
    RESOLVED = "resolved"


@dataclass(slots=True, kw_only=True)
class _Mark:
    """What was said of one finding; times are the operator's clock."""

    severity: Severity
    """At that time: one that got worse since is news again."""
    is_acknowledged: bool = False
    snoozed_until_s: float = 0.0
    seen_s: float = 0.0


class Attention:
    """Marks by `Finding.key`. A finding that is resolved loses its acknowledgement: if it comes back it is new."""

    def __init__(self, clock: Clock, file: Path | None = None) -> None:
        """`file` holds the marks of earlier sessions; one that can't be read counts as empty."""
        self._clock = clock
        self._file = file
        self._marks = _read(file, clock.wall()) if file is not None else {}

    def standing(self, finding: Finding) -> Standing:
        """How a finding is to be shown now."""
        if finding.phase is Phase.RESOLVED:
            return Standing.RESOLVED
        mark = self._mark(finding)
        if mark is None:
            return Standing.OPEN
        if mark.snoozed_until_s > self._clock.wall():
            return Standing.SNOOZED
        return Standing.ACKNOWLEDGED if mark.is_acknowledged else Standing.OPEN

    def snoozed_until_s(self, finding: Finding) -> float | None:
        """Until when it is put off, operator's clock; None when it isn't."""
        mark = self._mark(finding)
        return mark.snoozed_until_s if mark is not None and mark.snoozed_until_s > self._clock.wall() else None

    def _mark(self, finding: Finding) -> _Mark | None:
        mark = self._marks.get(finding.key)
        return None if mark is None or _RANK[finding.severity] > _RANK[mark.severity] else mark

    def acknowledge(self, findings: Iterable[Finding], *, on: bool) -> str:
        """Mark these as known, or take that back; what went wrong with the file, "" when nothing did."""
        for finding in findings:
            self._set(finding).is_acknowledged = on
        return self._save()

    def snooze(self, findings: Iterable[Finding], *, seconds: float = SNOOZE_S) -> str:
        """Hide these for so long; 0 takes that back. As `acknowledge`."""
        until_s = self._clock.wall() + seconds if seconds else 0.0
        for finding in findings:
            self._set(finding).snoozed_until_s = until_s
        return self._save()

    def _set(self, finding: Finding) -> _Mark:
        mark = self._mark(finding)
        if mark is None:
            mark = self._marks[finding.key] = _Mark(severity=finding.severity)
        mark.seen_s = self._clock.wall()
        return mark

    def follow(self, findings: Sequence[Finding]) -> str:
        """Take note of a picture's findings: one that was resolved is no longer acknowledged. As `acknowledge`."""
        over = [
            one.key
            for one in findings
            if one.phase is Phase.RESOLVED and one.key in self._marks and self._marks[one.key].is_acknowledged
        ]
        for key in over:
            self._marks[key].is_acknowledged = False
        return self._save() if over else ""

    def _save(self) -> str:
        now_s = self._clock.wall()
        kept = {key: mark for key, mark in self._marks.items() if mark.is_acknowledged or mark.snoozed_until_s > now_s}
        newest = sorted(kept.items(), key=lambda item: item[1].seen_s)[-MAX_KEPT:]
        self._marks = dict(newest)
        if self._file is None:
            return ""
        rows = [
            {"rule": rule, "nodes": nodes, "subject": subject, **asdict(mark)}
            for (rule, nodes, subject), mark in newest
        ]
        try:
            _write(self._file, json.dumps({"version": 1, "findings": rows}, indent=1))
        except OSError as error:
            return f"kept for this session only: {self._file} can't be written: {error.strerror or error}"
        return ""


def _write(file: Path, text: str) -> None:
    """Replace the file in one step, readable by its owner alone."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)  # made with mode 0600
    try:
        with open(handle, "w", encoding="utf-8") as out:
            out.write(text)
        os.replace(name, file)
    except BaseException:
        os.unlink(name)
        raise


def _read(file: Path, now_s: float) -> dict[Key, _Mark]:
    try:
        raw = json.loads(file.read_text("utf-8"))
        rows = raw["findings"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    found: dict[Key, _Mark] = {}
    for row in rows[-MAX_KEPT:] if isinstance(rows, list) else ():
        read = _row(row)
        if read is not None and now_s - read[1].seen_s < FORGOTTEN_S:
            found[read[0]] = read[1]
    return found


def _row(row: Any) -> tuple[Key, _Mark] | None:
    try:
        key = (str(row["rule"]), tuple(str(name) for name in row["nodes"]), str(row["subject"]))
        return key, _Mark(
            severity=Severity(row["severity"]),
            is_acknowledged=row["is_acknowledged"] is True,
            snoozed_until_s=float(row["snoozed_until_s"]),
            seen_s=float(row["seen_s"]),
        )
    except (KeyError, TypeError, ValueError):
        return None
