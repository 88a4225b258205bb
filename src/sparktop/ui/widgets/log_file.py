"""Saves a log to a file on this machine, with secrets masked, readable by the operator only."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

from sparktop.config import state_home
from sparktop.files import private_folder
from sparktop.observe.log_ring import Entry

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def mask(text: str) -> str:
    """The text with everything that looks like a secret masked, by the same rules as on the Spark."""
    from sparktop.masking import mask_text  # an import of 8 ms, not needed for the first paint

    return mask_text(text)


def save(
    entries: Iterable[Entry], *, title: str, wall_s: float, directory: Path | None = None, suffix: str = "log"
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
            out.writelines(f"{_iso(line_wall_s)}{mask(text)}\n" for text, line_wall_s, *_ in entries)
        return path
    raise FileExistsError(f"{directory} already has a hundred logs of this second")


def _iso(wall_s: float | None) -> str:
    if wall_s is None:
        return ""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%S%z ", time.localtime(wall_s))
    except (OverflowError, ValueError, OSError):  # a node's clock can have any value
        return ""
