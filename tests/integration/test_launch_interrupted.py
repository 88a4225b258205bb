"""A launch that is interrupted leaves nothing half-running: one step of each kind on real parts.

Every step, in every way of being broken off, is in tests/unit/operate/run/test_interrupted.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.desk import hurried, told
from tests.integration.interrupting import FETCHES, Stage, is_at, killed, kind, stage
from tests.integration.spark import Spark, sparks
from tests.integration.test_launch_pair import NAME
from tests.integration.test_operate_pair import PairDesk

from sparktop.documents.run import STEP_SIGNS
from sparktop.model.engine import EngineState
from sparktop.operate.run.executor import PlanExecution
from sparktop.operate.step.plan import Refusal, Step
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.step.step_result import StepState

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["sparks"]


OUT_AT = {1: ("stop-1@spark1",), 2: ("copy@spark2", "start@spark1")}
"""By number of nodes: an engine is being stopped; a fetch is under way; one rank of two runs."""
LOST_AT = {1: ("stop-1@spark1",), 2: ("start@spark1", "policy@spark2")}
KILLED_AT = {1: ("policy-off-1@spark1",), 2: ("start@spark1", "policy@spark1")}


@pytest.fixture(params=[1, 2], ids=["one", "pair"])
def launch(
    request: pytest.FixtureRequest, sparks: tuple[Spark, Spark], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stage]:
    hurried(monkeypatch)
    with stage(sparks, tmp_path, request.param) as made:
        yield made


def at_step(step: Step, do: Callable[[], object]) -> Callable[[Run], None]:
    """Once, when the step has been begun."""
    done: list[str] = []

    def changed(run: Run) -> None:
        if not done and is_at(run, step.id):
            done.append(step.id)
            do()

    return changed


def chosen(launch: Stage, steps: tuple[Step, ...], names: dict[int, tuple[str, ...]]) -> list[Step]:
    found = [step for step in steps if step.id in names[launch.count]]
    assert len(found) == len(names[launch.count]), [step.id for step in steps]
    return found


@pytest.mark.parametrize("launch", [1, 2], ids=["one", "pair"], indirect=True)
async def test_out_of_it_at_a_step(launch: Stage) -> None:
    async with launch.console() as at:
        for step in chosen(launch, await launch.steps(at), OUT_AT):
            begun: list[PlanExecution] = []
            plan = await launch.plan(at, step)
            begun.append(at.begin(plan, also=at_step(step, lambda begun=begun: begun[0].abort())))
            run = await at.finished(begun[0])
            assert run.state is RunState.ABORTED, f"{step.id}: {told(run)}"
            assert launch.is_as_before(), f"{step.id}: {launch.boxes()}: {told(run)}"
            assert not run.can_go_back
            await launch.seen(at)


def never_ran(launch: Stage) -> list[str]:
    """Names of containers that were made and never started."""
    return [name for there in launch.boxes().values() for name, state in there.items() if state == "created"]


# --- the link is cut


@pytest.mark.parametrize("launch", [2], ids=["pair"], indirect=True)
async def test_the_link_is_cut_at_each_step_and_comes_back(launch: Stage) -> None:
    async with launch.console() as at:
        steps = await launch.steps(at)
        plan = await launch.plan(at, steps[0])
        cut: list[str] = []

        def changed(run: Run) -> None:
            for one in run.steps:
                if one.state is StepState.RUNNING and one.step.id not in cut:
                    cut.append(one.step.id)
                    launch.spark(one.step.node).sshd.kill_sessions()

        run = await at.finished(at.begin(plan, also=changed))
        assert run.state is RunState.DONE, told(run)
        assert set(cut) == {step.id for step in plan.steps}
    assert not never_ran(launch)
    assert all(there.get(NAME) == "running" for there in launch.boxes().values())


async def test_the_link_is_cut_at_a_step_and_never_comes_back(launch: Stage) -> None:
    """What can be reached is led back at once; the rest when it is there again, by the way back or the next launch."""
    async with launch.console() as at:
        at.operations._context = replace(at.operations._context, link_patience_s=2.0, first_line_s=2.0)
        for step in chosen(launch, await launch.steps(at), LOST_AT):
            plan = await launch.plan(at, step)
            sshd = launch.spark(step.node).sshd
            run = await at.finished(at.begin(plan, also=at_step(step, sshd.stop)))
            left = launch.boxes()
            sshd.run()
            assert run.state is RunState.FAILED, f"{step.id}: {told(run)}"
            assert step.node in run.message
            if kind(step) == "policy":  # it served: whether it still does there isn't known, and nothing is taken back
                assert all(there.get(NAME) == "running" for there in left.values())
            else:
                assert all(not left[node] for node in launch.nodes if node != step.node), f"{step.id}: {left}"
                back = at.operations.rollback(run)
                assert back is not None, f"{step.id}: {told(run)}"
                await launch.live(at)
                back = at.operations.rollback(run)
                ended = await at.finished(at.begin(back))
                assert ended.state is RunState.DONE, f"{step.id}: {told(ended)}"
                assert launch.is_as_before() or never_ran(launch) == [NAME], f"{step.id}: {launch.boxes()}"
            launch.clear()
            await launch.live(at)
            await launch.seen(at)


# --- the console is killed


def killed_at(launch: Stage, step: Step, number: int) -> None:
    """It, when it has begun the step of this number."""
    launch.has_to_fetch(step)
    killed(launch, lambda line: line.startswith(f"{STEP_SIGNS[StepState.RUNNING][0]} {number}/"))


async def told_of(launch: Stage, at: PairDesk) -> None:
    """The console that looks on has what is there now in its picture, and nobody changes anything any more."""

    def is_seen() -> bool:
        nodes = [at.monitor.state.node(name) for name in launch.nodes]
        seen = {
            one.name: {box.name: box.status for box in one.containers.containers} for one in nodes if one is not None
        }
        return seen == launch.boxes()

    quiet = 0.0
    last = launch.boxes()
    while quiet < 1.0:  # what a node has begun it finishes by itself
        await asyncio.sleep(0.25)
        now = launch.boxes()
        quiet, last = (quiet + 0.25 if now == last else 0.0), now
    await at.until(is_seen, what="what is there now")

    def are_engines() -> bool:
        running = {node for node, there in launch.boxes().items() if there.get(NAME) == "running"}
        return running == {
            one.name
            for one in at.monitor.state.nodes
            if NAME in {each.name for each in one.engines if each.state is not EngineState.EXITED}
        }

    await at.until(are_engines, what="the engines that run")


async def dealt_with(launch: Stage, at: PairDesk) -> Run | None:
    """What the next launch makes of it; None: the one that was killed had come to its end."""
    runs = [node for node, there in launch.boxes().items() if there.get(NAME) == "running"]
    stops = [(node, NAME) for node in runs]
    if runs:
        found = await launch.planned(at)
        assert isinstance(found, Refusal), found
        assert f"--stop {NAME}" in " ".join(found.remedies), found
        if len(runs) < launch.count:
            assert found.prospect is not None
            said = " ".join(one.sentence for one in found.prospect.gates if one.name == "name")
            assert "alone: its other rank on spark1 doesn't run, as its launch was interrupted" in said
        elif "Its restart policy is not on" not in found.reason:
            return None
        else:
            assert f"docker update --restart=unless-stopped {NAME}" in found.remedies[0]
    deadline = time.monotonic() + 30
    while True:
        run = await at.finished(at.begin(await launch.possible(at, *stops)))
        if run.state is not RunState.REFUSED:
            return run
        assert time.monotonic() < deadline, told(run)


async def test_what_a_killed_console_leaves_the_next_launch_deals_with(launch: Stage) -> None:
    async with launch.console() as at:
        steps = await launch.steps(at)
        fetches = sum(kind(step) in FETCHES for step in steps)
        for step in chosen(launch, steps, KILLED_AT):
            killed_at(launch, step, max(1, steps.index(step) + 1 - fetches))
            await told_of(launch, at)
            left = launch.boxes()
            run = await dealt_with(launch, at)
            assert run is None or run.state is RunState.DONE, f"{step.id}: {left}: {run and told(run)}"
            assert not never_ran(launch), step.id
            assert all(there.get(NAME) == "running" for there in launch.boxes().values())
            launch.clear()
            await launch.seen(at)
