"""Findings in the order they should be read: root causes first, worst first, and each consequence under its cause."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Finding

WORST_FIRST = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}


def ordered(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings with every consequence after its cause; among equals the order given is kept.

    A cause that isn't among them, or a circle of causes, leaves the finding among the roots.
    """
    children: dict[int, list[Finding]] = {}
    roots: list[Finding] = []
    for finding in findings:
        cause = cause_of(finding, findings)
        if cause is None or _is_circle(finding, findings):
            roots.append(finding)
        else:
            children.setdefault(id(cause), []).append(finding)
    out: list[Finding] = []

    def add(finding: Finding) -> None:
        out.append(finding)
        for child in sorted(children.get(id(finding), ()), key=_rank):
            add(child)

    # A root stands where the worst of what follows from it would stand.
    for root in sorted(roots, key=lambda one: min(_rank(each) for each in _family(one, children))):
        add(root)
    return tuple(out)


def cause_of(finding: Finding, findings: Sequence[Finding]) -> Finding | None:
    """The finding this one follows from: of the rule it names, on one of its nodes."""
    if finding.caused_by is None:
        return None
    candidates = [other for other in findings if other.rule == finding.caused_by and other is not finding]
    shared = [other for other in candidates if set(other.nodes) & set(finding.nodes)]
    return next(iter(shared or [other for other in candidates if not other.nodes or not finding.nodes]), None)


def _rank(finding: Finding) -> tuple[int, int]:
    return (WORST_FIRST[finding.severity], 0 if finding.confidence is Confidence.CONFIRMED else 1)


def _family(root: Finding, children: dict[int, list[Finding]]) -> list[Finding]:
    found = [root]
    for child in children.get(id(root), ()):
        found += _family(child, children)
    return found


def _is_circle(finding: Finding, findings: Sequence[Finding]) -> bool:
    seen = {id(finding)}
    cause = cause_of(finding, findings)
    while cause is not None:
        if id(cause) in seen:
            return True
        seen.add(id(cause))
        cause = cause_of(cause, findings)
    return False
