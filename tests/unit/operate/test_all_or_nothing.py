"""Plans of which half is worse than none: whoever gets out in the middle is led back at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.operate_support import FAILED, GO_ON, ROLL_BACK, Node, Stage, plan, step

from sparktop.model.operation import DockerCall
from sparktop.operate.acts.memory import AwaitMemory
from sparktop.operate.acts.readiness import AwaitReady
from sparktop.operate.acts.remote import Remote
from sparktop.operate.evidence.collect import CollectEvidence
from sparktop.operate.step.plan import Plan
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.step.step_result import StepState
from sparktop.operate.step.wait import WaitStatus, WaitVerdict

WAITING = WaitStatus(verdict=WaitVerdict.WAITING, detail="loading 3/8")


async def out_at(stage: Stage, made: Plan, step_id: str) -> Run:
    """The run of one who gets out when that step is under way."""
    execution = stage.execution(made)

    def look(run: Run) -> None:
        at = next((one for one in run.steps if one.step.id == step_id), None)
        if at is not None and at.state is StepState.RUNNING:
            execution.abort()

    stage.at_state = look
    execution.start()
    return await execution.finished()


async def test_out_of_it_in_the_middle_leads_back(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.acts.judgements["ready"] = WAITING
    wait = step("ready", AwaitReady(name="vllm"))
    made = plan(step("start"), wait, step("policy"), back=(step("remove"), step("old")), is_all_or_nothing=True)
    run = await out_at(stage, made, "ready")
    assert run.state is RunState.ABORTED
    assert stage.node.begun == ["start", "remove", "old"]
    assert "Aborted at: Do ready. Rolled back: everything is as before" in run.message
    assert not run.can_go_back, "there is nothing left to go back from"


async def test_without_it_the_way_back_is_offered(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.acts.judgements["ready"] = WAITING
    wait = step("ready", AwaitReady(name="vllm"))
    run = await out_at(stage, plan(step("start"), wait, back=(step("remove"),)), "ready")
    assert (run.state, run.can_go_back, stage.node.begun) == (RunState.ABORTED, True, ["start"])


async def test_out_of_the_way_back_too(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.acts.judgements["ready"] = WAITING
    stage.acts.judgements["memory"] = WAITING
    wait = step("ready", AwaitReady(name="vllm"))
    back = (step("remove"), step("room", AwaitMemory(target_bytes=1)), step("old"))
    execution = stage.execution(plan(step("start"), wait, back=back, is_all_or_nothing=True))

    def look(run: Run) -> None:
        if any(one.step.id in ("ready", "room") and one.state is StepState.RUNNING for one in run.steps):
            execution.abort()

    stage.at_state = look
    execution.start()
    run = await execution.finished()
    assert run.state is RunState.ABORTED
    assert stage.node.begun == ["start", "remove"]
    assert "rollback at: Do room" in run.message


async def test_before_anything_was_done_there_is_no_way_back(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.acts.judgements["memory"] = WAITING
    wait = step("memory", AwaitMemory(target_bytes=1))
    run = await out_at(stage, plan(wait, step("start"), back=(step("remove"),), is_all_or_nothing=True), "memory")
    assert (run.state, stage.node.begun) == (RunState.ABORTED, [])


async def test_a_log_is_kept_only_of_what_was_started(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    kept = step("log", CollectEvidence(nodes=("spark1",), needs="STARTED"))
    run = await stage.carry_out(plan(step("make"), kept))
    assert [one.state for one in run.steps] == [StepState.DONE, StepState.SKIPPED]


# --- two nodes, one of which is lost


def lost(stage: Stage, index: int, step_id: str) -> Node:
    """The node goes in the middle of that step, and never comes back."""
    node = stage.nodes[index]
    node.cuts[step_id] = "begun"
    node.is_back = False
    return node


def pair_of(*more: str) -> Plan:
    """What is begun on both, and its way back."""
    old = tuple(step(f"old@{name}", name=name, needs_nodes=more) for name in ("spark1", "spark2"))
    return plan(
        step("make@spark1", on_failure=ROLL_BACK),
        step("start@spark2", name="spark2", on_failure=ROLL_BACK),
        step("start@spark1", on_failure=ROLL_BACK),
        back=(
            step("away@spark1", on_failure=GO_ON),
            step("away@spark2", name="spark2", on_failure=GO_ON),
            step("remove@spark1"),
            step("remove@spark2", name="spark2"),
            *old,
        ),
        is_all_or_nothing=True,
    )


async def test_what_can_be_reached_is_led_back_when_the_other_node_is_lost(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "spark1", "spark2", link_patience_s=0.05)
    lost(stage, 0, "start@spark1")
    run = await stage.carry_out(pair_of())
    assert run.state is RunState.FAILED
    assert stage.nodes[1].begun == ["start@spark2", "away@spark2", "remove@spark2", "old@spark2"]
    assert "not known" in run.message
    assert "Do away@spark1" in run.message
    assert "on spark1" in run.message
    assert ".." not in run.message
    assert run.can_go_back, "what is left on the other, once it is there again"


async def test_half_of_a_pair_is_not_started_again(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "spark1", "spark2", link_patience_s=0.05)
    lost(stage, 0, "start@spark1")
    await stage.carry_out(pair_of("spark1", "spark2"))
    assert stage.nodes[1].begun == ["start@spark2", "away@spark2", "remove@spark2"]


async def test_a_way_back_that_fails_on_one_node_is_taken_on_the_other(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "spark1", "spark2")
    stage.nodes[0].fails |= {"start@spark1": FAILED, "remove@spark1": replace(FAILED, problem="it is in use")}
    run = await stage.carry_out(pair_of())
    assert run.state is RunState.FAILED
    assert "Do remove@spark1" in run.message
    assert "in use" in run.message
    assert stage.nodes[0].begun[-1] == "remove@spark1"
    assert stage.nodes[1].begun[-2:] == ["remove@spark2", "old@spark2"]


async def test_what_may_have_been_made_unseen_is_told(tmp_path: Path) -> None:
    """Its id is not known, so nothing can take it away."""
    stage = Stage(tmp_path, link_patience_s=0.05)
    lost(stage, 0, "make")
    make = step(
        "make",
        Remote(
            operations=(DockerCall(method="POST", path="/containers/create", saves="NEW"),), reverse="docker rm vllm"
        ),
        on_failure=ROLL_BACK,
    )
    back = step("remove", Remote(operations=(DockerCall(method="DELETE", path="/containers/{NEW}"),)))
    run = await stage.carry_out(plan(make, back=(back,), is_all_or_nothing=True))
    assert run.state is RunState.FAILED
    assert "docker rm vllm" in run.message


@pytest.mark.parametrize("is_whole", [True, False])
async def test_what_matters_little_and_is_not_known_ends_no_launch(tmp_path: Path, is_whole: bool) -> None:
    stage = Stage(tmp_path, link_patience_s=0.05)
    lost(stage, 0, "policy")
    made = plan(step("policy", on_failure=GO_ON), back=(step("remove"),), is_all_or_nothing=is_whole)
    run = await stage.carry_out(made)
    assert run.state is (RunState.DONE if is_whole else RunState.FAILED)
    assert "not known" in run.message
