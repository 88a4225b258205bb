"""What an open connection carries over a real OpenSSH server: bytes of any kind and size, sockets, refusals."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.sshd import Sshd, sshd

from sparktop.errors import ChannelRefused, LinkLost
from sparktop.transport.base import Channel
from sparktop.transport.ssh.connection import SshTransport

__all__ = ["sshd"]
pytestmark = pytest.mark.integration


@pytest.fixture
async def transport(sshd: Sshd) -> AsyncIterator[SshTransport]:
    opened = await sshd.connector().connect(patience_s=10)
    yield opened
    await opened.close()


async def rest_of(channel: Channel) -> bytes:
    heard = bytearray()
    while piece := await channel.read():
        heard += piece
    return bytes(heard)


async def test_any_bytes_pass_unchanged(transport: SshTransport) -> None:
    every = bytes(range(256)) * 40 + b"\xff\xfe\xc3\x28\x1b]52;c;"
    channel = await transport.run(["head", "-c", str(len(every))])
    await channel.write(every)
    assert await rest_of(channel) == every
    assert await channel.exit_status() == 0


async def test_a_line_of_ten_megabytes_passes_while_little_is_held(transport: SshTransport) -> None:
    channel = await transport.run(["sh", "-c", "head -c 10000000 /dev/zero | tr '\\0' x; printf '\\377\\n'"])
    size = 0
    last = b""
    while piece := await channel.read(65536):
        assert len(piece) <= 65536
        size += len(piece)
        last = piece
    assert (size, last[-2:]) == (10_000_002, b"\xff\n")
    assert await channel.exit_status() == 0


async def test_a_flood_that_nobody_reads_is_held_back_at_the_source(transport: SshTransport) -> None:
    flood = await transport.run(["yes", "0123456789"])
    await flood.read(1)
    echo = await transport.run(["cat"])
    for _ in range(50):
        await echo.write(b"tick\n")
        assert await echo.read() == b"tick\n"
    assert flood._held_bytes < 1_000_000
    await flood.close()
    assert await flood.exit_status() is None
    assert await flood.read() == b""


async def test_much_can_be_written_and_comes_back(transport: SshTransport) -> None:
    channel = await transport.run(["cat"])
    sent = os.urandom(1 << 20) * 3
    heard = bytearray()

    async def listen() -> None:
        while len(heard) < len(sent):
            heard.extend(await channel.read())

    listening = asyncio.create_task(listen())
    for start in range(0, len(sent), 100_000):
        await channel.write(sent[start : start + 100_000])
    await listening
    assert heard == sent
    await channel.close()


async def test_arguments_are_not_read_by_a_shell(transport: SshTransport) -> None:
    words = ["printf", "%s\n", "$(id)", "; id", "a'b", "", "*", "\n"]
    channel = await transport.run(words)
    assert await rest_of(channel) == "".join(f"{word}\n" for word in words[2:]).encode()


async def test_exit_status_and_the_last_words_on_standard_error(transport: SshTransport) -> None:
    script = "for i in $(seq 30); do echo line $i >&2; done; printf '\\033]52;c;x\\007[/b]\\377' >&2; exit 7"
    channel = await transport.run(["sh", "-c", script])
    assert await channel.exit_status() == 7
    lines = channel.error_tail().split("\n")
    assert lines[-2] == "line 30"
    assert len(lines) <= 21
    assert lines[-1] == "[/b]�"
    gone = await transport.run(["no-such-command-here"])
    assert await gone.exit_status() == 127
    assert "not found" in gone.error_tail()
    killed = await transport.run(["sh", "-c", "kill -9 $$"])
    assert await killed.exit_status() is None


async def test_closing_a_channel_closes_the_commands_input(transport: SshTransport, tmp_path: Path) -> None:
    from tests.support import poll

    mark = tmp_path / "left"
    channel = await transport.run(["sh", "-c", f"cat >/dev/null; touch {mark}"])
    await channel.close()
    await channel.close()
    assert await channel.read() == b""
    with pytest.raises(LinkLost):
        await channel.write(b"x")
    await asyncio.to_thread(poll, mark.exists, what="the command's end")


async def test_a_connection_closed_on_this_side_is_a_lost_link_to_who_still_reads(transport: SshTransport) -> None:
    channel = await transport.run(["cat"])
    reading = asyncio.create_task(channel.read())
    await asyncio.sleep(0)
    await transport.close()
    with pytest.raises(LinkLost):
        await reading


async def test_sessions_beyond_the_limit_are_refused_and_the_others_live(sshd: Sshd) -> None:
    sshd.options["MaxSessions"] = "2"
    sshd.restart()
    transport = await sshd.connector().connect(patience_s=10)
    first = await transport.run(["cat"])
    await transport.run(["cat"])
    with pytest.raises(ChannelRefused, match="no further session"):
        await transport.run(["cat"])
    await first.write(b"alive")
    assert await first.read() == b"alive"
    await transport.close()


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def _ask(path: Path, words: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(words)
    writer.write_eof()
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_a_unix_socket_of_the_node_is_reached_through_a_private_path(
    transport: SshTransport, tmp_path: Path
) -> None:
    server = await asyncio.start_unix_server(_echo, tmp_path / "docker.sock")
    async with transport.unix_socket(str(tmp_path / "docker.sock")) as path:
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert len(os.fsencode(path)) < 104
        assert await _ask(path, b"hello") == b"hello"
        big = os.urandom(500_000)
        assert await asyncio.gather(*(_ask(path, big) for _ in range(3))) == [big] * 3
    assert not path.parent.exists()
    server.close()


async def test_a_tcp_port_of_the_node_is_reached_and_a_silent_one_just_closes(transport: SshTransport) -> None:
    server = await asyncio.start_server(_echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with transport.tcp_socket("127.0.0.1", port) as path:
        assert await _ask(path, b"GET") == b"GET"
    server.close()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        async with transport.tcp_socket("127.0.0.1", closed.getsockname()[1]) as path:
            assert await _ask(path, b"GET") == b""
    channel = await transport.run(["echo", "alive"])
    assert await rest_of(channel) == b"alive\n"


async def test_a_socket_that_is_not_there_or_not_permitted_is_a_refusal(sshd: Sshd, tmp_path: Path) -> None:
    transport = await sshd.connector().connect(patience_s=10)
    with pytest.raises(ChannelRefused, match=r"absent\.sock"):
        async with transport.unix_socket(str(tmp_path / "absent.sock")):
            pass
    await transport.close()
    sshd.options["AllowStreamLocalForwarding"] = "no"
    sshd.restart()
    server = await asyncio.start_unix_server(_echo, tmp_path / "docker.sock")
    transport = await sshd.connector().connect(patience_s=10)
    with pytest.raises(ChannelRefused) as caught:
        async with transport.unix_socket(str(tmp_path / "docker.sock")):
            pass
    assert "AllowStreamLocalForwarding" in (caught.value.hint or "")
    await transport.close()
    server.close()


async def test_a_lost_connection_takes_its_sockets_along_and_leaves_no_path(sshd: Sshd, tmp_path: Path) -> None:
    transport = await sshd.connector().connect(patience_s=10)
    server = await asyncio.start_unix_server(_echo, tmp_path / "docker.sock")
    async with transport.unix_socket(str(tmp_path / "docker.sock")) as path:
        sshd.kill_sessions()
        await transport.wait_closed()
        with pytest.raises((FileNotFoundError, ConnectionRefusedError)):
            await _ask(path, b"x")
    assert not path.parent.exists()
    with pytest.raises(LinkLost):
        async with transport.unix_socket(str(tmp_path / "docker.sock")):
            pass
    await transport.close()
    server.close()
