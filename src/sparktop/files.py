"""Files of sparktop's own on this machine: read within bounds, written for their owner alone; and pages to share.

What stands in a file's place may be anything: a link to another's file, a FIFO that never answers, a disk's worth of
brackets. None of it is followed, waited for, or lets a console end.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sparktop.bounds import json_of

LARGEST_BYTES = 4 << 20


def opened(path: Path, flags: int = os.O_RDONLY, *, follows: bool = False) -> int:
    """A regular file's descriptor, created (0600) where `flags` say so; a link only with `follows`.

    Raises:
        OSError: it can't be opened, or is no regular file.
    """
    kept = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | (0 if follows else os.O_NOFOLLOW)
    if not follows and path.is_symlink():
        raise OSError(errno.ELOOP, "it is a link", str(path))
    handle = os.open(path, flags | kept, 0o600)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is no file, but a folder, a FIFO or a device", str(path))
    return handle


def read(path: Path, limit: int = LARGEST_BYTES, *, is_private: bool = False) -> bytes:
    """All of a file, through links.

    Raises:
        PermissionError: with `is_private`, other users may read it; or this one may not.
        OSError: it can't be read, is no regular file, or is longer than `limit`.
    """
    with open(opened(path, follows=True), "rb") as file:
        if is_private and os.fstat(file.fileno()).st_mode & 0o077:
            raise PermissionError(errno.EPERM, "is readable by other users", str(path))
        raw = file.read(limit + 1)
    if len(raw) > limit:
        raise OSError(errno.EFBIG, f"is larger than {limit >> 10} KiB", str(path))
    return raw


def read_json(path: Path) -> Mapping[str, Any]:
    """The JSON object that a file holds, in the bounds of `json_of`; empty where there is none that can be read."""
    try:
        value = json_of(read(path))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def private_folder(folder: Path) -> Path:
    """The folder, for its owner alone: made where it is missing, as are those above it, closed where it was open.

    Raises:
        OSError: it can't be made.
    """
    for each in reversed([folder, *(each for each in folder.parents if not each.exists())]):
        each.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_mode & 0o077:
        with suppress(OSError):  # another user's
            folder.chmod(0o700)
    return folder


def write_private(file: Path, text: str) -> None:
    """Replace a file in one step, readable by its owner alone.

    Raises:
        OSError: it can't be written; the old one is as it was.
    """
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=private_folder(file.parent))  # made with mode 0600
    _replace(file, handle, name, text)


def write_shared(file: Path, text: str) -> None:
    """Replace a file in one step, or the one that a link leads to, readable by whom the umask lets.

    Raises:
        OSError: it can't be written, or is no regular file; the old one is as it was.
    """
    file = file.resolve()
    if file.exists() and not file.is_file():
        raise OSError(errno.EINVAL, "it is no file, but a folder, a FIFO or a device", str(file))
    name = str(file.with_name(f".{file.name}.{os.getpid()}"))
    _replace(file, os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), name, text)


def _replace(file: Path, handle: int, name: str, text: str) -> None:
    try:
        with open(handle, "w", encoding="utf-8") as out:
            out.write(text)
        os.replace(name, file)
    except BaseException:
        os.unlink(name)
        raise
