"""The course of live findings from one picture to the next: pending, firing, resolved. No clock but the picture's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sparktop.diagnose.order import ordered
from sparktop.diagnose.rule import LiveRule, Rule, RuleKind
from sparktop.model.event import Severity
from sparktop.model.finding import Evidence, Finding, Phase
from sparktop.model.fleet import FleetState, LinkState

RESOLVED_KEPT_S = 300.0
RULE_FAILED = Rule(
    id="sparktop.rule-failed",
    kind=RuleKind.LIVE,
    title="A rule has failed and is off",
    severity=Severity.WARNING,
    scope="sparktop itself",
    sources=("sparktop",),
)

Key = tuple[str, tuple[str, ...], str]


@dataclass(frozen=True, slots=True)
class _Course:
    """One finding's way so far; times on the operator's monotonic clock."""

    rule: LiveRule
    finding: Finding
    first_s: float
    first_wall_s: float
    seen_s: float
    has_fired: bool = False
    resolved_s: float | None = None


class Diagnosis:
    """Evaluates live rules over each new picture and keeps each finding's course."""

    def __init__(self, rules: Sequence[LiveRule]) -> None:
        self._rules = tuple(rules)
        self._courses: dict[Key, _Course] = {}
        self._broken: dict[str, Finding] = {}

    @property
    def watching(self) -> int:
        """How many rules look at each picture."""
        return len(self._rules) - len(self._broken)

    def update(self, fleet: FleetState) -> tuple[Finding, ...]:
        """The findings that fire or were resolved lately, root cause first; a rule that raises is off from then on."""
        claimed: set[Key] = set()
        for rule in self._rules:
            if rule.card.id in self._broken:
                continue
            try:
                claims = tuple(rule.check(fleet))
            except Exception as error:  # noqa: BLE001 - one rule's fault must not blind the others
                self._broken[rule.card.id] = _broken(rule, error)
                continue
            for claim in claims:
                claimed.add(claim.key)
                self._claim(rule, claim, fleet)
        for key in [key for key in self._courses if key not in claimed]:
            self._missing(key, fleet)
        return ordered([*_caused(list(self._shown(fleet))), *self._broken.values()])

    def _claim(self, rule: LiveRule, claim: Finding, fleet: FleetState) -> None:
        now_s = fleet.monotonic_s
        before = self._courses.get(claim.key)
        if before is None or before.resolved_s is not None:
            before = _Course(rule, claim, now_s, claim.since_wall_s or fleet.wall_s, now_s)
        self._courses[claim.key] = replace(
            before,
            finding=claim,
            seen_s=now_s,
            first_wall_s=claim.since_wall_s or before.first_wall_s,
            has_fired=before.has_fired or now_s - before.first_s >= rule.hold_s,
        )

    def _missing(self, key: Key, fleet: FleetState) -> None:
        """The claim is not made now: a pending one is dropped, one that fired is resolved after a while.

        What can't be seen is not resolved: while one of its nodes doesn't answer, it stays as it was.
        """
        course = self._courses[key]
        now_s = fleet.monotonic_s
        if course.resolved_s is not None:
            if now_s - course.resolved_s > RESOLVED_KEPT_S:
                del self._courses[key]
        elif not course.has_fired:
            del self._courses[key]
        elif _is_unseen(course.finding, fleet):
            unseen = replace(course.finding, is_unseen=True)
            self._courses[key] = replace(course, finding=unseen, seen_s=now_s)
        elif now_s - course.seen_s >= course.rule.clear_s:
            self._courses[key] = replace(course, resolved_s=now_s)

    def _shown(self, fleet: FleetState) -> Iterable[tuple[Finding, LiveRule]]:
        for course in self._courses.values():
            if not course.has_fired:
                continue
            since_s = course.first_wall_s
            if course.resolved_s is None:
                yield replace(course.finding, phase=Phase.FIRING, since_wall_s=since_s), course.rule
            else:
                ended_s = fleet.wall_s - (fleet.monotonic_s - course.resolved_s)
                over = replace(course.finding, phase=Phase.RESOLVED, since_wall_s=since_s, resolved_wall_s=ended_s)
                yield over, course.rule


def _caused(shown: Sequence[tuple[Finding, LiveRule]]) -> list[Finding]:
    """The findings with their causes, by what each one's rule says it follows from."""
    firing = [finding for finding, _ in shown if finding.phase is Phase.FIRING]
    found = []
    for finding, rule in shown:
        cause = None
        if finding.caused_by is None and finding.phase is Phase.FIRING:
            causes = (other.rule for named in rule.follows for other in firing if _is_cause(other, named, finding))
            cause = next(causes, None)
        found.append(finding if cause is None else replace(finding, caused_by=cause))
    return found


def _is_cause(other: Finding, named: str, finding: Finding) -> bool:
    """Whether a finding is the cause that a rule names; "kernel.xid" is any Xid, and mere history causes nothing."""
    if other.rule != named and not (named == "kernel.xid" and other.rule.startswith("kernel.xid-")):
        return False
    told = other.severity is not Severity.INFO or finding.severity is Severity.INFO
    return told and other is not finding and _share(other, finding)


def _share(one: Finding, other: Finding) -> bool:
    return not one.nodes or not other.nodes or bool(set(one.nodes) & set(other.nodes))


def _is_unseen(finding: Finding, fleet: FleetState) -> bool:
    views = (fleet.node(name) for name in finding.nodes)
    return any(view is not None and view.link.state is not LinkState.LIVE for view in views)


def _broken(rule: LiveRule, error: Exception) -> Finding:
    return Finding(
        rule=RULE_FAILED.id,
        severity=Severity.WARNING,
        title=f"The rule {rule.card.id} has failed and is off",
        explanation=f"It raised {type(error).__name__}; nothing watches for this now: {rule.card.title}.",
        evidence=(Evidence(source="sparktop", text=f"{type(error).__name__}: {error}"[:300]),),
        subject=rule.card.id,
    )
