"""A list of kernel events with one selected; it follows the newest until the operator moves up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from textual import events
from textual.message import Message

from sparktop.ui.widgets.ink import Line, LineWidget, Run

Row = TypeVar("Row")


class EventList(LineWidget, Generic[Row], can_focus=True):
    """Rows of any kind: `key` says which are the same across pictures, `draw_row` how one looks."""

    class Opened(Message):
        """The operator wants the selected row's details."""

    class Moved(Message):
        """Another row is selected, or following began or ended."""

    def __init__(self, *, key: Callable[[Row], object], draw_row: Callable[[Row, int], Line]) -> None:
        super().__init__()
        self._key = key
        self._draw_row = draw_row
        self._rows: tuple[Row, ...] = ()
        self._at = 0
        self._top = 0
        self.is_following = True

    @property
    def rows(self) -> tuple[Row, ...]:
        return self._rows

    @property
    def selected(self) -> Row | None:
        return self._rows[self._at] if self._rows else None

    def show(self, rows: tuple[Row, ...]) -> None:
        """Show these rows; the cursor stays on its row, or on the newest while following."""
        selected = self.selected
        self._rows = rows
        if self.is_following or selected is None:
            self._at = max(0, len(rows) - 1)
        else:
            key = self._key(selected)
            same = next((at for at in reversed(range(len(rows))) if self._key(rows[at]) == key), None)
            self._at = same if same is not None else max(0, min(self._at, len(rows) - 1))
        self.redraw()

    def move(self, step: int) -> None:
        """Move the cursor; at the newest row it follows again."""
        self.select(self._at + step)

    def select(self, index: int) -> None:
        """Put the cursor on a row, as far as there is one."""
        self._at = max(0, min(len(self._rows) - 1, index))
        self.is_following = self._at >= len(self._rows) - 1
        self.redraw()
        self.post_message(self.Moved())

    def hold(self) -> None:
        """Stay on the selected row while newer ones come."""
        self.is_following = False
        self.post_message(self.Moved())

    def select_last(self) -> None:
        self.select(len(self._rows) - 1)

    def draw(self, width: int, height: int) -> list[Line]:
        room = max(1, height)
        last = max(0, len(self._rows) - room)
        self._top = last if self.is_following else max(0, min(self._top, last))
        self._top = min(self._top, self._at)
        self._top = max(self._top, self._at - room + 1)
        lines = []
        for index in range(self._top, min(len(self._rows), self._top + room)):
            line = self._draw_row(self._rows[index], width - 2)
            lines.append(self._cursor(line, width) if index == self._at else Line.of("  ") + line)
        return lines

    def _cursor(self, line: Line, width: int) -> Line:
        if not self.has_focus:
            return Line.of("  ") + line
        mark: Run = ("▌", "frame-focus")
        return Line((mark,)) + (Line.of(" ") + line).fit(width - 1).on("cursor")

    def on_click(self, event: events.Click) -> None:
        index = self._top + event.y
        if index < len(self._rows):
            self.select(index)
            if event.chain == 2:
                self.post_message(self.Opened())

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.move(-3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.move(3)
