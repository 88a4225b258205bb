"""The simulated Spark's guard: the probe's own judgement, the wire's own message, and the container's end."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sparktop.cli.composition import session
from sparktop.clock import ManualClock, SystemClock
from sparktop.config import Config
from sparktop.model.engine import Engine, EngineState
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.model.request import Request
from sparktop.model.telemetry import Sample
from sparktop.operate.step.plan import Plan
from sparktop.operate.step.run import RunState
from sparktop.sim.reaction.play import Play
from sparktop.sim.scenario.scenario import load
from sparktop.sim.server import simulated
from sparktop.sim.services.probe_session import Talk
from sparktop.transport.ssh.connector import SshConnector
from sparktop.wire.decode import decode
from sparktop.wire.framing import sequence_of

GIB = 1024**3
STEP_S = 0.05


@dataclass
class Showing:
    """A node of a scenario with one console, its clock moved by hand."""

    scenario: str
    clock: ManualClock = field(default_factory=ManualClock)
    samples: list[Sample] = field(default_factory=list)
    guards: list[GuardState] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.play = Play(load(self.scenario), clock=self.clock)
        self.node = self.play.scenario.nodes[0].name
        spark, t = self.play.moment(self.node)
        self.talk = Talk(
            spark,
            interval_s=1.0,
            digest="0" * 8,
            began_s=t,
            now_s=0.0,
            react=lambda act: self.play.react(self.node, act),
        )

    def go(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            self.clock.advance(STEP_S)
            self.talk.spark, t = self.play.moment(self.node)
            for line in self.talk.advance(t, 0.0).splitlines():
                message = decode(line)
                self.samples += [message] if isinstance(message, Sample) else []
                self.guards += [message] if isinstance(message, GuardState) else []
                self.talk.hear(b'{"ack":%d}\n' % (sequence_of(line) or 0), 0.0)

    def boxes(self) -> dict[str, tuple[str, bool]]:
        spark, t = self.play.moment(self.node)
        return {live.script.name: (live.container_id, live.running) for live in spark.containers(t)}

    def order(self, box: str, token: str = "one", /, **changes: object) -> None:
        words = {
            "id": self.boxes()[box][0], "name": box, "floor": 4 * GIB, "within": None, "stay": 0, "token": token,
        }  # fmt: skip
        self.talk.hear(json.dumps({"guard": words | changes}).encode() + b"\n", 0.0)


@pytest.fixture
def showing() -> Showing:
    made = Showing("memory-spike")
    made.go(2.0)
    return made


def engine_of(showing: Showing) -> str:
    return next(name for name, (_, running) in showing.boxes().items() if running)


def test_the_spike_is_cut_short_and_memory_comes_back(showing: Showing) -> None:
    name = engine_of(showing)
    showing.order(name)
    showing.go(1.0)
    assert [guard.phase for guard in showing.guards] == [GuardPhase.ARMED]
    assert showing.samples[-1].interval_s == 0.25
    while not any(guard.phase is GuardPhase.FIRED for guard in showing.guards):
        showing.go(0.5)
        assert showing.play.now()[1] < showing.play.scenario.length_s, "the scenario never came below the floor"
    showing.go(10.0)
    fired = showing.guards[-1]
    assert fired.phase is GuardPhase.FIRED
    assert fired.answered_s == pytest.approx(0.4, abs=0.2)
    assert fired.available_bytes is not None
    assert 2 * GIB < fired.available_bytes < 4 * GIB
    assert not showing.boxes()[name][1]
    lowest = min(sample.memory.available_bytes for sample in showing.samples)
    assert lowest > 1 * GIB
    showing.go(30.0)
    assert showing.samples[-1].memory.available_bytes > 60 * GIB
    assert len([guard for guard in showing.guards if guard.phase is GuardPhase.FIRED]) == 2  # and its answer


def test_the_words_of_the_real_one(showing: Showing) -> None:
    name = engine_of(showing)
    for token, changes, phase, words in (
        ("a", {"id": "ab" * 32}, GuardPhase.DISARMED, "no such container"),
        ("b", {"name": "other"}, GuardPhase.DISARMED, f"now called {name}"),
        ("c", {"floor": 120 * GIB}, GuardPhase.DISARMED, "already below that floor"),
        ("d", {"floor": "x"}, GuardPhase.FAILED, "doesn't understand"),
        ("e", {"id": ""}, GuardPhase.DISARMED, "by sparktop"),
        ("f", {}, GuardPhase.ARMED, ""),
        ("f", {}, GuardPhase.ARMED, ""),
    ):
        showing.order(name, token, **changes)
        showing.go(0.2)
        assert showing.guards[-1].phase is phase
        assert words in showing.guards[-1].detail
    assert len(showing.guards) == 7
    showing.talk.hear(b'{"guard":3}\n{"guard":null}\n', 0.0)
    showing.go(1.0)


async def test_armed_through_the_gate_it_ends_the_engine_of_the_demo_and_the_finding_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    async with simulated(load("memory-spike"), clock=SystemClock(), speed=4.0) as nodes:
        connectors = [
            SshConnector.direct(
                name=node.name,
                host=node.host,
                port=node.port,
                username=node.username,
                client_key=node.client_key,
                pinned_host_key=node.host_key,
            )
            for node in nodes
        ]
        made = session(connectors, lambda picture: None, Config(), is_demo=True)
        running = asyncio.create_task(made.run())

        async def until(condition: Callable[[], Any], what: str) -> Any:
            deadline = time.monotonic() + 60
            while not (found := condition()):
                assert time.monotonic() < deadline, f"{what}; {made.state.nodes[0].guard}"
                await asyncio.sleep(0.02)
            return found

        async def no_password(node: str, wrong: int) -> None:
            return None

        def engine() -> Engine | None:
            found = made.state.nodes[0].engines
            return found[0] if found and found[0].state is EngineState.READY and found[0].container else None

        try:
            name = (await until(engine, "no engine is ready")).name
            plan = await made.late.built().plan(Request(action="guard", nodes=(nodes[0].name,), target=name))
            assert isinstance(plan, Plan), plan
            run = await made.late.built().start(plan, secret=no_password, changed=lambda run: None).finished()
            assert run.state is RunState.DONE, run
            fired = await until(
                lambda: next((one for one in made.state.findings if one.rule == "guard.fired"), None), "nothing fired"
            )
            assert name in fired.title
            await until(
                lambda: made.state.nodes[0].sample and made.state.nodes[0].sample.memory.available_bytes > 60 * GIB,
                "memory never came back",
            )
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    entries = [json.loads(line) for line in (tmp_path / "sparktop" / "demo" / "audit.jsonl").read_text().splitlines()]
    guards = [entry["phase"] for entry in entries if entry["kind"] == "guard"]
    assert (guards[0], guards[-1]) == ("armed", "fired")
