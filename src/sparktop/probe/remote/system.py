"""Small files, folders and the boot clock: what most parts read."""

from __future__ import annotations

import os
import time

STATE_FOLDERS = ("/run/lock", "/tmp")
"""Where the guard keeps its files, in a folder `sparktop-UID`: first tmpfs that survives a logout."""
CLAIM, EVENT = "guard", "guard-event"
"""Names of its files: the claim of the guard that is armed, and the event that no console has received."""


def read_file(path: str, limit: int = 65536) -> bytes:
    """A file's first bytes, in one read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, limit)
    finally:
        os.close(descriptor)


def list_folder(folder: str) -> list[str]:
    """Sorted names; none where the folder can't be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def gap_reason(error: OSError) -> str:
    """Why a fact is missing, as the protocol names it."""
    return "no permission" if isinstance(error, PermissionError) else "not found"


def boottime() -> float:
    """Seconds since boot, suspended time included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
