"""The terminal of the console: one that is gone ends the console, as quitting does.

Textual's own driver waits for ever then: its writer's thread ends by the first error, a full queue holds the event
loop, and its input thread reads the end of input again and again. That thread also wakes ten times a second while
nobody types, which is a tenth of what an idle console costs: here the event loop itself hears what is typed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import Queue
from typing import Any, TextIO

from textual import constants
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

LEAVE_SIGNALS = (signal.SIGHUP, signal.SIGTERM)
TICK_S = 0.1
WRITES_AT_MOST = 60
"""That the terminal hasn't read: some twenty pictures."""
LEAVING_S = 2.0
OTHERS_UNDONE = (
    "\x18\x1b\\\x1b[!p"  # a sequence that was cut short; all modes, in terminals that know how
    "\x1b[?9;1000;1001;1002;1003;1005;1006;1015;1016l\x1b[?1004;2004;2026;1049l\x1b[<99u"  # mouse, paste, screen, keys
    "\x1b[4;20l\x1b[?1;5;6;69l\x1b[?7h\x1b>\x1b[r\x1b[m\x1b(B\x1b)B\x0f\x1b]8;;\x1b\\\x1b[999;1H\n"
)
"""What another program, or a Spark's log by way of a shell, may have left switched on in the terminal."""


class TerminalDriver(LinuxDriver):
    """Textual's driver, for a terminal that may go; the app quits then, and on SIGHUP or SIGTERM."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        self._loop = asyncio.get_running_loop()
        super().__init__(app, **options)
        self._file: Any = _TerminalOutput(sys.__stderr__, self._leave)
        self._is_leaving = self._is_behind = self._is_away = False
        self._writes: Queue[str | None] = Queue()
        self._parser = XTermParser(self._debug)
        self._decode = getincrementaldecoder("utf-8")("replace").decode

    def _sigtstp_application(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(super()._sigtstp_application)

    def _sigcont_application(self, *_: object) -> None:
        """On the loop: a signal may come while a write holds its queue, and a write within it would wait for ever."""
        self._loop.call_soon_threadsafe(self._continued)

    def _continued(self) -> None:
        if self._must_signal_resume:
            super()._sigcont_application()
        elif not self._is_leaving:  # whoever hangs up continues the process too
            self._app.refresh(layout=True)

    def start_application_mode(self) -> None:
        self._hear_leave_signals()
        super().start_application_mode()  # type: ignore[no-untyped-call]
        assert self._writer_thread is not None
        self._writes = self._writer_thread._queue
        self._writes.maxsize = 0
        try:
            self._loop.add_reader(self.fileno, self._hear)
        except PermissionError:  # a file, which has no keys
            self._leave()

    def _hear_leave_signals(self) -> None:
        for number in LEAVE_SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:  # not under nohup
                self._loop.add_signal_handler(number, self._leave)

    def suspend_application_mode(self) -> None:
        """Leave the terminal to another program; nothing is drawn until it is resumed."""
        self._is_away = True
        self._app._begin_batch()
        super().suspend_application_mode()
        self._hear_leave_signals()

    def resume_application_mode(self) -> None:
        """Take the terminal back, as it was before, whatever the other program has left switched on."""
        if self.attrs_before is not None:
            with suppress(termios.error):
                termios.tcsetattr(self.fileno, termios.TCSANOW, self.attrs_before)  # stops what isn't in front (`bg`)
        self._file.write(OTHERS_UNDONE)
        self._file.flush()
        super().resume_application_mode()
        if self._is_away and not self._must_signal_resume:
            self._is_away = False
            self._app._end_batch()
            self._app.refresh(layout=True)

    def write(self, data: str) -> None:
        """Never waits: a terminal that reads nothing (Ctrl-S, its own link hangs) would hold the event loop, and with
        it every connection and run. Nothing more is drawn until it has read what was written."""
        super().write(data)
        if not self._is_behind and self._writes.qsize() > WRITES_AT_MOST:
            self._is_behind = True
            self._app._begin_batch()
            self._loop.call_later(TICK_S, self._catch_up)

    def _catch_up(self) -> None:
        if self._writes.qsize():
            self._loop.call_later(TICK_S, self._catch_up)
            return
        self._is_behind = False
        self._app._end_batch()
        self._app.refresh()

    def close(self) -> None:
        """End the writer, which may wait for such a terminal for ever."""
        self._writes.put(None)
        if self._writer_thread is not None:
            self._writer_thread.join(LEAVING_S)

    def stop_application_mode(self) -> None:
        for number in LEAVE_SIGNALS:
            self._loop.remove_signal_handler(number)
        super().stop_application_mode()

    def run_input_thread(self) -> None:
        """Nothing is left to Textual's thread."""

    def disable_input(self) -> None:
        self._loop.remove_reader(self.fileno)
        super().disable_input()

    def _hear(self) -> None:
        """Dispatch the events of what is typed; where the terminal is gone, quit."""
        try:
            data = os.read(self.fileno, 4096)
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self.fileno)
            self._leave()
        elif text := self._decode(data):  # empty: the rest of a character is to come
            self._dispatch(self._parser.feed(text))
            # Was it a key or the start of a sequence (Esc)? The parser waits so long; 0.01 s more, to be past it.
            self._loop.call_later(constants.ESCAPE_DELAY + 0.01, lambda: self._dispatch(self._parser.tick()))

    def _dispatch(self, typed: Iterable[Message]) -> None:
        for event in typed:
            self.process_message(event)

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
