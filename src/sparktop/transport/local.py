"""The machine sparktop runs on, through the same interface as any other node."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.errors import ChannelRefused, LinkLost, TransportError
from sparktop.model.fleet import Contact, Reach
from sparktop.transport.channel_base import private_socket_path
from sparktop.transport.ssh.channel import WINDOW_BYTES, ErrorTail

if TYPE_CHECKING:
    from sparktop.model.survey import PublicKey

_LEAVE_LIMIT_S = 0.5
"""Seconds a command has to end by itself after its input closed, before it gets a signal."""


class LocalChannel:
    """One command in its own process group."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._errors = ErrorTail()
        self._listener = asyncio.create_task(self._errors.listen(process.stderr))
        self._closing = False

    async def read(self, limit: int = 65536) -> bytes:
        assert self._process.stdout is not None
        if self._closing:
            return b""
        return await self._process.stdout.read(limit)

    async def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except (OSError, RuntimeError):
            raise LinkLost("the command has exited and reads no more input") from None

    def error_tail(self) -> str:
        return self._errors.text()

    async def exit_status(self) -> int | None:
        status = await self._process.wait()
        # what it said last may still be in the pipe; a child that inherited the pipe may keep it open for ever
        await asyncio.wait([self._listener], timeout=_LEAVE_LIMIT_S)
        return status if status >= 0 else None

    async def close(self) -> None:
        """As sshd does: close the input, then signal the group; never SIGKILL (it could be inside NVML)."""
        if self._closing:
            return
        self._closing = True
        try:
            if self._process.stdin is not None:
                self._process.stdin.close()
            async with asyncio.timeout(_LEAVE_LIMIT_S):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGTERM)  # also what outlived the command it came from
            self._listener.cancel()
        try:
            async with asyncio.timeout(_LEAVE_LIMIT_S):
                await self._process.wait()
        except TimeoutError:
            pass  # it ignores the signal; the probe's lease ends the one that matters


class LocalTransport:
    """The "connection" to this machine; it lasts until it is closed."""

    host_key_fingerprint: str | None = None
    warnings: Sequence[str] = ()

    def __init__(self) -> None:
        self._channels: set[LocalChannel] = set()
        self._ended = asyncio.Event()

    async def run(self, argv: Sequence[str]) -> LocalChannel:
        if self._ended.is_set():
            raise LinkLost("closed here")
        try:
            process = await asyncio.create_subprocess_exec(
                "/bin/sh",  # as over SSH: a command that isn't there is exit status 127 and a line of standard error
                "-c",
                'exec "$@"',
                "sh",
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
                limit=WINDOW_BYTES,
            )
        except OSError as error:
            raise ChannelRefused(
                f"this machine starts no further process ({error.strerror})", hint="See: ulimit -u, free -m"
            ) from error
        channel = LocalChannel(process)
        self._channels.add(channel)
        return channel

    @asynccontextmanager
    async def unix_socket(self, remote_path: str) -> AsyncIterator[Path]:
        """The path itself; whoever connects to it sees the same refusal."""
        yield Path(remote_path)

    @asynccontextmanager
    async def tcp_socket(self, host: str, port: int) -> AsyncIterator[Path]:
        relays: set[asyncio.Task[None]] = set()
        is_closed = False

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            relays.add(task)
            try:
                if not is_closed:  # accepted just before the end
                    await _join(reader, writer, host, port)
            except asyncio.CancelledError:
                pass  # by the end below alone; a callback of asyncio's (3.11) fails on a task that was cancelled
            finally:
                relays.discard(task)
                writer.close()

        with private_socket_path() as path:
            server = await asyncio.start_unix_server(relay, path)
            try:
                yield path
            finally:
                is_closed = True
                server.close()
                for task in list(relays):
                    task.cancel()
                if relays:
                    await asyncio.wait(list(relays))

    async def wait_closed(self) -> str:
        await self._ended.wait()
        return "closed here"

    async def close(self) -> None:
        self._ended.set()
        channels, self._channels = self._channels, set()
        await asyncio.gather(*(channel.close() for channel in channels))


async def _join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
    """Copy bytes both ways between an accepted connection and host:port, until both directions have ended."""
    try:
        there_reader, there_writer = await asyncio.open_connection(host, port)
    except OSError:
        return  # nobody listens: the caller sees a connection that closes, as through SSH
    try:
        await asyncio.gather(_carry(reader, there_writer), _carry(there_reader, writer))
    finally:
        there_writer.close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.close()


class LocalConnector:
    """Connects to this machine."""

    def __init__(self, name: str = "local") -> None:
        self.name = name
        self.contact = Contact()

    async def connect(self, *, patience_s: float) -> LocalTransport:
        """See Connector; it never waits."""
        return LocalTransport()

    async def reach(self) -> tuple[Reach, str]:
        return Reach.ANSWERS, "this machine"

    async def own_keys(self) -> tuple[PublicKey, ...]:
        """See Connector: nobody logs in here."""
        return ()

    async def log_in_with(self, key: PublicKey) -> None:
        raise TransportError("this machine itself needs no login")
