"""Findings as data and as plain words: the one shape of explain, lint and status (design.md)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

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


def as_text(findings: Sequence[Finding], *, short: bool = False, now_wall_s: float | None = None) -> list[str]:
    """Findings in plain words, understandable without colour; a consequence is indented under its cause.

    `short`: its figures, the first of its evidence and of its remedies. `now_wall_s`: for how long it has been so.
    """
    lines: list[str] = []
    depth: dict[int, int] = {}
    for finding in findings:
        cause = cause_of(finding, findings)
        depth[id(finding)] = level = 0 if cause is None else depth.get(id(cause), 0) + 1
        shown = _shortened(finding) if short else finding
        lines += ["  " * level + line if line else "" for line in _text(shown, level, now_wall_s, with_brief=short)]
    return lines


def _shortened(finding: Finding) -> Finding:
    return replace(
        finding,
        evidence=finding.evidence[:SHORT_EVIDENCE],
        remedies=finding.remedies[:1],
        scope="",
        references=(),
    )


def _text(finding: Finding, level: int, now_wall_s: float | None, *, with_brief: bool) -> list[str]:
    where = f"{' + '.join(finding.nodes)}: " if finding.nodes and not finding.names_its_nodes else ""
    said = [] if finding.confidence is Confidence.CONFIRMED else ["suspected"]
    said += ["resolved"] if finding.phase is Phase.RESOLVED else []
    said += ["as last seen"] if finding.is_unseen else []
    if now_wall_s is not None and finding.since_wall_s is not None and finding.phase is Phase.FIRING:
        said.append(f"for {_span(now_wall_s - finding.since_wall_s)}")
    state = f"  ({', '.join(said)})" if said else ""
    follows = "↳ " if level else ""
    lines = [f"{follows}{MARKS[finding.severity]} {where}{finding.title}{state}  [{finding.rule}]"]
    if with_brief and finding.figures:
        lines.append(f"    {finding.figures}")
    if finding.explanation:
        lines.append(f"    {finding.explanation}")
    lines += [f"    | {_place(evidence)}{evidence.text}" for evidence in finding.evidence]
    if finding.settles:
        lines.append(f"    to be sure: {finding.settles}")
    for remedy in finding.remedies:
        cost = f"  (costs {remedy.cost})" if remedy.cost else ""
        lines.append(f"    → {remedy.title}{cost}")
        lines += [f"        {step}" for step in remedy.steps]
    if finding.scope:
        lines.append(f"    holds for: {finding.scope}")
    if finding.references:
        lines.append(f"    sources: {'; '.join(finding.references)}")
    return lines


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
