"""The course of findings, and the order they are read in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.diagnose.diagnosis import FAILURE_KEPT_S, MAX_GONE, RESOLVED_KEPT_S, Diagnosis
from sparktop.diagnose.findings import ordered
from sparktop.diagnose.rule import LiveRule
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Finding, Phase, Remedy
from sparktop.model.fleet import FleetState, Link, LinkState, NodeView


def finding(
    rule: str, severity: Severity = Severity.WARNING, *, node: str = "spark1", cause: str | None = None
) -> Finding:
    return Finding(rule=rule, severity=severity, title=rule, nodes=(node,) if node else (), caused_by=cause)


class Scripted:
    """A rule that claims what it is told to."""

    def __init__(self, rule: str, *, hold_s: float = 0.0, **more: Any) -> None:
        self.claims: list[Finding] = []
        self.fault: Exception | None = None
        self.rule = LiveRule(id=rule, check=self._check, hold_s=hold_s, **more)

    def _check(self, fleet: FleetState) -> Iterable[Finding]:
        if self.fault:
            raise self.fault
        return self.claims


def picture(at_s: float, state: LinkState = LinkState.LIVE) -> FleetState:
    node = NodeView(name="spark1", link=Link(state=state))
    return FleetState(nodes=(node,), monotonic_s=at_s, wall_s=1_000_000 + at_s)


def test_a_claim_must_last_before_it_is_shown() -> None:
    scripted = Scripted("gpu.spin", hold_s=20)
    diagnosis = Diagnosis([scripted.rule])
    scripted.claims = [finding("gpu.spin")]
    assert diagnosis.update(picture(0)) == ()
    assert diagnosis.update(picture(19)) == ()
    (shown,) = diagnosis.update(picture(20))
    assert (shown.phase, shown.since_wall_s) == (Phase.FIRING, 1_000_000)


def test_a_claim_that_breaks_off_begins_anew() -> None:
    scripted = Scripted("gpu.spin", hold_s=20)
    diagnosis = Diagnosis([scripted.rule])
    scripted.claims = [finding("gpu.spin")]
    diagnosis.update(picture(0))
    scripted.claims = []
    diagnosis.update(picture(10))
    scripted.claims = [finding("gpu.spin")]
    assert diagnosis.update(picture(25)) == ()
    assert diagnosis.update(picture(45)) != ()


def test_what_fired_is_resolved_after_a_while_and_then_forgotten() -> None:
    scripted = Scripted("gpu.spin")
    diagnosis = Diagnosis([scripted.rule])
    scripted.claims = [finding("gpu.spin")]
    diagnosis.update(picture(0))
    scripted.claims = []
    (clearing,) = diagnosis.update(picture(3))
    assert (clearing.phase, clearing.is_clearing) == (Phase.FIRING, True)
    scripted.claims = [clearing]
    assert [one.is_clearing for one in diagnosis.update(picture(4))] == [False], "claimed again, as it was told"
    scripted.claims = []
    (resolved,) = diagnosis.update(picture(9))
    assert (resolved.phase, resolved.resolved_wall_s) == (Phase.RESOLVED, 1_000_009)
    assert diagnosis.update(picture(9 + RESOLVED_KEPT_S)) != ()
    assert diagnosis.update(picture(10 + RESOLVED_KEPT_S)) == ()


def test_one_that_comes_back_after_being_resolved_is_a_new_one() -> None:
    scripted = Scripted("gpu.spin")
    diagnosis = Diagnosis([scripted.rule])
    scripted.claims = [finding("gpu.spin")]
    diagnosis.update(picture(0))
    scripted.claims = []
    diagnosis.update(picture(5))
    scripted.claims = [finding("gpu.spin")]
    (again,) = diagnosis.update(picture(60))
    assert (again.phase, again.since_wall_s) == (Phase.FIRING, 1_000_060)


def test_a_note_that_goes_is_no_news() -> None:
    scripted = Scripted("engine.kv")
    diagnosis = Diagnosis([scripted.rule])
    scripted.claims = [replace(finding("engine.kv"), severity=Severity.INFO)]
    diagnosis.update(picture(0))
    scripted.claims = []
    (clearing,) = diagnosis.update(picture(3))
    assert clearing.is_clearing
    assert diagnosis.update(picture(9)) == ()


@over(
    "before, after, phases",
    [
        (("spark2",), ("spark1", "spark2"), [Phase.FIRING]),
        (("spark1", "spark2"), ("spark2",), [Phase.FIRING]),
        (("spark2",), ("spark1",), [Phase.FIRING, Phase.RESOLVED]),
    ],
    ids=["on both now", "on one of them now", "on the other one"],
)
def test_what_is_found_on_more_or_fewer_nodes_is_not_resolved(
    before: tuple[str, ...], after: tuple[str, ...], phases: list[Phase]
) -> None:
    scripted = Scripted("link.down")
    diagnosis = Diagnosis([scripted.rule])
    scripted.claims = [replace(finding("link.down"), nodes=before)]
    diagnosis.update(picture(0))
    scripted.claims = [replace(finding("link.down"), nodes=after)]
    for at_s in range(1, 12):
        shown = diagnosis.update(picture(at_s))
    assert sorted(one.phase for one in shown) == phases


def test_what_cannot_be_seen_is_not_resolved() -> None:
    scripted = Scripted("memory.falling")
    diagnosis = Diagnosis([scripted.rule])
    scripted.claims = [finding("memory.falling")]
    diagnosis.update(picture(0))
    scripted.claims = []
    (lost,) = diagnosis.update(picture(60, LinkState.LOST))
    assert (lost.phase, lost.is_unseen) == (Phase.FIRING, True)
    diagnosis.update(picture(61))
    (back,) = diagnosis.update(picture(66))
    assert (back.phase, back.is_unseen) == (Phase.RESOLVED, False)


def test_nobody_is_told_to_restart_what_is_well_again() -> None:
    scripted = Scripted("engine.hung")
    diagnosis = Diagnosis([scripted.rule])
    actions = ("safe-restart", "relaunch", None, "reboot", "guard")
    hung = replace(finding("engine.hung"), remedies=tuple(Remedy(title="t", action=action) for action in actions))
    scripted.claims = [hung]
    (firing,) = diagnosis.update(picture(0))
    scripted.claims = []
    (resolved,) = diagnosis.update(picture(60))
    assert [remedy.action for remedy in firing.remedies] == [*actions]
    assert [remedy.action for remedy in resolved.remedies] == ["relaunch", None, "guard"]


@over("by_samples, phase", [(False, Phase.FIRING), (True, Phase.RESOLVED)])
def test_the_first_sample_after_a_silence_settles_what_is_judged_by_samples(by_samples: bool, phase: Phase) -> None:
    scripted = Scripted("memory.falling", by_samples=by_samples)
    diagnosis = Diagnosis([scripted.rule])
    scripted.claims = [finding("memory.falling")]
    diagnosis.update(picture(0))
    scripted.claims = []
    diagnosis.update(picture(59, LinkState.LOST))
    (back,) = diagnosis.update(picture(60))
    assert back.phase is phase


def test_a_short_silence_does_not_shorten_the_time_to_clear() -> None:
    scripted = Scripted("memory.falling", by_samples=True)
    diagnosis = Diagnosis([scripted.rule])
    scripted.claims = [finding("memory.falling")]
    diagnosis.update(picture(0))
    scripted.claims = []
    diagnosis.update(picture(2, LinkState.STALE))
    assert [one.phase for one in diagnosis.update(picture(3))] == [Phase.FIRING]


def test_a_rule_that_raises_is_contained_and_told_until_it_works_again() -> None:
    good, bad = Scripted("host.disk-low"), Scripted("host.clock")
    good.claims, bad.fault = [finding("host.disk-low")], ZeroDivisionError("division by zero")
    told: list[tuple[str, BaseException]] = []
    diagnosis = Diagnosis([bad.rule, good.rule], faulted=lambda where, error: told.append((where, error)) or "text")
    shown = diagnosis.update(picture(0))
    assert [(one.rule, one.subject) for one in shown] == [("host.disk-low", ""), ("sparktop.rule-failed", "host.clock")]
    assert told == [("the rule host.clock", bad.fault)]
    assert diagnosis.watching == 1
    bad.fault, bad.claims = None, [finding("host.clock")]
    rules = {one.rule for one in diagnosis.update(picture(1))}
    assert rules == {"host.disk-low", "host.clock", "sparktop.rule-failed"}
    assert {one.rule for one in diagnosis.update(picture(FAILURE_KEPT_S + 2))} == {"host.disk-low", "host.clock"}
    assert diagnosis.watching == 2


def test_a_rule_that_one_nodes_data_breaks_judges_the_other_node() -> None:
    def judge(fleet: FleetState) -> Iterable[Finding]:
        for view in fleet.nodes:
            if view.name == "spark1":
                raise OverflowError("int too large to convert to float")
            yield finding("memory.low", node=view.name)

    both = tuple(NodeView(name=name, link=Link(state=LinkState.LIVE)) for name in ("spark1", "spark2"))
    shown = Diagnosis([LiveRule(id="memory.low", check=judge)]).update(
        FleetState(nodes=both, monotonic_s=0.0, wall_s=1.0)
    )
    assert {(one.rule, one.nodes) for one in shown} == {
        ("memory.low", ("spark2",)),
        ("sparktop.rule-failed", ("spark1",)),
    }


def test_the_claims_of_a_rule_have_a_limit() -> None:
    scripted = Scripted("host.many")
    scripted.claims = [replace(finding("host.many"), subject=str(number)) for number in range(5000)]
    assert len(Diagnosis([scripted.rule]).update(picture(0))) < 500


def test_a_rule_that_raises_half_way_through_its_claims_is_contained_too() -> None:
    def half(_: FleetState) -> Iterable[Finding]:
        yield finding("host.half")
        raise KeyError("gone")

    (shown,) = Diagnosis([LiveRule(id="host.clock", check=half)]).update(picture(0))
    assert shown.rule == "sparktop.rule-failed"


def test_a_consequence_names_the_cause_that_fires_on_its_node() -> None:
    cause, effect = Scripted("memory.falling"), Scripted("engine.held", follows=("gpu.spin", "memory.falling"))
    effect.claims = [finding("engine.held"), finding("engine.held", node="spark2")]
    cause.claims = [finding("memory.falling")]
    shown = Diagnosis([effect.rule, cause.rule]).update(picture(0))
    assert {(one.nodes, one.caused_by) for one in shown if one.rule == "engine.held"} == {
        (("spark1",), "memory.falling"),
        (("spark2",), None),
    }
    effect_at = [one.key for one in shown].index(("engine.held", ("spark1",), ""))
    assert shown[effect_at - 1].rule == "memory.falling"


def test_what_a_rule_says_under_other_names_follows_as_it_does() -> None:
    cause, many = Scripted("cluster.rank-died"), Scripted("restart.ended", follows=("cluster.rank-died",))
    many.claims = [finding("restart.exit-137")]
    cause.claims = [finding("cluster.rank-died")]
    shown = Diagnosis([many.rule, cause.rule]).update(picture(0))
    assert [(one.rule, one.caused_by) for one in shown] == [
        ("cluster.rank-died", None),
        ("restart.exit-137", "cluster.rank-died"),
    ]


def test_an_engines_log_follows_from_what_the_kernel_log_says_of_its_gpu() -> None:
    kernel, engine = Scripted("kernel.log"), Scripted("engine.log")
    engine.claims = [finding("driver.cuda-unknown-error")]
    assert [one.caused_by for one in Diagnosis([engine.rule]).update(picture(0))] == [None]
    kernel.claims = [finding("kernel.xid-120")]
    shown = Diagnosis([engine.rule, kernel.rule]).update(picture(0))
    assert [(one.rule, one.caused_by) for one in shown] == [
        ("kernel.xid-120", None),
        ("driver.cuda-unknown-error", "kernel.xid-120"),
    ]


# --- the order ------------------------------------------------------------------------------------------------------


def rules(findings: Iterable[Finding]) -> list[str]:
    return [one.rule for one in findings]


def test_the_worst_root_comes_first_and_consequences_under_their_cause() -> None:
    shown = ordered(
        [
            finding("engine.dead", Severity.CRITICAL, cause="memory.oom"),
            finding("host.disk", Severity.WARNING),
            finding("memory.oom", Severity.WARNING),
            finding("config.note", Severity.INFO),
        ]
    )
    # The cause itself is only a warning; what it led to makes it the first thing to read.
    assert rules(shown) == ["memory.oom", "engine.dead", "host.disk", "config.note"]


def test_a_confirmed_one_comes_before_a_suspected_one() -> None:
    doubtful = Finding(rule="a.b", severity=Severity.CRITICAL, confidence=Confidence.SUSPECTED, title="?")
    assert rules(ordered([doubtful, finding("c.d", Severity.CRITICAL)])) == ["c.d", "a.b"]


def test_what_has_had_consequences_comes_before_what_may_have_some() -> None:
    may, cause, effect = finding("a.may"), finding("b.cause"), finding("c.effect", cause="b.cause")
    assert rules(ordered([may, cause, effect], before=(may.key,))) == ["b.cause", "c.effect", "a.may"]


def test_of_notes_the_newest_is_first() -> None:
    old = replace(finding("moe.old", Severity.INFO), since_wall_s=100.0)
    new = replace(finding("kv.new", Severity.INFO), since_wall_s=900.0)
    wrong = replace(finding("a.wrong", Severity.WARNING), since_wall_s=50.0)
    assert rules(ordered([old, wrong, new])) == ["a.wrong", "kv.new", "moe.old"]
    assert rules(ordered([old, wrong, new], before=(old.key,))) == ["a.wrong", "kv.new", "moe.old"]
    assert rules(ordered([old, new], before=(old.key, new.key))) == ["moe.old", "kv.new"], "times waver: no swap"


def test_a_root_keeps_its_place_until_something_worse_or_surer_comes() -> None:
    first, second = Scripted("a.first"), Scripted("a.second")
    diagnosis = Diagnosis([first.rule, second.rule])
    second.claims = [finding("a.second", Severity.CRITICAL)]
    assert rules(diagnosis.update(picture(0))) == ["a.second"]
    first.claims = [finding("a.first", Severity.CRITICAL)]
    assert rules(diagnosis.update(picture(1))) == ["a.second", "a.first"], "it stands above it in the catalogue"
    second.claims = [finding("a.second", Severity.WARNING)]
    assert rules(diagnosis.update(picture(2))) == ["a.first", "a.second"]
    second.claims = [finding("a.second", Severity.CRITICAL)]
    assert rules(diagnosis.update(picture(3))) == ["a.first", "a.second"], "the place is the other's now"
    first.claims = [replace(finding("a.first", Severity.CRITICAL), confidence=Confidence.SUSPECTED)]
    assert rules(diagnosis.update(picture(4))) == ["a.second", "a.first"], "what is sure comes first"


def test_what_was_last_seen_comes_after_what_is_seen() -> None:
    lost = replace(finding("a.lost", Severity.CRITICAL), is_unseen=True)
    starved = finding("a.starved", Severity.CRITICAL, cause="a.spike")
    falling = replace(finding("a.falling", Severity.CRITICAL, cause="a.spike"), is_unseen=True)
    spike = replace(finding("a.spike", Severity.CRITICAL), is_unseen=True)
    assert rules(ordered([lost, falling, starved, spike])) == ["a.spike", "a.starved", "a.falling", "a.lost"]


def test_what_every_start_waits_for_is_told_before_its_equals() -> None:
    died, lost = Scripted("a.died"), Scripted("a.lost")
    diagnosis = Diagnosis([died.rule, lost.rule])
    died.claims = [finding("a.died", Severity.CRITICAL)]
    diagnosis.update(picture(0))
    lost.claims = [replace(finding("a.lost", Severity.CRITICAL), blocks_starts=True)]
    assert rules(diagnosis.update(picture(1))) == ["a.lost", "a.died"]
    lost.claims = [replace(finding("a.lost"), blocks_starts=True)]
    assert rules(diagnosis.update(picture(2))) == ["a.died", "a.lost"], "a lesser one"


def test_a_cause_on_another_node_is_no_cause() -> None:
    shown = ordered(
        [
            finding("engine.dead", Severity.CRITICAL, node="spark2", cause="memory.oom"),
            finding("memory.oom", Severity.WARNING, node="spark1"),
        ]
    )
    assert rules(shown) == ["engine.dead", "memory.oom"]


CAUSES = st.sampled_from([None, "a.0", "a.1", "a.2", "a.3", "a.4", "no.such"])


@given(st.lists(st.tuples(st.sampled_from(list(Severity)), CAUSES), max_size=5))
def test_nothing_is_lost_or_doubled_whatever_names_whatever(drawn: list[tuple[Severity, str | None]]) -> None:
    findings = [finding(f"a.{at}", severity, cause=cause) for at, (severity, cause) in enumerate(drawn)]
    shown = ordered(findings)
    assert sorted(rules(shown)) == sorted(rules(findings))
    for one in shown:
        direct = {other.rule: other.caused_by for other in findings}
        seen, at = {one.rule}, one.caused_by
        while at in direct and at not in seen:
            seen.add(at)
            at = direct[at]
        if at not in seen and one.caused_by in direct:  # no circle on the way up
            assert rules(shown).index(one.caused_by) < rules(shown).index(one.rule)


class Counted(tuple[Finding, ...]):
    """Findings that count how often somebody walks over all of them."""

    walks = 0

    def __iter__(self) -> Iterator[Finding]:
        Counted.walks += 1
        return super().__iter__()


def test_causes_are_found_without_a_walk_over_all_findings_for_each() -> None:
    many = Counted(finding(f"rule-{number}", cause=f"rule-{number // 2}") for number in range(60))
    Counted.walks = 0
    ordered(many)
    assert Counted.walks < 10


def test_a_claim_that_tells_its_own_time_is_shown_as_it_is() -> None:
    """Dozens of kernel findings do; a copy of each for every picture was a fifth of what all rules cost."""
    scripted = Scripted("a")
    scripted.claims = [replace(finding("a"), since_wall_s=900.0)]
    (shown,) = Diagnosis([scripted.rule]).update(picture(0))
    assert shown is scripted.claims[0]


def test_findings_under_ever_new_names_leave_only_so_many_behind() -> None:
    scripted = Scripted("engine.stalled")
    diagnosis = Diagnosis([scripted.rule])
    for second in range(2 * MAX_GONE):
        scripted.claims = [finding("engine.stalled", node=f"engine {second}")]
        shown = diagnosis.update(picture(second / 10))
    assert len(shown) == 1 + MAX_GONE
    assert {found.nodes[0] for found in shown} == {
        f"engine {second}" for second in range(MAX_GONE - 1, 2 * MAX_GONE)
    }  # the newest stay
