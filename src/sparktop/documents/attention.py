"""What the operator has acknowledged or snoozed: kept for the session, and in a file for the next one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from sparktop import sanitise
from sparktop.bounds import seconds_of
from sparktop.clock import Clock
from sparktop.dataclass import dataclass
from sparktop.documents.finding_tree import AttentionState
from sparktop.files import read_json, write_private
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Phase

SNOOZE_S = 3600.0


FORGOTTEN_S = 7 * 86_400.0
"""An acknowledgement is dropped when its finding wasn't seen for this long."""


MAX_KEPT = 500


Key = tuple[str, tuple[str, ...], str]


@dataclass(slots=True, kw_only=True)
class _Mark:
    """The operator's mark on one finding; times are wall-clock seconds of the operator's machine."""

    severity: Severity
    """The severity when it was marked: the mark no longer holds once the finding is worse."""
    is_acknowledged: bool = False
    snoozed_until_s: float = 0.0
    seen_s: float = 0.0


class Attention:
    """The operator's marks by `Finding.key`. A resolved finding loses its acknowledgement: if it returns it is new."""

    def __init__(self, clock: Clock, file: Path | None = None) -> None:
        """`file` holds the marks of earlier sessions; an unreadable one counts as empty."""
        self._clock = clock
        self._file = file
        self._marks = _read(file, clock.wall()) if file is not None else {}
        self._written_ns = _written_ns(file)

    def refresh(self) -> None:
        """Read the file again where another process has written it."""
        written_ns = _written_ns(self._file)
        if self._file is not None and written_ns != self._written_ns:
            self._written_ns, self._marks = written_ns, _read(self._file, self._clock.wall())

    def standing(self, finding: Finding) -> AttentionState:
        """Whether a finding is open, acknowledged, snoozed or resolved now."""
        if finding.phase is Phase.RESOLVED:
            return AttentionState.RESOLVED
        mark = self._mark(finding)
        if mark is None:
            return AttentionState.OPEN
        if mark.snoozed_until_s > self._clock.wall():
            return AttentionState.SNOOZED
        return AttentionState.ACKNOWLEDGED if mark.is_acknowledged else AttentionState.OPEN

    def snoozed_until_s(self, finding: Finding) -> float | None:
        """Until when the finding is snoozed, in wall-clock seconds; None when it isn't."""
        mark = self._mark(finding)
        return mark.snoozed_until_s if mark is not None and mark.snoozed_until_s > self._clock.wall() else None

    def _mark(self, finding: Finding) -> _Mark | None:
        mark = self._marks.get(finding.key)
        return None if mark is None or finding.severity.weight > mark.severity.weight else mark

    def acknowledge(self, findings: Iterable[Finding], *, on: bool) -> str:
        """Acknowledge these findings, or withdraw that; returns why the file can't be written, else ""."""
        for finding in findings:
            self._mark_for_change(finding).is_acknowledged = on
        return self._save()

    def snooze(self, findings: Iterable[Finding], *, seconds: float = SNOOZE_S) -> str:
        """Hide these findings for `seconds`; 0 shows them again. Returns as `acknowledge`."""
        until_s = self._clock.wall() + seconds if seconds else 0.0
        for finding in findings:
            self._mark_for_change(finding).snoozed_until_s = until_s
        return self._save()

    def _mark_for_change(self, finding: Finding) -> _Mark:
        mark = self._mark(finding)
        if mark is None:
            mark = self._marks[finding.key] = _Mark(severity=finding.severity)
        mark.seen_s = self._clock.wall()
        return mark

    def follow(self, findings: Sequence[Finding]) -> str:
        """Withdraw the acknowledgement of each finding that is resolved in a fleet state. Returns as `acknowledge`."""
        marks = [self._marks.get(finding.key) for finding in findings if finding.phase is Phase.RESOLVED]
        outdated = [mark for mark in marks if mark is not None and mark.is_acknowledged]
        for mark in outdated:
            mark.is_acknowledged = False
        return self._save() if outdated else ""

    def _save(self) -> str:
        now_s = self._clock.wall()
        active = [pair for pair in self._marks.items() if pair[1].is_acknowledged or pair[1].snoozed_until_s > now_s]
        self._marks = dict(sorted(active, key=lambda pair: pair[1].seen_s)[-MAX_KEPT:])
        if self._file is None:
            return ""
        rows = [
            {"rule": rule, "nodes": nodes, "subject": subject, **asdict(mark)}
            for (rule, nodes, subject), mark in self._marks.items()
        ]
        try:
            write_private(self._file, json.dumps({"version": 1, "findings": rows}, indent=1))
        except OSError as error:
            return f"kept for this session only: {self._file} can't be written: {error.strerror or error}"
        return ""


def _written_ns(file: Path | None) -> int:
    try:
        return file.stat().st_mtime_ns if file is not None else 0
    except OSError:
        return 0


def _read(file: Path, now_s: float) -> dict[Key, _Mark]:
    marks: dict[Key, _Mark] = {}
    for row in sanitise.items(read_json(file).get("findings"))[-MAX_KEPT:]:
        try:
            key = (str(row["rule"]), tuple(str(name) for name in row["nodes"]), str(row["subject"]))
            mark = _Mark(
                severity=Severity(row["severity"]),
                is_acknowledged=row["is_acknowledged"] is True,
                snoozed_until_s=seconds_of(row["snoozed_until_s"]),
                seen_s=seconds_of(row["seen_s"]),
            )
        except (KeyError, TypeError, ValueError):
            continue
        if now_s - mark.seen_s < FORGOTTEN_S:
            marks[key] = mark
    return marks
