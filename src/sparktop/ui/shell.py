"""What the keys s and v do: gives the terminal to a shell, or to a replay, and takes it back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from textual.app import App, SuspendNotSupported

from sparktop.errors import SparktopError, UsageError
from sparktop.record.reader import span
from sparktop.record.tape import folder_of, recordings
from sparktop.transport.threads import in_thread

ShellArgv = Callable[[str, str], Awaitable[Sequence[str]]]
"""(node, container id, "" for the node itself) to the command line of a shell there; raises SparktopError."""
NOT_STARTED = (125, 126, 127, 255)
"""How docker and ssh end where no shell was started: what they wrote is left to be read."""


async def replay_argv(node: str, home: Path, at_s: float) -> Sequence[str]:
    """The command line that opens what was recorded of a node, at a moment, or where the newest recording begins.

    Raises:
        UsageError: nothing was.
    """
    folder = folder_of(node, home)
    kept = recordings(folder)
    if not kept:
        raise UsageError(f"nothing of {node} was recorded")
    if not any(begin_s <= at_s <= end_s for begin_s, end_s in (span(one.files) for one in kept)):
        at_s = max(at_s, span(kept[-1].files)[0] + 1.0)
    at = datetime.fromtimestamp(at_s).isoformat(" ", "seconds")
    return sys.executable, "-m", "sparktop", "replay", "--at", at, str(folder)


async def open_shell(
    app: App[Any],
    argv: Awaitable[Sequence[str]],
    place: str,
    *,
    leave: str = "exit or Ctrl-D",
    failed: Collection[int] = NOT_STARTED,
) -> None:
    """Run a program at the app's terminal until it ends; the event loop goes on, and nothing is drawn meanwhile.

    Args:
        leave: what ends it.
        failed: exit codes after which what it wrote is left to be read.
    """
    try:
        words = await argv
        with app.suspend(), _without_job_signals():
            await _attended(words, place, leave, failed)
    except SparktopError as error:
        app.notify(f"{error.message}{f': {error.hint}' if error.hint else ''}", severity="error", markup=False)
    except SuspendNotSupported:
        app.notify("This terminal can't be given to a shell.", severity="warning", markup=False)


async def _attended(argv: Sequence[str], place: str, leave: str, failed: Collection[int]) -> None:
    print(f"sparktop: {place}. {leave} goes back to the console.", flush=True)
    try:
        process = subprocess.Popen(argv)  # noqa: ASYNC220 - it is started in a few ms, and waited for in a thread
    except OSError as error:
        await _let_read(f"{argv[0]}: {error.strerror}")
        return
    try:
        code = await in_thread(_ended, process)
    finally:
        if process.returncode is None:  # the console ends meanwhile
            process.terminate()
    if code in failed:
        await _let_read(f"{os.path.basename(argv[0])} ended with {code}")


async def _let_read(what: str) -> None:
    print(f"sparktop: {what}. Enter goes back to the console.", flush=True)
    await in_thread(os.read, sys.__stdin__.fileno() if sys.__stdin__ else 0, 1024)


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Its exit code; where it is stopped (~^Z of ssh), sparktop stops with it, and `fg` continues both."""
    while os.WIFSTOPPED(status := os.waitpid(process.pid, os.WUNTRACED)[1]):
        os.kill(os.getpid(), signal.SIGSTOP)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode


@contextmanager
def _without_job_signals() -> Iterator[None]:
    """Ctrl-C, Ctrl-\\ and Ctrl-Z are the shell's. Handled by nothing and not ignored, which the shell would inherit."""
    numbers = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
    before = [signal.signal(number, lambda *_: None) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
