"""The command line as a user types it: a process of its own, at a terminal of its own where one is wanted."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.support import PATIENCE_S

SPARKTOP = (sys.executable, "-m", "sparktop")
_HURRIED = (
    sys.executable,
    "-c",
    """
import sys
from sparktop.cli import main
from sparktop.operate.acts.memory import AwaitMemory
from sparktop.observe import followers
from sparktop.operate.acts import request
followers.CONTAINERS_EVERY_S = followers.METRICS_EVERY_S = 0.5
AwaitMemory.__init__.__kwdefaults__["stable_s"] = request.AFTER_S = 0.3
sys.exit(main())
""",
)
"""As `desk.hurried`: it doesn't look on for seconds where nothing is expected."""


def hurried_program() -> tuple[str, ...]:
    """What starts it so."""
    return _HURRIED


def sparktop(
    *words: str, within_s: float = PATIENCE_S, environment: dict[str, str] | None = None, is_hurried: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run it without a terminal, to its end."""
    return subprocess.run(
        [*(_HURRIED if is_hurried else SPARKTOP), *words],
        capture_output=True,
        text=True,
        timeout=within_s,
        stdin=subprocess.DEVNULL,
        check=False,
        env={**os.environ, **(environment or {})},
    )


@dataclass
class Terminal:
    """A program at a terminal, and all that it has written there."""

    pid: int
    handle: int
    written: bytes = b""
    status: int | None = None
    is_hung_up: bool = False

    @property
    def text(self) -> str:
        return self.written.decode(errors="replace")

    def _read(self, within_s: float) -> bool:
        if self.is_hung_up:
            return False
        if not select.select([self.handle], [], [], within_s)[0]:
            return True
        with contextlib.suppress(OSError):  # the other end is closed
            data = os.read(self.handle, 65536)
            self.written += data
            return bool(data)
        return False

    def reads(self, text: str, within_s: float = PATIENCE_S, *, after: int = 0) -> int:
        """Until the text stands there; where it ends, to look after it for the next one."""
        deadline = time.monotonic() + within_s
        while (at := self.written.find(text.encode(), after)) < 0:
            if time.monotonic() > deadline or not self._read(0.1):
                pytest.fail(f"{text!r} is not written within {within_s} s; what is:\n{self.text[-3000:]}")
        return at + len(text.encode())

    def looks(self, within_s: float = 0.05) -> bool:
        """Read what is written now; whether it still runs."""
        if not self._read(within_s):
            time.sleep(0.01)
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is None

    def hangs_up(self) -> None:
        """The window is closed: its program gets SIGHUP, and nobody reads what it writes."""
        os.close(self.handle)
        self.is_hung_up = True

    def pause(self, seconds: float) -> None:
        """Read on while somebody looks."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and self._read(left):
            pass

    def types(self, text: str) -> None:
        os.write(self.handle, text.encode())

    def ends(self, within_s: float = PATIENCE_S) -> int:
        """Its exit code."""
        deadline = time.monotonic() + within_s
        while self.looks():
            if time.monotonic() > deadline:
                pytest.fail(f"it does not end within {within_s} s:\n{self.text[-3000:]}")
        while self._read(0):
            if not select.select([self.handle], [], [], 0)[0]:
                break
        assert self.status is not None
        return self.status


@contextlib.contextmanager
def terminal(
    *words: str, size: tuple[int, int] = (40, 120), is_hurried: bool = False, under_nohup: bool = False
) -> Iterator[Terminal]:
    """Start sparktop at a terminal of that many rows and columns."""
    with at_terminal((*(_HURRIED if is_hurried else SPARKTOP), *words), size=size, under_nohup=under_nohup) as at:
        yield at


@contextlib.contextmanager
def at_terminal(
    program: tuple[str, ...], *, size: tuple[int, int] = (40, 120), under_nohup: bool = False
) -> Iterator[Terminal]:
    """Start any program at a terminal."""
    pid, handle = pty.fork()
    if pid == 0:
        try:
            given = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
            signal.signal(signal.SIGHUP, signal.SIG_IGN if under_nohup else signal.SIG_DFL)
            # Not execv: readline, where something imported it, has put a size of its own into the C library's environ.
            os.execve(program[0], list(program), given | {"TERM": "xterm-256color"})
        finally:
            os._exit(127)
    at = Terminal(pid, handle)
    try:
        yield at
    finally:
        if at.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        if not at.is_hung_up:
            os.close(handle)
