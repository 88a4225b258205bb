"""What leaves the console: a log saved to a file that the operator alone can read, text copied; secrets are masked."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from textual.widget import Widget

from sparktop.config import state_home
from sparktop.files import private_folder

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def mask(text: str) -> str:
    """The text with everything that looks like a secret masked, by the same rules as on the Spark."""
    from sparktop.masking import mask_text  # an import of 8 ms, not needed for the first paint

    return mask_text(text)


Saved = tuple[str, float | None, *tuple[object, ...]]
"""A line and its time in wall-clock seconds; what else an entry of a log has isn't saved."""


def save(
    lines: Iterable[Saved], *, title: str, wall_s: float, directory: Path | None = None, suffix: str = "log"
) -> Path:
    """Write the lines to a new file of mode 0600 in a directory of mode 0700; returns its path.

    Raises:
        OSError: the directory or the file can't be created or written.
    """
    directory = private_folder(directory or state_home() / "logs")
    name = _UNSAFE.sub("-", title).strip("-.")[:80] or "log"
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(wall_s))
    for attempt in range(100):
        path = directory / f"{name}-{stamp}{f'-{attempt}' if attempt else ''}.{suffix}"
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            continue
        with open(handle, "w", encoding="utf-8", errors="replace") as out:
            out.writelines(f"{_iso(line_wall_s)}{mask(text)}\n" for text, line_wall_s, *_ in lines)
        return path
    raise FileExistsError(f"{directory} already has a hundred logs of this second")


async def export(
    widget: Widget, lines: Sequence[Saved], what: str, *, title: str, wall_s: float, suffix: str = "log"
) -> None:
    """Save the lines, off the event loop; say where, or why not and what to do."""
    try:
        path = await asyncio.to_thread(save, lines, title=title, wall_s=wall_s, suffix=suffix)
    except OSError as error:
        why = f"{error.strerror or error} ({error.filename}). Point XDG_STATE_HOME at a writable directory."
        widget.notify(f"{what} was not saved: {why}", severity="error", markup=False)
    else:
        widget.notify(f"{what} was saved to {path}", markup=False, timeout=10)


def copy(widget: Widget, text: str, what: str) -> None:
    """Copy text to the clipboard (OSC 52), and say so."""
    widget.app.copy_to_clipboard(mask(text))
    widget.notify(f"Copied {what}.", markup=False, timeout=3)


def _iso(wall_s: float | None) -> str:
    if wall_s is None:
        return ""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%S%z ", time.localtime(wall_s))
    except (OverflowError, ValueError, OSError):  # a node's clock can have any value
        return ""
