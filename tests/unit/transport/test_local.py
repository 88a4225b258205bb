"""This machine through the same Transport: commands, sockets and what is left afterwards."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support import poll

from sparktop.errors import LinkLost
from sparktop.model.fleet import Reach
from sparktop.transport.base import Channel, Transport
from sparktop.transport.channel_base import private_socket_path
from sparktop.transport.local import LocalConnector, LocalTransport


@pytest.fixture
async def transport() -> AsyncIterator[LocalTransport]:
    opened = await LocalConnector().connect(patience_s=1)
    yield opened
    await opened.close()


async def rest_of(channel: Channel) -> bytes:
    heard = b""
    while piece := await channel.read():
        heard += piece
    return heard


async def test_it_is_a_transport(transport: LocalTransport) -> None:
    plain: Transport = transport
    assert plain.host_key_fingerprint is None
    assert (await LocalConnector().reach())[0] == Reach.ANSWERS


async def test_bytes_pass_and_arguments_are_not_read_by_a_shell(transport: LocalTransport) -> None:
    channel = await transport.run(["cat"])
    await channel.write(b"\xff\x00\x1b")
    assert await channel.read() == b"\xff\x00\x1b"
    await channel.close()
    words = await transport.run(["printf", "%s|", "$(id)", "a b", ""])
    assert await rest_of(words) == b"$(id)|a b||"
    assert await words.exit_status() == 0


async def test_failure_looks_as_over_ssh(transport: LocalTransport) -> None:
    absent = await transport.run(["no-such-command-here"])
    assert await rest_of(absent) == b""
    assert await absent.exit_status() == 127
    assert "not found" in absent.error_tail()
    killed = await transport.run(["sh", "-c", "kill -9 $$"])
    assert await killed.exit_status() is None
    gone = await transport.run(["true"])
    await gone.exit_status()
    with pytest.raises(LinkLost):
        await gone.write(b"x" * 1_000_000)


async def test_closing_ends_the_whole_group_and_leaves_those_that_go_by_themselves_the_time(
    transport: LocalTransport, tmp_path: Path
) -> None:
    stubborn = await transport.run(["sh", "-c", "sleep 300 & echo $!; wait"])
    child = int(await stubborn.read())
    polite = await transport.run(["sh", "-c", f"cat >/dev/null; echo done > {tmp_path}/mark"])
    await polite.close()
    assert (tmp_path / "mark").read_text() == "done\n"
    await transport.close()

    def ended() -> bool:
        try:
            return Path(f"/proc/{child}/stat").read_text().split(")")[1].split()[0] == "Z"
        except OSError:
            return True

    poll(ended, what="the end of the child")
    assert await transport.wait_closed() == "closed here"
    with pytest.raises(LinkLost):
        await transport.run(["true"])


async def test_a_command_that_ignores_the_signal_does_not_hold_up_the_end(transport: LocalTransport) -> None:
    channel = await transport.run(["sh", "-c", "trap '' TERM; echo $$; while :; do sleep 1; done"])
    pid = int(await channel.read())
    async with asyncio.timeout(10):
        await channel.close()
    os.kill(pid, 9)


async def test_a_port_is_reached_through_a_private_path(transport: LocalTransport) -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data.upper())
        writer.close()

    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    async with transport.tcp_socket("127.0.0.1", server.sockets[0].getsockname()[1]) as path:
        assert path.parent.stat().st_mode & 0o777 == 0o700
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"hello")
        writer.write_eof()
        assert await reader.read() == b"HELLO"
        writer.close()
        hanging = await asyncio.open_unix_connection(path)  # still open when the block is left
        hanging[1].write(b"x")
        assert await hanging[0].read(1) == b"X"
    assert not path.parent.exists()
    assert await hanging[0].read() == b""
    hanging[1].close()
    server.close()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        async with transport.tcp_socket("127.0.0.1", closed.getsockname()[1]) as path:
            reader, writer = await asyncio.open_unix_connection(path)
            assert await reader.read() == b""
            writer.close()


async def test_a_unix_socket_is_itself(transport: LocalTransport) -> None:
    async with transport.unix_socket("/var/run/docker.sock") as path:
        assert path == Path("/var/run/docker.sock")


def test_a_socket_path_stays_short_under_a_long_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * 80)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with private_socket_path() as path:
        assert len(os.fsencode(path)) < 104
        with socket.socket(socket.AF_UNIX) as line:
            line.bind(str(path))
    assert not path.parent.exists()
