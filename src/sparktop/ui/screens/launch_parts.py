"""The three parts of the launch screen: verdict above, choices, and what was found; their lines are the screen's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.widgets import Input

from sparktop.ui.widgets.ink import Line
from sparktop.ui.widgets.sheet import Sheet

if TYPE_CHECKING:
    from sparktop.ui.screens.launch import LaunchScreen


class LaunchHead(Sheet):
    """Verdict and picture, in sight at all times."""

    def __init__(self, screen: LaunchScreen) -> None:
        super().__init__(id="launch-head")
        self._screen = screen

    def content(self, width: int) -> list[Line]:
        return self._screen.head(width)


class LaunchTold(Sheet):
    """What was found."""

    def __init__(self, screen: LaunchScreen) -> None:
        super().__init__(id="launch-told")
        self._screen = screen

    def content(self, width: int) -> list[Line]:
        return self._screen.found(width)


class LaunchChoices(Sheet):
    """The rows; a parameter's field lies over its row while it is edited."""

    def __init__(self, screen: LaunchScreen) -> None:
        super().__init__(id="launch-choices")
        self._screen = screen
        self.field = Input(id="launch-field", compact=True)

    def compose(self) -> ComposeResult:
        yield self.field

    def content(self, width: int) -> list[Line]:
        return self._screen.choices(width)

    def watched(self, lines: list[Line]) -> int | None:
        return self._screen.watched_line

    def row_y(self, line: int) -> int:
        """In which row of the widget a line stands."""
        return line - self._top

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self._screen.clicked(self.line_at(event.y))
