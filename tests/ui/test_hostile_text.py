"""Remote text can't style, script or crash the console: the bytes a real terminal gets are captured and read."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OWN = re.compile(
    rb"\x1b\[[0-9;:]*[Hm]"  # where to write, and how it looks
    rb"|\x1b\[[0-9?>=<;:]*[hlucJKnt]|\x1b\[\?[0-9;]*\$p|\x1b\[[0-9;]*[ABCD]|\x1b\[>[0-9;]*[qm]"  # modes and questions
    rb"|\x1b\]22;[a-z-]+\x07"  # the shape of the mouse pointer
    rb"|\x1b[78=>]|\x1b\(B|\x1bP\+q[0-9a-fA-F;]*\x1b\\\\"
)
"""What the console itself writes; anything else that begins with an escape came from elsewhere."""


def capture(
    *arguments: str, module: str = "tests.ui.hostile_app", size: tuple[int, int] = (100, 40), within_s: float = 60.0
) -> tuple[bytes, int]:
    """Run an app in a pseudo-terminal; all it wrote, and its exit code."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=ROOT,
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    written = bytearray()
    deadline = time.monotonic() + within_s
    try:
        while time.monotonic() < deadline:
            if not select.select([ours], [], [], 0.5)[0]:
                if process.poll() is not None:
                    break
                continue
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            written += piece
        else:
            pytest.fail(f"the app did not end: {bytes(written[-2000:])!r}")
        return bytes(written), process.wait(10)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        os.close(ours)


def foreign(written: bytes) -> list[bytes]:
    """Escape sequences that are not the console's own, C1 controls and bidi controls among what was written."""
    rest = OWN.sub(b"", written)
    found = re.findall(rb"\x1b.{0,12}", rest, re.DOTALL)
    text = OWN.sub(b"", written).decode("utf-8", "replace")
    found += [
        char.encode() for char in set(re.findall("[\x07\x08\x80-\x9f\u202a-\u202e\u2066-\u2069\u2028\u200b]", text))
    ]
    return found


def test_nothing_foreign_reaches_the_terminal() -> None:
    written, code = capture()
    assert foreign(written) == []
    assert b"]52;" not in written
    assert code == 0, written[-3000:].decode("utf-8", "replace")
    plain = OWN.sub(b"", written).decode("utf-8", "replace")
    assert "Traceback" not in plain
    for literal in ("[/x]", "[link=https://evil.example]link[/link]", "[@click=app.bell]", "$(reboot)"):
        assert literal in plain, f"{literal} is text and shown as such"


def test_the_capture_would_show_an_attack() -> None:
    written, _ = capture("raw")
    assert any(b"]52" in sequence for sequence in foreign(written))
