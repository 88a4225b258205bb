"""A path for a forwarded socket that no other user can reach, short enough for every system."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PATH_LIMIT = 100
"""macOS allows 104 bytes in sun_path, including the closing zero, and its TMPDIR alone takes about fifty."""


@contextmanager
def private_socket_path() -> Iterator[Path]:
    """A path for a Unix socket in a new directory with mode 0700; both are removed afterwards."""
    folder = tempfile.mkdtemp(prefix="sparktop-")
    if len(os.fsencode(folder)) + 2 > _PATH_LIMIT:
        os.rmdir(folder)
        folder = tempfile.mkdtemp(prefix="sparktop-", dir="/tmp")  # mkdtemp makes it 0700 and new
    try:
        yield Path(folder, "s")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
