"""A log saved to a file of the operator's own, secrets masked, readable by nobody else."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

from sparktop.config import state_home
from sparktop.observe.lines import Entry

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def mask(text: str) -> str:
    """The text with what looks like a secret replaced, by the rules that hold on the Spark too."""
    from sparktop.probe.remote import mask_text  # 8 ms that the first paint can do without

    return mask_text(text)


def save(entries: Iterable[Entry], *, title: str, wall_s: float, directory: Path | None = None) -> Path:
    """Write the lines to a new file of mode 0600 in a directory of mode 0700; the path.

    Raises:
        OSError: the directory or the file can't be made or written.
    """
    directory = directory or state_home() / "logs"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = _UNSAFE.sub("-", title).strip("-.")[:80] or "log"
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(wall_s))
    for attempt in range(100):
        path = directory / f"{name}-{stamp}{f'-{attempt}' if attempt else ''}.log"
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            continue
        with open(handle, "w", encoding="utf-8", errors="replace") as out:
            out.writelines(
                f"{'' if line_wall_s is None else _iso(line_wall_s)}{mask(text)}\n" for text, line_wall_s, *_ in entries
            )
        return path
    raise FileExistsError(f"{directory} already has a hundred logs of this second")


def _iso(wall_s: float | None) -> str:
    if wall_s is None:
        return ""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%S%z ", time.localtime(wall_s))
    except (OverflowError, ValueError, OSError):  # a node's clock can say anything
        return ""
