"""Steps that fetch, as the executor has them: no lock, no hurry, progress, and a way out that ends them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.operate_support import Stage, plan, step
from tests.runner_support import until

from sparktop.model.operation import Command, ImagePull, Transfer
from sparktop.operate.acts.remote import Remote
from sparktop.operate.runner.api import LockHolder, OperationResult, Outcome, OutcomeState, Progress
from sparktop.operate.step.plan import Step
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.step.step_result import StepState

PULL = ImagePull(image="nvcr.io/nvidia/vllm:26.05", limit_s=4 * 3600.0)
FETCH = Transfer(command=Command(argv=("hf", "download", "x"), limit_s=8 * 3600.0), grows="~/x", key="model x")
MB = 1_000_000


def fetch(name: str = "spark1", *operations: Any) -> Step:
    return step("fetch" if name == "spark1" else f"fetch@{name}", Remote(operations=operations or (FETCH,)), name)


def at(*done: int, total: int = 100 * MB, words: str = "") -> list[Progress]:
    return [Progress(index=0, done_bytes=one * MB, total_bytes=total, words=words) for one in done]


def details(runs: list[Run], step_id: str = "fetch") -> list[str]:
    """What the step was told to be at, each once, in order."""
    told = [one.detail for run in runs for one in run.steps if one.step.id == step_id]
    return [word for word, before in zip(told, ["", *told], strict=False) if word and word != before]


def test_what_only_fetches() -> None:
    assert Remote(operations=(PULL, FETCH)).only_fetches
    assert not Remote(operations=(PULL, Command(argv=("x",)))).only_fetches
    assert not Remote(operations=()).only_fetches
    assert not step("wait").act.only_fetches


async def test_its_progress_is_told(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node.progress["fetch"] = at(10, 20, 30)
    run = await stage.carry_out(plan(fetch()))
    assert run.state is RunState.DONE
    assert details(stage.runs)[:3] == [
        "10 of 100 MB",
        "20 of 100 MB · 10 MB/s · 0:08 left",
        "30 of 100 MB · 10 MB/s · 0:07 left",
    ]
    assert {one.ratio for run in stage.runs for one in run.steps} >= {0.1, 0.2, 0.3, 1.0}


async def test_two_in_a_row_share_the_bar(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node.progress["fetch"] = [*at(50), Progress(index=1, done_bytes=50 * MB, total_bytes=100 * MB)]
    await stage.carry_out(plan(fetch("spark1", PULL, FETCH)))
    assert details(stage.runs)[:2] == ["1 of 2: 50 of 100 MB", "2 of 2: 50 of 100 MB"]
    assert {one.ratio for run in stage.runs for one in run.steps} >= {0.25, 0.75}


async def test_how_much_has_come_is_told_and_kept(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    brought = OperationResult(index=0, brought_bytes=34_600 * MB, seconds=412.0)
    stage.node.fails["fetch"] = Outcome(state=OutcomeState.DONE, results=(brought,))
    run = await stage.carry_out(plan(fetch()))
    assert run.steps[0].detail == "34.6 GB in 6:52"
    entry = next(one for one in stage.audited if one["kind"] == "step")
    assert entry["results"][0]["brought_bytes"] == 34_600 * MB


async def test_no_node_is_held_meanwhile_and_every_one_is_taken_again(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "spark1", "spark2")
    held: dict[str, list[bool]] = {}
    for node in stage.nodes:
        node.at = lambda step_id: held.setdefault(step_id, []).extend(one.locked_by is not None for one in stage.nodes)
    run = await stage.carry_out(plan(fetch(), fetch("spark2"), step("stop"), step("stop@spark2", name="spark2")))
    assert run.state is RunState.DONE
    assert held["fetch"] == held["fetch@spark2"] == [False, False]
    assert held["stop"] == held["stop@spark2"] == [True, True]
    assert [one.locked_by for one in stage.nodes] == [None, None]


async def test_whoever_changes_a_node_meanwhile_is_told_before_anything_is_stopped(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "spark1", "spark2")

    def somebody(step_id: str) -> None:
        stage.nodes[1].holder = LockHolder(who="you@desk", what="Restart x")

    stage.node.at = somebody
    back = step("again")
    run = await stage.carry_out(plan(fetch(), step("stop"), step("stop@spark2", name="spark2"), back=[back]))
    assert run.state is RunState.FAILED
    assert "you@desk" in run.message
    assert "Restart x" in run.message
    assert stage.node.begun == ["fetch"]
    assert not run.can_go_back  # what was fetched takes nothing back


async def test_a_link_that_is_lost_for_hours_is_no_failure(tmp_path: Path) -> None:
    stage = Stage(tmp_path, link_patience_s=0.05)
    stage.node.cuts["fetch"] = "begun"
    stage.node.is_back = False
    stage.node.stays_running = 3
    stage.node.progress["fetch"] = at(40, 50, 60)

    def back() -> None:
        stage.clock.advance(3 * 3600.0)
        stage.node.is_back = True

    def told(run: Run) -> None:
        if run.state is RunState.LINK_LOST and not stage.node.is_back:
            asyncio.get_running_loop().call_later(0.2, back)

    stage.at_state = told
    run = await stage.carry_out(plan(fetch(), step("start")))
    assert run.state is RunState.DONE, run.message
    assert stage.node.begun == ["fetch", "start"]
    assert "50 of 100 MB · 10 MB/s · 0:05 left" in details(stage.runs)
    assert RunState.LINK_LOST in [one.state for one in stage.runs]


async def test_the_operator_s_way_out_ends_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node.gate = asyncio.Event()
    execution = stage.execution(plan(fetch(), step("stop"), back=[step("again")]))
    execution.start()
    await until(lambda: stage.node.begun)
    execution.abort()
    async with asyncio.timeout(10):
        run = await execution.finished()
    assert run.state is RunState.ABORTED
    assert stage.node.ended == ["fetch"]
    assert "Do fetch" in run.message
    assert run.steps[0].detail, "what has come of it"
    assert [one.state for one in run.steps] == [StepState.FAILED, StepState.SKIPPED]
    assert not run.can_go_back


async def test_the_way_out_after_the_link_was_lost(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node.cuts["fetch"] = "begun"
    stage.node.stays_running = 1000
    execution = stage.execution(plan(fetch()))
    stage.at_state = lambda run: execution.abort() if run.steps[0].detail == "it still works on it" else None
    execution.start()
    async with asyncio.timeout(10):
        run = await execution.finished()
    assert run.state is RunState.ABORTED
    assert stage.node.ended[0] == "fetch"
    assert "arrived stays" in run.message


async def test_what_another_console_ended_has_failed_here(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node.gate = asyncio.Event()
    execution = stage.execution(plan(fetch()))
    execution.start()
    await until(lambda: stage.node.begun)
    await stage.lines.line("spark1").end("run-1", "fetch")  # type: ignore[union-attr]
    run = await execution.finished()
    assert run.state is RunState.FAILED
    assert "arrived stays" in run.message


async def test_a_step_that_changes_something_is_finished_all_the_same(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node.gate = asyncio.Event()
    execution = stage.execution(plan(step("stop"), step("start")))
    execution.start()
    await until(lambda: stage.node.begun)
    execution.abort()
    await asyncio.sleep(0)
    stage.node.gate.set()
    run = await execution.finished()
    assert run.state is RunState.ABORTED
    assert (stage.node.ended, run.steps[0].state) == ([], StepState.DONE)


async def test_a_console_that_is_closed_says_that_it_goes_on(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node.gate = asyncio.Event()
    execution = stage.execution(plan(fetch(), back=[step("again")]))
    execution.start()
    await until(lambda: stage.node.begun)
    await execution.leave()
    assert "spark1 goes on" in execution.run.message
    assert not execution.run.can_go_back


async def test_a_reboot_in_the_middle_asks_for_no_look(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node.cuts["fetch"] = "begun"
    stage.node.has_rebooted = True
    run = await stage.carry_out(plan(fetch()))
    assert run.state is RunState.FAILED
    assert "downloaded stays" in run.message


async def test_a_link_that_looked_alive_after_hours_is_waited_for(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "spark1", "spark2")
    two = stage.lines.line("spark2")
    assert two is not None
    stage.node.at = lambda step_id: setattr(two, "is_dead", True) if step_id == "fetch" else None
    stage.at_pause = lambda: stage.lines.drop(two)
    run = await stage.carry_out(plan(fetch(), step("stop"), step("stop@spark2", name="spark2")))
    assert run.state is RunState.DONE, run.message
    assert (stage.nodes[0].begun, stage.nodes[1].begun) == (["fetch", "stop"], ["stop@spark2"])


async def test_what_is_taken_anew_while_all_is_given_back_is_given_back_too(tmp_path: Path) -> None:
    """The keeper of the locks is at it, on a slow link, when a step begins that only fetches."""
    stage = Stage(tmp_path)
    execution = stage.execution(plan(fetch()))
    hold, old = execution._locks, stage.lines.line("spark1")
    assert old is not None
    await hold.take(old)
    stage.lines.drop(old)
    new = await stage.lines.wait("spark1")
    lock, slow = new.lock, asyncio.Event()

    async def slowly(who: str, what: str) -> LockHolder | None:
        await slow.wait()
        return await lock(who, what)

    new.lock = slowly  # type: ignore[method-assign]
    renewing = asyncio.create_task(hold._lock(new, instead_of=old))
    await asyncio.sleep(0)
    await hold.let_go()
    slow.set()
    await renewing
    assert stage.node.locked_by is None
