"""A terminal that stops reading, as by Ctrl-S: the console goes on without it, and draws again once it reads."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.integration.terminal import Terminal, at_terminal
from tests.support import poll

APP = """
import sys
from pathlib import Path
from textual.app import App
from textual.widgets import Static
from sparktop.ui.terminal_driver import TerminalDriver

class Ticking(App):
    ticks = 0

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
    with at_terminal((sys.executable, "-c", APP, str(tmp_path / "ticks"))) as at:
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
