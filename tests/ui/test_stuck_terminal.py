"""A terminal that stops reading, as by Ctrl-S, or that a shell has, or a console that Ctrl-Z stops: the event loop goes
on where there is a process, and the newest picture follows."""

from __future__ import annotations

import os
import re
import signal
import sys
import termios
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.integration.terminal import Terminal, at_terminal
from tests.support import poll

from sparktop.ui.drivers.terminal import OTHERS_UNDONE

APP = """
import sys
from pathlib import Path
from textual.app import App
from textual.widgets import Static
from sparktop.ui.shell import open_shell
from sparktop.ui.drivers.terminal import TerminalDriver

class Ticking(App):
    BINDINGS = [("s", "shell"), ("ctrl+z", "suspend_process")]
    ticks = 0

    def action_shell(self):
        async def argv():
            return sys.argv[2:]

        self.run_worker(open_shell(self, argv(), "here"))

    def compose(self):
        yield Static()

    def on_mount(self):
        self.set_interval(0.01, self.tick)

    def tick(self):
        self.ticks += 1
        self.query_one(Static).update(f"tick {self.ticks} " + "x" * 500)
        Path(sys.argv[1]).write_text(str(self.ticks))

Ticking(driver_class=TerminalDriver).run()
"""


class Ticks:
    def __init__(self, path: Path, at: Terminal) -> None:
        self.path, self.at = path, at

    @property
    def count(self) -> int:
        text = self.path.read_text() if self.path.exists() else ""
        return int(text or 0)

    def goes_on(self, ticks: int = 300) -> int:
        """Until so many more have passed without anything being read; the number."""
        until = self.count + ticks
        poll(lambda: self.count >= until, what=f"tick {until}: the event loop stands still")
        return until


@pytest.fixture
def ticking(tmp_path: Path) -> Iterator[Ticks]:
    shell = ("sh", "-c", "printf '\\033[?1003h'; stty raw; echo mine; head -c 1 > /dev/null; exit 127")
    with at_terminal((sys.executable, "-c", APP, str(tmp_path / "ticks"), *shell)) as at:
        at.reads("tick")
        yield Ticks(tmp_path / "ticks", at)


def shows(at: Terminal, tick: int, after: int) -> bool:
    at.looks()
    return any(int(shown) >= tick for shown in re.findall(rb"tick (\d+)", at.written[after:]))


def test_the_event_loop_goes_on_and_the_newest_picture_follows(ticking: Ticks) -> None:
    for _ in range(2):
        stood = ticking.goes_on()
        poll(partial(shows, ticking.at, stood, len(ticking.at.written)), what="a picture of now")


def test_it_can_be_ended(ticking: Ticks) -> None:
    ticking.goes_on()
    os.kill(ticking.at.pid, signal.SIGTERM)
    ended: list[int] = []
    poll(lambda: ended.append(os.waitpid(ticking.at.pid, os.WNOHANG)[0]) or any(ended), what="its end")
    ticking.at.status = 0


def test_the_event_loop_goes_on_while_a_shell_has_the_terminal(ticking: Ticks) -> None:
    """Nothing is drawn into it; what it leaves switched on is undone, and what it wrote at its end can be read."""
    at, modes = ticking.at, termios.tcgetattr(ticking.at.handle)
    at.types("s")
    place = at.reads("mine")
    for _ in range(20):
        ticking.goes_on(10)
        at.looks(0)
    assert b"tick" not in at.written[place:]
    at.types(".")
    place = at.reads("sh ended with 127", after=place)
    assert b"tick" not in at.written[place:]
    at.types("\n")
    place = at.reads(OTHERS_UNDONE.strip(), after=place)
    stood = ticking.count
    poll(partial(shows, at, stood, place), what="a picture of now")
    assert termios.tcgetattr(at.handle) == modes


def test_a_console_that_ctrl_z_has_stopped_is_drawn_again(ticking: Ticks) -> None:
    at = ticking.at
    for _ in range(2):
        at.types("\x1a")
        place = at.reads("\x1b[?1049l", after=len(at.written))
        poll(lambda: os.waitid(os.P_PID, at.pid, os.WSTOPPED | os.WNOHANG) is not None, what="it is stopped")
        stood = ticking.count
        os.kill(at.pid, signal.SIGCONT)
        place = at.reads("\x1b[?1049h", after=place)
        poll(partial(shows, at, stood, place), what="a picture of now")
