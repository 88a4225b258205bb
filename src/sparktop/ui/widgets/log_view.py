"""The view of a log of any length: follows, pauses, wraps, scrolls and searches it, and draws the visible rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.cache import LRUCache
from textual.geometry import Size
from textual.message import Message
from textual.reactive import var
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.timer import Timer

from sparktop.diagnose.logs.head import NONE, Head
from sparktop.model.telemetry import LogLine
from sparktop.observe.log_ring import LineRing, Snapshot
from sparktop.ui.theme import tones
from sparktop.ui.widgets.log_rows import Frame, Gutter, LogRow, Top, level_name, paint
from sparktop.ui.widgets.search import LogSearch, Query

LevelOf = Callable[[str], str | None]
HeadOf = Callable[[str], Head]
Jump = Callable[[LogSearch, Sequence[LogRow]], int | None]
"""The match to go to, from the rows on the screen."""

WRAP_ROWS = 11
"""Rows from which long lines wrap, where the operator hasn't said otherwise."""
TIME_FROM_CELLS = 60
"""Width from which the time of each line is shown, where the operator hasn't said otherwise."""
PROCESS_FROM_CELLS = 90
"""Width from which the process that wrote a line is named before it."""
MAX_PROCESS_CELLS = 14
MORE_LINES = 10_000
"""How many newer lines a paused view takes on; without a limit a flood would fill memory."""
NO_LINES = Snapshot(0, 0)
POLL_S = 0.1
MIN_PAINT_S = 0.19
"""Least seconds between two paints while following: in a flood all rows change, and nobody reads faster."""


class LogView(ScrollView, can_focus=True, inherit_bindings=False):
    """A virtualised view of one LineRing."""

    DEFAULT_CSS = """
    LogView {
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

    class Changed(Message):
        """The view became empty or filled, began or ended following, got new lines, or the search's state changed."""

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, LogView.Changed)

    def __init__(
        self, *, level_of: LevelOf | None = None, head_of: HeadOf | None = None, show_time: bool | None = None
    ) -> None:
        super().__init__()
        self._level_of = level_of
        self._head_of = head_of
        self.set_reactive(LogView.time_wish, show_time)
        self._process_cells = 0
        """Cells of the longest process name seen."""
        self._has_times = False
        """Whether a line with a time was seen."""
        self.ring: LineRing | None = None
        self._lines = NO_LINES
        """The lines of the last screen while following, all of them while paused."""
        self._paused_at: int | None = None
        """The end of the ring when the view was paused; None while following."""
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
        self._search: LogSearch | None = None
        self._jump: Jump | None = None
        """What to do once all lines are searched."""
        self._scan_timer: Timer | None = None
        self._styles: dict[str, Style] = {}
        """Of the tones, and of selected text; read again where it is empty."""
        self._strips: LRUCache[tuple[int, int, int], tuple[LogRow, Strip]] = LRUCache(64)
        self._reported: tuple[object, ...] = ()

    # The log

    def set_ring(self, ring: LineRing | None) -> None:
        """Show another log from its newest line on, or none; the search stays, and so does the place in a paused one
        where the other has that line too."""
        if ring is self.ring:
            return
        top = self.visible_rows[0].line if self.visible_rows and not self.is_following else None
        self.ring = ring
        self._lines, self._paused_at = NO_LINES, None
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

    def _lines_replaced(self) -> None:
        """Other lines are shown: of another ring, or the tail instead of the held lines."""
        if self.is_attached and self.text_selection is not None:
            self.screen.clear_selection()
        self._look_for(self.query_now)

    @property
    def is_following(self) -> bool:
        return self._paused_at is None

    @property
    def new_count(self) -> int:
        """Lines that arrived since the view was paused."""
        return 0 if self._paused_at is None or self.ring is None else self.ring.end - self._paused_at

    def visible_text(self) -> str:
        """The visible lines as plain text, uncut and without times or levels."""
        lines = {row.number: row.line.text for row in self.visible_rows}
        return "\n".join(lines.values())

    # Following and pausing

    def pause(self) -> None:
        """Stop following: keep the lines that are on the screen."""
        if self.is_following and self.ring is not None:
            self._lines, self._paused_at = self.ring.snapshot(), self.ring.end
            self._scroll_to_row(self._top)

    def follow(self) -> None:
        """Go to the newest line and stay there."""
        self._paused_at = None
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

    on_hide = update_polling

    def _poll(self) -> None:
        ring = self.ring
        if ring is None or ring.version == self._seen_version or not self.size.height:
            return
        if self._paused_at is None:
            now_s = time.monotonic()
            if now_s - self._drawn_s >= MIN_PAINT_S and not self._is_covered():
                self._drawn_s = now_s
                self._seen_version = ring.version
                self._show_tail()
            return
        self._seen_version = ring.version
        if self._lines.end < (stop := self._paused_at + MORE_LINES):
            self._lines = self._lines.joined(ring.snapshot(), stop=stop)
        self._scroll_to_row(self._top)
        if self._search is not None and not self._search.is_complete(self._lines):
            self._scan()

    def _is_covered(self) -> bool:
        """Whether an opaque screen covers the view."""
        on_top = self.app.screen
        return on_top is not self.screen and on_top.styles.background.a == 1

    def _show_tail(self) -> None:
        if self.ring is not None:
            self._lines = self.ring.snapshot(max(1, self.size.height))
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
        return Frame(
            lines=self._lines,
            height=self.size.height,
            cells=self._text_cells,
            left=self._left,
            wrap=self.wrap,
            head=self._head,
        )

    def _head(self, line: LogLine) -> Head:
        """The line's head; NONE where it is shown, as it holds a match of the search."""
        if self._head_of is None or not self.is_folded or line.is_note:
            return NONE
        head, query = self._head_of(line.text), self.query_now
        if query is not None and head.stop and any(start < head.stop for start, _ in query.spans(line.text)):
            return NONE
        return head

    def _first(self) -> int:
        """The number of the first line that can be scrolled to."""
        if self.ring is None or not self.is_following:
            return self._lines.first
        return min(self.ring.first, self._lines.first)

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
        self._report_changes()

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
        self.set_reactive(LogView.virtual_size, Size(self.size.width, height))
        self.vertical_scrollbar.window_virtual_size = height
        self.vertical_scrollbar.window_size = self.size.height

    # Moving

    def action_move(self, rows: int) -> None:
        """Scroll by rows; up pauses, down at the end follows again."""
        self._poll()
        if rows < 0:
            self.pause()
            self._scroll_to_row(self._frame().up(self._top, -rows))
        elif not self.is_following:
            frame = self._frame()
            if self._top >= frame.last_top():
                self.follow()
            else:
                self._scroll_to_row(frame.down(self._top, rows))

    def action_page(self, pages: int) -> None:
        """Scroll by screens; one row stays in sight."""
        self.action_move(pages * max(1, self.size.height - 1))

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
            self.action_move(direction * 3)

    def watch_wrap_wish(self) -> None:
        self._left = 0
        self._redraw()

    def _redraw(self) -> None:
        """Draw everything again, as width, wrapping or columns have changed."""
        self._strips.clear()
        self.visible_rows = []
        if self.is_following:
            self._show_tail()
        else:
            self._scroll_to_row((self._top[0], 0))
        self.refresh()

    watch_time_wish = watch_is_folded = on_resize = _redraw

    # Searching

    @property
    def query_now(self) -> Query | None:
        return self._search.query if self._search is not None else None

    def search(self, query: Query | None) -> None:
        """Search and go to the match nearest the bottom of the screen, upwards first; None ends the search."""
        old_query = self.query_now
        if (query.text if query else None) == (old_query.text if old_query else None):
            return
        self._look_for(query)
        self.find(LogSearch.to_nearest)
        self._report_changes()

    def _look_for(self, query: Query | None) -> None:
        """Start a search, or the same one over other lines; None ends it."""
        self._stop_scan()
        had_search = self._search is not None
        self._search = LogSearch(query) if query is not None else None
        self._strips.clear()
        self.refresh()
        if self._head_of is not None and (had_search or query is not None) and self.ring is not None:
            self._scroll_to_row(self._top)  # heads that hold a match are unfolded

    def find(self, jump: Jump) -> None:
        """Go to the match that `jump` returns once all lines are searched."""
        if self._search is not None and self.ring is not None:
            self.pause()
            self._jump = jump
            self._scan()

    def search_status(self) -> str:
        """ "3/41", "no match", or "" without a search or while following."""
        return "" if self._search is None or self.is_following else self._search.status(self._lines)

    def _scan(self) -> None:
        """Search one slice and continue after waiting keys were handled; jump when all lines are searched."""
        self._stop_scan()
        if self._search is None or self.is_following:
            return
        if not self._search.scan(self._lines):
            self._scan_timer = self.set_timer(0.001, self._scan)
        elif self._jump is not None:
            jump, self._jump = self._jump, None
            number = jump(self._search, self.visible_rows)
            if number is not None:
                self._go_to(number)
        self._report_changes()

    def _stop_scan(self) -> None:
        if self._scan_timer is not None:
            self._scan_timer.stop()
            self._scan_timer = None

    def _go_to(self, number: int) -> None:
        self._strips.clear()
        if number not in {row.number for row in self.visible_rows[: max(1, len(self.visible_rows) - 1)]}:
            self._scroll_to_row(self._frame().up((number, 0), self.size.height // 3))
        query = self.query_now
        spans = query.spans(self._lines.line(number).text) if query is not None and not self.wrap else []
        first = self._head(self._lines.line(number)).stop
        if spans and not self._left <= spans[0][0] - first < self._left + self._text_cells - 1:
            self._set_left(0 if spans[0][1] - first < self._text_cells else spans[0][0] - first - self._text_cells // 3)
        self.refresh()

    def _report_changes(self) -> None:
        state = (bool(self.visible_rows), self.is_following, self.new_count, self.query_now, self.search_status())
        if state != self._reported:
            self._reported = state
            # Later, by the view itself: a message posted in a parent's handler counts as the parent's and stops there.
            self.call_later(self._post_changed)

    def _post_changed(self) -> None:
        self.post_message(self.Changed())

    # Selecting

    @property
    def allow_select(self) -> bool:
        return True

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text; an open end of the selection means the edge of the screen, never the whole log."""
        if not self.visible_rows:
            return None
        start = selection.start.y if selection.start else self.visible_rows[0].number
        stop = selection.end.y if selection.end else self.visible_rows[-1].number
        texts: list[str] = []
        for number in range(max(start, self._lines.first), min(stop + 1, self._lines.end)):
            text = self._lines.line(number).text
            if (span := selection.get_span(number)) is not None:
                texts.append(text[span[0] : None if span[1] < 0 else span[1]])
        return "\n".join(texts), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        if selection is not None:
            self.pause()
        self._strips.clear()
        self.refresh()

    # Drawing

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styles = {}
        self._strips.clear()

    def render_line(self, y: int) -> Strip:
        if not self._styles:
            selection = self.screen.get_component_rich_style("screen--selection")
            self._styles = {**tones(self.app, self.background_colors[1]), "selection": selection}
        if y >= len(self.visible_rows):
            return Strip.blank(self._cells, self._styles[""])
        row = self.visible_rows[y]
        key = (row.number, row.start, row.stop)
        cached = self._strips.get(key)
        if cached is not None and cached[0] == row:
            return cached[1]
        strip = self._paint(row)
        self._strips.grow(2 * len(self.visible_rows))
        self._strips[key] = (row, strip)
        return strip

    def _paint(self, row: LogRow) -> Strip:
        text, search, selection = row.line.text, self._search, self.text_selection
        name = "gap" if row.line.is_note else self._level_of(text) if self._level_of else None
        marks = []
        if search is not None:
            style = self._styles["hit-current" if row.number == search.hit else "hit"]
            marks = [(start, stop, style) for start, stop in search.query.spans(text)]
        if selection is not None and (span := selection.get_span(row.number)) is not None:
            marks.append((span[0], len(text) if span[1] < 0 else span[1], self._styles["selection"]))
        return paint(
            row,
            self._styles,
            width=self._cells,
            level=level_name(name, row.line.priority),
            gutter=self.line_gutter,
            marks=marks,
            goes_left=self._left > 0 and not self.wrap and bool(text),
        )
