"""What is written while something is done: beside the data, and never in the way of what is done."""

from __future__ import annotations

import errno
import os
import sys
from typing import TextIO


def say(text: str) -> None:
    """Narration."""
    written(text, sys.stderr)


def written(text: str, where: TextIO, *, end: str = "\n") -> None:
    """Print it; where nobody reads any more (`| head`, a terminal that was closed) what goes on goes on unread.

    A run must end as it would, and with its own exit code.
    """
    try:
        print(text, file=where, end=end, flush=True)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, where.fileno())  # what is buffered is written there, and all that follows
        os.close(nowhere)
