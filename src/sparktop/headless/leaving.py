"""How a run on the command line is left: aborted by Ctrl-C, by SIGTERM or with its terminal, never cut off."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sparktop.headless.narration import say
from sparktop.operate.operating import Execution


@contextmanager
def interruptible(execution: Execution) -> Iterator[None]:
    """Ctrl-C aborts the run, and so does the end of the terminal; another Ctrl-C leaves it."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()

    def interrupted() -> None:
        if not times:
            aborted()
            return
        say(
            "left: the step on the node finishes, or is undone, by itself, and nothing is done after it;\n"
            "  `sparktop audit` has what was done, and the way back where there is one"
        )
        if task is not None:
            task.cancel()

    def aborted() -> None:
        if not times:
            times.append(1)
            say("aborting: what is under way is finished or undone first; Ctrl-C again leaves it alone")
            execution.abort()

    times: list[int] = []
    handlers: dict[signal.Signals, Callable[[], None]] = {signal.SIGINT: interrupted, signal.SIGTERM: aborted}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup is meant
        handlers[signal.SIGHUP] = aborted
    before = {number: signal.getsignal(number) for number in handlers}
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    except asyncio.CancelledError:
        if len(times):
            raise KeyboardInterrupt from None
        raise
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])
