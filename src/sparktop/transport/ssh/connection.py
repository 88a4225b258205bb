"""An open SSH connection to one node, with its jump host or proxy command."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import asyncssh

from sparktop import sanitise
from sparktop.errors import ChannelRefused, LinkLost
from sparktop.transport.channel_base import private_socket_path
from sparktop.transport.ssh.channel import WINDOW_BYTES, Proxy, SshChannel
from sparktop.transport.ssh.failures import why_lost

_CLOSE_LIMIT_S = 1.0
_T = TypeVar("_T")


class Line:
    """One SSH connection and what it runs over: a proxy command, or the connection to a jump host."""

    def __init__(self, name: str, under: Line | None) -> None:
        self.name = name
        self.under = under
        self.proxy: Proxy | None = None
        self.connection: asyncssh.SSHClientConnection | None = None
        self.reason = ""
        self.ended = asyncio.Event()

    def lost(self, error: Exception | None) -> None:
        """Called when the connection ended by itself; a failed attempt raises instead."""
        if self.reason or self.connection is None:
            return
        self.reason = why_lost(error)
        if self.under and self.under.reason:
            self.reason = f"jump host {self.under.name}: {self.under.reason}"
        elif self.proxy:
            self.reason += f" (through `{self.proxy.command}`)"
        self.ended.set()

    async def close(self) -> None:
        """Close everything from the top down, within a second even where nobody answers."""
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
        self.host_key_fingerprint = key_fingerprint
        self.warnings = tuple(warnings)
        """What the operator should know of this connection: a shared host key, a skipped known_hosts line."""

    def _open_connection(self) -> asyncssh.SSHClientConnection:
        connection = self._line.connection
        if connection is None or self._line.ended.is_set() or connection.is_closed():
            raise LinkLost(self._line.reason or "the connection is closed")
        return connection

    async def run(self, argv: Sequence[str]) -> SshChannel:
        session = SshChannel(lambda: self._line.reason or "the connection ended")
        opening = self._open_connection().create_session(
            lambda: session,
            shlex.join(argv),
            encoding=None,
            window=WINDOW_BYTES,
            request_pty=False,
            env={},
            send_env=[],
            x11_forwarding=False,
        )
        await self._opened(
            opening,
            "gave no further session",
            hint="It allows MaxSessions at a time (10 unless its configuration says otherwise).",
        )
        return session

    @asynccontextmanager
    async def unix_socket(self, remote_path: str) -> AsyncIterator[Path]:
        """See Transport; one connection is tried first, as a later refusal only looks like a closed socket."""
        connection = self._open_connection()
        opening = connection.open_unix_connection(remote_path, encoding=None)
        _, writer = await self._opened(
            opening,
            f"would not connect to {remote_path}",
            hint="The socket isn't there, this user may not use it (docker: sudo usermod -aG docker USER), "
            "or sshd has AllowStreamLocalForwarding no.",
        )
        writer.close()
        with private_socket_path() as path:
            listener = await connection.forward_local_path(str(path), remote_path)
            try:
                yield path
            finally:
                listener.close()

    @asynccontextmanager
    async def tcp_socket(self, host: str, port: int) -> AsyncIterator[Path]:
        """See Transport. A port where nothing listens is no error here: an engine may start later."""
        connection = self._open_connection()
        with private_socket_path() as path:
            listener = await connection.forward_local_path_to_port(str(path), host, port)
            try:
                yield path
            finally:
                listener.close()

    async def _opened(self, opening: Awaitable[_T], refusal: str, *, hint: str) -> _T:
        """A channel that is being opened; `refusal` and `hint` are for where sshd gives none."""
        try:
            return await opening
        except asyncssh.ChannelOpenError as error:
            if self._line.ended.is_set() or self._line.connection is None or self._line.connection.is_closed():
                raise LinkLost(self._line.reason or "the connection ended") from None
            reason = sanitise.line(str(error), limit=200)
            raise ChannelRefused(f"{self._line.name}: sshd {refusal} ({reason})", hint=hint) from None
        except (OSError, asyncssh.Error) as error:
            raise LinkLost(self._line.reason or why_lost(error)) from None

    async def wait_closed(self) -> str:
        await self._line.ended.wait()
        return (await self._line.proxy.failed() if self._line.proxy else "") or self._line.reason

    async def close(self) -> None:
        await self._line.close()
