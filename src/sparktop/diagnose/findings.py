"""Order findings for reading, and turn them into JSON data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from sparktop.model.change import Change
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Phase, Remedy

RANK_DIED = "cluster.rank-died"
ENGINE_DOWN = "engine.down"
"""The rule that tells of an engine that served and is down, whoever meant it."""
Key = tuple[str, tuple[str, ...], str]
"""Of a finding: `Finding.key`."""


def ordered(findings: Sequence[Finding], *, before: Sequence[Key] = ()) -> tuple[Finding, ...]:
    """The findings, worst first, each consequence after its cause.

    Of equals, what has had consequences is first; else they keep their order, of notes the newest is first. A finding
    whose cause is missing, or that is part of a circle of causes, counts as a root.

    Args:
        before: keys of the roots as they were shown last: one keeps its place unless something worse or surer comes,
            a note unless a new one comes.
    """
    return tuple(chain.from_iterable(families(findings, before=before)))


def families(findings: Sequence[Finding], *, before: Sequence[Key] = ()) -> list[list[Finding]]:
    """The findings as `ordered` orders them, each root with its consequences behind it."""
    children: dict[int, list[Finding]] = {}
    roots: list[Finding] = []
    by_rule = _by_rule(findings)
    causes = {id(finding): _cause(finding, by_rule) for finding in findings if finding.caused_by is not None}
    for finding in findings:
        cause = causes.get(id(finding))
        if cause is None or _is_circle(finding, causes):
            roots.append(finding)
        else:
            children.setdefault(id(cause), []).append(finding)

    places = {key: place for place, key in enumerate(before)}

    def place(members: Sequence[Finding]) -> tuple[float, ...]:
        rank = min(map(_rank, members))  # a root is as bad as the worst of its consequences
        if rank[0] == -Severity.INFO.weight:  # no top line shows it: the newest is news
            return (*rank, places.get(members[0].key, -1), -(members[0].since_wall_s or 0.0))
        has_followed = 0 if members[1:] else 1  # what has had consequences comes before what may have some
        return (*rank, has_followed, places.get(members[0].key, len(places)))

    return sorted((_family(root, children) for root in roots), key=place)


def firing_at(findings: Sequence[Finding], level: Severity = Severity.WARNING) -> list[Finding]:
    """The findings at this level or above that fire now."""
    return [one for one in findings if one.severity.weight >= level.weight and one.phase is Phase.FIRING]


def _family(finding: Finding, children: Mapping[int, Sequence[Finding]]) -> list[Finding]:
    effects = sorted(children.get(id(finding), ()), key=_rank)
    return [finding, *(member for effect in effects for member in _family(effect, children))]


def cause_of(finding: Finding, findings: Sequence[Finding]) -> Finding | None:
    """The finding that caused this one: of the rule in `caused_by`, on one of the same nodes; None if there is none."""
    return _cause(finding, _by_rule(findings)) if finding.caused_by is not None else None


def _by_rule(findings: Sequence[Finding]) -> Mapping[str, Sequence[Finding]]:
    by_rule: dict[str, list[Finding]] = {}
    for finding in findings:
        by_rule.setdefault(finding.rule, []).append(finding)
    return by_rule


def _cause(finding: Finding, by_rule: Mapping[str, Sequence[Finding]]) -> Finding | None:
    if finding.caused_by is None:
        return None
    candidates = [other for other in by_rule.get(finding.caused_by, ()) if other is not finding]
    on_same_node = (other for other in candidates if any(name in finding.nodes for name in other.nodes))
    nowhere = (other for other in candidates if not other.nodes or not finding.nodes)
    return next(chain(on_same_node, nowhere), None)


def _rank(finding: Finding) -> tuple[int, ...]:
    return (
        -finding.severity.weight,
        1 if finding.engine else 0,  # what a setting costs comes after what happens now
        0 if finding.confidence is Confidence.CONFIRMED else 1,
        1 if finding.is_unseen else 0,
        0 if finding.blocks_starts else 1,
    )


def _is_circle(finding: Finding, causes: Mapping[int, Finding | None]) -> bool:
    seen_ids = {id(finding)}
    cause = causes.get(id(finding))
    while cause is not None:
        if id(cause) in seen_ids:
            return True
        seen_ids.add(id(cause))
        cause = causes.get(id(cause))
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


def without_repeats(remedies: Iterable[Remedy]) -> Iterator[Remedy]:
    """The remedies, of those that do the same the first: one action with one change, however they are worded."""
    taken: list[tuple[str | None, Change | None, str]] = []
    for remedy in remedies:
        what = (remedy.action, remedy.change, "" if remedy.change is not None else remedy.title)
        if what not in taken:
            taken.append(what)
            yield remedy
