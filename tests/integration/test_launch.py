"""A recipe launched on a real sshd and a real Docker Engine: served and proven, or nothing of it left."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.integration.desk import NODE, Desk, desk, told
from tests.integration.dockerd import Dockerd
from tests.integration.engine_image import EngineLike, Engines
from tests.integration.launch_support import cache_with_model, order
from tests.integration.sshd import Sshd
from tests.support import free_port

from sparktop.model.engine import EngineState
from sparktop.model.recipe import Order
from sparktop.model.request import Request, Risk
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.step.step_result import StepState

pytestmark = [pytest.mark.integration, pytest.mark.slow]
NAME = "vllm-tiny"


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    """A Spark whose Hugging Face cache is the test's own."""
    home = tmp_path / "hf"
    cache_with_model(home)
    with Sshd.start(tmp_path / "sshd", options={"SetEnv": f"HF_HOME={home}"}) as server:
        yield server


@pytest.fixture
def at_desk(sshd: Sshd, dockerd: Dockerd, engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    engines.names.append(NAME)

    @asynccontextmanager
    async def opened() -> AsyncIterator[Desk]:
        async with desk(sshd, dockerd, tmp_path, monkeypatch) as at:
            await at.until(lambda: at.lines.line(NODE) is not None, what="a runner")
            await at.until(lambda: at.monitor.state.nodes[0].sample is not None, what="figures")
            yield at

    return opened


async def planned(at: Desk, asked: Order) -> Plan | Refusal:
    return await at.operations.plan(Request(action="launch", nodes=(NODE,), order=asked, options={"grace_s": "3"}))


async def launched(at: Desk, asked: Order) -> Run:
    plan = await planned(at, asked)
    assert isinstance(plan, Plan), plan
    return await at.finished(at.begin(plan))


def boxes(dockerd: Dockerd) -> dict[str, str]:
    """Name -> state of every container there is."""
    return {str(row["Names"][0]).lstrip("/"): str(row["State"]) for row in dockerd.api.containers(all=True)}


@pytest.mark.fast
async def test_from_a_recipe_to_a_proven_engine(at_desk: Any, dockerd: Dockerd) -> None:
    port = free_port()
    served = order(port, options="  restart_policy: unless-stopped", env={"ENGINE_LOAD_S": "4"})
    async with at_desk() as at:
        plan = await planned(at, served)
        assert isinstance(plan, Plan), plan
        assert plan.title == "Launch tiny-1b on spark1 (vLLM)"
        assert plan.risk is Risk.SAFE
        assert plan.prospect is not None
        assert plan.prospect.budget is not None
        assert [one.name for one in plan.prospect.on_disk if one.is_wanted] == ["tests/tiny-1b"]
        run = await at.finished(at.begin(plan))
        assert run.state is RunState.DONE, told(run)
        steps = {one.step.id: one for one in run.steps}
        assert "tok/s (expected 40)" in steps["measure"].detail
        assert steps["smoke"].detail.startswith("serves:")
        assert any("loading" in one.detail for shown in at.shown for one in shown.steps if one.step.id == "ready")
        again = await planned(at, served)
    engine = EngineLike(dockerd, "", NAME, port)
    assert engine.answers()["data"][0]["id"] == "tests/tiny-1b"
    box = engine.inspect(NAME)
    assert box["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"
    assert isinstance(again, Refusal)
    assert "runs on spark1 already" in again.reason
    assert "safe-restart" in again.remedies[0]


async def test_what_embeds_is_proven_by_an_embedding(at_desk: Any, dockerd: Dockerd) -> None:
    asked = order(free_port())
    command = f"{asked.recipe.command.rstrip()} --runner pooling"
    async with at_desk() as at:
        run = await launched(at, replace(asked, recipe=replace(asked.recipe, command=command)))
        assert run.state is RunState.DONE, told(run)
        steps = {one.step.id: one.detail for one in run.steps}
        assert steps["smoke"].startswith("serves: 8 numbers from /v1/embeddings in ")
        assert "measure" not in steps
        await at.serves(NAME)
        request = Request(action="safe-restart", nodes=(NODE,), target=NAME, options={"grace_s": "3"})
        again = await at.operations.plan(request)
        assert isinstance(again, Plan), again
        run = await at.finished(at.begin(again))
        assert run.state is RunState.DONE, told(run)
        assert next(one.detail for one in run.steps if one.step.id == "smoke").startswith("serves: 8 numbers from ")


async def test_a_load_that_fails_leaves_nothing_and_keeps_its_log(at_desk: Any, dockerd: Dockerd) -> None:
    async with at_desk() as at:
        run = await launched(at, order(free_port(), env={"ENGINE_FAILS": "load"}))
        assert run.state is RunState.ROLLED_BACK, told(run)
        failed = next(one for one in run.steps if one.state is StepState.FAILED)
        assert failed.step.id == "ready", told(run)
        assert "CUDA error: out of memory" in failed.detail
        assert Path(run.evidence_path).exists()
    assert NAME not in boxes(dockerd)


async def test_what_was_stopped_for_it_is_started_again_when_it_fails(
    at_desk: Any, dockerd: Dockerd, engines: Engines
) -> None:
    old = engines.start("vllm-old", env={"ENGINE_LOAD_S": "0.3", "ENGINE_HOLD_MIB": "16"})
    async with at_desk() as at:
        await at.serves("vllm-old")
        asked = order(free_port(), env={"ENGINE_FAILS": "ready"}, stops=((NODE, "vllm-old"),))
        plan = await planned(at, asked)
        assert isinstance(plan, Plan), plan
        assert plan.risk is Risk.DISRUPTIVE
        seen: list[bool] = []

        def look(run: Run) -> None:
            if any(one.step.id == "ready" and one.state is StepState.RUNNING for one in run.steps):
                seen.append(bool(old.inspect()["State"]["Running"]))

        run = await at.finished(at.begin(plan, also=look))
        assert run.state is RunState.ROLLED_BACK, told(run)
        await at.sees("vllm-old", EngineState.READY, EngineState.SERVING)
    assert seen
    assert not any(seen), "it held its memory while the other one loaded"
    assert boxes(dockerd)["vllm-old"] == "running"
    assert NAME not in boxes(dockerd)


async def test_whoever_gets_out_while_it_loads_leaves_nothing(at_desk: Any, dockerd: Dockerd) -> None:
    async with at_desk() as at:
        plan = await planned(at, order(free_port(), env={"ENGINE_LOAD_S": "60"}))
        assert isinstance(plan, Plan), plan

        def out(run: Run) -> None:
            if any(one.step.id == "ready" and one.state is StepState.RUNNING and one.detail for one in run.steps):
                execution.abort()

        execution = at.begin(plan, also=out)
        run = await at.finished(execution)
        assert run.state is RunState.ABORTED, told(run)
        assert not run.can_go_back
    assert NAME not in boxes(dockerd)


async def test_a_stopped_one_of_before_gives_its_name_up_and_gets_it_back(at_desk: Any, dockerd: Dockerd) -> None:
    port = free_port()
    async with at_desk() as at:
        first = await launched(at, order(port))
        assert first.state is RunState.DONE, told(first)
        before = dockerd.api.inspect_container(NAME)["Id"]
        dockerd.api.stop(NAME, timeout=3)
        await at.until(lambda: (e := at.engine(NAME)) is None or e.state is EngineState.EXITED, what="its end")
        failed = await launched(at, order(port, env={"ENGINE_FAILS": "ready"}))
        assert failed.state is RunState.ROLLED_BACK, told(failed)
        assert dockerd.api.inspect_container(NAME)["Id"] == before
        await at.until(lambda: (e := at.engine(NAME)) is None or e.state is EngineState.EXITED, what="its removal")
        second = await launched(at, order(port))
        assert second.state is RunState.DONE, told(second)
    names = boxes(dockerd)
    assert names[NAME] == "running"
    aside = [name for name in names if name.startswith(f"{NAME}-before-")]
    assert [dockerd.api.inspect_container(name)["Id"] for name in aside] == [before]
