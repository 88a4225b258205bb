"""The demo launches: the real planner, runner's protocol and executor against simulated Sparks that have all to fetch.

Every recipe that ships, to its end; what doesn't fit; what has to come first; what fails; and what is left of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.demo import Demo, demo

from sparktop.engines.pair import over_nodes
from sparktop.engines.ranks import is_alive
from sparktop.model.engine import EngineState
from sparktop.model.event import Severity
from sparktop.model.finding import Phase
from sparktop.model.fleet import FleetState, Taken
from sparktop.model.prospect import Fit, SliceKind
from sparktop.model.recipe import Order
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.step.run import Run, RunState, StepRun
from sparktop.operate.step.step_result import StepState
from sparktop.recipe.read.recipe_file import read

pytestmark = pytest.mark.slow

RECIPES = Path(__file__).parents[2] / "recipes"
MINIMAX = "/home/spark/models/MiniMax-M2.7-NVFP4-GB10-AC"
GIB = 1 << 30


def order(name: str, values: Mapping[str, str] | None = None, *, without: str = "", **more: object) -> Order:
    """Of a recipe that ships; `without` is left out of its text."""
    text = (RECIPES / f"{name}.yaml").read_text()
    assert without in text
    reading = read(text.replace(without, "") if without else text, f"/recipes/{name}.yaml")
    assert reading.recipe is not None, reading.problems
    return Order(recipe=reading.recipe, values=values or {}, **more)  # type: ignore[arg-type]


async def planned(shown: Demo, wanted: Order, *nodes: str) -> Plan:
    plan = await shown.launch(wanted, *nodes)
    assert isinstance(plan, Plan), plan.reason
    return plan


def step(run: Run, name: str) -> StepRun:
    return next(one for one in run.steps if one.step.id == name)


def state_of(picture: FleetState, node: str, name: str) -> EngineState | None:
    view = picture.node(node)
    found = [one.state for one in view.engines if one.container and one.container.name == name] if view else []
    return found[0] if found else None


def names_on(picture: FleetState, node: str) -> list[str]:
    view = picture.node(node)
    return [one.name for one in view.containers.containers] if view else []


def taken_on(picture: FleetState, node: str) -> tuple[Taken, ...]:
    view = picture.node(node)
    return view.baseline.taken if view and view.baseline else ()


def is_quiet(picture: FleetState) -> bool:
    """No alarm any more: played so fast, a load is over before the figures of it have settled.

    That the clocks of the Sparks run ahead is true: they are played at 30 times this machine's speed.
    """
    return not [
        one
        for one in picture.findings
        if one.severity is not Severity.INFO and one.phase is not Phase.RESOLVED and one.rule != "host.clock"
    ]


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("qwen3.6-35b-a3b-fp8", "vllm-qwen3.6-35b-a3b-fp8"),
        ("gpt-oss-120b", "vllm-gpt-oss-120b"),
        ("mistral-small-4-119b-nvfp4", "sglang-mistral-small-4-119b-nvfp4"),
        ("qwen3-0.6b", "vllm-qwen3-0.6b"),
    ],
)
async def test_a_recipe_of_one_node_is_launched_proven_and_measured(name: str, engine: str) -> None:
    async with demo("bare", speed=30, has_engines=False) as shown:
        plan = await planned(shown, order(name), "spark1")
        assert plan.prospect is not None
        assert plan.prospect.budget is not None
        assert plan.prospect.budget.fit is Fit.FITS
        expected_left = plan.prospect.budget.nodes[0].left_bytes
        run = await shown.run(plan)
        assert "serves" in step(run, "smoke").detail
        assert "tok/s" in step(run, "measure").detail
        assert state_of(shown.picture, "spark1", engine) in (EngineState.READY, EngineState.SERVING)
        view = shown.picture.node("spark1")
        assert view is not None
        assert view.sample is not None
        assert abs(view.sample.memory.available_bytes - expected_left) < 5 * GIB, "the budget told what would be left"
        await shown.until(is_quiet)


async def test_the_next_launch_goes_by_what_this_one_took() -> None:
    async with demo("bare", speed=30, has_engines=False) as shown:
        await shown.run(await planned(shown, order("qwen3-0.6b"), "spark1"))
        await shown.until(lambda picture: bool(taken_on(picture, "spark1")))
        again = {"name": "again", "port": "8001"}
        plan = await planned(shown, order("qwen3-0.6b", again), "spark1")
        assert plan.prospect is not None
        assert plan.prospect.budget is not None
        told = plan.prospect.budget.figures
        assert [text.partition(": ")[2].startswith("measured here, ") for text in told] == [True, True, True], told
        assert not plan.prospect.budget.unknowns


@pytest.mark.parametrize("name", ["minimax-m2.7-nvfp4", "minimax-m2.7-nvfp4-ray"])
async def test_a_pair_is_launched_from_what_lies_on_both_disks(name: str) -> None:
    async with demo("bare", speed=25, has_engines=False) as shown:
        plan = await planned(shown, order(name, {"model": MINIMAX}), "spark1", "spark2")
        run = await shown.run(plan)
        assert "serves" in step(run, "smoke").detail
        head = state_of(shown.picture, "spark1", f"vllm-{name}")
        assert head in (EngineState.READY, EngineState.SERVING)
        for node in ("spark1", "spark2"):
            view = shown.picture.node(node)
            assert view is not None
            assert view.sample is not None
            assert view.sample.memory.available_bytes < 40 * GIB, f"{node} holds its half"
            assert f"vllm-{name}" in names_on(shown.picture, node)
        await shown.until(is_quiet)


@pytest.mark.fast
async def test_a_share_that_starves_the_host_is_refused_with_the_picture_of_why() -> None:
    async with demo("bare", speed=30, has_engines=False) as shown:
        refused = await shown.launch(order("gpt-oss-120b", {"gpu_memory_utilization": "0.90"}), "spark1")
        assert isinstance(refused, Refusal)
        assert refused.prospect is not None
        budget = refused.prospect.budget
        assert budget is not None
        assert budget.fit is Fit.NO
        assert any(part.kind is SliceKind.SHORT for part in budget.nodes[0].after)
        assert budget.levers[0].text == "--set gpu_memory_utilization=0.70"
        assert "109.5 GiB of spark1's 121.7" in refused.reason
        graphs = await shown.launch(order("gpt-oss-120b", {"enforce_eager": "false"}), "spark1")
        assert isinstance(graphs, Refusal), "its first request takes more than there is"
        assert "47.0 outside its share" in graphs.reason


async def test_what_is_in_the_way_is_stopped_first_where_that_was_agreed_to() -> None:
    async with demo("healthy", speed=20) as shown:
        wanted = order("gpt-oss-120b")
        refused = await shown.launch(wanted, "spark1")
        assert isinstance(refused, Refusal)
        plan = await planned(
            shown, order("gpt-oss-120b", stops=(("spark1", "vllm-qwen36"),)), "spark1"
        )  # fmt: skip
        await shown.run(plan)
        assert state_of(shown.picture, "spark1", "vllm-gpt-oss-120b") in (EngineState.READY, EngineState.SERVING)
        assert state_of(shown.picture, "spark1", "vllm-qwen36") is EngineState.EXITED
        assert state_of(shown.picture, "spark2", "sglang-mistral4") is not EngineState.EXITED


async def test_four_of_eight_are_launched_on_and_the_model_comes_once_from_the_hub() -> None:
    nodes = ("spark1", "spark2", "spark3", "spark4")
    async with demo("eight-nodes", speed=25) as shown:
        await shown.until(lambda seen: not any(is_alive(one) for view in seen.nodes for one in view.engines))  # at 110
        wanted = order("minimax-m2.7-nvfp4", {"tensor_parallel": "4"})
        wanted = replace(wanted, recipe=replace(wanted.recipe, max_nodes=8))
        plan = await planned(shown, wanted, *nodes)
        assert plan.prospect is not None
        sources = [f"{one.node}, {one.source}" for one in plan.prospect.fetches if one.kind == "model"]
        assert sources == ["spark1, from huggingface.co", *(f"{one}, over the fabric from spark1" for one in nodes[1:])]
        starts = [step.node for step in plan.steps if step.id.startswith("start")]
        assert starts == [*nodes[1:], "spark1"]
        run = await shown.run(plan)
        assert "serves" in step(run, "smoke").detail
        (team,) = over_nodes(shown.picture)
        assert ([rank.node.name for rank in team.ranks], team.is_up) == ([*nodes], True)


async def test_image_and_model_come_first_once_from_the_hub_and_then_over_the_fabric() -> None:
    async with demo("bare", speed=50, has_engines=False) as shown:
        plan = await planned(shown, order("minimax-m2.7-nvfp4"), "spark1", "spark2")
        assert plan.prospect is not None
        assert [f"{one.node}, {one.source}" for one in plan.prospect.fetches] == [
            "spark1, from its registry",
            "spark2, from its registry",
            "spark1, from huggingface.co",
            "spark2, over the fabric from spark1",
        ]
        told: dict[str, list[float]] = {}

        def changed(run: Run) -> None:
            for one in run.steps:
                if one.state is StepState.RUNNING and one.ratio is not None and " of " in one.detail:
                    told.setdefault(one.step.id, []).append(one.ratio)

        run = await shown.go(plan, changed)
        assert run.state is RunState.DONE, run.message
        for name in ("image@spark2", "model@spark1", "copy@spark2"):
            later = told[name][len(told[name]) // 2 :]  # a registry tells of more layers at first
            assert later == sorted(later), f"{name} tells how far it is"
        assert "GB in" in step(run, "copy@spark2").detail
        stops = (("spark1", "vllm-minimax-m2.7-nvfp4"),)
        again = order("minimax-m2.7-nvfp4", {"name": "other", "port": "8100"}, stops=stops)
        second = await planned(shown, again, "spark1", "spark2")
        assert second.prospect is not None
        assert not second.prospect.fetches, "what has come is there"
