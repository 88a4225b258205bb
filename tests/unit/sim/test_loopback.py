"""Faults of the line are real at the level of sockets: a real SSH client sees what it would of a sick network."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh
import pytest
from tests.unit.sim.test_runner import until
from tests.unit.sim.test_server import connect, start_probe

from sparktop.clock import ManualClock
from sparktop.probe import bundle
from sparktop.sim.scenario.scenario import load_file
from sparktop.sim.server import SimulatedNode, simulated

SCENARIO = """
title = "t"
description = "d"
length_s = 100
repeat = "{repeat}"
[[nodes]]
name = "spark1"
[[nodes.faults]]
start_s = 10
end_s = 20
kind = "{kind}"
delay_s = 0.5
"""


class Stage:
    """A simulated Spark with one fault from second 10 to 20, on a clock that the test moves."""

    def __init__(self, node: SimulatedNode, clock: ManualClock) -> None:
        self.node = node
        self._clock = clock

    def to(self, second: float) -> None:
        """Go on to a second of the scenario."""
        self._clock.advance(1000.0 + second - self._clock.monotonic())

    async def tcp(self, within_s: float = 5.0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(within_s):
            return await asyncio.open_connection(self.node.host, self.node.port)

    async def banner(self, within_s: float = 5.0) -> bytes:
        reader, writer = await self.tcp(within_s)
        try:
            async with asyncio.timeout(within_s):
                return await reader.readline()
        finally:
            writer.close()


@asynccontextmanager
async def stage(tmp_path: Path, kind: str, *, repeat: str = "hold") -> AsyncIterator[Stage]:
    path = tmp_path / "one.toml"
    path.write_text(SCENARIO.format(kind=kind, repeat=repeat))
    clock = ManualClock(monotonic=1000.0)
    async with asyncio.timeout(30), simulated(load_file(path), clock=clock) as nodes:
        yield Stage(nodes[0], clock)


async def answers(stage: Stage) -> bool:
    try:
        return (await stage.banner(1.0)).startswith(b"SSH-2.0-")
    except OSError:
        return False


async def test_well_it_greets_as_openssh_does(tmp_path: Path) -> None:
    async with stage(tmp_path, "reset") as spark:
        assert (await spark.banner()).startswith(b"SSH-2.0-OpenSSH_")


async def test_no_route_answers_nothing_and_what_was_open_falls_silent_and_comes_back(tmp_path: Path) -> None:
    async with stage(tmp_path, "no-route") as spark, await connect(spark.node) as connection:
        spark.to(12)

        async def unreachable() -> bool:
            try:
                _, writer = await spark.tcp(1.0)
                writer.close()
            except TimeoutError:
                return True
            return False

        await until(unreachable)
        asking = asyncio.ensure_future(connection.run("anything", encoding=None))
        done, _ = await asyncio.wait({asking}, timeout=0.4)
        assert not done
        spark.to(21)
        assert (await asking).exit_status == 127  # nothing was lost meanwhile
        await until(lambda: answers(spark))


async def test_starved_takes_tcp_and_gives_no_banner_until_it_recovers(tmp_path: Path) -> None:
    async with stage(tmp_path, "starved") as spark, await connect(spark.node) as connection:
        process = await start_probe(connection, bundle.launch(interval_s=1.0))
        assert (await process.stdout.readline()).startswith(b"SPARKTOP ")
        spark.to(12)

        async def silent() -> bool:
            return not await answers(spark)

        await until(silent)
        reader, writer = await spark.tcp()  # TCP does answer
        while True:  # what was already on its way
            try:
                async with asyncio.timeout(0.5):
                    assert await process.stdout.read(65536)
            except TimeoutError:
                break
        spark.to(21)
        async with asyncio.timeout(5):
            assert (await reader.readline()).startswith(b"SSH-2.0-")  # the patient client is served
            assert await process.stdout.readline()
        writer.close()


async def test_a_reset_ends_what_is_open_and_lets_one_back_in(tmp_path: Path) -> None:
    async with stage(tmp_path, "reset") as spark:
        connection = await connect(spark.node)
        spark.to(12)
        async with asyncio.timeout(5):
            await connection.wait_closed()

        async def refused() -> bool:
            try:
                return await spark.banner(1) == b""
            except ConnectionResetError:
                return True

        await until(refused)
        spark.to(21)
        await until(lambda: answers(spark))


async def test_refused_is_an_sshd_that_isnt_there(tmp_path: Path) -> None:
    async with stage(tmp_path, "refused") as spark:
        connection = await connect(spark.node)
        spark.to(12)
        async with asyncio.timeout(5):
            await connection.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await spark.tcp()
        spark.to(21)
        await until(lambda: answers(spark))


async def test_slow_delivers_everything_late(tmp_path: Path) -> None:
    async with stage(tmp_path, "slow") as spark, await connect(spark.node) as connection:
        began = time.monotonic()
        await connection.run("x", encoding=None)
        quick = time.monotonic() - began
        spark.to(12)

        async def late() -> bool:
            began = time.monotonic()
            ended = await connection.run("x", encoding=None)
            assert ended.exit_status == 127
            return time.monotonic() - began > quick + 1.0

        await until(late)
        spark.to(21)

        async def prompt() -> bool:
            return not await late()

        await until(prompt)


async def test_a_new_showing_ends_every_connection(tmp_path: Path) -> None:
    async with stage(tmp_path, "slow", repeat="restart") as spark:
        connection = await connect(spark.node)
        spark.to(100.5)
        async with asyncio.timeout(5):
            await connection.wait_closed()
        with pytest.raises(asyncssh.Error):
            await connection.run("x")
        await until(lambda: answers(spark))


async def test_nothing_is_left_when_it_closes(tmp_path: Path) -> None:
    async with stage(tmp_path, "starved") as spark:
        connection = await connect(spark.node)
        spark.to(12)
        node = spark.node
    async with asyncio.timeout(5):
        await connection.wait_closed()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(node.host, node.port)
    ours = asyncio.current_task()
    left = [task for task in asyncio.all_tasks() if task is not ours and "sparktop" in repr(task.get_coro())]
    assert left == []
