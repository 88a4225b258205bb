"""A list of rows with a cursor; one of events follows the newest row until the operator moves up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual import events

from sparktop.text.lines import Line
from sparktop.ui.widgets.line_widget import CursorList, Row


class EventList(CursorList[Row], can_focus=True):
    """A list of rows of any type; `key` identifies a row across fleet states, `draw_row` draws one.

    With `follows` the newest row is the last one, and the cursor stays on it until it is moved.
    """

    def __init__(
        self, *, key: Callable[[Row], object], draw_row: Callable[[Row, int], Line], follows: bool = True
    ) -> None:
        super().__init__()
        self._can_follow = follows
        self._key = key
        self._draw_row = draw_row
        self.is_following = follows

    def show(self, rows: Sequence[Row]) -> None:
        """Show these rows; the cursor stays on its row, or on the newest one while following."""
        selected = self.selected
        self._rows = rows
        if self.is_following:
            self._at = max(0, len(rows) - 1)
        elif selected is None:
            self._at = 0
        else:
            key = self._key(selected)
            same = next((index for index in reversed(range(len(rows))) if self._key(rows[index]) == key), None)
            self._at = same if same is not None else max(0, min(self._at, len(rows) - 1))
        self.redraw()

    def select(self, index: int) -> None:
        """Move the cursor; at the newest row it follows again."""
        self.is_following = self._can_follow and index >= len(self._rows) - 1
        super().select(index)

    def hold(self) -> None:
        """Stop following: stay on the selected row while newer ones come."""
        self.is_following = False
        self.post_message(self.Moved())

    def draw(self, width: int, height: int) -> list[Line]:
        lines = []
        for index in self.window(max(1, height)):
            line = self._draw_row(self._rows[index], width - 2)
            is_marked = index == self._at and self.has_focus
            lines.append(self.cursor(Line.of(" ") + line, width) if is_marked else Line.of("  ") + line)
        return lines

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.move(-3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.move(3)
