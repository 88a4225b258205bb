"""One line from the terminal, asked for on standard error and read on the event loop.

Not in a thread: one that waits for a line can't be ended, and Ctrl-C would hang until the next Enter.
"""

from __future__ import annotations

import asyncio
import os
import sys


async def answered(question: str) -> str:
    """What was typed, without blanks around it; empty at the end of input."""
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
        return (await line).decode("utf-8", "replace").strip()
    finally:
        loop.remove_reader(number)
