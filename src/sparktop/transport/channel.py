"""One remote command over SSH: bytes in and out with back-pressure, the last lines of its standard error kept."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import asyncssh

from sparktop import sanitise
from sparktop.errors import LinkLost

WINDOW_BYTES = 256 * 1024
"""With asyncssh's 2 MiB a flood on one channel delays the others by 64 ms instead of 9 (facts/reliability.md 1.7)."""
_PARTIAL_LIMIT = 4096


class ErrorTail:
    """The last lines of a standard error that nobody may let fill up: it shares the channel's window with output."""

    def __init__(self, lines: int = 20) -> None:
        self._lines: deque[str] = deque(maxlen=lines)
        self._partial = b""

    def feed(self, data: bytes) -> None:
        *whole, rest = (self._partial + data).split(b"\n")
        for line in whole[-(self._lines.maxlen or 0) :]:
            self._lines.append(sanitise.line(line.rstrip(b"\r")))
        self._partial = rest[:_PARTIAL_LIMIT]

    def text(self) -> str:
        rest = sanitise.line(self._partial) if self._partial.strip() else ""
        return "\n".join([*self._lines, rest] if rest else self._lines)


class SshChannel(asyncssh.SSHClientSession[bytes]):
    """A Channel; also the session object asyncssh calls back, so that nothing is copied twice."""

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
        elif len(self._pieces) == 1:
            piece = self._pieces.popleft()
        else:
            taken = [self._pieces.popleft()]
            size = len(taken[0])
            while self._pieces and size + len(self._pieces[0]) <= limit:
                taken.append(self._pieces.popleft())
                size += len(taken[-1])
            piece = b"".join(taken)
        self._held_bytes -= len(piece)
        if self._paused and self._held_bytes < WINDOW_BYTES // 2 and self._channel and not self._closed.is_set():
            self._paused = False
            self._channel.resume_reading()
        return piece

    async def write(self, data: bytes) -> None:
        if self._channel is None or self._closed.is_set():
            raise LinkLost(self._why_lost() if self._link_broke else "the command has ended and reads no more")
        try:
            self._channel.write(data)
        except (OSError, asyncssh.Error):
            raise LinkLost("the command has ended and reads no more") from None
        await self._writable.wait()
        if self._link_broke:
            raise LinkLost(self._why_lost())

    def error_tail(self) -> str:
        return self._errors.text()

    async def exit_status(self) -> int | None:
        """See Channel; output beyond the window has to be read by somebody, or the command never gets to its end."""
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
