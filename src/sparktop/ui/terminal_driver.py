"""The terminal of the console: one that is gone ends the console, as quitting does.

Textual's own driver waits for ever then: its writer's thread ends by the first error, a full queue holds the event
loop, and its input thread reads the end of input again and again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, TextIO

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

LEAVE_SIGNALS = (signal.SIGHUP, signal.SIGTERM)


class TerminalDriver(LinuxDriver):
    """Textual's driver, for a terminal that may go; the app quits then, and on SIGHUP or SIGTERM."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        self._file: Any = _TerminalOutput(sys.__stderr__, self._leave)
        self._loop = asyncio.get_running_loop()
        self._is_leaving = False

    def start_application_mode(self) -> None:
        for number in LEAVE_SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:  # not under nohup
                self._loop.add_signal_handler(number, self._leave)
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def stop_application_mode(self) -> None:
        for number in LEAVE_SIGNALS:
            self._loop.remove_signal_handler(number)
        super().stop_application_mode()

    def run_input_thread(self) -> None:
        try:
            super().run_input_thread()
        except OSError:
            self._leave()

    def _leave(self) -> None:
        """Quit the app; called on any thread."""
        if not self._is_leaving:
            self._is_leaving = True
            self._loop.call_soon_threadsafe(self._app.exit, 0)


class _TerminalOutput:
    """Standard error, until its terminal is gone; what is written after that goes nowhere."""

    def __init__(self, file: TextIO | None, gone: Callable[[], None]) -> None:
        self._out = file or sys.stderr
        self._gone = gone
        self._is_gone = False

    def write(self, text: str) -> None:
        self._try(lambda: self._out.write(text))

    def flush(self) -> None:
        self._try(self._out.flush)

    def fileno(self) -> int:
        return self._out.fileno()

    def isatty(self) -> bool:
        return self._out.isatty()

    def _try(self, put: Callable[[], object]) -> None:
        if self._is_gone:
            return
        try:
            put()
        except OSError:
            self._is_gone = True
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            os.dup2(null, self._out.fileno())  # what is still in its buffer is let go of at exit
            os.close(null)
            self._gone()
