"""What `f` offers: what is expected to succeed comes first, and several faults of one launch go in one relaunch."""

from __future__ import annotations

from dataclasses import replace

from tests.relaunch_support import INFINIBAND, MEMLOCK
from tests.scenario_support import Stage
from tests.ui.look import clock_of_pictures
from tests.ui.pictures import PICTURES
from tests.unit.sim.test_scenario_remedies import found

from sparktop.model.change import SMALLER_SHARE, Change
from sparktop.model.engine import EngineState
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Phase, Remedy
from sparktop.model.fleet import FleetState
from sparktop.operate.actions import action
from sparktop.operate.targets import Selection, selected
from sparktop.ui.dialogs.dialog import Choice, ChooseScreen
from sparktop.ui.screens.fix import (
    Offer,
    actions,
    all_in_one,
    choices,
    first_applicable,
    introduction,
    other_finding_choices,
    with_consequences,
)

RESTART = Remedy(title="Restart it", action="safe-restart")
BREAK = Remedy(title="Break the loop", action="break-restart-loop")
EVIDENCE = Remedy(title="Collect evidence", action="collect-evidence")
READ = Remedy(title="Read its log", steps=("docker logs vllm",))


def finding(rule: str, *remedies: Remedy, **more: object) -> Finding:
    made = Finding(
        rule=rule, severity=Severity.WARNING, title=rule, nodes=("spark1",), subject="vllm", remedies=remedies
    )
    return replace(made, **more)  # type: ignore[arg-type]


def offered(of: Finding, **more: bool) -> tuple[Choice, ...]:
    return choices(of, tuple(map(Offer, of.remedies)), **more)


def fleet(*findings: Finding) -> FleetState:
    return FleetState(wall_s=0.0, monotonic_s=0.0, nodes=(), findings=findings)


def relaunch(**change: object) -> Remedy:
    return Remedy(title="Relaunch", action="relaunch", change=Change(**change))  # type: ignore[arg-type]


def test_what_is_expected_to_fail_comes_last_and_is_never_preselected() -> None:
    one = finding("a.b", RESTART, BREAK, READ)
    rows = choices(one, (Offer(RESTART, "its last start failed"), Offer(BREAK), Offer(READ)))
    assert [row.value and row.value.remedy for row in rows] == [BREAK, None, RESTART]
    assert first_applicable(rows) == 0
    assert any("expected to fail now: its last start failed" in line.plain for line in rows[2].notes)


def test_evidence_is_preselected_where_all_else_is_expected_to_fail() -> None:
    hopeless = Offer(RESTART, "34 GiB are lost")
    rows = choices(finding("a.b"), (hopeless, Offer(EVIDENCE)))
    chosen = [row for row in rows if row.value is not None]
    assert chosen[first_applicable(rows)].value == Offer(EVIDENCE)
    assert first_applicable(choices(finding("a.b"), (hopeless,))) == 0, "the cursor has to be somewhere"


def test_what_stands_in_the_way_comes_first_where_no_remedy_of_the_finding_helps() -> None:
    leak = finding("memory.held-after-exit", Remedy(title="Reboot", action="reboot"))
    others = other_finding_choices((leak,), count_above=2)
    for expected_failure, first in (("34 GiB are lost", leak), ("", Offer(RESTART))):
        rows = (*choices(finding("a.b"), (Offer(RESTART, expected_failure), Offer(EVIDENCE))), *others)
        chosen = [row for row in rows if row.value is not None]
        assert chosen[first_applicable(rows, instead=leak)].value == first


def test_the_literal_change_of_what_a_finding_caused_comes_before_its_own_relaunch_without_one() -> None:
    """After an OOM kill the spike that led to it has said what to change."""
    kill = finding("kernel.oom-kill", Remedy(title="with less", action="relaunch"))
    eager = relaunch(flags={"--enforce-eager": ""})
    down = finding("restart.oom-killed", eager, RESTART, caused_by="kernel.oom-kill")
    other = finding("a.other", relaunch(flags={"--x": ""}))
    assert with_consequences(kill, (kill, down, other)) == (eager, *kill.remedies)
    assert with_consequences(down, (kill, down)) == down.remedies


def test_a_restart_of_what_is_down_costs_no_requests() -> None:
    busy = finding("a.b", replace(RESTART, cost="its requests"))
    assert any("costs its requests" in note.plain for note in offered(busy)[0].notes)
    assert any("costs the time to load" in note.plain for note in offered(busy, is_down=True)[0].notes)


def test_several_faults_of_one_launch_are_mended_in_one_relaunch() -> None:
    first = finding("a.first", relaunch(environment={"NCCL_DEBUG": "INFO"}))
    second = finding("a.second", relaunch(options={"IpcMode": "host"}))
    third = finding("a.third", relaunch(environment={"NCCL_DEBUG": "WARN"}))
    others = (
        finding("a.other", relaunch(flags={"--x": ""}), subject="sglang"),
        finding("a.over", relaunch(flags={"--y": ""}), phase=Phase.RESOLVED),
        finding("a.restart", RESTART, relaunch(flags={"--z": ""})),
    )
    together = all_in_one(first, fleet(first, second, third, *others))
    assert together is not None
    assert (together.title, together.action) == ("Fix 2 faults in one relaunch", "relaunch")
    assert together.steps == ("a.first", "a.second"), "the third contradicts the first"
    assert together.leaves == ("a.third",), "what a restart fixes is not left"
    assert together.also_fixes == (second.key,)
    assert together.change == Change(environment={"NCCL_DEBUG": "INFO"}, options={"IpcMode": "host"})
    assert all_in_one(first, fleet(first, *others)) is None
    assert all_in_one(third, fleet(first, second, third)) is None, "it would not fix this one"


def test_one_relaunch_names_what_it_leaves() -> None:
    first = finding("a.first", relaunch(environment={"NCCL_DEBUG": "INFO"}))
    second = finding("a.second", relaunch(options={"IpcMode": "host"}))
    both = all_in_one(first, fleet(first, second))
    assert both is not None
    assert (both.title, both.leaves) == ("Fix all 2 in one relaunch", ())
    image = finding("a.image", READ, nodes=("spark1", "spark2"))
    others = (
        finding("a.version", READ, caused_by="a.image"),
        finding("a.effect", READ, caused_by="a.second"),
        finding("a.note", READ, severity=Severity.INFO),
        finding("a.wish", relaunch(flags={"--share": "0.7"}), severity=Severity.INFO),
    )
    some = all_in_one(first, fleet(first, second, image, *others))
    assert some is not None
    assert (some.title, some.leaves) == ("Fix 2 faults in one relaunch", ("a.image",))
    assert some.change == both.change, "nobody asked for what a note would change"
    notes = "\n".join(line.plain for line in choices(first, (Offer(some),))[0].notes)
    assert "not fixed: a.image" in notes


def test_enter_says_what_it_does_on_each_row() -> None:
    by_hand = finding("a.hand", READ)
    rows = (*offered(by_hand), *other_finding_choices((finding("a.b", RESTART),), count_above=1))
    assert ChooseScreen("fix", rows, verb="shows the plan").state_keys() == ("Enter shows its remedies", "Esc close")
    rows = offered(finding("a.b", RESTART, relaunch(flags={"--x": ""})))
    assert ChooseScreen("fix", rows, verb="shows the plan").state_keys() == ("Enter shows the plan", "Esc close")
    at_second = ChooseScreen("fix", rows, verb="shows the plan", at=1)
    assert at_second.state_keys() == ("Enter shows its change", "Esc close")
    assert ChooseScreen("fix", offered(by_hand), verb="shows the plan").state_keys() == ("Esc close",)


def test_one_relaunch_fixes_the_faults_of_every_rank() -> None:
    stage = Stage("two-node-misconfigured").run(50)
    bridge = found(stage, "cluster.bridge-network")
    together = all_in_one(bridge, stage.picture)
    assert together is not None
    assert {rule for rule, _, _ in together.also_fixes} >= {"cluster.interface-wrong", "cluster.hca-wrong"}
    assert together.leaves == ("The ranks of pair-0 run different images",)
    hca = all_in_one(found(stage, "cluster.hca-wrong"), stage.picture)
    assert hca is not None
    assert hca.change == together.change


def test_changes_join_unless_they_contradict_each_other() -> None:
    both = MEMLOCK.joined(INFINIBAND)
    assert both is not None
    assert both.options == INFINIBAND.options, "the same limit is asked for once"
    per_node = Change(by_node={"spark1": Change(environment={"A": "1"})})
    more = Change(by_node={"spark1": Change(environment={"B": "2"}), "spark2": Change(environment={"B": "3"})})
    joined = per_node.joined(more)
    assert joined is not None
    assert joined.by_node["spark1"].environment == {"A": "1", "B": "2"}
    assert per_node.joined(Change(by_node={"spark1": Change(environment={"A": "2"})})) is None
    assert Change(image="a").joined(Change(image="b")) is None
    assert Change(options={"IpcMode": "host"}).joined(Change(options={"IpcMode": "private"})) is None


def test_a_literal_change_is_not_lost_behind_a_remedy_of_the_same_words() -> None:
    words = Remedy(title="Reduce the share", action="relaunch")
    literal = replace(words, change=SMALLER_SHARE)
    again = replace(literal, title="Or reduce the share")
    root = finding("a.root", words)
    effect = finding("a.effect", literal, again, caused_by="a.root")
    assert with_consequences(root, (root, effect)) == (literal, words)


def test_an_empty_list_says_why_it_is_empty() -> None:
    def told(**more: object) -> str:
        (row,) = offered(finding("a.b", **more))
        assert row.value is None
        return row.label.plain

    assert told() == "No known remedy. Esc, then d, shows what is known."
    assert told(severity=Severity.INFO) == "A note: there is nothing to fix. Esc, then d, shows what is known."
    assert told(severity=Severity.INFO, phase=Phase.RESOLVED) == "Nothing is left to do."


def test_a_problem_whose_signs_are_gone_may_be_over() -> None:
    def told(**more: object) -> str:
        return "\n".join(line.plain for line in introduction(finding("a.b", **more)))

    assert "its signs are gone: it is over if they stay away" in told(is_clearing=True)
    assert "it is resolved" in told(is_clearing=True, phase=Phase.RESOLVED)
    assert "gone" not in told()


def test_what_can_be_done_comes_first_and_the_subject_before_the_rest() -> None:
    state = PICTURES["decode"](clock_of_pictures())
    on_node = Selection(node="spark1", engine="vllm-minimax", subject="node")
    assert actions(state, on_node)[0].heading == "node  spark1"
    rows = actions(state, replace(on_node, subject="engine"), protected=("spark1",))
    can = [row.value.name for row in rows if row.value is not None]
    assert "drop-caches" in can, "on spark2"
    assert "collect-evidence" in can
    assert "safe-restart" not in can
    assert any("Safe restart" in row.label.plain and "protected" in row.label.plain for row in rows)

    alone = replace(state, nodes=(replace(state.nodes[0], engines=()),))
    rows = actions(alone, Selection(node="spark1", subject="node"))
    whole = [row.label.plain for row in rows]
    assert any("Measure the cable" in text and "takes 2 Sparks" in text for text in whole)
    assert "there is no engine" in whole[-1], "a group of which nothing can be done is the last"
    of_node = [row.value is not None for row in rows if row.heading == rows[0].heading]
    assert of_node == sorted(of_node, reverse=True), "in its group what can be done is first"

    down = tuple(replace(one, state=EngineState.EXITED) for one in state.nodes[0].engines)
    view = replace(state.nodes[0], engines=down)
    rows = actions(replace(state, nodes=(view,)), Selection(node="spark1", engine=down[0].name, subject="engine"))
    proof = next(row for row in rows if "Prove an endpoint" in row.label.plain)
    assert proof.value is None
    assert "doesn't run" in proof.label.plain


def test_the_process_under_the_cursor_is_the_one() -> None:
    state = PICTURES["decode"](clock_of_pictures())
    holder = action("end-holder")
    assert holder is not None
    choices = selected(holder, state, Selection(node="spark1"))
    assert len(choices) > 1
    last = choices[-1].request
    assert selected(holder, state, Selection(node=last.nodes[0], pid=last.target, subject="process")) == choices[-1:]
