"""A runner on each connection: started at once and again, never by who only watches, gone with it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from tests.runner_support import is_alive, no_secret, sh, until

from sparktop.clock import ManualClock
from sparktop.errors import ChannelRefused
from sparktop.model.fleet import FleetState
from sparktop.model.survey import FileText
from sparktop.observe.contained import Contained
from sparktop.observe.monitor import Monitor
from sparktop.operate.acts.remote import Remote
from sparktop.operate.runner import connections as module
from sparktop.operate.runner.api import OutcomeState
from sparktop.operate.runner.client import RunnerLine
from sparktop.operate.runner.connections import RunnerConnections
from sparktop.transport.local import LocalChannel, LocalConnector, LocalTransport


def no_fault(where: str, error: BaseException) -> None:
    raise AssertionError(f"{where}: {error}")


@pytest.fixture
async def lines(tmp_path: Path) -> AsyncIterator[RunnerConnections]:
    (tmp_path / "state").mkdir(mode=0o700)
    made = RunnerConnections(state_folder=str(tmp_path / "state"))
    yield made
    await made.aclose()


@pytest.fixture
async def transport() -> AsyncIterator[LocalTransport]:
    made = LocalTransport()
    yield made
    await made.close()


async def runner(lines: RunnerConnections, node: str = "spark1") -> RunnerLine:
    async with asyncio.timeout(20):
        line = await lines.wait(node)
    assert isinstance(line, RunnerLine)
    return line


async def test_a_runner_for_each_connection(lines: RunnerConnections, transport: LocalTransport) -> None:
    assert lines.line("spark1") is None
    waiting = asyncio.create_task(lines.wait("spark1"))
    lines.opened("spark1", transport, no_fault)
    line = await runner(lines)
    assert await waiting is line
    assert lines.line("spark1") is line
    assert lines.line("spark2") is None
    assert lines.problem("spark1") == ""
    lines.closed("spark1")
    assert lines.line("spark1") is None
    async with asyncio.timeout(10):
        await line.wait_ended()
    await until(lambda: not is_alive(line.pid))


async def test_a_runner_that_dies_is_started_again(lines: RunnerConnections, transport: LocalTransport) -> None:
    lines.opened("spark1", transport, no_fault)
    first = await runner(lines)
    os.kill(first.pid, signal.SIGKILL)
    await until(lambda: lines.line("spark1") is not first)
    second = await runner(lines)
    assert second.pid != first.pid
    act = Remote(operations=(sh("echo well"),))
    outcome = await second.perform("r", "s", act, told=lambda _: None, secret=no_secret)
    assert outcome.state is OutcomeState.DONE


async def test_a_node_that_talks_on_and_on_fills_no_memory_here(
    lines: RunnerConnections, transport: LocalTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "long").write_text("x" * 200)
    ask = FileText(node="spark1", path=str(tmp_path / "long"))
    lines.opened("spark1", transport, no_fault)
    line = await runner(lines)
    assert (await line.ask([ask]))[ask].value == "x" * 200
    monkeypatch.setattr("sparktop.operate.runner.client.ANSWER_CHARS", 100)
    answer = (await line.ask([ask]))[ask]
    assert (answer.value, answer.problem) == (None, "spark1 says more than it was asked for")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"{nonsense\n", "JSONDecodeError"),
        (b"[1]\n", "a reply is no object: list"),
        (b'{"id": 1, "kind": ' + b"[" * 900 + b"]" * 900 + b"}\n", "ValueError"),
        (b"x" * 300_000 + b"\n", "a line of 300000 bytes was dropped"),
    ],
    ids=["no-json", "no-object", "deep", "over-long"],
)
async def test_a_reply_that_can_t_be_read_is_named_once(
    lines: RunnerConnections,
    transport: LocalTransport,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: bytes,
    what: str,
) -> None:
    (tmp_path / "file").write_text("read")
    contained = Contained(ManualClock())
    lines.opened("spark1", transport, lambda where, error: contained.add("spark1", where, error))
    line = await runner(lines)
    read, hostile = line._channel.read, [text * 3]

    async def with_nonsense() -> bytes:
        data = await read()
        return hostile.pop() + data if hostile else data

    monkeypatch.setattr(line._channel, "read", with_nonsense)
    ask = FileText(node="spark1", path=str(tmp_path / "file"))
    answers = [(await line.ask([ask]))[ask].value for _ in range(3)]
    assert answers == ["read"] * 3, "the replies after it are read"
    (notice,) = contained.notices()
    assert (notice.node, "spark1's runner's replies" in notice.text) == ("spark1", True)
    assert what in notice.text


async def test_what_was_begun_is_remembered_across_connections(
    lines: RunnerConnections, transport: LocalTransport
) -> None:
    lines.opened("spark1", transport, no_fault)
    first = await runner(lines)
    first.boot_id = "the boot before"
    act = Remote(operations=(sh("kill -9 $PPID"),))
    await first.perform("r", "s", act, told=lambda _: None, secret=no_secret)
    lines.closed("spark1")
    lines.opened("spark1", transport, no_fault)
    second = await runner(lines)
    assert second is not first
    assert (await second.outcome("r", "s")).state is OutcomeState.GONE
    assert (await second.outcome("r", "never")).state is OutcomeState.NOT_STARTED


async def test_watching_only_starts_nothing(transport: LocalTransport) -> None:
    lines = RunnerConnections(read_only=True)
    lines.opened("spark1", transport, no_fault)
    await asyncio.sleep(0)
    assert lines.line("spark1") is None
    assert "--read-only" in lines.problem("spark1")
    assert not transport._channels
    await lines.aclose()


class Full(LocalTransport):
    """A connection whose sshd gives no further session, for a while."""

    def __init__(self, refusals: int) -> None:
        super().__init__()
        self.refusals = refusals

    async def run(self, argv: Sequence[str]) -> LocalChannel:
        if self.refusals:
            self.refusals -= 1
            raise ChannelRefused("spark1: sshd gave no further session", hint="It allows MaxSessions at a time.")
        return await super().run(argv)


async def test_why_there_is_no_runner_is_said(lines: RunnerConnections, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESTARTS_S", (0.01, 0.01))
    full = Full(3)
    lines.opened("spark1", full, no_fault)
    await until(lambda: full.refusals == 0)
    assert lines.problem("spark1") == "spark1: sshd gave no further session. It allows MaxSessions at a time."
    assert lines.line("spark1") is None
    lines.closed("spark1")
    assert lines.problem("spark1") == ""
    again = Full(1)
    lines.opened("spark1", again, no_fault)
    await runner(lines)
    assert lines.problem("spark1") == ""
    lines.closed("spark1")
    await full.close()
    await again.close()


async def test_the_monitor_gives_each_connection_a_runner(lines: RunnerConnections) -> None:
    pictures: list[FleetState] = []
    monitor = Monitor([LocalConnector("here")], publish=pictures.append, interval_s=0.25, connections=lines)
    running = asyncio.create_task(monitor.run())
    try:
        line = await runner(lines, "here")
        await until(lambda: monitor.state.nodes[0].sample is not None)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert lines.line("here") is None
    await until(lambda: not is_alive(line.pid))
