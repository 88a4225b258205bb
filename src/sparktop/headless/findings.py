"""Findings as data and as plain words: the one shape of explain, lint and status (design.md)."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sparktop.diagnose.order import cause_of
from sparktop.diagnose.shape import as_data as as_data
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Phase

MARKS = {Severity.CRITICAL: "✖", Severity.WARNING: "▲", Severity.INFO: "·"}
WORSE = (Severity.WARNING, Severity.CRITICAL)


def exit_code(findings: Sequence[Finding]) -> int:
    """1 when something at warning or above is so now, else 0."""
    return int(any(one.severity in WORSE and one.phase is Phase.FIRING for one in findings))


def as_text(findings: Sequence[Finding]) -> list[str]:
    """Findings in plain words, understandable without colour; a consequence is indented under its cause."""
    lines: list[str] = []
    depth: dict[int, int] = {}
    for finding in findings:
        cause = cause_of(finding, findings)
        depth[id(finding)] = level = 0 if cause is None else depth.get(id(cause), 0) + 1
        lines += ["  " * level + line if line else "" for line in _text(finding, level)]
    return lines


def _text(finding: Finding, level: int) -> list[str]:
    where = f"{' + '.join(finding.nodes)}: " if finding.nodes else ""
    doubt = "" if finding.confidence is Confidence.CONFIRMED else "  (suspected)"
    over = "  (resolved)" if finding.phase is Phase.RESOLVED else ""
    follows = "↳ " if level else ""
    lines = [f"{follows}{MARKS[finding.severity]} {where}{finding.title}{doubt}{over}  [{finding.rule}]"]
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


def _place(evidence: Evidence) -> str:
    at = f":{evidence.line}" if evidence.line is not None else ""
    when = f" {time.strftime('%H:%M:%S', time.localtime(evidence.wall_s))}" if evidence.wall_s is not None else ""
    return f"{evidence.source}{at}{when}  "
