"""The life of live findings from one fleet state to the next: pending, firing, resolved.

The only clock is the fleet state's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import NamedTuple

from sparktop.diagnose.findings import Key, families
from sparktop.diagnose.kernel import line as kernel_line
from sparktop.diagnose.rule import LiveRule, Rule, RuleKind
from sparktop.diagnose.since_served import with_changes
from sparktop.model.event import Severity
from sparktop.model.finding import Evidence, Finding, Phase, is_of_other_nodes
from sparktop.model.fleet import FleetState, LinkState

RESOLVED_KEPT_S = 300.0
_LASTING = (None, "relaunch", "guard", "collect-evidence")
"""Actions that keep a problem from coming back, or only look; None: of a remedy by hand."""
RULE_FAILED = Rule(
    id="sparktop.rule-failed",
    kind=RuleKind.LIVE,
    title="A rule fails by a fault in sparktop",
    severity=Severity.WARNING,
    scope="sparktop itself",
    sources=("sparktop",),
)

FAILURE_KEPT_S = 60.0
"""How long a rule's fault is told after it last raised."""
MAX_GONE = 200
"""Of findings that nobody claims any more: a node whose names change all the time can't make more, the newest stay."""
MAX_CLAIMS = 200
"""Of one rule: what one node sends can't make more."""
Faulted = Callable[[str, BaseException], str]
"""Where a fault was, and the exception; returns its text."""


class _History(NamedTuple):
    """A finding's history so far; times on the operator's monotonic clock.

    One is made of each finding for each picture: a frozen dataclass takes twice the time to make.
    """

    rule: LiveRule
    finding: Finding
    first_s: float
    first_wall_s: float
    seen_s: float
    """When it was last claimed."""
    has_fired: bool = False
    unseen_s: float = 0.0
    """When one of its nodes was last out of reach while nobody claimed it."""
    resolved_s: float | None = None

    @property
    def last_s(self) -> float:
        """When it was last claimed, or nobody could claim it."""
        return max(self.seen_s, self.unseen_s)


class Diagnosis:
    """Evaluates the live rules on each new fleet state and tracks each finding from pending to resolved."""

    def __init__(self, rules: Sequence[LiveRule], *, faulted: Faulted | None = None) -> None:
        """`faulted` is told of each rule that raised."""
        self._rules = tuple(rules)
        self._faulted = faulted or _text
        self._histories: dict[Key, _History] = {}
        self._failures: dict[str, tuple[float, Finding]] = {}
        """By rule: when it last raised, and the finding that says so."""
        self._roots: tuple[Key, ...] = ()
        """Of the roots as they were shown last, those that fire."""

    @property
    def watching(self) -> int:
        """Number of rules that are evaluated without a fault."""
        return len(self._rules) - len(self._failures)

    def update(self, fleet: FleetState) -> tuple[Finding, ...]:
        """Findings that fire or were resolved recently, root cause first.

        A rule that raises is told as a finding, and judges the nodes whose data it can read, one by one.
        """
        claimed: set[Key] = set()
        self._failures = {
            rule_id: failure
            for rule_id, failure in self._failures.items()
            if fleet.monotonic_s - failure[0] <= FAILURE_KEPT_S
        }
        for rule in self._rules:
            for claim in self._claims(rule, fleet):
                key = claim.key
                claimed.add(key)
                self._claim(key, rule, claim, fleet)
        for key in [key for key in self._histories if key not in claimed]:
            self._unclaimed(key, claimed, fleet)
        gone = sorted(self._histories.keys() - claimed, key=lambda key: -self._histories[key].last_s)
        for key in gone[MAX_GONE:]:
            del self._histories[key]
        failures = [finding for _, finding in self._failures.values()]
        shown = families([*_with_causes(list(self._visible(fleet))), *failures], before=self._roots)
        self._roots = tuple(family[0].key for family in shown if family[0].phase is Phase.FIRING)
        return tuple(with_changes(finding, fleet) for finding in chain.from_iterable(shown))

    def _claims(self, rule: LiveRule, fleet: FleetState) -> tuple[Finding, ...]:
        """What the rule claims; where it raises, of the nodes it can judge alone."""
        try:
            return tuple(islice(rule.check(fleet), MAX_CLAIMS))
        except Exception as error:  # noqa: BLE001 - one rule's fault must not blind the others
            fault = error
        claims: list[Finding] = []
        faulty: list[str] = []
        for view in fleet.nodes:
            try:
                claims += tuple(islice(rule.check(replace(fleet, nodes=(view,))), MAX_CLAIMS))
            except Exception:  # noqa: BLE001 - as above, and the other node is judged
                faulty.append(view.name)
        nodes = tuple(faulty) if len(faulty) < len(fleet.nodes) else ()
        text = self._faulted(f"the rule {rule.id}", fault)
        self._failures[rule.id] = fleet.monotonic_s, _failure(rule, fault, text, nodes)
        return tuple(claims)

    def _claim(self, key: Key, rule: LiveRule, claim: Finding, fleet: FleetState) -> None:
        now_s = fleet.monotonic_s
        if claim.is_clearing:  # a rule may go on from a finding as it was told
            claim = replace(claim, is_clearing=False)
        history = self._histories.get(key)
        if history is None or history.resolved_s is not None:
            history = _History(rule, claim, now_s, claim.since_wall_s or fleet.wall_s, now_s)
        first_wall_s = claim.since_wall_s or history.first_wall_s
        has_fired = history.has_fired or now_s - history.first_s >= rule.hold_s
        self._histories[key] = _History(history.rule, claim, history.first_s, first_wall_s, now_s, has_fired)

    def _unclaimed(self, key: Key, claimed: Collection[Key], fleet: FleetState) -> None:
        """Handle a finding that is no longer claimed: drop it if pending, resolve it after `clear_s` if it fired.

        A note that goes is no news, and what is claimed of more or fewer of its nodes now isn't resolved: both go.
        While one of its nodes is out of reach it stays as it was, marked as unseen. Then it has `clear_s` from the
        first sample on, as other data comes later; but not where the samples settle it.
        """
        history = self._histories[key]
        now_s = fleet.monotonic_s
        if history.resolved_s is not None:
            if now_s - history.resolved_s > RESOLVED_KEPT_S:
                del self._histories[key]
        elif not history.has_fired or any(is_of_other_nodes(key, other) for other in claimed):
            del self._histories[key]
        elif _is_unseen(history.finding, fleet):
            unseen = replace(history.finding, is_unseen=True)
            self._histories[key] = history._replace(finding=unseen, unseen_s=now_s)
        elif now_s - (history.seen_s if history.rule.by_samples else history.last_s) >= history.rule.clear_s:
            if history.finding.severity is Severity.INFO:
                del self._histories[key]
            else:
                self._histories[key] = history._replace(finding=_resolved(history.finding), resolved_s=now_s)
        elif not history.finding.is_clearing:
            self._histories[key] = history._replace(finding=replace(history.finding, is_clearing=True))

    def _visible(self, fleet: FleetState) -> Iterable[tuple[Finding, LiveRule]]:
        for history in self._histories.values():
            if not history.has_fired:
                continue
            finding, since_s = history.finding, history.first_wall_s
            if history.resolved_s is not None:
                ended_s = fleet.wall_s - (fleet.monotonic_s - history.resolved_s)
                finding = replace(finding, phase=Phase.RESOLVED, since_wall_s=since_s, resolved_wall_s=ended_s)
            elif finding.phase is not Phase.FIRING or finding.since_wall_s != since_s:
                finding = replace(finding, phase=Phase.FIRING, since_wall_s=since_s)
            yield finding, history.rule


def _with_causes(visible: Sequence[tuple[Finding, LiveRule]]) -> list[Finding]:
    """The findings with `caused_by` filled in from what each rule says it follows, or what explains it in
    the kernel log."""
    firing: dict[str, list[Finding]] = {}
    for finding, _ in visible:
        if finding.phase is Phase.FIRING:
            firing.setdefault(finding.rule, []).append(finding)
            if finding.rule.startswith("kernel.xid-"):
                firing.setdefault("kernel.xid", []).append(finding)  # stands for any Xid
    findings = []
    for finding, rule in visible:
        needs_cause = finding.caused_by not in firing and finding.phase is Phase.FIRING
        named = (*rule.follows, *kernel_line.explaining(finding.rule)) if needs_cause else ()
        causes = (other.rule for rule_id in named for other in firing.get(rule_id, ()) if _is_cause(other, finding))
        cause = next(causes, None)
        findings.append(finding if cause is None else replace(finding, caused_by=cause))
    return findings


def _is_cause(candidate: Finding, finding: Finding) -> bool:
    """Whether what a rule names as its cause is one here: a finding at information level causes nothing but others of
    that level."""
    is_weighty = candidate.severity is not Severity.INFO or finding.severity is Severity.INFO
    is_apart = candidate.nodes and finding.nodes and set(candidate.nodes).isdisjoint(finding.nodes)
    return is_weighty and candidate is not finding and not is_apart


def _resolved(finding: Finding) -> Finding:
    """The finding without what is no longer true of it, and with those of its remedies that keep it from coming back:
    nobody should restart or reboot what is well again."""
    lasting = tuple(remedy for remedy in finding.remedies if remedy.action in _LASTING)
    return replace(finding, is_unseen=False, remedies=lasting)


def _is_unseen(finding: Finding, fleet: FleetState) -> bool:
    views = (fleet.node(name) for name in finding.nodes)
    return any(view is not None and view.link.state is not LinkState.LIVE for view in views)


def _failure(rule: LiveRule, error: Exception, text: str, nodes: tuple[str, ...]) -> Finding:
    where = f" on {' and '.join(nodes)}" if nodes else ""
    return Finding(
        rule=RULE_FAILED.id,
        severity=Severity.WARNING,
        title=f"The rule {rule.id} fails{where}: a fault in sparktop",
        explanation=f"It raised {type(error).__name__}; nothing watches{where} for this now: {rule.card.title}.",
        evidence=(Evidence(source="sparktop", text=text[:300]),),
        nodes=nodes,
        subject=rule.id,
    )


def _text(where: str, error: BaseException) -> str:
    return f"{where}: {type(error).__name__}: {error}"
