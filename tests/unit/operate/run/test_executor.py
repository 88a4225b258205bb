"""A run of a plan: in order, through every fault, and honest about what was done."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.operate_support import FAILED, GO_ON, ID, ROLL_BACK, Stage, plan, step
from tests.runner_support import until

from sparktop.errors import LinkLost, NoAnswer
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.model.operation import Command, DockerCall, Expect, Privilege
from sparktop.operate.acts.arrivals import AwaitResolved
from sparktop.operate.acts.guard_order import GuardOrder
from sparktop.operate.acts.memory import AwaitMemory
from sparktop.operate.acts.readiness import AwaitReady
from sparktop.operate.acts.remote import Remote
from sparktop.operate.acts.request import SmokeTest
from sparktop.operate.evidence.collect import CollectEvidence
from sparktop.operate.refused import Refused
from sparktop.operate.runner.api import LockHolder, OperationResult, Outcome, OutcomeState
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.step.step_result import RequestResult, StepState
from sparktop.operate.step.wait import WaitStatus, WaitVerdict

MEMORY = AwaitMemory(target_bytes=1 << 30)
READY = AwaitReady(name="vllm")
SMOKE = SmokeTest(engine="vllm-qwen36", floor_bytes=1 << 30)
GOOD = RequestResult(ok=True, detail="it answered")
WAITING = WaitStatus(verdict=WaitVerdict.WAITING, detail="not yet")
STEPS = ("policy", "stop", "start", "back")


def restart() -> Any:
    return plan(
        step("policy"),
        step("stop", undone_by="docker start vllm"),
        step("memory", MEMORY, limit_s=300),
        step("start", on_failure=ROLL_BACK),
        step("ready", READY, limit_s=600, on_failure=ROLL_BACK),
        step("smoke", SMOKE, limit_s=30, on_failure=ROLL_BACK),
        step("back"),
        back=(step("old"), step("policy")),
    )


def states(run: Run) -> list[str]:
    return [str(one.state) for one in run.steps]


async def test_all_is_done_in_order_and_audited_before_it_began(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.acts.smokes = [GOOD]
    seen: list[list[str]] = []
    stage.node.at = lambda step_id: seen.append([entry["kind"] for entry in stage.audited])
    run = await stage.carry_out(restart())
    assert (run.state, run.message) == (RunState.DONE, "A plan: done in 0:00.")
    assert stage.node.begun == ["policy", "stop", "start", "back"]
    assert seen[0] == ["intent"]  # on disk before the first step
    kinds = [entry["kind"] for entry in stage.audited]
    assert kinds == ["intent", *["step"] * 7, "end"]
    assert stage.audited[0]["who"] == "me@laptop"
    assert stage.audited[0]["steps"][1]["operations"] == [
        {"argv": ["do", "stop"], "privilege": "user", "limit_s": 30.0}
    ]
    assert stage.audited[-1]["before"]["spark1"]["available_gib"] == 27.0
    assert stage.node.locked_by is None  # given back
    assert not run.can_go_back


@pytest.mark.parametrize("cut", ["before", "begun", "after"])
@pytest.mark.parametrize("where", STEPS)
async def test_a_link_cut_at_any_step_is_survived_and_nothing_is_done_twice(
    tmp_path: Path, where: str, cut: str
) -> None:
    stage = Stage(tmp_path)
    stage.acts.smokes = [GOOD]
    stage.node.cuts[where] = cut
    stage.node.back_after = 3
    run = await stage.carry_out(restart())
    assert run.state is RunState.DONE, run.message
    assert stage.node.begun == list(STEPS)  # each once
    assert RunState.LINK_LOST in {one.state for one in stage.runs}
    index = [one.step.id for one in run.steps].index(where)
    assert StepState.UNKNOWN in {one.steps[index].state for one in stage.runs}
    assert any(entry["kind"] == "note" and entry["text"] == "link lost" for entry in stage.audited)
    assert stage.node.locks == (1 if where == "back" and cut != "before" else 2)  # taken anew where more is to be done


@pytest.mark.parametrize("where", STEPS)
async def test_a_node_that_has_rebooted_is_to_be_looked_at(tmp_path: Path, where: str) -> None:
    stage = Stage(tmp_path)
    stage.acts.smokes = [GOOD]
    stage.node.cuts[where] = "begun"
    stage.node.has_rebooted = True
    made = restart()
    run = await stage.carry_out(replace(made, steps=tuple(replace(one, on_failure=_stop()) for one in made.steps)))
    assert run.state is RunState.FAILED
    assert "rebooted, or its runner was killed" in run.message
    assert stage.node.begun.count(where) == 1
    assert run.can_go_back


def _stop() -> Any:
    from sparktop.operate.step.plan import OnFailure

    return OnFailure.STOP


@pytest.mark.parametrize("where", STEPS)
async def test_a_node_that_never_comes_back_is_not_known(tmp_path: Path, where: str) -> None:
    stage = Stage(tmp_path, link_patience_s=0.05)
    stage.acts.smokes = [GOOD]
    stage.node.cuts[where] = "begun"
    stage.node.is_back = False
    run = await stage.carry_out(restart())
    index = [one.step.id for one in run.steps].index(where)
    assert (run.state, run.steps[index].state) == (RunState.FAILED, StepState.UNKNOWN)
    assert "Whether it was done is not known" in run.message
    assert f"Not known: Do {where}." in run.message
    assert stage.node.begun.count(where) == 1
    assert all(one.state is StepState.SKIPPED for one in run.steps[index + 1 :])


async def test_a_link_that_goes_with_the_step_is_no_failure(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node.cuts["reboot"] = "begun"
    stage.node.has_rebooted = True
    act = Remote(operations=(Command(argv=("reboot",)),), takes_link=True)
    run = await stage.carry_out(plan(step("reboot", act), step("after")))
    assert run.state is RunState.DONE
    assert run.steps[0].detail == "the link broke with it"
    assert stage.node.begun == ["reboot", "after"]


@pytest.mark.parametrize(("kind", "state", "begun"), [
    ("stop", RunState.FAILED, ["policy", "stop"]),
    ("go on", RunState.DONE, ["policy", "stop", "start"]),
    ("roll back", RunState.ROLLED_BACK, ["policy", "stop", "old", "back-policy"]),
])  # fmt: skip
async def test_each_kind_of_failure(tmp_path: Path, kind: str, state: RunState, begun: list[str]) -> None:
    from sparktop.operate.step.plan import OnFailure

    stage = Stage(tmp_path)
    stage.node.fails["stop"] = FAILED
    made = plan(
        step("policy"),
        step("stop", on_failure=OnFailure(kind)),
        step("start"),
        back=(step("old"), step("policy")),
    )
    run = await stage.carry_out(made)
    assert (run.state, stage.node.begun) == (state, begun)
    assert "it would not" in run.message
    assert run.can_go_back is (kind == "stop")
    if kind == "stop":
        assert run.message == "“Do stop” failed: it would not. Done: Do policy. Not started: Do start."
        assert run.hint == "You can roll back: Do old; Do policy."


async def test_a_way_back_that_fails_tells_both_problems(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node.fails["start"] = FAILED
    stage.node.fails["old"] = replace(FAILED, problem="the old one is gone")
    run = await stage.carry_out(plan(step("start", on_failure=ROLL_BACK), back=(step("old"), step("policy"))))
    assert run.state is RunState.FAILED
    assert "it would not" in run.message
    assert "the old one is gone" in run.message
    assert "Not started: Do policy." in run.message
    assert run.can_go_back


async def test_what_a_failed_step_undid_is_told(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    did = OperationResult(index=0)
    broke = OperationResult(index=1, ok=False, code=500, problem="no space left on device")
    undid = OperationResult(index=0, is_undo=True, ok=False, problem="it hung")
    two = Remote(operations=(Command(argv=("a",)), Command(argv=("b",))))
    for undone, said, back in ((True, "What it had done is reverted.", False), (False, "it hung", True)):
        stage.node.journal.clear()
        stage.node.fails["swap"] = Outcome(state=OutcomeState.FAILED, results=(did, broke, undid), undone=undone)
        run = await stage.carry_out(plan(step("swap", two), back=(step("old"),)))
        assert "no space left on device" in run.message
        assert said in run.message
        assert run.can_go_back is back


async def test_a_check_that_fails_before_anything_leaves_nothing_to_go_back_from(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node.fails["stop"] = Outcome(
        state=OutcomeState.FAILED, results=(OperationResult(index=0, ok=False),), problem="vllm was restarted meanwhile"
    )
    act = Remote(operations=(Expect(path=f"/containers/{ID}/json", equals={}), Command(argv=("docker",))))
    run = await stage.carry_out(plan(step("stop", act, on_failure=ROLL_BACK), back=(step("old"),)))
    assert (run.state, run.can_go_back) == (RunState.FAILED, False)
    assert stage.node.begun == ["stop"]
    assert "Nothing was done." in run.message


async def test_what_sudo_would_not_have_leaves_nothing_to_go_back_from(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    refused = OperationResult(index=0, ok=False, is_untouched=True, problem="sudo refused the password 3 times")
    stage.node.fails["stop"] = Outcome(state=OutcomeState.FAILED, results=(refused,), problem=refused.problem)
    run = await stage.carry_out(plan(step("stop"), back=(step("old"),)))
    assert (run.state, run.can_go_back, run.hint) == (RunState.FAILED, False, "")
    assert "sudo refused the password 3 times. Nothing was done." in run.message


# --- the lock


async def test_a_node_that_another_changes_is_left_alone(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node.holder = LockHolder(who="ada@desk", what="Safe restart of vllm", since_wall_s=None)
    run = await stage.carry_out(restart())
    assert run.state is RunState.REFUSED
    assert "ada@desk is changing spark1: Safe restart of vllm" in run.message
    assert stage.node.begun == []
    assert set(states(run)) == {"skipped"}
    assert [entry["kind"] for entry in stage.audited] == ["intent", "end"]


async def test_a_node_that_another_took_while_the_link_was_lost_is_left_alone(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node.cuts["stop"] = "after"

    def seen(run: Run) -> None:
        if run.state is RunState.LINK_LOST:
            stage.node.holder = LockHolder(who="ada@desk", what="a reboot")

    stage.at_state = seen
    run = await stage.carry_out(plan(step("stop"), step("start"), back=(step("old"),)))
    assert run.state is RunState.FAILED
    assert "ada@desk is changing spark1" in run.message
    assert stage.node.begun == ["stop"]  # it was done, and that is known
    assert run.steps[0].state is StepState.DONE
    assert run.can_go_back


async def test_our_own_older_lock_is_waited_out(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    looks = 0

    stage.node.holder = LockHolder(who="me@laptop", what="A plan [run-1]")

    def paused() -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            stage.node.holder = None

    stage.at_pause = paused
    run = await stage.carry_out(plan(step("stop")))
    assert (run.state, looks >= 3) == (RunState.DONE, True)


async def test_both_nodes_are_taken_before_the_first_step(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "spark1", "spark2")
    stage.nodes[1].holder = LockHolder(who="ada@desk", what="a reboot")
    run = await stage.carry_out(plan(step("stop"), step("stop@spark2", name="spark2")))
    assert run.state is RunState.REFUSED
    assert (stage.nodes[0].begun, stage.nodes[1].begun) == ([], [])
    assert stage.nodes[0].locked_by is None


async def test_no_runner_no_run(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.lines.drop(stage.lines.line("spark1"))  # type: ignore[arg-type]
    stage.node.is_back = False
    run = await stage.carry_out(plan(step("stop")))
    assert run.state is RunState.REFUSED
    assert "no runner on spark1" in run.message


# --- the audit


async def test_without_an_audit_nothing_is_done(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.audit_path.parent.write_text("a file where the folder should be")
    run = await stage.carry_out(restart())
    assert run.state is RunState.REFUSED
    assert "can't be written" in run.message
    assert "Nothing was done." in run.message
    assert (stage.node.begun, stage.node.locks) == ([], 0)


async def test_an_audit_that_fails_in_the_middle_leaves_no_engine_stopped(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    def fill_the_disk(step_id: str) -> None:
        if step_id == "stop":
            stage.audit_path.unlink()
            stage.audit_path.mkdir()

    stage.node.at = fill_the_disk
    run = await stage.carry_out(plan(step("stop"), step("start")))
    assert run.state is RunState.DONE
    assert stage.node.begun == ["stop", "start"]
    assert "The audit is incomplete" in run.message


async def test_a_refused_plan_is_not_begun(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    execution = stage.execution(restart())
    execution.refuse(Refused("This session is read-only.", ("leave --read-only out",)))
    run = await execution.finished()
    assert run.state is RunState.REFUSED
    assert "This session is read-only." in run.message
    assert {one.state for one in run.steps} == {StepState.SKIPPED}
    assert run.hint == "leave --read-only out"
    assert (stage.audited, stage.node.begun, len(stage.runs)) == ([], [], 2)


# --- waits and what is done from here


async def test_memory_that_does_not_come_starts_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.acts.judgements["memory"] = WaitStatus(verdict=WaitVerdict.FAILED, detail="held by nobody; reboot")
    run = await stage.carry_out(restart())
    assert run.state is RunState.FAILED
    assert stage.node.begun == ["policy", "stop"]
    assert "held by nobody; reboot" in run.message
    assert run.can_go_back


async def test_a_wait_has_its_limit(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.acts.judgements["ready"] = WAITING
    began_s = stage.clock.monotonic()
    run = await stage.carry_out(plan(step("start"), step("ready", READY, limit_s=600)))
    assert run.state is RunState.FAILED
    assert "not within 10 min: not yet" in run.message
    assert 600 <= stage.clock.monotonic() - began_s < 605


async def test_a_node_that_is_silent_in_a_wait_is_waited_for_and_the_limit_stands(tmp_path: Path) -> None:
    stage = Stage(tmp_path, link_patience_s=900)
    stage.acts.judgements["ready"] = WAITING
    began_s = stage.clock.monotonic()

    def seen() -> None:
        passed_s = stage.clock.monotonic() - began_s
        if 10 < passed_s < 300:
            stage.silence()
        elif passed_s >= 300:
            stage.views.clear()
            stage.acts.judgements["ready"] = WaitStatus(verdict=WaitVerdict.MET, detail="there")

    stage.at_pause = seen
    run = await stage.carry_out(plan(step("ready", READY, limit_s=60)))
    assert run.state is RunState.DONE
    assert RunState.LINK_LOST in {one.state for one in stage.runs}
    assert any("no word from spark1 for" in one.steps[0].detail for one in stage.runs)


async def test_a_node_that_stays_silent_in_a_wait_fails_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path, link_patience_s=60)
    stage.silence()
    run = await stage.carry_out(plan(step("ready", READY, limit_s=60)))
    assert run.state is RunState.FAILED
    assert "no word from spark1" in run.message


async def test_a_first_request_that_fails_rolls_back(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.acts.smokes = [RequestResult(ok=False, detail="memory fell to 1.2 GiB")]
    run = await stage.carry_out(restart())
    assert run.state is RunState.ROLLED_BACK
    assert stage.node.begun == ["policy", "stop", "start", "old", "back-policy"]
    assert "memory fell to 1.2 GiB" in run.message
    assert run.steps[5].state is StepState.FAILED


async def test_a_line_that_breaks_in_the_first_request_is_asked_again_where_the_engine_lives(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.acts.smokes = [LinkLost("broken"), GOOD]
    run = await stage.carry_out(plan(step("smoke", SMOKE, limit_s=30)))
    assert run.state is RunState.DONE
    stage.acts.smokes = [LinkLost("broken"), GOOD]
    stage.views["spark1"] = {"engines": ()}
    run = await stage.carry_out(plan(step("smoke", SMOKE, limit_s=30)))
    assert run.state is RunState.FAILED
    assert "whether the engine serves is not known" in run.message
    assert stage.acts.smokes == [GOOD]  # not asked again


async def test_evidence_says_where_it_is_and_what_is_missing(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    archive = tmp_path / "evidence" / "x.tar.gz"
    stage.acts.collected = SimpleNamespace(path=archive, problems=("stacks: no permission",))
    act = CollectEvidence(nodes=("spark1",))
    run = await stage.carry_out(plan(step("evidence", act), action="collect-evidence"))
    assert (run.state, run.evidence_path) == (RunState.DONE, str(archive))
    assert "stacks: no permission" in run.steps[0].detail
    assert run.steps[0].brief is not None
    assert "stacks" not in run.steps[0].brief
    assert stage.node.locks == 0  # it only looks
    stage.acts.collected = OSError(28, "No space left on device")
    run = await stage.carry_out(plan(step("evidence", act, on_failure=GO_ON), step("stop")))
    assert run.state is RunState.DONE
    assert "No space left on device" in run.message


async def test_evidence_waits_for_a_runner_that_is_on_its_way(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.lines.drop(stage.lines.line("spark1"))  # type: ignore[arg-type]
    stage.node.back_after = 2
    stage.acts.collected = SimpleNamespace(path=tmp_path / "a.tar.gz", problems=())
    run = await stage.carry_out(plan(step("evidence", CollectEvidence(nodes=("spark1",))), action="collect-evidence"))
    assert run.state is RunState.DONE
    assert stage.lines.line("spark1") is not None


async def test_a_folder_that_can_not_be_made_is_told_and_stops_no_restart(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    (tmp_path / "evidence").write_text("a file in its place")
    run = await stage.carry_out(
        plan(step("evidence", CollectEvidence(nodes=("spark1",)), on_failure=GO_ON), step("stop"))
    )
    assert (run.state, stage.node.begun) == (RunState.DONE, ["stop"])
    assert "the archive can't be written: File exists" in run.message


async def test_the_guard_is_told_and_has_to_confirm(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    order = GuardOrder(container_id=ID, container_name="vllm", floor_bytes=4 << 30)
    run = await stage.carry_out(plan(step("arm", order)))
    assert (run.state, stage.told) == (RunState.DONE, [("spark1", {"guard": ID})])
    stage.acts.judgements["guard"] = WAITING
    run = await stage.carry_out(plan(step("arm", order, limit_s=15)))
    assert run.state is RunState.FAILED
    assert stage.told[-1] == ("spark1", {"guard": ""})  # what was told as failed doesn't come true later
    object.__setattr__(stage.means, "tell", lambda name, words: False)
    run = await stage.carry_out(plan(step("arm", order)))
    assert "no probe on spark1" in run.message


async def test_the_facts_of_a_node_are_read_again_when_a_run_has_changed_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    run = await stage.carry_out(plan(step("do")))
    assert run.state is RunState.DONE
    assert stage.read_again == ["spark1"]


async def test_an_order_that_is_given_up_is_taken_back(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.acts.judgements["guard"] = WAITING
    execution = stage.execution(plan(step("arm", GuardOrder(container_id=ID, container_name="vllm"), limit_s=600)))
    stage.at_state = lambda run: execution.abort() if run.steps[0].detail == "not yet" else None
    execution.start()
    assert (await execution.finished()).state is RunState.ABORTED
    assert stage.told == [("spark1", {"guard": ID}), ("spark1", {"guard": ""})]


async def test_a_guard_that_has_acted_meanwhile_is_not_told_to_forget_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    fired = GuardState(phase=GuardPhase.FIRED, container_id=ID, container_name="vllm", available_bytes=1 << 30)
    stage.views["spark1"] = {"guard": fired}
    stage.acts.judgements["guard"] = WaitStatus(verdict=WaitVerdict.FAILED, detail="it has ended vllm already")
    run = await stage.carry_out(plan(step("arm", GuardOrder(container_id=ID, container_name="vllm"))))
    assert (run.state, stage.told) == (RunState.FAILED, [("spark1", {"guard": ID})])


async def test_a_guard_is_not_told_on_a_node_that_another_has_taken(tmp_path: Path) -> None:
    stage = Stage(tmp_path, link_patience_s=60)
    stage.node.cuts["stop"] = "after"

    def taken(run: Run) -> None:
        if run.state is RunState.LINK_LOST:
            stage.node.holder = LockHolder(who="else@where", what="a restart")

    stage.at_state = taken
    run = await stage.carry_out(plan(step("stop"), step("arm", GuardOrder(container_id=ID, container_name="vllm"))))
    assert (run.state, stage.told) == (RunState.FAILED, [])
    assert "else@where is changing spark1" in run.message


@pytest.mark.parametrize("phase", [GuardPhase.ARMED, GuardPhase.DISARMED])
async def test_a_run_that_ends_early_says_whether_its_guard_is_armed_yet(tmp_path: Path, phase: GuardPhase) -> None:
    stage = Stage(tmp_path)
    stage.node.fails["start"] = FAILED
    stage.views["spark1"] = {"guard": GuardState(phase=phase, container_id=ID, container_name="vllm")}
    arm = GuardOrder(container_id=ID, container_name="vllm")
    run = await stage.carry_out(plan(step("arm", arm), step("start")))
    assert ("The guard on spark1 is still armed over vllm" in run.message) is (phase is GuardPhase.ARMED)
    run = await stage.carry_out(plan(step("arm", arm), step("off", GuardOrder(container_id="")), step("start")))
    assert "still armed" not in run.message


def finding(subject: str = "vllm") -> Finding:
    return Finding(rule="gpu.spin", severity=Severity.CRITICAL, title="It spins", nodes=("spark1",), subject=subject)


@pytest.mark.parametrize(
    ("after", "state"),
    [
        ((), RunState.DONE),
        ((finding(),), RunState.NO_HELP),
        ((finding("vllm-new"),), RunState.NO_HELP),  # the same rule on what came of it
        ((finding("other"),), RunState.DONE),  # another engine's, there before
    ],
)
async def test_a_finding_has_to_be_seen_to_resolve(tmp_path: Path, after: tuple[Finding, ...], state: RunState) -> None:
    stage = Stage(tmp_path)
    stage.picture_fields["findings"] = (finding(), finding("other"))

    def done(step_id: str) -> None:
        stage.picture_fields["findings"] = after

    stage.node.at = done
    act = AwaitResolved(findings=(finding().key,))
    run = await stage.carry_out(plan(step("stop"), step("seen", act, limit_s=60), back=(step("old"),)))
    assert run.state is state
    assert run.can_go_back is (state is RunState.NO_HELP)
    assert ("did not help" in run.message) is (state is RunState.NO_HELP)


async def test_what_remains_of_several_findings_is_named(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    gone, left = finding("other"), finding()
    stage.picture_fields["findings"] = (gone, left)

    def done(step_id: str) -> None:
        stage.picture_fields["findings"] = (left,)

    stage.node.at = done
    act = AwaitResolved(findings=(gone.key, left.key))
    run = await stage.carry_out(plan(step("stop"), step("seen", act, limit_s=60)))
    assert run.state is RunState.NO_HELP
    assert run.message.startswith("All steps are done, but problems remain: ")
    assert f"1 of 2 still found: {left.title}." in run.message


# --- abort


@pytest.mark.parametrize("where", ["policy", "stop", "memory", "start", "ready", "smoke", "back"])
async def test_abort_at_any_step(tmp_path: Path, where: str) -> None:
    stage = Stage(tmp_path)
    made = restart()
    for name in ("memory", "ready"):
        if name == where:
            stage.acts.judgements[name] = WAITING
    stage.acts.smokes = [asyncio.Event() if where == "smoke" else GOOD]
    execution = stage.execution(made)

    def seen(run: Run) -> None:
        current = next((one for one in run.steps if one.state is StepState.RUNNING), None)
        if current is not None and current.step.id == where and not isinstance(current.step.act, Remote):
            execution.abort()

    stage.at_state = seen
    stage.node.at = lambda step_id: execution.abort() if step_id == where else None
    execution.start()
    async with asyncio.timeout(10):
        run = await execution.finished()
    index = [one.step.id for one in run.steps].index(where)
    is_last = where == "back"
    assert run.state is (RunState.DONE if is_last else RunState.ABORTED)  # the last step was done: nothing is left
    remote = [one.id for one in made.steps if isinstance(one.act, Remote)]
    assert stage.node.begun == [one.id for one in made.steps[: index + 1] if one.id in remote]
    assert all(one.state is StepState.SKIPPED for one in run.steps[index + 1 :])
    if where in remote:
        assert run.steps[index].state is StepState.DONE  # not cut in half
    if not is_last:
        assert RunState.ABORTING in {one.state for one in stage.runs}
        assert run.can_go_back
        assert "Aborted at" in run.message


async def test_abort_before_the_first_step(tmp_path: Path) -> None:
    stage = Stage(tmp_path, first_line_s=30.0)
    stage.lines.drop(stage.lines.line("spark1"))  # type: ignore[arg-type]
    stage.node.is_back = False
    execution = stage.execution(restart())
    execution.start()
    await asyncio.sleep(0.05)
    execution.abort()
    run = await execution.finished()
    assert (run.state, stage.node.begun, run.can_go_back) == (RunState.ABORTED, [], False)


async def test_abort_while_the_link_is_lost_ends_with_the_step_not_known(tmp_path: Path) -> None:
    stage = Stage(tmp_path, link_patience_s=600)
    stage.node.cuts["stop"] = "begun"
    stage.node.is_back = False
    execution = stage.execution(restart())
    stage.at_state = lambda run: execution.abort() if run.state is RunState.LINK_LOST else None
    execution.start()
    async with asyncio.timeout(10):
        run = await execution.finished()
    assert (run.state, run.steps[1].state) == (RunState.ABORTED, StepState.UNKNOWN)
    assert "completes or reverts this step by itself" in run.steps[1].detail
    assert run.can_go_back


async def test_abort_and_then_a_link_that_breaks_still_hears_how_the_step_ended(tmp_path: Path) -> None:
    for is_back, state in ((True, StepState.DONE), (False, StepState.UNKNOWN)):
        stage = Stage(tmp_path, link_patience_s=600, abort_grace_s=0.8)
        stage.node.cuts["stop"] = "begun"
        stage.node.is_back = is_back
        execution = stage.execution(restart())
        stage.node.at = lambda step_id, run=execution: run.abort() if step_id == "stop" else None
        execution.start()
        async with asyncio.timeout(10):
            run = await execution.finished()
        assert (run.state, run.steps[1].state) == (RunState.ABORTED, state)
        assert stage.node.begun == ["policy", "stop"]


async def test_a_line_that_breaks_again_and_again_is_given_up_in_the_end(tmp_path: Path) -> None:
    stage = Stage(tmp_path, link_patience_s=60.0)
    stage.node.cuts["stop"] = "after"
    stage.node.always_dead = True
    run = await stage.carry_out(plan(step("stop")))
    assert (run.state, run.steps[0].state) == (RunState.FAILED, StepState.UNKNOWN)
    assert 1060 <= stage.clock.monotonic() < 1065


async def test_abort_on_the_way_back_ends_its_waits(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node.fails["start"] = FAILED
    stage.acts.judgements["ready"] = WAITING
    execution = stage.execution(
        plan(step("start", on_failure=ROLL_BACK), back=(step("old"), step("ready", READY, limit_s=600), step("policy")))
    )

    def seen(run: Run) -> None:
        if run.state is RunState.ROLLING_BACK and run.steps[2].state is StepState.RUNNING:
            execution.abort()

    stage.at_state = lambda run: seen(run) if len(run.steps) > 2 else None
    execution.start()
    run = await execution.finished()
    assert run.state is RunState.ABORTED
    assert stage.node.begun == ["start", "old"]
    assert "You aborted the rollback" in run.message


async def test_a_console_that_is_closed_says_where_it_left(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node.gate = asyncio.Event()
    execution = stage.execution(restart())
    execution.start()
    await until(lambda: stage.node.begun == ["policy"])
    await execution.leave()
    run = execution.run
    assert (run.state, run.steps[0].state) == (RunState.ABORTED, StepState.UNKNOWN)
    assert "The console was closed during: Do policy" in run.message
    assert stage.audited[-1]["kind"] == "end"
    assert stage.audited[-1]["state"] == "aborted"


async def test_a_console_that_is_closed_while_it_writes_its_intent_ends_it_in_the_audit(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    execution = stage.execution(restart())
    execution.start()
    await asyncio.sleep(0)  # its intent is on its way to the disk
    await execution.leave()
    assert (execution.run.state, stage.node.begun) == (RunState.ABORTED, [])
    assert "end" in {entry["kind"] for entry in stage.audited}


async def test_who_waits_for_a_run_may_stop_waiting(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node.gate = asyncio.Event()
    execution = stage.execution(plan(step("stop")))
    execution.start()
    waiter = asyncio.create_task(execution.finished())
    await asyncio.sleep(0.01)
    waiter.cancel()
    await asyncio.wait({waiter})
    stage.node.gate.set()
    assert (await execution.finished()).state is RunState.DONE


async def test_faults_of_ours_end_the_run_in_sight(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.acts.smokes = [ZeroDivisionError("oops")]
    run = await stage.carry_out(plan(step("stop"), step("smoke", SMOKE), back=(step("old"),)))
    assert run.state is RunState.FAILED
    assert "ZeroDivisionError" in run.message
    assert run.can_go_back

    def broken(run: Run) -> None:
        raise RuntimeError("a screen fell over")

    stage.at_state = broken
    run = await stage.carry_out(plan(step("stop")))
    assert run.state is RunState.DONE


# --- what was saved, and what must not be seen


async def test_a_container_that_a_step_made_is_known_to_later_ones(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node.fails["swap"] = Outcome(state=OutcomeState.DONE, saved={"NEW": ID})
    stage.acts.smokes = [RequestResult(ok=False, detail="no")]
    uses = Remote(operations=(DockerCall(method="POST", path="/containers/{NEW}/update"),))
    lacks = Remote(operations=(DockerCall(method="POST", path="/containers/{OTHER}/update"),))
    made = plan(
        step("swap"),
        step("arm", GuardOrder(container_id="{NEW}", container_name="vllm")),
        step("other", lacks),
        step("smoke", SMOKE, on_failure=ROLL_BACK),
        back=(step("aside", uses),),
    )
    run = await stage.carry_out(made)
    assert run.state is RunState.ROLLED_BACK
    assert run.saved == {"spark1": {"NEW": ID}}
    assert stage.told[0][1] == {"guard": ID}
    assert stage.node.begun == ["swap", "aside"]  # "other" had nothing to act on
    assert run.steps[2].state is StepState.SKIPPED


async def test_a_password_is_asked_for_once_and_seen_nowhere(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.passwords = ["correct horse"]
    stage.node.asks_secret = {"a": ["correct horse"], "b": ["correct horse"]}
    stage.node.output = "sudo: correct horse"
    root = Remote(operations=(Command(argv=("sync",), privilege=Privilege.ROOT),))
    execution = stage.execution(plan(step("a", root), step("b", root)))
    execution.start()
    run = await execution.finished()
    assert run.state is RunState.DONE
    text = stage.audit_path.read_text()
    assert "correct horse" not in text + repr(run) + repr(stage.runs)
    assert "sudo: <masked>" in text
    assert "correct" not in repr(execution._passwords)


async def test_secrets_appear_in_nothing_that_leaves_the_executor(tmp_path: Path) -> None:
    canary, token = "s3cr3t/ca+nary==", "hf_" + "a1B2" * 9
    stage = Stage(tmp_path)
    stage.node.output = f"env HF_TOKEN={token} X={canary}"
    stage.node.fails["stop"] = Outcome(
        state=OutcomeState.FAILED,
        results=(OperationResult(index=0, ok=False, output=canary, problem=f"bad {canary}"),),
        problem=f"curl http://x/?k=s3cr3t%2Fca%2Bnary%3D%3D and {token}",
    )
    stage.acts.judgements["memory"] = WaitStatus(verdict=WaitVerdict.MET, detail=f"held by {canary}")
    act = Remote(
        operations=(
            Command(argv=("curl", "-H", f"X-Key: {canary}"), environment={"HF_TOKEN": token}, content=canary),
            DockerCall(method="POST", path="/containers/create", body={"Env": [f"ODD={canary}"], "Cmd": [canary]}),
        )
    )
    made = plan(step("memory", MEMORY), step("stop", act), back=(step("old", act),), secrets=(canary, token))
    run = await stage.carry_out(made)
    everything = "\n".join([stage.audit_path.read_text(), repr(run), *map(repr, stage.runs), run.message, run.hint])
    for form in (canary, token, "s3cr3t%2Fca%2Bnary%3D%3D"):
        assert form not in everything
    assert run.steps[0].detail == "held by <masked>"


UNREAD = NoAnswer("the runner's answer could not be read: it is no JSON", hint="plan again")


async def test_a_lock_whose_answer_can_t_be_read_refuses_the_run(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    line = stage.lines.line("spark1")

    async def garbage(who: str, what: str) -> None:
        stage.node.locked_by = line  # it is locked all the same
        raise UNREAD

    line.lock = garbage  # type: ignore[method-assign]
    run = await stage.carry_out(restart())
    assert run.state is RunState.REFUSED
    assert run.message.startswith(f"spark1: {UNREAD.message}. Nothing was done.")
    assert run.hint == "plan again"
    assert (stage.node.begun, stage.node.locked_by) == ([], None)


@pytest.mark.parametrize("takes_link", [False, True])
async def test_an_outcome_that_can_t_be_read_is_not_known(tmp_path: Path, *, takes_link: bool) -> None:
    """Not even of a step that takes the link: it stands."""
    stage = Stage(tmp_path)
    line = stage.lines.line("spark1")

    async def garbage(*_: object, **__: object) -> Outcome:
        raise UNREAD

    line.perform = line.outcome = garbage  # type: ignore[method-assign]
    act = Remote(operations=(Command(argv=("reboot",)),), takes_link=takes_link)
    run = await stage.carry_out(plan(step("reboot", act), step("after")))
    assert (run.state, states(run)) == (RunState.FAILED, ["unknown", "skipped"])
    assert run.steps[0].detail == (
        f"spark1: {UNREAD.message}. Whether it was done is not known; spark1 completes or reverts this step by itself."
    )
