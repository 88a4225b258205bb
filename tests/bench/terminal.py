"""A program in a pseudo-terminal of 120x40, and what stands on its screen at the moment each piece of output came."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from rich.cells import cell_len

ROOT = Path(__file__).resolve().parents[2]
COLUMNS, ROWS = 120, 40
_PIECES = re.compile(
    r"\x1b\[(?P<args>[0-?]*)[ -/]*(?P<final>[@-~])"
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|\x1b[ -/]*[0-OQ-WYZ\\`-~]"
    r"|(?P<control>[\x00-\x1a\x1c-\x1f\x7f])"
    r"|(?P<text>[^\x00-\x1f\x7f]+)"
)
_width = lru_cache(4096)(cell_len)


class Screen:
    """As much of a terminal as Textual's output needs: text, cursor moves, erasing. Colours are thrown away."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._x = self._y = 0
        self.lines = [[" "] * COLUMNS for _ in range(ROWS)]

    def feed(self, data: bytes) -> None:
        text = self._rest + self._decoder.decode(data)
        at = 0
        while at < len(text):
            found = _PIECES.match(text, at)
            if found is None:  # an escape sequence cut in half; one that never ends is given up
                if len(text) - at < 4096:
                    break
                at += 1
                continue
            at = found.end()
            if found["text"] is not None:
                self._write(found["text"])
            elif found["final"] is not None:
                self._move(found["args"], found["final"])
            elif found["control"] == "\n":
                self._y = min(ROWS - 1, self._y + 1)
            elif found["control"] == "\r":
                self._x = 0
        self._rest = text[at:]

    def _write(self, text: str) -> None:
        line = self.lines[self._y]
        if text.isascii():
            end = min(COLUMNS, self._x + len(text))
            line[self._x : end] = text[: end - self._x]
            self._x = min(COLUMNS, self._x + len(text))
            return
        for char in text:
            width = _width(char)
            for cell in range(self._x, min(COLUMNS, self._x + width)):
                line[cell] = char if cell == self._x else ""
            self._x = min(COLUMNS, self._x + width)

    def _move(self, args: str, final: str) -> None:
        numbers = [int(word) if word.isdigit() else 0 for word in args.split(";")]
        first = numbers[0]
        if final in "Hf":
            self._y = min(ROWS - 1, max(1, first) - 1)
            self._x = min(COLUMNS - 1, max(1, [*numbers, 1][1]) - 1)
        elif final == "J":
            self.lines = [[" "] * COLUMNS for _ in range(ROWS)]
        elif final == "K":
            self.lines[self._y][self._x :] = [" "] * (COLUMNS - self._x)
        elif final == "C":
            self._x = min(COLUMNS - 1, self._x + max(1, first))

    def text(self, left: int = 0, right: int = COLUMNS) -> str:
        """The lines between two columns."""
        return "\n".join("".join(line[left:right]) for line in self.lines)

    def half(self, number: int) -> str:
        """The left (0) or the right (1) half: two nodes stand side by side at this size."""
        return self.text(number * COLUMNS // 2, (number + 1) * COLUMNS // 2)


Check = Callable[[Screen], object]
CheckInputs = Callable[[Screen, int], None]


class Program:
    """A running program; a thread of ours reads its terminal all the time, so that it never waits for us."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], seen: CheckInputs | None = None) -> None:
        """`seen` is called with the screen after each piece of output, and CLOCK_BOOTTIME (ns) when it was read."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.screen = Screen()
        self.seen = seen
        self.written_bytes = 0
        self._terminal = ours
        self._lock = threading.Lock()
        self._check: Check | None = None
        self._came_ns = 0
        self._came = threading.Event()
        self.started_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, env=dict(env), start_new_session=True
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._terminal, 1 << 16)
            except OSError:
                data = b""
            now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            if not data:
                return
            with self._lock:
                self.screen.feed(data)
                self.written_bytes += len(data)
                if self.seen is not None:
                    self.seen(self.screen, now_ns)
                self._look(now_ns)

    def _look(self, now_ns: int) -> None:
        if self._check is not None and self._check(self.screen):
            self._check, self._came_ns = None, now_ns
            self._came.set()

    def expect(self, check: Check, *, within_s: float = 20.0, what: str = "", send: bytes = b"") -> int:
        """Wait until the screen is so; CLOCK_BOOTTIME (ns) of the piece of output that made it so.

        Args:
            send: typed just before waiting.

        Raises:
            RuntimeError: it did not come about, with the screen.
        """
        with self._lock:
            self._came.clear()
            self._check = check
            if not send:
                self._look(time.clock_gettime_ns(time.CLOCK_BOOTTIME))
        if send:
            self.send(send)
        if not self._came.wait(within_s):
            with self._lock:
                self._check = None
            raise RuntimeError(f"{what or 'it'} did not show within {within_s} s:\n{self.screen.text()}")
        return self._came_ns

    def send(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def end(self) -> None:
        """Kill it, if it still runs."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGCONT)
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)
        self._reader.join(5)
        with contextlib.suppress(OSError):
            os.close(self._terminal)

    def quit(self) -> None:
        """Type q; kill it where that doesn't help."""
        with contextlib.suppress(subprocess.TimeoutExpired, OSError):
            self.send(b"q")
            self.process.wait(10)
        self.end()
