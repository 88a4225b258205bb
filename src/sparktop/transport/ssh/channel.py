"""One remote command over SSH, and the operator's ProxyCommand: bytes in both directions."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections import deque
from collections.abc import Callable

import asyncssh

from sparktop import sanitise
from sparktop.errors import LinkLost

WINDOW_BYTES = 256 * 1024
"""With asyncssh's 2 MiB a flood on one channel delays the others by 64 ms instead of 9
(docs/facts/reliability.md 1.7)."""


_PARTIAL_LIMIT = 4096


class ErrorTail:
    """The last lines of standard error; it must be read, as it shares the channel's window with the output."""

    def __init__(self, lines: int = 20) -> None:
        self._lines: deque[str] = deque(maxlen=lines)
        self._partial = b""

    def feed(self, data: bytes) -> None:
        *complete, partial = (self._partial + data).split(b"\n")
        for line in complete[-(self._lines.maxlen or 0) :]:
            self._lines.append(sanitise.line(line.rstrip(b"\r")))
        self._partial = partial[:_PARTIAL_LIMIT]

    async def listen(self, stream: asyncio.StreamReader | None) -> None:
        """Feed a local program's standard error, until it ends."""
        while stream is not None and (data := await stream.read(65536)):
            self.feed(data)

    def text(self) -> str:
        partial = sanitise.line(self._partial) if self._partial.strip() else ""
        return "\n".join([*self._lines, partial] if partial else self._lines)


class SshChannel(asyncssh.SSHClientSession[bytes]):
    """A Channel; also the session object that asyncssh calls back, so that data is not copied twice."""

    def __init__(self, why_lost: Callable[[], str]) -> None:
        self._why_lost = why_lost
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None
        self._pieces: deque[bytes] = deque()
        self._held_bytes = 0
        self._paused = False
        self._at_end = False
        self._link_broke = False
        self._closed_here = False
        self._closed = asyncio.Event()
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._errors = ErrorTail()
        self._status: int | None = None

    # -- what asyncssh calls

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self._channel = chan

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if datatype is not None:
            self._errors.feed(data)
            return
        self._pieces.append(data)
        self._held_bytes += len(data)
        self._readable.set()
        if self._held_bytes >= WINDOW_BYTES and not self._paused and self._channel:
            self._paused = True
            self._channel.pause_reading()

    def eof_received(self) -> bool:
        self._at_end = True
        self._readable.set()
        return True  # the command may still read its input

    def exit_status_received(self, status: int) -> None:
        self._status = status

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        # A connection that we close ourselves says no error; a command that ends says so first, by EOF or its status.
        has_ended = self._at_end or self._status is not None
        self._link_broke = not self._closed_here and (exc is not None or not has_ended)
        self._at_end = True
        self._readable.set()
        self._writable.set()
        self._closed.set()

    # -- Channel

    async def read(self, limit: int = 65536) -> bytes:
        while not self._pieces:
            if self._link_broke:
                raise LinkLost(self._why_lost())
            if self._at_end:
                return b""
            self._readable.clear()
            await self._readable.wait()
        if len(self._pieces[0]) > limit:
            piece = self._pieces[0][:limit]
            self._pieces[0] = self._pieces[0][limit:]
        else:
            pieces = [self._pieces.popleft()]
            size = len(pieces[0])
            while self._pieces and size + len(self._pieces[0]) <= limit:
                pieces.append(self._pieces.popleft())
                size += len(pieces[-1])
            piece = b"".join(pieces)
        self._held_bytes -= len(piece)
        if self._paused and self._held_bytes < WINDOW_BYTES // 2 and self._channel and not self._closed.is_set():
            self._paused = False
            self._channel.resume_reading()
        return piece

    async def write(self, data: bytes) -> None:
        if self._channel is None or self._closed.is_set():
            raise LinkLost(self._why_lost() if self._link_broke else "the command has exited and reads no more input")
        try:
            self._channel.write(data)
        except (OSError, asyncssh.Error):
            raise LinkLost("the command has exited and reads no more input") from None
        await self._writable.wait()
        if self._link_broke:
            raise LinkLost(self._why_lost())

    def error_tail(self) -> str:
        return self._errors.text()

    async def exit_status(self) -> int | None:
        """See Channel; output beyond the window has to be read, or the command never ends."""
        await self._closed.wait()
        return self._status

    async def close(self) -> None:
        self._closed_here = True
        self._pieces.clear()
        self._held_bytes = 0
        self._at_end = True
        self._readable.set()
        if self._channel is not None and not self._closed.is_set():
            try:
                self._channel.write_eof()
                self._channel.close()
            except (OSError, asyncssh.Error):
                pass  # it ended by itself meanwhile


LAST_WORDS_S = 0.3
"""What a command has written before its end is there at once; what it leaves running may hold its pipe for ever."""


class Proxy:
    """The operator's ProxyCommand, run by their shell as OpenSSH does."""

    def __init__(self, command: str) -> None:
        self.command = command
        self._process: asyncio.subprocess.Process | None = None
        self._listener: asyncio.Task[None] | None = None
        self._said = ErrorTail(3)
        self._is_closed = False

    async def open(self) -> socket.socket:
        """Start the command; returns the socket that talks to it.

        Raises:
            OSError: it can't be started.
        """
        ours, its = socket.socketpair()
        try:
            self._process = await asyncio.create_subprocess_exec(
                os.environ.get("SHELL", "/bin/sh"),
                "-c",
                f"exec {self.command}",
                stdin=its.fileno(),
                stdout=its.fileno(),
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            its.close()
        self._listener = asyncio.create_task(self._said.listen(self._process.stderr))
        ours.setblocking(False)
        return ours

    def said(self) -> str:
        return self._said.text()

    async def failed(self) -> str:
        """How the command has failed, with its last words; empty while it runs, and where it ended without an error:
        then it was what lies behind it that closed the connection."""
        if self._process is None or self._is_closed:
            return ""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self._process.wait()
        code = self._process.returncode
        if not code:
            return ""
        if self._listener:
            await asyncio.wait({self._listener}, timeout=LAST_WORDS_S)
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        words = "; ".join(filter(None, self.said().split("\n")))
        return f"the ProxyCommand `{self.command}` {how}" + (f": {words}" if words else "")

    async def close(self) -> None:
        """End the command and its children; its last words are read before."""
        self._is_closed = True
        if self._process and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGTERM)
            try:
                async with asyncio.timeout(1):
                    await self._process.wait()
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
        if self._listener:
            await asyncio.wait({self._listener}, timeout=LAST_WORDS_S)
            self._listener.cancel()
