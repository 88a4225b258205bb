"""The whole of sparktop but its screens, on real parts: an sshd, a Docker Engine, a monitor, runners, the one gate.

async def test_x(at: Desk, engines: Engines) -> None:  # both fixtures, and sshd, imported
    engine = engines.start("vllm-a", port=...)
    await at.sees("vllm-a")
    run = await at.do("safe-restart", "vllm-a", target_gib="2")
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.guard_support import elsewhere
from tests.integration.dockerd import Dockerd
from tests.integration.sshd import Sshd
from tests.support import PATIENCE_S

from sparktop.model.change import Change
from sparktop.model.engine import Engine, EngineState
from sparktop.model.finding import Finding
from sparktop.model.fleet import NodeView
from sparktop.model.request import Request
from sparktop.observe.monitor import Monitor
from sparktop.operate.acts.memory import AwaitMemory
from sparktop.operate.audit_file import Audit
from sparktop.operate.operations import Operations
from sparktop.operate.run.executor import PlanExecution
from sparktop.operate.runner.connections import RunnerConnections
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.step.run import Run
from sparktop.probe import bundle
from sparktop.transport.base import Connector
from sparktop.transport.docker import engine

NODE = "spark1"


@dataclass
class Desk:
    """One console's insides."""

    monitor: Monitor
    lines: RunnerConnections
    operations: Operations
    audit_path: Path
    evidence_folder: Path
    shown: list[Run] = field(default_factory=list)
    """Every state a screen would have been given."""

    def engine(self, name: str) -> Engine | None:
        """As it stands in the picture."""
        node = self.monitor.state.node(NODE)
        return next((one for one in node.engines if one.name == name), None) if node else None

    def finding(self, rule: str) -> Finding | None:
        return next((one for one in self.monitor.state.findings if one.rule == rule), None)

    async def until(self, condition: Callable[[], object], *, what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                last = self.shown[-1] if self.shown else None
                pytest.fail(f"{what}: not within {PATIENCE_S} s; {last}; {self.monitor.state.nodes[0].engines}")
            await asyncio.sleep(0.05)

    async def sees(self, name: str, *states: EngineState) -> Engine:
        """Wait until the picture has this engine, in one of the states where any are given, and a runner is there."""

        def there() -> bool:
            engine = self.engine(name)
            return engine is not None and (not states or engine.state in states) and self.lines.line(NODE) is not None

        await self.until(there, what=f"{name} seen")
        engine = self.engine(name)
        assert engine is not None
        return engine

    async def serves(self, name: str) -> Engine:
        return await self.sees(name, EngineState.READY, EngineState.SERVING)

    async def plan(
        self,
        action: str,
        target: str = "",
        *,
        change: Change | None = None,
        finding: Finding | None = None,
        **options: str,
    ) -> Plan | Refusal:
        request = Request(
            action=action,
            nodes=(NODE,),
            target=target,
            change=change or Change(),
            options=options,
            finding=finding,
        )
        return await self.operations.plan(request)

    def begin(
        self, plan: Plan | Refusal, *, secret: Any = None, also: Callable[[Run], None] = lambda run: None
    ) -> PlanExecution:
        """Run a reviewed plan; `also` is called with each state."""
        assert isinstance(plan, Plan), plan

        def changed(run: Run) -> None:
            self.shown.append(run)
            also(run)

        return self.operations.start(plan, secret=secret or _no_password, changed=changed)

    async def do(self, action: str, target: str = "", **more: Any) -> Run:
        """Plan and run to the end."""
        return await self.finished(self.begin(await self.plan(action, target, **more)))

    async def finished(self, execution: PlanExecution) -> Run:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await execution.finished()
        except TimeoutError:
            pytest.fail(f"not over within {PATIENCE_S} s: {told(execution.run)}")


async def _no_password(node: str, wrong: int) -> str | None:
    return None


def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Don't look on for seconds where nothing is expected: memory is there at once, the first request is small, and
    containers are listed as often as a test of a minute wants."""
    defaults = AwaitMemory.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "stable_s", 0.3)
    monkeypatch.setattr("sparktop.operate.acts.request.AFTER_S", 0.3)
    monkeypatch.setattr("sparktop.observe.followers.CONTAINERS_EVERY_S", 0.5)
    monkeypatch.setattr("sparktop.observe.followers.METRICS_EVERY_S", 0.5)


def elsewhere_docker(monkeypatch: pytest.MonkeyPatch, dockerd: Dockerd, folder: Path) -> None:
    """The tests' daemon listens in a folder of its own, where no node would have it; a guard keeps its notes there."""
    if dockerd.socket_path == engine.SOCKET:
        return  # a second console of this test
    monkeypatch.setattr(engine, "SOCKET", dockerd.socket_path)
    launch = bundle.launch
    places = {'"/var/run/docker.sock"': f'"{dockerd.socket_path}"', '("/run/lock", "/tmp")': f'("{folder}",)'}
    monkeypatch.setattr(bundle, "launch", lambda **more: elsewhere(launch(**more), places))


def told(run: Run) -> str:
    """A run in words, for a test that failed."""
    rows = [f"{one.step.id}: {one.state.value} {one.detail}" for one in run.steps]
    return "\n".join([f"{run.state.value}: {run.message} | {run.hint}", *rows])


async def relaunched(at: Desk, name: str, change: Change, **options: str) -> Run:
    """Once it serves."""
    await at.serves(name)
    return await at.do("relaunch", name, change=change, target_gib="2", grace_s="10", **options)


@contextlib.asynccontextmanager
async def while_running(monitor: Monitor) -> AsyncIterator[Monitor]:
    """It watches until the block is left."""
    running = asyncio.create_task(monitor.run())
    try:
        yield monitor
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@contextlib.asynccontextmanager
async def watching(*connectors: Connector, **more: Any) -> AsyncIterator[Monitor]:
    """A monitor of these, four times a second."""
    monitor = Monitor([*connectors], publish=lambda _: None, interval_s=0.25, **more)
    async with while_running(monitor):
        yield monitor


async def until(monitor: Monitor, condition: Callable[[NodeView], object], *, within_s: float = PATIENCE_S) -> NodeView:
    """Wait until the first node's picture fits."""
    deadline = time.monotonic() + within_s
    while True:
        node = monitor.state.nodes[0]
        if condition(node):
            return node
        if time.monotonic() > deadline:
            pytest.fail(f"not within {within_s} s; guard {node.guard}, link {node.link} after {node.link_history}")
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def desk(
    sshd: Sshd,
    dockerd: Dockerd,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    name: str = "console",
    make_lines: Callable[[str, str], RunnerConnections] | None = None,
    protected: tuple[str, ...] = (),
) -> AsyncIterator[Desk]:
    """One console, connected or about to be."""
    state = tmp_path / "node-state"
    state.mkdir(exist_ok=True)
    elsewhere_docker(monkeypatch, dockerd, state)
    hurried(monkeypatch)
    sshd.trust()
    make = make_lines or (lambda socket, folder: RunnerConnections(docker_socket=socket, state_folder=folder))
    lines = make(dockerd.socket_path, str(state))
    home = tmp_path / name
    operations = Operations(
        picture=lambda: monitor.state,
        lines=lines,
        protected=protected,
        audit=Audit(home / "audit.jsonl"),
        tell=lambda node, words: monitor.tell(node, words),
        evidence_folder=home / "evidence",
    )
    monitor = Monitor(
        [sshd.connector(NODE)],
        publish=lambda picture: operations.see(picture),
        interval_s=0.25,
        connections=lines,
    )
    async with while_running(monitor):
        try:
            yield Desk(monitor, lines, operations, home / "audit.jsonl", home / "evidence")
        finally:
            await operations.aclose()
            await lines.aclose()


@pytest.fixture
async def at(sshd: Sshd, dockerd: Dockerd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    """The one console of a test."""
    async with desk(sshd, dockerd, tmp_path, monkeypatch) as made:
        yield made
