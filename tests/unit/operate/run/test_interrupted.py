"""A launch that is broken off at any of its steps, in any way, leaves nothing half-running: every step of three real
plans, on nodes whose Docker Engine is in memory. One step of each kind is broken off on real parts too
(tests/integration/test_launch_interrupted.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.interrupted_support import LAUNCHES, OLD, LaunchStage, fetches, is_at
from tests.operate_support import FAILED
from tests.table import few, over

from sparktop.operate.acts.remote import Remote
from sparktop.operate.audit.interrupted_runs import interrupted_runs, run_report
from sparktop.operate.audit_file import Audit, entries
from sparktop.operate.operations import Operations
from sparktop.operate.runner.api import Outcome
from sparktop.operate.step.plan import OnFailure, Plan, Refusal, Step
from sparktop.operate.step.run import Run, RunState

CUTS = ("before", "begun", "after")
HEARD = (False, True)


def every(several: Callable[[str], list[str]], names: str = "step_id", *each: Sequence[Any]) -> Callable[..., Any]:
    """Over these steps of the plan of one node with an engine that makes room; of two nodes in the slow run."""

    def rows(name: str) -> list[Any]:
        return list(product(several(name), *each)) if each else several(name)

    return lambda test: pytest.mark.parametrize("name", few(LAUNCHES, {"room"}.__contains__))(over(names, rows)(test))


def remote(name: str) -> list[str]:
    return [step.id for step in LAUNCHES[name].plan.steps if isinstance(step.act, Remote)]


def changing(name: str) -> list[str]:
    """What is fetched comes without us, however long a laptop is closed."""
    return [step.id for step in LAUNCHES[name].plan.steps if isinstance(step.act, Remote) and not fetches(step)]


def local(name: str) -> list[str]:
    return [step.id for step in LAUNCHES[name].plan.steps if not isinstance(step.act, Remote)]


def whole(name: str) -> list[str]:
    return [step.id for step in LAUNCHES[name].plan.steps]


def step_of(stage: LaunchStage, step_id: str) -> Step:
    return next(one for one in stage.plan.steps if one.id == step_id)


def once_at(step: Step, do: Callable[[], object]) -> Callable[[Run], None]:
    """Once, when the step has been begun."""
    done: list[str] = []

    def changed(run: Run) -> None:
        if not done and is_at(run, step):
            done.append(step.id)
            do()

    return changed


def begun(stage: LaunchStage) -> list[str]:
    return [one for node in stage.nodes for one in node.begun]


async def goes_back(stage: LaunchStage, run: Run) -> Run:
    """The way back that is offered, once all nodes are heard again."""
    operations = Operations(
        picture=stage.picture,
        lines=stage.lines,
        audit=Audit(stage.audit_path, clock=stage.clock),
        clock=stage.clock,
        stand_in=stage.acts.stand_in,
    )
    back = operations.rollback(run)
    assert back is not None
    stage.is_back()
    execution = stage.execution(back, "run-back")
    execution.start()
    async with asyncio.timeout(20):
        return await execution.finished()


async def run_until(stage: LaunchStage, run_id: str = "run-1") -> Run:
    execution = stage.execution(stage.plan, run_id)
    execution.start()
    async with asyncio.timeout(20):
        return await execution.finished()


def test_every_kind_of_step_is_there() -> None:
    kinds = {type(step.act).__name__ for one in LAUNCHES.values() for step in one.plan.steps}
    assert kinds == {
        "Remote",
        "AwaitGone",
        "AwaitMemory",
        "AwaitReady",
        "AwaitServing",
        "GuardOrder",
        "SmokeTest",
        "Measure",
    }
    what = {step_id.partition("@")[0].partition("-")[0] for name in LAUNCHES for step_id in remote(name)}
    assert what == {"image", "model", "copy", "make", "policy", "stop", "kill", "start"}


@pytest.mark.parametrize("name", LAUNCHES)
async def test_what_nothing_breaks_off_serves(tmp_path: Path, name: str) -> None:
    stage = LaunchStage(tmp_path, LAUNCHES[name])
    run = await stage.carry_out(stage.plan)
    assert run.state is RunState.DONE, run.message
    assert stage.serves()


# --- the operator aborts


@every(whole)
async def test_out_of_it_at_each_step(tmp_path: Path, name: str, step_id: str) -> None:
    stage = LaunchStage(tmp_path, LAUNCHES[name])
    execution = stage.execution(stage.plan)
    stage.at_state = once_at(step_of(stage, step_id), execution.abort)
    execution.start()
    async with asyncio.timeout(20):
        run = await execution.finished()
    if step_id == stage.plan.steps[-1].id and run.state is RunState.DONE:
        return  # it was finished, and nothing came after it
    assert run.state is RunState.ABORTED, run.message
    assert stage.is_as_before(), stage.boxes()
    assert not run.can_go_back
    assert begun(stage).count(step_id) <= 1


@every(remote)
async def test_out_of_it_while_its_node_is_at_it(tmp_path: Path, name: str, step_id: str) -> None:
    stage = LaunchStage(tmp_path, LAUNCHES[name])
    step = step_of(stage, step_id)
    execution = stage.execution(stage.plan)
    node = next(one for one in stage.nodes if one.name == step.node)

    def out(at: str) -> None:
        if at == step_id:
            node.gate = asyncio.Event() if fetches(step) else None  # what is fetched is ended, all else is finished
            execution.abort()

    node.at = out
    execution.start()
    async with asyncio.timeout(20):
        run = await execution.finished()
    if step_id == stage.plan.steps[-1].id and run.state is RunState.DONE:
        return  # it was finished, and nothing came after it
    assert run.state is RunState.ABORTED, run.message
    assert node.ended == ([step_id] if fetches(step) else [])
    assert stage.is_as_before(), stage.boxes()
    assert not run.can_go_back


# --- the link is cut


@every(remote, "step_id, cut", CUTS)
async def test_the_link_is_cut_at_each_step_and_comes_back(tmp_path: Path, name: str, step_id: str, cut: str) -> None:
    stage = LaunchStage(tmp_path, LAUNCHES[name])
    step = step_of(stage, step_id)
    for node in stage.nodes:
        node.back_after = 3
        if node.name == step.node:
            node.cuts[step_id] = cut
    run = await stage.carry_out(stage.plan)
    assert run.state is RunState.DONE, run.message
    assert stage.serves(), stage.boxes()
    assert not stage.never_ran()
    remote = [one.id for one in stage.plan.steps if isinstance(one.act, Remote)]
    assert sorted(begun(stage)) == sorted(remote), "each once"


@every(local)
async def test_the_link_is_cut_in_a_wait_and_comes_back(tmp_path: Path, name: str, step_id: str) -> None:
    stage = LaunchStage(tmp_path, LAUNCHES[name])
    step = step_of(stage, step_id)
    silent: list[int] = []

    def goes() -> None:
        line = stage.lines.line(step.node)
        assert line is not None
        line._die()
        stage.silence(step.node)
        silent.append(20)

    def comes() -> None:
        if silent and silent[0] > 0:
            silent[0] -= 1
            if silent[0] == 0:
                stage.views.clear()

    stage.at_state = once_at(step, goes)
    stage.at_pause = comes
    run = await stage.carry_out(stage.plan)
    assert silent, "it was never cut"
    assert run.state is RunState.DONE, run.message
    assert stage.serves(), stage.boxes()


@every(changing, "step_id, cut", CUTS)
async def test_the_link_is_cut_at_a_step_and_never_comes_back(
    tmp_path: Path, name: str, step_id: str, cut: str
) -> None:
    """What can be reached is led back at once; the rest when it is there again, by the way back."""
    stage = LaunchStage(tmp_path, LAUNCHES[name], link_patience_s=0.05)
    step = step_of(stage, step_id)
    node = next(one for one in stage.nodes if one.name == step.node)
    node.cuts[step_id] = cut
    node.is_back = False
    node.at = lambda at: stage.silence(step.node) if at == step_id else None
    run = await stage.carry_out(stage.plan)
    left = stage.boxes()
    assert step.node in run.message
    if step.on_failure in (OnFailure.GO_ON, OnFailure.FAIL_AT_END):  # it has served, and is left as it is
        assert run.state is RunState.FAILED, run.message
        assert "Whether it was done is not known" in run.message
        assert stage.serves(), left
        return
    assert run.state is RunState.FAILED, run.message
    assert all(not left[one.name] for one in stage.nodes if one is not node), left
    assert not (stage.launch.stops and left["spark1"].get(stage.launch.name) == left["spark1"][OLD] == "running")
    if not run.can_go_back:
        assert stage.is_as_before(), stage.boxes()
        return
    back = await goes_back(stage, run)
    assert back.state is RunState.DONE, back.message
    assert stage.is_as_before() or stage.never_ran() == [stage.launch.name], stage.boxes()
    if stage.never_ran():
        assert "docker rm" in run.message, "its id was never heard: it is told, and the next launch removes it"


# --- a node goes down, or a step fails


@every(remote)
async def test_a_node_that_boots_in_the_middle_of_a_step(tmp_path: Path, name: str, step_id: str) -> None:
    stage = LaunchStage(tmp_path, LAUNCHES[name])
    step = step_of(stage, step_id)
    node = next(one for one in stage.nodes if one.name == step.node)

    def boots(at: str) -> None:
        if at == step_id:
            node.cuts[step_id] = "begun"
            node.has_rebooted = True
            stage.dockers[node.name].boot()

    node.at = boots
    run = await stage.carry_out(stage.plan)
    assert f"{step.node} has rebooted" in run.message
    if step.on_failure is OnFailure.GO_ON:
        assert run.state is RunState.DONE, run.message
        return
    assert run.state is not RunState.DONE, run.message
    if step.on_failure is OnFailure.FAIL_AT_END:
        where = f"on {step.node}: " if len(stage.plan.nodes) > 1 else ""
        assert f"What failed, by hand: {where}{run.typed(step)}." in run.hint
        return
    assert not stage.serves()
    if run.can_go_back:
        back = await goes_back(stage, run)
        assert back.state is RunState.DONE, back.message
    assert stage.is_as_before() or stage.never_ran() == [stage.launch.name], stage.boxes()


@every(remote)
async def test_a_step_that_fails_leads_back(tmp_path: Path, name: str, step_id: str) -> None:
    stage = LaunchStage(tmp_path, LAUNCHES[name])
    step = step_of(stage, step_id)
    next(one for one in stage.nodes if one.name == step.node).fails[step_id] = FAILED
    run = await stage.carry_out(stage.plan)
    assert FAILED.problem in run.message
    if step.on_failure is OnFailure.GO_ON:
        assert run.state is RunState.DONE
    elif step.on_failure is OnFailure.FAIL_AT_END:
        assert run.state is RunState.FAILED, "it serves, and not as promised"
        assert run.message.startswith(f"“{step.title}” failed")
        where = f"on {step.node}: " if len(stage.plan.nodes) > 1 else ""
        assert f"What failed, by hand: {where}{run.typed(step)}." in run.hint
        assert stage.serves()
    else:
        assert run.state in (RunState.ROLLED_BACK, RunState.FAILED)
        assert not run.can_go_back
        assert stage.is_as_before(), stage.boxes()


# --- the console is killed


async def killed(stage: LaunchStage, step: Step, *, is_heard: bool) -> None:
    """Gone without a word at that step; `is_heard`: its node had heard of the step, and finishes it alone."""
    size: list[int] = []
    docker = stage.dockers[step.node]
    node = next(one for one in stage.nodes if one.name == step.node)
    at: list[str] = []
    execution = stage.execution(stage.plan)

    def dies() -> None:
        size.append(stage.audit_path.stat().st_size)
        raise asyncio.CancelledError

    def does(act: Remote) -> Outcome:
        outcome = docker.perform(act)
        if at[-1] == step.id:
            dies()
        return outcome

    if isinstance(step.act, Remote) and is_heard:
        node.at = at.append
        node.does = does
    else:
        stage.at_state = once_at(step, dies)
    execution.start()
    async with asyncio.timeout(20):
        await execution.finished()
    with stage.audit_path.open("r+b") as audit:
        audit.truncate(size[0])  # it had no time for a word
    node.does = docker.perform
    stage.is_back()


def left_by(stage: LaunchStage) -> Run | None:
    """What the next console tells of it."""
    found = interrupted_runs(
        entries(stage.audit_path)[0], is_under_way=lambda run: False, now_wall_s=stage.clock.wall() + 60
    )
    assert len(found) <= 1
    return run_report(found[0], stage.picture()) if found else None


@every(whole, "step_id, is_heard", HEARD)
async def test_what_a_killed_console_leaves_is_told_and_led_back(
    tmp_path: Path, name: str, step_id: str, is_heard: bool
) -> None:
    stage = LaunchStage(tmp_path, LAUNCHES[name])
    await killed(stage, step_of(stage, step_id), is_heard=is_heard)
    run = left_by(stage)
    if run is None:
        at = [one.id for one in stage.plan.steps].index(step_id)
        is_done = not any(isinstance(one.act, Remote) for one in stage.plan.steps[at + is_heard :])
        assert stage.serves() if is_done else stage.is_as_before(), stage.boxes()
        return
    assert run.state is RunState.INTERRUPTED
    back = await goes_back(stage, run)
    assert back.state is RunState.DONE, back.message
    assert stage.is_as_before(), stage.boxes()
    assert left_by(stage) is None, "it has been dealt with"


@every(whole, "step_id, is_heard", HEARD)
async def test_what_a_killed_console_leaves_the_next_launch_deals_with(
    tmp_path: Path, name: str, step_id: str, is_heard: bool
) -> None:
    stage = LaunchStage(tmp_path, LAUNCHES[name])
    launch = stage.launch
    await killed(stage, step_of(stage, step_id), is_heard=is_heard)
    runs = [node for node, there in stage.boxes().items() if there.get(launch.name) == "running"]
    stops = [(node, launch.name) for node in runs]
    if launch.stops and stage.boxes()["spark1"].get(OLD) == "running":
        stops.append(("spark1", OLD))
    found = stage.planned_again(*(one for one in stops if one[1] == OLD))
    if runs:
        assert isinstance(found, Refusal), found
        assert f"--stop {launch.name}" in " ".join(found.remedies), found
        if len(runs) < len(launch.nodes):
            assert found.prospect is not None
            said = " ".join(one.sentence for one in found.prospect.gates if one.name == "name")
            (other,) = set(launch.nodes) - set(runs)
            assert f"alone: its other rank on {other} doesn't run" in said
        else:
            without = [node for node in runs if stage.policy(node) == "no"]
            assert ("Its restart policy is not on" in found.reason) is bool(without)
            assert not without or f"docker update --restart=unless-stopped {launch.name}" in found.remedies[0]
        found = stage.planned_again(*stops)
    assert isinstance(found, Plan), found
    stage.plan = found
    run = await run_until(stage, "run-2")
    assert run.state is RunState.DONE, run.message
    assert not stage.never_ran(), stage.boxes()
    assert all(there.get(launch.name) == "running" for there in stage.boxes().values()), stage.boxes()
