"""Safe restart, stop and loop-breaking from key to audit: a real Docker Engine, a real sshd, an engine that serves."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.integration.dockerd import Dockerd
from tests.integration.engine_image import EngineLike, Engines, engine_image, engines
from tests.integration.sshd import Sshd, sshd

from sparktop.model.engine import EngineState
from sparktop.model.plan import Plan, Refusal, Request, Run, RunState
from sparktop.observe.monitor import Monitor
from sparktop.operate.lines import Lines
from sparktop.operate.operations import Operations
from sparktop.transport.containers import DockerEngine

pytestmark = pytest.mark.integration
__all__ = ["engine_image", "engines", "sshd"]

SMALL = ("--gpu-memory-utilization", "0.01")


@dataclass
class Console:
    """A console without a screen."""

    monitor: Monitor
    operations: Operations
    audit: Path

    async def sees(self, name: str, *states: EngineState) -> None:
        await until(
            lambda: any(one.name == name and one.state in states for one in self.monitor.state.nodes[0].engines),
            what=lambda: f"{name} {states}: {self.monitor.state.nodes[0].engines}",
        )

    async def plan(self, action: str, name: str, **options: str) -> Plan:
        wish = Request(action=action, nodes=("spark1",), target=name, options=options)
        found = await self.operations.plan(wish)
        assert isinstance(found, Plan), found
        return found

    async def run(self, plan: Plan, changed: Callable[[Run], None] = lambda run: None) -> Run:
        async def secret(node: str, wrong: int) -> str | None:
            return None

        execution = self.operations.start(plan, secret=secret, changed=changed)
        async with asyncio.timeout(90):
            return await execution.finished()


async def until(condition: Callable[[], object], *, what: Callable[[], str], within_s: float = 40.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {within_s} s: {what()}")
        await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def console(
    sshd: Sshd, dockerd: Dockerd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Console]:
    assert DockerEngine.__init__.__kwdefaults__ is not None
    monkeypatch.setitem(DockerEngine.__init__.__kwdefaults__, "socket_path", dockerd.socket_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    sshd.trust()
    (tmp_path / "node").mkdir(mode=0o700)
    lines = Lines(docker_socket=dockerd.socket_path, state_folder=str(tmp_path / "node"))
    monitor = Monitor([sshd.connector("spark1")], publish=lambda _: None, interval_s=0.25, connections=lines)
    operations = Operations(picture=lambda: monitor.state, lines=lines, tell=monitor.tell)
    running = asyncio.create_task(monitor.run())
    try:
        await until(lambda: lines.line("spark1"), what=lambda: lines.problem("spark1"))
        yield Console(monitor, operations, tmp_path / "state")
    finally:
        await operations.aclose()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await lines.aclose()


def policy(engine: EngineLike) -> str:
    return str(engine.inspect()["HostConfig"]["RestartPolicy"]["Name"])


def told(run: Run) -> str:
    rows = [f"{one.step.id}: {one.state.value} {one.detail}" for one in run.steps]
    return "\n".join([f"{run.state.value}: {run.message} {run.hint}", *rows])


async def test_safe_restart(
    sshd: Sshd, dockerd: Dockerd, engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engines.start("tiny-restart", *SMALL, env={"VLLM_API_KEY": "sk-canary-77"}, restart_policy=always())
    before = engine.inspect()
    async with console(sshd, dockerd, tmp_path, monkeypatch) as mine:
        await mine.sees("tiny-restart", EngineState.READY, EngineState.SERVING)
        plan = await mine.plan("safe-restart", "tiny-restart", target_gib="1", grace_s="10")
        run = await mine.run(plan)
    assert run.state is RunState.DONE, told(run)
    after = engine.inspect()
    assert after["Id"] == before["Id"]
    assert after["State"]["StartedAt"] != before["State"]["StartedAt"]
    assert policy(engine) == "unless-stopped"
    assert engine.answers(key="sk-canary-77")
    details = {one.step.id: one.detail for one in run.steps}
    assert details["smoke"].startswith("serves: ")
    assert details["ready"].startswith("answers")
    assert "canary" not in told(run)
    for path in mine.audit.rglob("*"):
        assert not path.is_file() or b"canary" not in path.read_bytes(), path


def always() -> dict[str, Any]:
    return {"Name": "unless-stopped", "MaximumRetryCount": 0}


async def test_engine_that_loads_and_does_not_serve_is_told_and_the_policy_stays_off(
    sshd: Sshd, dockerd: Dockerd, engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engines.start("tiny-error", *SMALL, env={"ENGINE_COMPLETION": "error"}, restart_policy=always())
    async with console(sshd, dockerd, tmp_path, monkeypatch) as mine:
        await mine.sees("tiny-error", EngineState.READY, EngineState.SERVING)
        run = await mine.run(await mine.plan("safe-restart", "tiny-error", target_gib="1", grace_s="5"))
        assert run.state is RunState.FAILED, told(run)
        assert "does not serve" in {one.step.id: one.detail for one in run.steps}["smoke"]
        assert run.can_go_back
        assert policy(engine) == "no"
        back = mine.operations.way_back(run)
        assert back is not None
        returned = await mine.run(back)
    assert returned.state is RunState.DONE, told(returned)
    assert policy(engine) == "unless-stopped"


async def test_memory_that_never_comes_back_starts_nothing(
    sshd: Sshd, dockerd: Dockerd, engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engines.start("tiny-memory", *SMALL, restart_policy=always())
    async with console(sshd, dockerd, tmp_path, monkeypatch) as mine:
        await mine.sees("tiny-memory", EngineState.READY, EngineState.SERVING)
        plan = await mine.plan("safe-restart", "tiny-memory", target_gib="9000", memory_limit_s="10", grace_s="5")
        run = await mine.run(plan)
    assert run.state is RunState.FAILED, told(run)
    assert "of 9000.0 GiB available" in {one.step.id: one.detail for one in run.steps}["memory"]
    assert engine.inspect()["State"]["Running"] is False
    assert policy(engine) == "no"


async def test_deaf_engine_is_killed_after_its_grace(
    sshd: Sshd, dockerd: Dockerd, engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engines.start("tiny-deaf", *SMALL, env={"ENGINE_DEAF": "1"})
    async with console(sshd, dockerd, tmp_path, monkeypatch) as mine:
        await mine.sees("tiny-deaf", EngineState.READY, EngineState.SERVING)
        run = await mine.run(await mine.plan("stop-engine", "tiny-deaf", grace_s="2"))
        assert run.state is RunState.DONE, told(run)
        assert engine.inspect()["State"]["ExitCode"] == 137
        again = await mine.operations.plan(Request(action="stop-engine", nodes=("spark1",), target="tiny-deaf"))
        if isinstance(again, Plan):  # the picture follows within seconds, Docker's own answer at once
            pytest.fail(again.title)
        assert isinstance(again, Refusal)


async def test_restart_loop_is_broken(
    sshd: Sshd, dockerd: Dockerd, engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engines.start(
        "tiny-loop",
        *SMALL,
        env={"ENGINE_FAILS": "load", "ENGINE_LOAD_S": "0.2"},
        restart_policy={"Name": "always", "MaximumRetryCount": 0},
        ready=False,
    )
    async with console(sshd, dockerd, tmp_path, monkeypatch) as mine:
        await until(lambda: engine.inspect()["RestartCount"] >= 3, what=lambda: str(engine.inspect()["State"]))
        await until(
            lambda: any(
                one.name == "tiny-loop" and (one.restarts or 0) >= 1 for one in mine.monitor.state.nodes[0].engines
            ),
            what=lambda: str(mine.monitor.state.nodes[0].engines),
        )
        run = await mine.run(await mine.plan("break-restart-loop", "tiny-loop"))
    assert run.state is RunState.DONE, told(run)
    state = engine.inspect()
    assert state["State"]["Running"] is False
    assert state["State"]["Restarting"] is False
    assert policy(engine) == "no"
