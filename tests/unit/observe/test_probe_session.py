"""What the console says to a probe: one acknowledgement for a sample's parts, and a heartbeat into silence."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence

import pytest

from sparktop.observe import probe_session
from sparktop.observe.probe_session import ProbeSession


class ScriptedChannel:
    """Stands in for a probe's channel: says what the test puts, and notes what it is told."""

    def __init__(self) -> None:
        self.says: asyncio.Queue[bytes] = asyncio.Queue()
        self.told: list[dict[str, object]] = []
        self.was_told = asyncio.Event()
        self.was_sent = asyncio.Event()
        """The probe itself was written to the channel."""

    async def read(self) -> bytes:
        return await self.says.get()

    async def write(self, data: bytes) -> None:
        if data.startswith(b"{"):
            self.told.append(json.loads(data))
            self.was_told.set()
        else:
            self.was_sent.set()

    def error_tail(self) -> str:
        return ""

    async def exit_status(self) -> int | None:
        return None

    async def close(self) -> None: ...


class ScriptedTransport:
    def __init__(self, channel: ScriptedChannel) -> None:
        self.channel = channel

    async def run(self, argv: Sequence[str]) -> ScriptedChannel:
        nonce = argv[6]
        self.channel.says.put_nowait(f"SPARKTOP {nonce}\n".encode())
        return self.channel


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[ScriptedChannel]:
    channel = ScriptedChannel()
    session = ProbeSession(
        ScriptedTransport(channel),  # type: ignore[arg-type]
        lambda probed: None,
        interval_s=1.0,
    )
    task = asyncio.create_task(session.run())
    try:
        async with asyncio.timeout(20):
            await channel.was_sent.wait()
            yield channel
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_the_parts_of_a_sample_get_one_acknowledgement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_session, "ACK_DELAY_S", 1.0)  # however slow this machine is, all is read within it
    async with running() as channel:
        for seq in (4, 5, 6):
            channel.says.put_nowait(b'{"seq":%d,"t":"later"}\n' % seq)
        await channel.was_told.wait()
        assert channel.told == [{"ack": 6}]
        channel.was_told.clear()
        channel.says.put_nowait(b'{"seq":7,"t":"later"}\n')
        await channel.was_told.wait()
        assert channel.told[1:] == [{"ack": 7}]


async def test_a_heartbeat_goes_into_silence_only(monkeypatch: pytest.MonkeyPatch) -> None:
    sleep, turns = asyncio.sleep, asyncio.Semaphore(0)

    async def turn(delay_s: float) -> None:
        await turns.acquire()

    monkeypatch.setattr("sparktop.observe.probe_session.asyncio.sleep", turn)
    async with running() as channel:
        channel.says.put_nowait(b'{"seq":1,"t":"later"}\n')
        await channel.was_told.wait()
        turns.release()  # the heartbeat's first turn, in which something was said
        await sleep(0.05)
        assert channel.told == [{"ack": 1}]
        turns.release()
        while {"beat": 1} not in channel.told:
            await sleep(0.01)
        assert channel.told == [{"ack": 1}, {"beat": 1}]
