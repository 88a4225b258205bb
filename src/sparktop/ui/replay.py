"""The console over a recording: a line with the time of the tape and its marks, and the keys that move it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from textual.widgets import Input

from sparktop.documents.finding_tree import SIGNS
from sparktop.observe.replay.player import Player, Playing
from sparktop.text.lines import Line
from sparktop.text.units import clock_time, day_time
from sparktop.ui.app import SparktopApp
from sparktop.ui.commands import bindings
from sparktop.ui.panes.header import RunLine
from sparktop.ui.setup import Setup

KEYS = "Space play  , . 10 s  < > speed  { } finding"
SIGNS_OF_KEYS = "Space , . < > { }"
LEAST_CELLS = 16
"""Of the timeline; below, the keys are left out."""


class ReplayLine(RunLine):
    """Where the replay stands."""

    def __init__(self, player: Player) -> None:
        super().__init__()
        self._player = player

    @property
    def wanted_lines(self) -> int:
        """One, always."""
        return 1

    def draw(self, width: int, height: int) -> list[Line]:
        playing = self._player.playing
        sign = "▶" if playing.is_playing else "‖"
        head = Line.of(
            f" {sign} ",
            (f"{playing.speed:g}× ", "quiet"),
            (f"{day_time(playing.now_s)[:7]}{clock_time(playing.now_s)}", "strong"),
            "  ",
        )
        until = clock_time(playing.end_s)
        tails = [
            Line.of((f" {until}  ", "quiet"), (words, "quiet"), " ") for words in (playing.doing or KEYS, SIGNS_OF_KEYS)
        ]
        tail = next(
            (one for one in tails if width - head.width - one.width >= LEAST_CELLS), Line.of((f" {until} ", "quiet"))
        )
        cells = max(0, width - head.width - tail.width)
        return [(head + timeline(playing, cells) + tail).cut(width)]


def timeline(playing: Playing, cells: int) -> Line:
    """The recording as a line: what was found where, and where it stands."""
    length_s = max(1.0, playing.end_s - playing.begin_s)

    def cell(at_s: float) -> int:
        return min(cells - 1, max(0, int((at_s - playing.begin_s) / length_s * cells)))

    if cells < 1:
        return Line()
    looked = cell(playing.marked_until_s)
    runs = [("─" if number <= looked else "·", "quiet") for number in range(cells)]
    for from_s, until_s in playing.holes:
        runs[cell(from_s) + 1 : cell(until_s)] = [(" ", "quiet")] * (cell(until_s) - cell(from_s) - 1)
    for mark in sorted(playing.marks, key=lambda mark: str(mark.severity) == "critical"):
        assert mark.severity is not None
        runs[cell(mark.at_s)] = SIGNS[mark.severity]
    runs[cell(playing.now_s)] = ("●", "strong")
    return Line(tuple(runs))


class ReplayApp(SparktopApp):
    """The console over a recording."""

    BINDINGS = bindings("replay", priority=True)

    def __init__(self, player: Player, setup: Setup, **options: Any) -> None:
        self.player = player
        self._line = ReplayLine(player)
        refusal = "a replay reaches no Spark: nothing can be done here"
        super().__init__(replace(setup, runs=self._line, read_only=True, refusal=refusal), **options)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Its keys are letters where something is typed."""
        if action.startswith("replay_") and isinstance(self.focused, Input):
            return False
        return super().check_action(action, parameters)

    def on_published(self) -> None:
        self._line.redraw()

    def action_replay_pause(self) -> None:
        self.player.pause()
        self._line.redraw()

    def action_replay_step(self, seconds: float) -> None:
        self.player.step(seconds)

    def action_replay_speed(self, steps: int) -> None:
        self.player.change_speed(steps)
        self._line.redraw()

    def action_replay_mark(self, direction: int) -> None:
        mark = self.player.seek_mark(direction)
        if mark is None:
            looked = self.player.playing.marked_until_s >= self.player.playing.end_s
            where = "after" if direction > 0 else "before"
            nothing = f"nothing was found {where} this moment"
            self.notify(nothing if looked else f"{nothing}, so far as it has been read", markup=False, timeout=4)
        else:
            self.notify(mark.text, markup=False, timeout=6)
