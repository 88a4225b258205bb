"""A framed pane with a list of rows that a search line filters; a list of events follows the newest row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic

from textual import on
from textual.app import ComposeResult

from sparktop.model.fleet import FleetState
from sparktop.text.lines import Line
from sparktop.ui.widgets.line_widget import CursorList, Row, marked
from sparktop.ui.widgets.log_file import copy
from sparktop.ui.widgets.search_bar import Filtered
from sparktop.ui.widgets.titled_pane import TitledPane


class RowList(CursorList[Row], can_focus=True):
    """A list of rows of any type; `key` identifies a row across fleet states, `draw_row` draws one.

    With `follows` the newest row is the last one, and the cursor stays on it until it is moved.
    """

    WHEEL_ROWS = 3

    def __init__(
        self,
        *,
        key: Callable[[Row], object],
        draw_row: Callable[[Row, int], Line],
        draw_heading: Callable[[int], Line] | None = None,
        follows: bool = True,
    ) -> None:
        super().__init__()
        self._can_follow = follows
        self._key = key
        self._draw_row = draw_row
        self._draw_heading = draw_heading
        self.head_rows = int(draw_heading is not None)
        self.is_following = follows

    def key(self, row: Row) -> object:
        return self._key(row)

    def index_in(self, rows: Sequence[Row]) -> int:
        return max(0, len(rows) - 1) if self.is_following else super().index_in(rows)

    def select(self, index: int) -> None:
        """Move the cursor; at the newest row it follows again."""
        self.is_following = self._can_follow and index >= len(self._rows) - 1
        super().select(index)

    def hold(self) -> None:
        """Stop following: stay on the selected row while newer ones come."""
        self.is_following = False
        self.post_message(self.Moved())

    def draw(self, width: int, height: int) -> list[Line]:
        lines = [Line.of("  ") + self._draw_heading(width - 2)] if self._draw_heading is not None else []
        for index in self.window(max(1, height - self.head_rows)):
            line = self._draw_row(self._rows[index], width - 2)
            lines.append(marked(Line.of(" ") + line, width, is_at=index == self._at and self.has_focus))
        return lines


class ListPane(TitledPane, Filtered, Generic[Row]):
    """A pane of rows made from each fleet state; nothing is made or drawn while it is hidden."""

    DEFAULT_CSS = "ListPane > RowList { height: 1fr; }"

    def __init__(self, row_list: RowList[Row], **options: Any) -> None:
        super().__init__(**options)
        self._fleet = FleetState()
        self.row_list = row_list

    def compose(self) -> ComposeResult:
        yield self.row_list
        yield self.search_bar

    def moving(self) -> RowList[Row]:
        return self.row_list

    def rows(self) -> tuple[Row, ...]:
        """Those of this fleet state that the filter finds."""
        raise NotImplementedError

    def show(self, fleet: FleetState) -> None:
        """Show this fleet state."""
        self._fleet = fleet
        self.refill()

    def refill(self) -> None:
        if self.display and self.is_attached:
            self.row_list.show_rows(self.rows())
            self._retitle()

    def on_show(self) -> None:
        self.refill()

    def keys_note(self, before: Line, keys: str) -> Line:
        """What stands in the lower edge: how many rows the filter found, and what the keys do."""
        count = f"{len(self.row_list.rows)} found   " if self.is_filtered else ""
        return Line.of((count, "warning")) + before + Line.of((keys, "faint"))

    @on(RowList.Opened)
    def action_open(self) -> None:
        self.action_details()

    def details_of(self, row: Row) -> tuple[str, Sequence[Sequence[Line]]]:
        """(title, blocks of lines): all of a row."""
        raise NotImplementedError

    def action_details(self) -> None:
        if (row := self.row_list.selected) is not None:
            from sparktop.ui.dialogs.dialog import DetailsScreen  # not needed until somebody asks

            self.app.push_screen(DetailsScreen(*self.details_of(row)))

    def copied_of(self, row: Row) -> tuple[str, str]:
        """(what is copied of a row, what that is called)."""
        raise NotImplementedError

    def action_copy(self) -> None:
        if (row := self.row_list.selected) is not None:
            copy(self, *self.copied_of(row))
