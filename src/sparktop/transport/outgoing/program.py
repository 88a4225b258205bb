"""A program that gets data on its standard input, for a limited time."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Mapping, Sequence

COMMAND_LIMIT_S = 10.0
_SECRET_NAME = re.compile(r"(?i)token|secret|passw|passphrase|api_?key|private_?key|credential")


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment variables for the program: without those whose name suggests a secret."""
    return {name: value for name, value in variables.items() if not _SECRET_NAME.search(name)}


async def run_command(argv: Sequence[str], data: bytes, *, limit_s: float = COMMAND_LIMIT_S) -> str:
    """Run a program with `data` on its standard input, kill it after the limit; "" or what went wrong."""
    quiet = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=quiet,
            stderr=quiet,
            env=environment(os.environ),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return f"{argv[0]}: {error}"
    try:
        async with asyncio.timeout(limit_s):
            await process.communicate(data)
    except TimeoutError:
        return f"{argv[0]} took longer than {limit_s:g} s and was ended"
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return f"{argv[0]} ended with code {process.returncode}" if process.returncode else ""
