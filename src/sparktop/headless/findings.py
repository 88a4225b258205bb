"""Findings as data and as plain words: the one shape of explain, lint and status (design.md)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from sparktop.diagnose.order import cause_of
from sparktop.diagnose.shape import as_data as as_data
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Phase

MARKS = {Severity.CRITICAL: "✖", Severity.WARNING: "▲", Severity.INFO: "·"}
WORSE = (Severity.WARNING, Severity.CRITICAL)


def exit_code(findings: Sequence[Finding]) -> int:
    """1 when something at warning or above is so now, else 0."""
    return int(any(one.severity in WORSE and one.phase is Phase.FIRING for one in findings))


SHORT_EVIDENCE = 2


class Kind(Enum):
    """What a row says: it decides how the row is wrapped and coloured on a terminal."""

    TITLE = "title"
    FIGURES = "figures"
    SAID = "said"
    SEEN = "seen"
    REMEDY = "remedy"
    STEP = "step"
    """As it would be typed, so never broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One paragraph of what is said of a finding."""

    kind: Kind
    indent: int
    text: str
    severity: Severity


def as_text(findings: Sequence[Finding], *, short: bool = False, now_wall_s: float | None = None) -> list[str]:
    """Findings in plain words, one line a row, understandable without colour."""
    return [" " * row.indent + row.text for row in as_rows(findings, short=short, now_wall_s=now_wall_s)]


def as_rows(findings: Sequence[Finding], *, short: bool = False, now_wall_s: float | None = None) -> list[Row]:
    """All rows, in reading order; a consequence is indented under its cause.

    `short`: its figures, the first of its evidence and of its remedies. `now_wall_s`: for how long it has been so.
    """
    found: list[Row] = []
    depth: dict[int, int] = {}
    for finding in findings:
        cause = cause_of(finding, findings)
        depth[id(finding)] = level = 0 if cause is None else depth.get(id(cause), 0) + 1
        shown = _shortened(finding) if short else finding
        for kind, indent, text in _texts(shown, level, now_wall_s, with_brief=short):
            found.append(Row(kind=kind, indent=2 * level + indent, text=text, severity=finding.severity))
    return found


def _shortened(finding: Finding) -> Finding:
    return replace(
        finding,
        evidence=finding.evidence[:SHORT_EVIDENCE],
        remedies=finding.remedies[:1],
        scope="",
        references=(),
    )


def _texts(
    finding: Finding, level: int, now_wall_s: float | None, *, with_brief: bool
) -> Iterator[tuple[Kind, int, str]]:
    where = f"{' + '.join(finding.nodes)}: " if finding.nodes and not finding.names_its_nodes else ""
    said = [] if finding.confidence is Confidence.CONFIRMED else ["suspected"]
    said += ["resolved"] if finding.phase is Phase.RESOLVED else []
    said += ["as last seen"] if finding.is_unseen else []
    if now_wall_s is not None and finding.since_wall_s is not None and finding.phase is Phase.FIRING:
        said.append(f"for {_span(now_wall_s - finding.since_wall_s)}")
    state = f"  ({', '.join(said)})" if said else ""
    follows = "↳ " if level else ""
    yield Kind.TITLE, 0, f"{follows}{MARKS[finding.severity]} {where}{finding.title}{state}  [{finding.rule}]"
    if with_brief and finding.figures:
        yield Kind.FIGURES, 4, finding.figures
    if finding.explanation:
        yield Kind.SAID, 4, finding.explanation
    for evidence in finding.evidence:
        yield Kind.SEEN, 4, f"| {_place(evidence)}{evidence.text}"
    if finding.settles:
        yield Kind.SAID, 4, f"to be sure: {finding.settles}"
    for remedy in finding.remedies:
        yield Kind.REMEDY, 4, f"→ {remedy.title}" + (f"  (costs {remedy.cost})" if remedy.cost else "")
        for step in remedy.steps:
            yield Kind.STEP, 8, step
    if finding.scope:
        yield Kind.SAID, 4, f"holds for: {finding.scope}"
    if finding.references:
        yield Kind.SAID, 4, f"sources: {'; '.join(finding.references)}"


def _span(seconds: float) -> str:
    """ "42 s", "7 min", "2 h 04 min"."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min" if minutes else f"{rest} s"


def _place(evidence: Evidence) -> str:
    at = f":{evidence.line}" if evidence.line is not None else ""
    when = f" {time.strftime('%H:%M:%S', time.localtime(evidence.wall_s))}" if evidence.wall_s is not None else ""
    return f"{evidence.source}{at}{when}  "
