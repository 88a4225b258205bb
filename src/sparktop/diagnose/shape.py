"""A finding as data: the one shape of explain, lint, status and of what a notify command reads (design.md)."""

from __future__ import annotations

from typing import Any

from sparktop.model.finding import Evidence, Finding


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
