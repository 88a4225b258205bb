"""Watching comes first: a runner and followers are started once a connection gives figures, or soon where none come."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from sparktop.model.fleet import Reach
from sparktop.observe import monitor as monitor_module
from sparktop.observe.monitor import Monitor
from sparktop.observe.supervisor import Supervisor
from sparktop.transport.base import Channel, Transport
from sparktop.transport.local import LocalConnector, LocalTransport


class Noted:
    """Connections that note what the monitor has when one is announced."""

    def __init__(self) -> None:
        self.opened_with: list[bool] = []
        self.closed_count = 0
        self.came = asyncio.Event()
        self.has_sample: Callable[[], bool] = bool

    def opened(self, node: str, transport: Transport, fault: object) -> None:
        self.opened_with.append(self.has_sample())
        self.came.set()

    def closed(self, node: str) -> None:
        self.closed_count += 1


@contextlib.asynccontextmanager
async def watching(connector: LocalConnector, noted: Noted) -> AsyncIterator[Monitor]:
    monitor = Monitor((connector,), publish=lambda _: None, interval_s=0.2, rules=(), connections=noted)
    book = monitor._nodes[connector.name].intake.state
    noted.has_sample = lambda: book.last_sample_arrived_s is not None
    running = asyncio.create_task(monitor.run())
    try:
        async with asyncio.timeout(30):
            yield monitor
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_runner_waits_for_the_first_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor_module, "FIGURES_FIRST_S", 3600.0)
    noted = Noted()
    async with watching(LocalConnector(name="here"), noted) as monitor:
        await noted.came.wait()
        assert noted.opened_with == [True]
        assert monitor._nodes["here"].followers._running is not None
    assert noted.closed_count == 1


class _SilentTransport(LocalTransport):
    async def run(self, argv: Sequence[str]) -> Channel:
        await asyncio.Event().wait()
        raise AssertionError


class _SilentConnector(LocalConnector):
    async def connect(self, *, patience_s: float) -> Transport:
        return _SilentTransport()

    async def reach(self) -> tuple[Reach, str]:
        return Reach.UNTESTED, ""


async def test_a_host_that_gives_no_figures_gets_its_runner_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor_module, "FIGURES_FIRST_S", 0.05)
    noted = Noted()
    async with watching(_SilentConnector(name="here"), noted):
        await noted.came.wait()
        assert noted.opened_with == [False]


async def test_a_connection_that_closes_first_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone(self: Supervisor, transport: Transport) -> None:
        raise RuntimeError("it closed at once")

    monkeypatch.setattr(monitor_module, "FIGURES_FIRST_S", 0.05)
    monkeypatch.setattr(Supervisor, "_observe", gone)
    noted = Noted()
    async with watching(_SilentConnector(name="here"), noted) as monitor:
        while not noted.closed_count:  # noqa: ASYNC110 - the fault is told to nobody else
            await asyncio.sleep(0.01)
        watched = monitor._nodes["here"]
        assert watched._later is None
        watched._follow()
        assert noted.opened_with == []
