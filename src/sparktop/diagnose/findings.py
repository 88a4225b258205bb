"""Order findings for reading, and turn them into JSON data."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from sparktop.model.finding import Confidence, Evidence, Finding


def ordered(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings, worst first, each consequence after its cause; equals keep their order.

    A finding whose cause is missing, or that is part of a circle of causes, counts as a root.
    """
    children: dict[int, list[Finding]] = {}
    roots: list[Finding] = []
    for finding in findings:
        cause = cause_of(finding, findings)
        if cause is None or _is_circle(finding, findings):
            roots.append(finding)
        else:
            children.setdefault(id(cause), []).append(finding)

    def family(finding: Finding) -> list[Finding]:
        consequences = sorted(children.get(id(finding), ()), key=_rank)
        return [finding, *(member for consequence in consequences for member in family(consequence))]

    # A root is as bad as the worst of its consequences.
    families = sorted(map(family, roots), key=lambda members: min(map(_rank, members)))
    return tuple(chain.from_iterable(families))


def cause_of(finding: Finding, findings: Sequence[Finding]) -> Finding | None:
    """The finding that caused this one: of the rule in `caused_by`, on one of the same nodes; None if there is none."""
    if finding.caused_by is None:
        return None
    candidates = [other for other in findings if other.rule == finding.caused_by and other is not finding]
    on_same_node = [other for other in candidates if set(other.nodes) & set(finding.nodes)]
    return next(iter(on_same_node or [other for other in candidates if not other.nodes or not finding.nodes]), None)


def _rank(finding: Finding) -> tuple[int, int]:
    return (-finding.severity.weight, 0 if finding.confidence is Confidence.CONFIRMED else 1)


def _is_circle(finding: Finding, findings: Sequence[Finding]) -> bool:
    seen_ids = {id(finding)}
    cause = cause_of(finding, findings)
    while cause is not None:
        if id(cause) in seen_ids:
            return True
        seen_ids.add(id(cause))
        cause = cause_of(cause, findings)
    return False


def as_data(finding: Finding) -> dict[str, Any]:
    """A finding as JSON-ready data; empty fields are left out, times are seconds since the epoch."""
    data: dict[str, Any] = {
        "rule": finding.rule,
        "severity": finding.severity.value,
        "confidence": finding.confidence.value,
        "title": finding.title,
        "explanation": finding.explanation,
        "evidence": [_evidence(evidence) for evidence in finding.evidence],
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
