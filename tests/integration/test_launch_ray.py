"""A recipe launched over two machines under Ray, whose programs the tests' image has: brought up, proven, and every
way in which half of it is left is the end of all of it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.integration.desk import hurried, told
from tests.integration.interrupting import is_at
from tests.integration.launch_support import text_of
from tests.integration.spark import Spark, sparks
from tests.integration.test_launch_pair import NAME, NO_RDMA, boxes, pair, planned, seen
from tests.integration.test_operate_pair import PairDesk, console
from tests.support import free_port

from sparktop.model.recipe import Order
from sparktop.operate.step.plan import Plan
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.step.step_result import StepState
from sparktop.recipe.container_spec import NodeContext
from sparktop.recipe.read.recipe_file import read
from sparktop.recipe.render import rank_argv

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["pair", "sparks"]


def asked(**env: str) -> Order:
    text = text_of(free_port(), nodes=2, more=NO_RDMA, env=env).replace("runtime: vllm\n", "runtime: vllm-ray\n")
    reading = read(text.replace("  port: ", f"  ray_port: {free_port()}\n  port: "), "/recipes/tiny.yaml")
    assert reading.recipe is not None, reading.problems
    return Order(recipe=reading.recipe)


async def made(at: PairDesk, **env: str) -> Plan:
    await seen(at)
    plan = await planned(at, asked(**env))
    assert isinstance(plan, Plan), plan
    starts = [step.id for step in plan.steps if step.id.startswith("start")]
    assert starts == ["start@spark1", "start@spark2"], "the head first: a worker joins it"
    return plan


def once(step: str, do: Callable[[], object]) -> Callable[[Run], None]:
    done: list[str] = []

    def changed(run: Run) -> None:
        if not done and is_at(run, step):
            done.append(step)
            do()

    return changed


def details(at: PairDesk, step: str) -> set[str]:
    return {one.detail for run in at.shown for one in run.steps if one.step.id == step}


async def test_the_head_waits_for_its_worker_and_serves(
    pair: tuple[Spark, Spark], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(monkeypatch)
    async with console(pair, tmp_path) as at:
        run = await at.finished(at.begin(await made(at)))
        assert run.state is RunState.DONE, told(run)
        steps = {one.step.id: one for one in run.steps}
        assert steps["smoke"].detail.startswith("serves:")
        assert "tok/s" in steps["measure"].detail
    assert [boxes(spark) for spark in pair] == [{NAME: "running"}] * 2
    said = pair[0].dockerd.api.logs(NAME).decode()
    # it says that it waits only where the worker is the later one
    joined = said.index("sparktop: all 2 Ray nodes joined, starting the engine")
    assert joined < said.index("non-default args: {")


async def test_a_worker_that_never_joins_ends_it_within_its_bound(
    pair: tuple[Spark, Spark], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker's container can't reach the head: each gives up by itself, and both are taken away."""
    hurried(monkeypatch)
    monkeypatch.setattr("sparktop.operate.acts.readiness.SETTLED_S", 1.0)
    under_ray = rank_argv.under_ray

    def hindered(argv: Any, node: NodeContext, nodes: Any, port: str) -> Any:
        """The head gives up after 5 s; the worker looks for it where it isn't."""
        if node.index == 0:
            return under_ray(argv, node, nodes, port, 5)
        return under_ray(argv, node, [replace(nodes[0], fabric_ip="127.0.0.9"), *nodes[1:]], port, 60)

    monkeypatch.setattr("sparktop.recipe.render.rank_argv.under_ray", hindered)
    async with console(pair, tmp_path) as at:
        run = await at.finished(at.begin(await made(at)))
        assert run.state is RunState.ROLLED_BACK, told(run)
        failed = next(one for one in run.steps if one.state is StepState.FAILED)
        assert failed.step.id == "ready@spark1"
        assert "gave up after 5 s: 1 of 2 Ray nodes are missing" in run.message
        assert Path(run.evidence_path).exists()
    assert [boxes(spark) for spark in pair] == [{}, {}]


async def test_a_head_that_dies_while_it_loads_takes_its_worker_with_it(
    pair: tuple[Spark, Spark], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(monkeypatch)
    async with console(pair, tmp_path) as at:
        run = await at.finished(at.begin(await made(at, ENGINE_FAILS="load")))
        assert run.state is RunState.ROLLED_BACK, told(run)
        assert "CUDA error: out of memory" in run.message
        assert "CUDA is out of memory" in run.message
    assert [boxes(spark) for spark in pair] == [{}, {}]


async def test_a_worker_that_is_killed_while_its_head_loads_is_the_end_of_both(
    pair: tuple[Spark, Spark], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(monkeypatch)
    monkeypatch.setattr("sparktop.operate.acts.readiness.SETTLED_S", 1.0)
    async with console(pair, tmp_path) as at:
        plan = await made(at, ENGINE_LOAD_S="60")
        kill = lambda: pair[1].dockerd.api.kill(NAME, signal.SIGKILL)  # noqa: E731
        run = await at.finished(at.begin(plan, also=once("ready@spark1", kill)))
        assert run.state is RunState.ROLLED_BACK, told(run)
        assert f"its other rank, {NAME} on spark2, is gone" in run.message
    assert [boxes(spark) for spark in pair] == [{}, {}]


async def test_out_of_it_leaves_nothing(
    pair: tuple[Spark, Spark], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(monkeypatch)
    async with console(pair, tmp_path) as at:
        plan = await made(at, ENGINE_COMPLETION="hang")
        execution = at.begin(plan, also=once("smoke", lambda: execution.abort()))
        run = await at.finished(execution)
        assert run.state is RunState.ABORTED, told(run)
    assert [boxes(spark) for spark in pair] == [{}, {}]
