"""What is being done to the Sparks, a line a run, above everything else that the console says."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.message import Message

from sparktop.model.plan import Run
from sparktop.ui.panes.run_lines import summary
from sparktop.ui.widgets.ink import Line, LineWidget, spread

MAX_LINES = 2


class RunLine(LineWidget):
    """Runs under way, and those whose end hasn't been looked at; without any it takes no line."""

    class Wanted(Message):
        """It was clicked."""

    def __init__(self) -> None:
        super().__init__(id="runs")
        self._runs: Sequence[Run] = ()

    @property
    def wanted_lines(self) -> int:
        return min(MAX_LINES, len(self._runs))

    def show(self, runs: Sequence[Run]) -> None:
        """Show these, the newest below."""
        self._runs = runs
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        from sparktop.operate.wording import masked  # what it needs the first paint can do without

        lines = []
        for run in self._runs[-height:]:
            said = Line(tuple((masked(text, run.plan.secrets), tone) for text, tone in summary(run).runs))
            lines.append(spread(width, Line.of(" ") + said, Line.of(("o", "key"), (" open ", "quiet"))))
        return lines

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.post_message(self.Wanted())
