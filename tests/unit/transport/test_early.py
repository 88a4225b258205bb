"""A first connection that begins before it is asked for is that connection, and no other is left behind."""

from __future__ import annotations

import asyncio
import threading

import pytest

from sparktop.cli import main
from sparktop.errors import NoRoute, SparktopError
from sparktop.model.fleet import Reach
from sparktop.transport.base import Transport
from sparktop.transport.early import EarlyConnector
from sparktop.transport.local import LocalTransport
from sparktop.ui.setup import Setup


class Noted(LocalTransport):
    is_closed = False

    async def close(self) -> None:
        self.is_closed = True


class Scripted:
    """A connector whose attempts end as they are told to."""

    name = "spark1"

    def __init__(self) -> None:
        self.attempts: list[asyncio.Future[Transport]] = []
        self.has_begun = threading.Event()

    async def connect(self, *, patience_s: float) -> Transport:
        self.attempts.append(asyncio.get_running_loop().create_future())
        self.has_begun.set()
        return await self.attempts[-1]

    async def reach(self) -> tuple[Reach, str]:
        return Reach.ANSWERS, "it answers"


async def begun() -> tuple[Scripted, EarlyConnector]:
    scripted = Scripted()
    early = EarlyConnector(scripted)
    await asyncio.sleep(0)
    assert len(scripted.attempts) == 1
    return scripted, early


async def test_the_first_connection_is_the_one_that_was_begun() -> None:
    scripted, early = await begun()
    transport = Noted()
    scripted.attempts[0].set_result(transport)
    assert await early.connect(patience_s=1.0) is transport
    second = asyncio.create_task(early.connect(patience_s=1.0))
    await asyncio.sleep(0)
    scripted.attempts[1].set_result(Noted())
    assert await second is not transport
    assert (early.name, await early.reach()) == ("spark1", (Reach.ANSWERS, "it answers"))


async def test_its_failure_is_told_when_it_is_asked_for() -> None:
    scripted, early = await begun()
    scripted.attempts[0].set_exception(NoRoute("it is off"))
    with pytest.raises(NoRoute):
        await early.connect(patience_s=1.0)
    again = asyncio.create_task(early.connect(patience_s=1.0))
    await asyncio.sleep(0)
    assert len(scripted.attempts) == 2
    again.cancel()


async def test_who_gives_up_waiting_gives_up_the_attempt() -> None:
    scripted, early = await begun()
    waiting = asyncio.create_task(early.connect(patience_s=1.0))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert scripted.attempts[0].cancelled()


async def test_what_is_abandoned_is_ended() -> None:
    scripted, early = await begun()
    await early.abandon()
    assert scripted.attempts[0].cancelled()
    scripted, early = await begun()
    transport = Noted()
    scripted.attempts[0].set_result(transport)
    await asyncio.sleep(0.01)
    await early.abandon()
    assert transport.is_closed


def test_the_console_begins_to_connect_before_it_imports_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = Scripted()
    seen: list[int] = []

    def session(links: list[EarlyConnector], *_: object, **__: object) -> None:
        assert scripted.has_begun.wait(20)  # the event loop runs beside this thread
        seen.append(len(scripted.attempts))
        raise SparktopError("the rules can't be read")

    def run_app(setup: Setup, *_: object) -> int:
        async def run() -> None:
            with pytest.raises(SparktopError):
                await setup.start(lambda state: None, None)  # type: ignore[arg-type]
            assert scripted.attempts[0].cancelled()

        asyncio.run(run())
        return 0

    monkeypatch.setattr("sparktop.cli.watch.connectors", lambda *_: [scripted])
    monkeypatch.setattr("sparktop.cli.watch.session", session)
    monkeypatch.setattr("sparktop.cli.watch._run_app", run_app)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["spark1"]) == 0
    assert seen == [1]
