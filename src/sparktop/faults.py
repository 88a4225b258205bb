"""Faults of sparktop's own: an exception that nothing expected, contained where it rose, named, and logged.

What contains a fault says where it was (a node's sample, a rule, a pane), shows `named`'s text, and goes on.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparktop import sanitise
from sparktop.files import opened, private_folder
from sparktop.masking import mask_text

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

LOG_NAME = "faults.log"
MAX_LOG_BYTES = 1 << 20
MAX_LINES = 200
"""Of one traceback: a recursion has thousands."""
_MAX_DISTINCT = 200
_seen: set[tuple[str, str]] = set()
_folder: Path | None = None


def keep_in(folder: Path | None) -> None:
    """Write the tracebacks to `faults.log` in this folder from now on; None: nowhere."""
    global _folder
    _folder = folder
    _seen.clear()


def report(where: str, error: BaseException) -> str:
    """The fault in one line for the operator: where it was, and what; its traceback is logged, once for each place.

    Args:
        where: "spark1's GPU reading", "the rule gpu.spin-deadlock", "the pane engines".
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    what = sanitise.line(f"{type(error).__name__}: {error}".replace("\n", " "), limit=160)
    _log(where, error)
    return f"a fault in sparktop itself, in {where}: {mask_text(what)}"


def place() -> str:
    """Where the tracebacks are, in one line for the operator."""
    return "Its traceback isn't kept." if _folder is None else f"Its traceback is in {_folder / LOG_NAME}."


def keep_off_the_terminal(loop: AbstractEventLoop) -> None:
    """Nothing that a callback raises or a library logs is written to the terminal, which shows a screen.

    asyncio warns of "socket.send() raised exception." from the sixth packet on that is written to a connection that
    has just broken: closing the channels of a dead link does so, two packets each, before the loop tells of its loss.
    """
    import logging  # asyncio has it

    logging.lastResort = logging.NullHandler()
    loop.set_exception_handler(in_callback)


def in_callback(loop: AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """Log what a callback of the event loop raised; nothing of it reaches the terminal, which shows a screen.

    A result that came too late for a waiter that is gone is no fault: anyio sets it where a socket is closed in the
    moment in which it can be read.
    """
    from asyncio import InvalidStateError

    error = context.get("exception")
    if isinstance(error, InvalidStateError):
        return
    if _folder is None:
        loop.default_exception_handler(dict(context))
        return
    report("a callback", error or RuntimeError(str(context.get("message"))))


def _log(where: str, error: BaseException) -> None:
    frame = traceback.extract_tb(error.__traceback__)[-1:]
    place = where, f"{type(error).__name__} {frame[0].filename}:{frame[0].lineno}" if frame else type(error).__name__
    if _folder is None or place in _seen or len(_seen) >= _MAX_DISTINCT:
        return
    _seen.add(place)
    lines = "".join(traceback.format_exception(error)).splitlines()
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES // 2], "  ...", *lines[-MAX_LINES // 2 :]]
    head = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} in {where}"
    text = "\n".join(mask_text(sanitise.line(line, limit=1000)) for line in (head, *lines))
    try:
        handle = opened(private_folder(_folder) / LOG_NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            if os.fstat(handle).st_size > MAX_LOG_BYTES:
                os.ftruncate(handle, 0)
            os.write(handle, text.encode("utf-8", "replace") + b"\n\n")
        finally:
            os.close(handle)
    except OSError:
        pass  # the screen names it all the same
