"""A fault of sparktop's own in one node's data, or in what watches it, is contained to that node and named."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.runner_support import until
from tests.wire_messages import MESSAGES

from sparktop import faults as faults_module
from sparktop.clock import ManualClock
from sparktop.errors import NoRoute
from sparktop.model.fleet import Contact, FleetState, LinkState, Reach
from sparktop.model.telemetry import Sample
from sparktop.observe import monitor as monitor_module
from sparktop.observe import node_state
from sparktop.observe.contained import KEPT_S, MAX_KEPT, Contained
from sparktop.observe.engines.engine_book import EngineBook
from sparktop.observe.followers import Followers
from sparktop.observe.intake import Intake
from sparktop.observe.monitor import Monitor
from sparktop.observe.node_state import NodeState
from sparktop.wire.decode import decode


class Link:
    """A connector whose every attempt raises this."""

    def __init__(self, name: str, error: Exception) -> None:
        self.name = name
        self.error = error
        self.attempts = 0
        self.contact = Contact()

    async def connect(self, *, patience_s: float) -> Any:
        self.attempts += 1
        raise self.error

    async def reach(self) -> tuple[Reach, str]:
        return Reach.UNTESTED, ""


def sample(memory: int = 8_134_368) -> Sample:
    raw = MESSAGES["sample"]
    decoded = decode(json.dumps({**raw, "meminfo": {**raw["meminfo"], "MemAvailable": memory}}).encode())
    assert isinstance(decoded, Sample)
    return decoded


def watch(publish: Callable[[FleetState], None] = lambda _: None, error: Exception | None = None) -> Monitor:
    links = [Link("spark1", error or NoRoute("off")), Link("spark2", NoRoute("off"))]
    return Monitor(links, publish=publish, rules=[])


def faults(state: FleetState) -> list[tuple[str, str]]:
    return [(notice.node, notice.text) for notice in state.notices if "a fault in sparktop itself" in notice.text]


async def test_what_a_callback_raises_stays_off_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(faults_module, "_folder", tmp_path)
    watching = asyncio.create_task(watch().run())
    loop = asyncio.get_running_loop()
    await until(lambda: loop.get_exception_handler() is faults_module.in_callback)
    loop.call_soon(lambda: 1 / 0)
    await until(lambda: any("ZeroDivisionError" in file.read_text() for file in tmp_path.iterdir()))
    assert capfd.readouterr().err == ""
    assert not caplog.records
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_a_fault_while_connecting_leaves_the_other_node_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor_module, "AFTER_FAULT_S", 0.01)
    monitor = watch(error=OverflowError("int too large"))
    broken = monitor._nodes["spark1"].supervisor._connector
    running = asyncio.create_task(monitor.run())
    try:
        await until(lambda: broken.attempts > 2)  # type: ignore[attr-defined]
        state = monitor._pictures.make()
        assert not running.done()
        assert [node for node, _ in faults(state)] == ["spark1"]
        first, second = state.nodes
        fault = "a fault in sparktop itself, in spark1's connection: OverflowError: int too large"
        assert (first.link.state, first.link.reason) == (LinkState.LOST, fault)
        assert second.link.reason == "off"
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def break_for(node: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a method of this node's state raise."""
    whole = getattr(NodeState, name)

    def broken(self: NodeState, *args: Any) -> Any:
        if self.name == node:
            raise ZeroDivisionError("division by zero")
        return whole(self, *args)

    monkeypatch.setattr(NodeState, name, broken)


async def test_a_fault_in_a_message_costs_that_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = watch()
    with monkeypatch.context() as patch:
        break_for("spark1", "_take_sample", patch)
        for name in ("spark1", "spark2"):
            monitor._nodes[name].intake.state.message(sample(), 1.0)
        first, second = (state := monitor._pictures.make()).nodes
        assert (first.sample, second.sample is not None) == (None, True)
        assert [node for node, _ in faults(state)] == ["spark1"]
        assert "spark1's Sample message" in faults(state)[0][1]
    monitor._nodes["spark1"].intake.state.message(sample(), 2.0)
    assert monitor._pictures.make().nodes[0].sample is not None


async def test_a_fault_in_a_nodes_picture_keeps_its_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = watch()
    for name in ("spark1", "spark2"):
        monitor._nodes[name].intake.state.message(sample(1_000_000), 1.0)
    before = monitor._pictures.make()
    break_for("spark1", "_new_view", monkeypatch)
    for name in ("spark1", "spark2"):
        monitor._nodes[name].intake.state.message(sample(2_000_000), 2.0)
    monitor._nodes["spark1"].intake.state.link(LinkState.STALE, "samples stopped")
    first, second = (state := monitor._pictures.make()).nodes
    assert first.sample is before.nodes[0].sample
    assert first.link.state is LinkState.STALE
    assert second.sample is not None
    assert second.sample.memory.available_bytes == 2_000_000 * 1024
    assert [node for node, _ in faults(state)] == ["spark1"]


async def test_a_fault_in_the_ledger_of_one_node_is_contained(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OverflowError("too large")

    monkeypatch.setattr(node_state, "ledger", broken)
    monitor = watch()
    monitor._nodes["spark1"].intake.state.message(sample(), 1.0)
    state = monitor._pictures.make()
    assert [view.name for view in state.nodes] == ["spark1", "spark2"]
    assert [node for node, _ in faults(state)] == ["spark1"]


async def test_who_takes_the_picture_may_fail() -> None:
    taken: list[FleetState] = []

    def publish(state: FleetState) -> None:
        taken.append(state)
        if len(taken) == 1:
            raise RuntimeError("no screen")

    monitor = watch(publish)
    monitor._publish_now()
    monitor._publish_now()
    assert len(taken) == 2
    assert "RuntimeError: no screen" in faults(taken[1])[0][1]


@pytest.mark.parametrize("name", ["notices", "diagnosis"])
async def test_what_is_told_of_the_nodes_may_fail(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Any:
        raise KeyError("x")

    monitor = watch()
    if name == "notices":
        monkeypatch.setattr("sparktop.observe.pictures.notices", broken)
    else:
        monkeypatch.setattr(monitor._pictures._diagnosis, "update", broken)
    state = monitor._pictures.make()
    assert len(state.nodes) == 2
    assert len(faults(state)) == 1


async def test_a_follower_is_started_again_and_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparktop.observe.followers.AFTER_FAULT_S", 0.01)
    contained = Contained(ManualClock())
    book = NodeState("spark1", clock=ManualClock(), changed=lambda _: None, contained=contained)
    times = 0

    async def follow() -> None:
        nonlocal times
        times += 1
        if times < 3:
            raise AttributeError("'list' object has no attribute 'get'")

    await asyncio.wait_for(Followers(Intake(book, EngineBook(book)))._contained("log of vllm", follow), 10)
    assert times == 3
    (notice,) = contained.notices()
    assert notice.node == "spark1"
    assert "spark1's log of vllm: AttributeError" in notice.text


def test_a_fault_is_told_for_a_while_and_there_are_only_so_many() -> None:
    clock = ManualClock()
    contained = Contained(clock)
    for number in range(MAX_KEPT + 10):
        contained.add("spark1", f"place {number}", ValueError("x"))
        clock.advance(0.1)
    assert len(contained.notices()) == MAX_KEPT
    assert contained.notices()[-1].text.count(f"place {MAX_KEPT + 9}") == 1
    clock.advance(KEPT_S + 1)
    assert contained.notices() == ()
