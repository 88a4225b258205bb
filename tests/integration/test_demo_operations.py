"""The demo acts: the console's own composition over real SSH to simulated Sparks, faster than time goes.

What is planned here is carried out over a runner's line as on a Spark; the simulated Spark reacts, and what comes of it
is seen through the probe, Docker's socket, the engine's endpoint and the rules.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

from tests.integration.demo import demo

from sparktop.bringup.kept import Kept
from sparktop.cli.composition import proven_path
from sparktop.config import state_home
from sparktop.model.change import Change
from sparktop.model.engine import EngineState
from sparktop.model.fleet import FleetState
from sparktop.model.guard import GuardPhase
from sparktop.operate.measure.busy import busy_reason


def engine_state(picture: FleetState, node: str, name: str) -> EngineState | None:
    view = picture.node(node)
    return next((one.state for one in view.engines if one.name == name), None) if view else None


async def test_a_pair_is_restarted_and_serves() -> None:
    async with demo("spin-deadlock", speed=20) as shown:
        run = await shown.do("safe-restart", ("spark1", "spark2"), "minimax-rank0", grace_s="5")
        ids = [one.step.id.partition("@")[0] for one in run.steps]
        assert ids.index("stop") < ids.index("memory") < ids.index("start") < ids.index("ready") < ids.index("smoke")
        assert engine_state(shown.picture, "spark1", "minimax-rank0") in (EngineState.READY, EngineState.SERVING)
        archive = Path(run.evidence_path)
        with tarfile.open(archive) as tar:
            names = tar.getnames()
        assert any("spark1" in name for name in names)
        assert any("spark2" in name for name in names)
        audit = (state_home() / "demo/audit.jsonl").read_text()
        assert run.id in audit


async def test_an_engine_is_relaunched_with_another_environment_and_stopped() -> None:
    async with demo("healthy", speed=20) as shown:
        change = Change(environment={"VLLM_LOGGING_LEVEL": "DEBUG"}, flags={"--gpu-memory-utilization": "0.50"})
        plan = await shown.plan("relaunch", ("spark1",), "vllm-qwen36", change=change)
        assert {(one.name, one.after) for one in plan.differences} >= {("VLLM_LOGGING_LEVEL", "DEBUG")}
        await shown.run(plan)
        await shown.until(
            lambda picture: any(
                "0.50" in box.argv and box.status == "running"
                for node in picture.nodes if node.name == "spark1"
                for box in node.containers.containers if box.name == "vllm-qwen36"
            )
        )  # fmt: skip
        await shown.do("stop-engine", ("spark2",), "sglang-mistral4", grace_s="10")
        await shown.until(
            lambda picture: engine_state(picture, "spark2", "sglang-mistral4") in (EngineState.EXITED, None)
        )


async def test_caches_are_dropped_and_the_guard_ends_an_engine_in_time() -> None:
    async with demo("memory-spike", speed=1) as shown:
        await shown.do("guard", ("spark1",), "vllm-gptoss", floor_gib="6")
        await shown.do("drop-caches", ("spark2",))
        await shown.until(
            lambda picture: (
                (view := picture.node("spark1")) is not None
                and view.guard is not None
                and view.guard.phase is GuardPhase.FIRED
            )
        )
        await shown.until(
            lambda picture: (
                (view := picture.node("spark1")) is not None
                and view.sample is not None
                and view.sample.memory.available_bytes > 100 << 30
            )
        )


async def test_an_engine_is_exposed_with_a_key_and_taken_back() -> None:
    async with demo("healthy", speed=5) as shown:
        key = "a-key-of-the-demo"
        plan = await shown.plan("expose", ("spark1",), "vllm-qwen36", secret=key, name="llm.example.org", on="spark1")
        assert key not in repr(plan)
        run = await shown.run(plan)
        checked = next(one for one in run.steps if one.step.id == "check")
        assert checked.detail.startswith("401 without a key, 401 with a wrong one, 200 with yours, 404 outside /v1/")
        taken = await shown.plan("expose", ("spark1",), name="llm.example.org", on="spark1", remove="yes")
        await shown.run(taken)


async def test_the_cable_is_measured_as_a_real_one_is() -> None:
    async with demo("bare", speed=20, has_engines=False) as shown:
        await shown.until(lambda picture: all(not busy_reason(view, view.name) for view in picture.nodes))
        run = await shown.do("measure-link", ("spark1", "spark2"))
        figures = {one.step.id: one.detail for one in run.steps}
        assert figures["half-0@spark2"] == "111.9 Gb/s (healthy 109 to 112)"
        assert figures["both@spark1"] == "196.0 Gb/s (healthy 189 to 197)"
        kept = Kept(proven_path(is_demo=True)).read()
        assert {row.check for row in kept.values()} == {"bandwidth.half", "bandwidth.both", "bandwidth.latency"}
