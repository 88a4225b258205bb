"""Plans of which half is worse than none: whoever gets out in the middle is led back at once."""

from __future__ import annotations

from pathlib import Path

from tests.operate_support import Stage, plan, step

from sparktop.model.plan import AwaitMemory, AwaitReady, CollectEvidence, Plan, Run, RunState, StepState
from sparktop.operate.judging import Judgement, Verdict

WAITING = Judgement(verdict=Verdict.WAITING, detail="loading 3/8")


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
    stage.performers.judgements["ready"] = WAITING
    wait = step("ready", AwaitReady(name="vllm"))
    made = plan(step("start"), wait, step("policy"), back=(step("remove"), step("old")), is_all_or_nothing=True)
    run = await out_at(stage, made, "ready")
    assert run.state is RunState.ABORTED
    assert stage.node.begun == ["start", "remove", "old"]
    assert "You got out at: Do ready. It is as it was before" in run.message
    assert not run.can_go_back, "there is nothing left to go back from"


async def test_without_it_the_way_back_is_offered(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.performers.judgements["ready"] = WAITING
    wait = step("ready", AwaitReady(name="vllm"))
    run = await out_at(stage, plan(step("start"), wait, back=(step("remove"),)), "ready")
    assert (run.state, run.can_go_back, stage.node.begun) == (RunState.ABORTED, True, ["start"])


async def test_out_of_the_way_back_too(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.performers.judgements["ready"] = WAITING
    stage.performers.judgements["memory"] = WAITING
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
    assert "You got out of the way back at: Do room" in run.message


async def test_before_anything_was_done_there_is_no_way_back(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.performers.judgements["memory"] = WAITING
    wait = step("memory", AwaitMemory(target_bytes=1))
    run = await out_at(stage, plan(wait, step("start"), back=(step("remove"),), is_all_or_nothing=True), "memory")
    assert (run.state, stage.node.begun) == (RunState.ABORTED, [])


async def test_a_log_is_kept_only_of_what_was_started(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    kept = step("log", CollectEvidence(nodes=("spark1",), needs="STARTED"))
    run = await stage.carry_out(plan(step("make"), kept))
    assert [one.state for one in run.steps] == [StepState.DONE, StepState.SKIPPED]
