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


async def answered(question: str) -> str:
    """What was typed, without blanks around it; empty at the end of input."""
    return (await _line(question)).strip()


async def answered_unseen(question: str) -> str:
    """What was typed, not shown and as it is; empty at the end of input."""
    with _no_echo(sys.stdin.fileno()):
        try:
            return (await _line(question)).removesuffix("\n")
        finally:
            sys.stderr.write("\n")  # Enter was not shown either
            sys.stderr.flush()


async def _line(question: str) -> str:
    sys.stderr.write(question)
    sys.stderr.flush()
    loop = asyncio.get_running_loop()
    line: asyncio.Future[bytes] = loop.create_future()
    got = bytearray()
    number = sys.stdin.fileno()

    def readable() -> None:
        piece = os.read(number, 1024)
        got.extend(piece)
        if (not piece or b"\n" in piece) and not line.done():
            line.set_result(bytes(got))

    loop.add_reader(number, readable)
    try:
        return (await line).decode("utf-8", "replace")
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
