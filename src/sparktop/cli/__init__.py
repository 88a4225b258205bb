"""The command line: runs the command that the arguments name, and returns its exit code.

Modules are imported only when needed: the console must paint before it imports asyncssh.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from sparktop import faults
from sparktop.cli.commands import split
from sparktop.config import state_home
from sparktop.errors import SparktopError

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command the arguments name; the exit code."""
    if {"_ARGCOMPLETE", "COMP_LINE"} <= os.environ.keys():  # a shell's question, on Tab
        from sparktop.cli.completion import answer

        answer()
    words = list(sys.argv[1:] if argv is None else argv)
    command, words = split(words)
    faults.keep_in(state_home())
    try:
        return command.run(words)
    except SparktopError as error:
        print(f"sparktop: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # `sparktop status | head`: the reader is gone. Without this, Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
