"""The scrolling part of a log view: which rows are visible, following, pausing, wrapping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.reactive import var
from textual.scroll_view import ScrollView
from textual.timer import Timer

from sparktop.dataclass import dataclass
from sparktop.diagnose.logs.head import NONE, Head
from sparktop.model.telemetry import LogLine
from sparktop.observe.log_ring import LineRing, PausedLines
from sparktop.ui.widgets.log_paint import MAX_PROCESS_CELLS, Gutter, LogRow, fold, window

Top = tuple[int, int]
"""A row: (number of its line, index of the row within that line)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A window of `height` rows and `cells` columns onto the lines `first` to `end` (exclusive).

    When wrapping, only the lines that it passes are measured, never the whole log.
    """

    line: Callable[[int], LogLine]
    first: int
    end: int
    height: int
    cells: int
    left: int = 0
    """The first column shown, when not wrapping."""
    wrap: bool = False
    head: Callable[[LogLine], Head] = lambda _: NONE
    """The head of a line that is folded away."""

    def _breaks(self, number: int) -> tuple[tuple[int, int], ...]:
        line = self.line(number)
        return fold(line.text, self.cells, self.head(line).stop)

    def up(self, top: Top, rows: int) -> Top:
        """The row `rows` above `top`, or the first row."""
        number, row = top
        if not self.wrap:
            return max(number - rows, self.first), 0
        while rows > row:
            rows -= row
            if number <= self.first:
                return self.first, 0
            number -= 1
            row = len(self._breaks(number))
        return number, row - rows

    def down(self, top: Top, rows: int) -> Top:
        """The row `rows` below `top`; at most one past the end."""
        number, row = top
        if not self.wrap:
            return min(number + rows, self.end), 0
        while number < self.end:
            height = len(self._breaks(number))
            if row + rows < height:
                return number, row + rows
            rows -= height - row
            number, row = number + 1, 0
        return number, 0

    def last_top(self) -> Top:
        """The top row of the last screen of lines."""
        return self.up((self.end, 0), max(1, self.height))

    def rows(self, top: Top) -> list[LogRow]:
        """The visible rows with this row at the top."""
        rows: list[LogRow] = []
        number, skip = top
        while len(rows) < self.height and number < self.end:
            line = self.line(number)
            head = self.head(line)
            if self.wrap:
                for index, (start, stop) in enumerate(self._breaks(number)):
                    if index >= skip and len(rows) < self.height:
                        rows.append(
                            LogRow(number=number, line=line, start=start, stop=stop, continues=index > 0, head=head)
                        )
            else:
                start, stop = window(line.text, self.left, self.cells, head.stop)
                is_cut = stop < len(line.text)
                rows.append(LogRow(number=number, line=line, start=start, stop=stop, is_cut=is_cut, head=head))
            number, skip = number + 1, 0
        return rows


WRAP_ROWS = 11
"""Rows from which long lines wrap, where the operator hasn't said otherwise."""


TIME_FROM_CELLS = 60
"""Width from which the time of each line is shown, where the operator hasn't said otherwise."""


PROCESS_FROM_CELLS = 90
"""Width from which the process that wrote a line is named before it."""


POLL_S = 0.1


MIN_PAINT_S = 0.19
"""Least seconds between two paints while following: in a flood all rows change, and nobody reads faster."""


class LogScroll(ScrollView, inherit_bindings=False):
    """Follows, pauses, wraps and scrolls a log; LogView draws the rows."""

    DEFAULT_CSS = """
    LogScroll {
        overflow-x: hidden;
        overflow-y: scroll;
        scrollbar-size-vertical: 1;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "sideways(-1)", "Left", show=False),
        Binding("right", "sideways(1)", "Right", show=False),
    ]
    """In addition to the commands that the pane around it binds."""

    wrap_wish: var[bool | None] = var(None, init=False)
    """Whether the operator wants long lines wrapped; None: as there is room."""
    time_wish: var[bool | None] = var(None, init=False)
    """Whether the operator wants to see times; None: as there is room."""
    is_folded: var[bool] = var(True, init=False)
    """Whether the heads of lines are folded into the gutter."""

    def __init__(self) -> None:
        super().__init__()
        self._process_cells = 0
        """Cells of the longest process name seen."""
        self._has_times = False
        """Whether a line with a time was seen."""
        self.ring: LineRing | None = None
        self._held: PausedLines | None = None
        self._tail: list[LogLine] = []
        self._tail_first = 0
        self._top: Top = (0, 0)
        """The first visible row."""
        self._left = 0
        self.visible_rows: list[LogRow] = []
        """The rows on the screen, from the top."""
        self._widest = 0
        self._seen_version = -1
        self._drawn_s = 0.0
        self._is_placing = False
        self._poll_timer: Timer | None = None

    # Hooks for LogView

    def _head(self, line: LogLine) -> Head:
        """The head of a line that is to be folded away."""
        return NONE

    def _lines_replaced(self) -> None:
        """Other lines are shown: of another ring, or the tail instead of the held lines."""

    def _lines_added(self) -> None:
        """New lines came while paused."""

    def _scrolled(self) -> None:
        """The view was scrolled, or its rows were drawn again."""

    # The log

    def set_ring(self, ring: LineRing | None) -> None:
        """Show another log from its newest line on, or none; the search stays, and so does the place in a paused one
        where the other has that line too."""
        if ring is self.ring:
            return
        top = self.visible_rows[0].line if self.visible_rows and self._held is not None else None
        self.ring = ring
        self._held = None
        self._tail = []
        self._tail_first = 0
        self._seen_version = -1
        self._drawn_s = 0.0
        self._left = self._widest = self._process_cells = 0
        self._has_times = False
        self._lines_replaced()
        self._poll()
        if ring is None:
            self._scroll_to_row((0, 0))
        self.update_polling()
        if top is not None and ring is not None and (number := ring.find(top)) is not None:
            self.pause()
            self._scroll_to_row((number, 0))

    @property
    def is_following(self) -> bool:
        return self._held is None

    @property
    def new_count(self) -> int:
        """Lines that arrived since the view was paused."""
        return 0 if self._held is None or self.ring is None else self.ring.end - self._held.paused_at

    def visible_text(self) -> str:
        """The visible lines as plain text, uncut and without times or levels."""
        lines = {row.number: row.line.text for row in self.visible_rows}
        return "\n".join(lines.values())

    # Following and pausing

    def pause(self) -> None:
        """Stop following: keep the lines that are on the screen."""
        if self._held is not None or self.ring is None:
            return
        self._held = PausedLines(self.ring)
        top, row = self._top
        self._scroll_to_row((min(max(top, self._held.first), max(self._held.first, self._held.end - 1)), row))

    def follow(self) -> None:
        """Go to the newest line and stay there."""
        self._held = None
        self._lines_replaced()
        self._show_tail()

    def toggle_follow(self) -> None:
        if self.is_following:
            self.pause()
        else:
            self.follow()

    def on_mount(self) -> None:
        self._poll_timer = self.set_interval(POLL_S, self._poll, pause=True)
        self.update_polling()

    def on_show(self) -> None:
        self.update_polling()
        self._poll()

    def on_hide(self) -> None:
        self.update_polling()

    @property
    def is_polling(self) -> bool:
        """Whether to poll for new lines: only while displayed, and with a ring."""
        return self.ring is not None and self.is_attached and all(node.display for node in self.ancestors_with_self)

    def update_polling(self) -> None:
        """Start or stop polling; also called with each picture.

        Textual doesn't tell every widget that it is shown: on a busy start its place is asked for before the layout
        that would tell it, and the log stood still.
        """
        if self._poll_timer is None:
            return
        if self.is_polling:
            self._poll_timer.resume()
        else:
            self._poll_timer.pause()

    def _poll(self) -> None:
        ring = self.ring
        if ring is None or ring.version == self._seen_version or not self.size.height:
            return
        if self._held is None:
            now_s = time.monotonic()
            if now_s - self._drawn_s >= MIN_PAINT_S and not self._is_covered():
                self._drawn_s = now_s
                self._seen_version = ring.version
                self._show_tail()
            return
        self._seen_version = ring.version
        self._held.catch_up(ring)
        self._scroll_to_row(self._top)
        self._lines_added()

    def _is_covered(self) -> bool:
        """Whether an opaque screen covers the view."""
        on_top = self.app.screen
        return on_top is not self.screen and on_top.styles.background.a == 1

    def _show_tail(self) -> None:
        ring = self.ring
        if ring is None:
            return
        self._tail = ring.slice(ring.end - max(1, self.size.height), ring.end)
        self._tail_first = ring.end - len(self._tail)
        self._scroll_to_row(self._frame().last_top())

    # Position

    @property
    def _cells(self) -> int:
        """The visible width: Textual's `size` includes the scroll bar."""
        return max(1, self.size.width - self.scrollbar_size_vertical)

    @property
    def wrap(self) -> bool:
        """Whether long lines are wrapped."""
        return self.size.height >= WRAP_ROWS if self.wrap_wish is None else self.wrap_wish

    @property
    def show_time(self) -> bool:
        """Whether the time of each line is shown."""
        return self._has_times and self._cells >= TIME_FROM_CELLS if self.time_wish is None else self.time_wish

    @property
    def line_gutter(self) -> Gutter:
        """What is shown before each line."""
        process_cells = self._process_cells if self.is_folded and self._cells >= PROCESS_FROM_CELLS else 0
        return Gutter(has_time=self.show_time, process_cells=process_cells)

    @property
    def _text_cells(self) -> int:
        return max(1, self._cells - self.line_gutter.cells)

    def _frame(self) -> Frame:
        """The window onto the held lines, or onto the ring's tail while following."""
        held = self._held
        first_number = held.first if held is not None else self._tail_first
        return Frame(
            line=held.line if held is not None else self._tail_line,
            first=first_number,
            end=held.end if held is not None else first_number + len(self._tail),
            height=self.size.height,
            cells=self._text_cells,
            left=self._left,
            wrap=self.wrap,
            head=self._head,
        )

    def _tail_line(self, number: int) -> LogLine:
        return self._tail[number - self._tail_first]

    def _first(self) -> int:
        """The number of the first line that can be scrolled to."""
        if self._held is not None:
            return self._held.first
        return min(self.ring.first, self._tail_first) if self.ring is not None else 0

    def _scroll_to_row(self, top: Top) -> None:
        """Scroll to a top row, within the log's ends, and draw what changed."""
        frame, first_number = self._frame(), self._first()
        last_top = frame.last_top()
        self._top = min(max(top, (first_number, 0)), last_top)
        rows = frame.rows(self._top)
        if self._widens_gutter(rows):
            self._redraw()
            return
        self._widest = max(self._widest, max((len(row.line.text) - row.head.stop for row in rows), default=0))
        self._is_placing = True
        try:
            # Hidden wrapped lines aren't measured, so the scroll bar counts lines; its end is the last screen.
            has_more = last_top > (first_number, 0)
            reach = max(last_top[0] - first_number, 1) if has_more else 0
            self._set_reach(reach + max(self.size.height, 1) if has_more else 0)
            self.scroll_y = self.scroll_target_y = reach if self._top == last_top else self._top[0] - first_number
        finally:
            self._is_placing = False
        if rows != self.visible_rows:
            self.visible_rows = rows
            self.refresh()
        self._scrolled()

    def _widens_gutter(self, rows: list[LogRow]) -> bool:
        """Make room for what these rows have in their gutter; False where it has room already."""
        longest = min(MAX_PROCESS_CELLS, max((len(row.head.process) for row in rows), default=0))
        has_times = any(row.line.wall_s is not None or row.head.time for row in rows)
        if longest <= self._process_cells and has_times <= self._has_times:
            return False
        self._process_cells = max(longest, self._process_cells)
        self._has_times = has_times or self._has_times
        return True

    def _set_reach(self, height: int) -> None:
        """Set only the scroll bar's range: assigning `virtual_size` lays the whole screen out again, in 16 ms."""
        self.set_reactive(LogScroll.virtual_size, Size(self.size.width, height))
        self.vertical_scrollbar.window_virtual_size = height
        self.vertical_scrollbar.window_size = self.size.height

    # Moving

    def move(self, rows: int) -> None:
        """Scroll by rows; up pauses, down at the end follows again."""
        self._poll()
        if rows < 0:
            self.pause()
            self._scroll_to_row(self._frame().up(self._top, -rows))
        elif self._held is not None:
            frame = self._frame()
            if self._top >= frame.last_top():
                self.follow()
            else:
                self._scroll_to_row(frame.down(self._top, rows))

    def page(self, pages: int) -> None:
        """Scroll by screens; one row stays in sight."""
        self.move(pages * max(1, self.size.height - 1))

    def action_first(self) -> None:
        """Go to the oldest line."""
        self.pause()
        self._scroll_to_row((self._first(), 0))

    def action_last(self) -> None:
        self.follow()

    def action_sideways(self, direction: int) -> None:
        """Scroll sideways by some columns; not when wrapping."""
        if not self.wrap:
            self._set_left(self._left + direction * max(8, self._text_cells // 4))

    def _set_left(self, left: int) -> None:
        left = min(max(left, 0), max(0, self._widest - self._text_cells // 2))
        if left != self._left:
            self._left = left
            self._scroll_to_row(self._top)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """The scroll bar was dragged, or the widget was scrolled otherwise: show the rows there."""
        if self.show_vertical_scrollbar:
            self.vertical_scrollbar.position = new_value
        if self._is_placing or round(old_value) == round(new_value) or self.ring is None:
            return
        if new_value >= self.max_scroll_y:
            self.follow()
        else:
            number = self._first() + round(new_value)
            self.pause()
            self._scroll_to_row((number, 0))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._wheel(event, -1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._wheel(event, 1)

    def _wheel(self, event: events.MouseScrollUp | events.MouseScrollDown, direction: int) -> None:
        event.prevent_default().stop()
        if event.shift or event.ctrl:
            self.action_sideways(direction)
        else:
            self.move(direction * 3)

    def watch_wrap_wish(self) -> None:
        self._left = 0
        self._redraw()

    def watch_time_wish(self) -> None:
        self._redraw()

    def watch_is_folded(self) -> None:
        self._redraw()

    def on_resize(self) -> None:
        self._redraw()

    def _redraw(self) -> None:
        """Draw everything again, as width, wrapping or columns have changed."""
        self.visible_rows = []
        if self._held is None:
            self._show_tail()
        else:
            self._scroll_to_row(self._top if not self.wrap else (self._top[0], 0))
        self.refresh()
