"""Findings as data and as plain words: the one shape of explain, lint and status (design.md)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sparktop.diagnose.order import cause_of
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Phase

MARKS = {Severity.CRITICAL: "✖", Severity.WARNING: "▲", Severity.INFO: "·"}
WORSE = (Severity.WARNING, Severity.CRITICAL)


def exit_code(findings: Sequence[Finding]) -> int:
    """1 when something at warning or above is so now, else 0."""
    return int(any(one.severity in WORSE and one.phase is Phase.FIRING for one in findings))


def as_data(finding: Finding) -> dict[str, Any]:
    """One finding as JSON-ready data; what doesn't apply is left out, times are seconds since the epoch."""
    data: dict[str, Any] = {
        "rule": finding.rule,
        "severity": finding.severity.value,
        "confidence": finding.confidence.value,
        "title": finding.title,
        "explanation": finding.explanation,
        "evidence": [_evidence(each) for each in finding.evidence],
        "remedies": [
            {
                "title": remedy.title,
                "steps": list(remedy.steps),
                **({"cost": remedy.cost} if remedy.cost else {}),
                "action": remedy.action,
            }
            for remedy in finding.remedies
        ],
        "references": list(finding.references),
    }
    optional: dict[str, Any] = {
        "caused_by": finding.caused_by,
        "distinction": list(finding.distinction),
        "settles": finding.settles,
        "scope": finding.scope,
        "nodes": list(finding.nodes),
        "subject": finding.subject,
        "phase": finding.phase.value if finding.nodes else None,
        "since_wall_s": finding.since_wall_s,
        "resolved_wall_s": finding.resolved_wall_s,
        "unseen": finding.is_unseen or None,
    }
    return data | {key: value for key, value in optional.items() if value}


def _evidence(evidence: Evidence) -> dict[str, Any]:
    data: dict[str, Any] = {"source": evidence.source, "line": evidence.line, "text": evidence.text}
    return data if evidence.wall_s is None else data | {"wall_s": evidence.wall_s}


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
