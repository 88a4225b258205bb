"""One line from the terminal, asked for on standard error and read on the event loop.

Not in a thread: one that waits for a line can't be ended, and Ctrl-C would hang until the next Enter.
"""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

from sparktop.headless.narration import written


async def answered(question: str) -> str:
    """What was typed, without blanks around it; empty at the end of input."""
    return (await _line(question)).strip()


async def answered_unseen(question: str) -> str:
    """What was typed, not shown and as it is; empty at the end of input."""
    with _no_echo(sys.stdin.fileno()):
        try:
            return (await _line(question)).removesuffix("\n")
        finally:
            written("", sys.stderr)  # Enter was not shown either


async def _line(question: str) -> str:
    written(question, sys.stderr, end="")
    loop = asyncio.get_running_loop()
    line: asyncio.Future[bytes] = loop.create_future()
    got = bytearray()
    number = sys.stdin.fileno()

    def readable() -> None:
        try:
            piece = os.read(number, 1024)
        except OSError:  # the terminal was closed
            piece = b""
        got.extend(piece)
        if (not piece or b"\n" in piece) and not line.done():
            line.set_result(bytes(got))

    loop.add_reader(number, readable)
    try:
        text = (await line).decode("utf-8", "replace")
        if not text.endswith("\n"):  # Ctrl-D: what is said next begins a line of its own
            written("", sys.stderr)
        return text
    finally:
        loop.remove_reader(number)


@contextmanager
def _no_echo(number: int) -> Iterator[None]:
    """What was typed ahead is thrown away: it was not meant for this."""
    before = termios.tcgetattr(number)
    after = [*before]
    after[3] &= ~termios.ECHO
    termios.tcsetattr(number, termios.TCSAFLUSH, after)
    try:
        yield
    finally:
        termios.tcsetattr(number, termios.TCSAFLUSH, before)
