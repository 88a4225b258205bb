"""A ProxyCommand as one end of a socket pair, so that the stages after it are the same as over TCP.

asyncssh would feed the command's standard error into the SSH stream; here it is kept for the error message.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket

from sparktop.transport.channel import ErrorTail


class Proxy:
    """The operator's own ProxyCommand, run by their shell as OpenSSH does."""

    def __init__(self, command: str) -> None:
        self.command = command
        self._process: asyncio.subprocess.Process | None = None
        self._listener: asyncio.Task[None] | None = None
        self._said = ErrorTail(3)

    async def open(self) -> socket.socket:
        """Start it; the end that talks to it.

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
        self._listener = asyncio.create_task(self._listen())
        ours.setblocking(False)
        return ours

    async def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(4096):
            self._said.feed(data)

    def said(self) -> str:
        return self._said.text()

    async def close(self) -> None:
        """End it and what it started."""
        if self._listener:
            self._listener.cancel()
        if self._process and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGTERM)
            try:
                async with asyncio.timeout(1):
                    await self._process.wait()
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
