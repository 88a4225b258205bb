"""An open SSH connection to one node, with the jump host or proxy command it stands on."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh

from sparktop import sanitise
from sparktop.errors import ChannelRefused, LinkLost
from sparktop.transport.channel import WINDOW_BYTES, SshChannel
from sparktop.transport.failures import why_lost
from sparktop.transport.proxy import Proxy
from sparktop.transport.sockets import private_socket_path

_CLOSE_LIMIT_S = 1.0


class Line:
    """One SSH connection with what it stands on: a proxy command or the connection to a jump host."""

    def __init__(self, name: str, under: Line | None) -> None:
        self.name = name
        self.under = under
        self.proxy: Proxy | None = None
        self.connection: asyncssh.SSHClientConnection | None = None
        self.reason = ""
        self.ended = asyncio.Event()

    def lost(self, error: Exception | None) -> None:
        """The connection ended by itself; an attempt that never became one is told by its exception."""
        if self.reason or self.connection is None:
            return
        self.reason = why_lost(error)
        if self.under and self.under.reason:
            self.reason = f"jump host {self.under.name}: {self.under.reason}"
        self.ended.set()

    async def close(self) -> None:
        """End it from the top down, within a second even where nobody answers."""
        if not self.reason:
            self.reason = "closed here"
        self.ended.set()
        connection, self.connection = self.connection, None
        try:
            if connection is not None:
                connection.close()
                try:
                    async with asyncio.timeout(_CLOSE_LIMIT_S):
                        await connection.wait_closed()
                except TimeoutError:
                    connection.abort()
        finally:
            try:
                if self.proxy:
                    await self.proxy.close()
            finally:
                if self.under:
                    await self.under.close()


class SshTransport:
    """An open connection to one node over SSH."""

    def __init__(self, line: Line, key_fingerprint: str | None, warnings: Sequence[str]) -> None:
        self._line = line
        self._fingerprint = key_fingerprint
        self.warnings = tuple(warnings)
        """What the operator should know of this connection: a shared host key, a skipped known_hosts line."""

    @property
    def host_key_fingerprint(self) -> str | None:
        return self._fingerprint

    def _open_connection(self) -> asyncssh.SSHClientConnection:
        connection = self._line.connection
        if connection is None or self._line.ended.is_set() or connection.is_closed():
            raise LinkLost(self._line.reason or "the connection is closed")
        return connection

    async def run(self, argv: Sequence[str]) -> SshChannel:
        connection = self._open_connection()
        session = SshChannel(lambda: self._line.reason or "the connection ended")
        try:
            await connection.create_session(
                lambda: session,
                shlex.join(argv),
                encoding=None,
                window=WINDOW_BYTES,
                request_pty=False,
                env={},
                send_env=[],
                x11_forwarding=False,
            )
        except asyncssh.ChannelOpenError as error:
            if connection.is_closed() or self._line.ended.is_set():
                raise LinkLost(self._line.reason or "the connection ended") from None
            said = sanitise.line(str(error), limit=200)
            raise ChannelRefused(
                f"{self._line.name}: sshd gave no further session ({said})",
                hint="It allows MaxSessions at a time (10 unless its configuration says otherwise).",
            ) from None
        except (OSError, asyncssh.Error) as error:
            raise LinkLost(self._line.reason or why_lost(error)) from None
        return session

    @asynccontextmanager
    async def unix_socket(self, remote_path: str) -> AsyncIterator[Path]:
        """See Transport; one connection is tried first, since later a refusal only looks like a socket that closes."""
        connection = self._open_connection()
        await self._try(connection.open_unix_connection(remote_path, encoding=None), remote_path)
        with private_socket_path() as path:
            listener = await connection.forward_local_path(str(path), remote_path)
            try:
                yield path
            finally:
                listener.close()

    @asynccontextmanager
    async def tcp_socket(self, host: str, port: int) -> AsyncIterator[Path]:
        """See Transport. A port where nothing listens is no error here: an engine may come up later."""
        connection = self._open_connection()
        with private_socket_path() as path:
            listener = await connection.forward_local_path_to_port(str(path), host, port)
            try:
                yield path
            finally:
                listener.close()

    async def _try(self, opening: Awaitable[tuple[object, asyncssh.SSHWriter[bytes]]], remote_path: str) -> None:
        try:
            _, writer = await opening
        except asyncssh.ChannelOpenError as error:
            if self._line.ended.is_set():
                raise LinkLost(self._line.reason) from None
            said = sanitise.line(str(error), limit=200)
            raise ChannelRefused(
                f"{self._line.name}: sshd would not connect to {remote_path} ({said})",
                hint="The socket isn't there, this user may not use it (docker: sudo usermod -aG docker USER), "
                "or sshd has AllowStreamLocalForwarding no.",
            ) from None
        except (OSError, asyncssh.Error) as error:
            raise LinkLost(self._line.reason or why_lost(error)) from None
        writer.close()

    async def wait_closed(self) -> str:
        await self._line.ended.wait()
        return self._line.reason

    async def close(self) -> None:
        await self._line.close()
