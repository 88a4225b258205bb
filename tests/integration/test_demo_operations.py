"""The demo acts: the console's own composition over real SSH to simulated Sparks, faster than time goes.

What is planned here is carried out over a runner's line as on a Spark; the simulated Spark reacts, and what comes of it
is seen through the probe, Docker's socket, the engine's endpoint and the rules.
"""

from __future__ import annotations

import asyncio
import tarfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparktop.cli.compose import session
from sparktop.cli.session import Session
from sparktop.clock import SystemClock
from sparktop.config import Config
from sparktop.model.change import Change
from sparktop.model.engine import EngineState
from sparktop.model.fleet import FleetState, LinkState
from sparktop.model.guard import GuardPhase
from sparktop.model.plan import Plan, Request, Run, RunState
from sparktop.sim.scenario import load
from sparktop.sim.server import simulated
from sparktop.transport.ssh import SshConnector

WITHIN_S = 100.0


@dataclass(frozen=True, slots=True)
class Demo:
    session: Session

    @property
    def picture(self) -> FleetState:
        return self.session.state

    async def until(self, condition: Callable[[FleetState], object]) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WITHIN_S
        while not condition(self.picture):
            assert loop.time() < deadline, "it was not seen in time"
            await asyncio.sleep(0.05)

    async def plan(self, action: str, nodes: tuple[str, ...], target: str = "", *, change: Change | None = None,
                   **options: str) -> Plan:  # fmt: skip
        request = Request(action=action, nodes=nodes, target=target, options=options, change=change or Change())
        plan = await self.session.operations.plan(request)
        assert isinstance(plan, Plan), plan
        return plan

    async def run(self, plan: Plan) -> Run:
        async def secret(node: str, wrong: int) -> str | None:
            raise AssertionError(f"{node} asks for a password")

        async with asyncio.timeout(WITHIN_S):
            run = await self.session.operations.start(plan, secret=secret, changed=lambda run: None).finished()
        assert run.state is RunState.DONE, (run.message, [(one.step.id, one.state, one.detail) for one in run.steps])
        return run

    async def do(self, action: str, nodes: tuple[str, ...], target: str = "", **options: str) -> Run:
        return await self.run(await self.plan(action, nodes, target, **options))


@asynccontextmanager
async def demo(name: str, *, speed: float) -> AsyncIterator[Demo]:
    async with simulated(load(name), clock=SystemClock(), speed=speed) as nodes:
        connectors = [
            SshConnector.direct(
                name=node.name, host=node.host, port=node.port, username=node.username, client_key=node.client_key,
                pinned_host_key=node.host_key,
            )
            for node in nodes
        ]  # fmt: skip
        made = session(connectors, lambda picture: None, Config(), is_demo=True)
        running = asyncio.create_task(made.run())
        try:
            shown = Demo(made)
            await shown.until(
                lambda picture: (
                    len(picture.nodes) == 2
                    and all(node.link.state is LinkState.LIVE and node.engines and node.gpu for node in picture.nodes)
                )
            )
            yield shown
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def engine_state(picture: FleetState, node: str, name: str) -> EngineState | None:
    view = picture.node(node)
    return next((one.state for one in view.engines if one.name == name), None) if view else None


async def test_a_pair_is_restarted_and_serves(tmp_path: Path) -> None:
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
        audit = (tmp_path / "state/sparktop/demo/audit.jsonl").read_text()
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
