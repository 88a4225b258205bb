"""Where a log view stands in its ring: following its tail, or paused on a copy, with a bar that says where.

The view polls its ring's version, so lines arrive without messages. Following, it stands on the ring's tail; paused,
on what it had then (`Held`), so that nothing moves or expires under the reader.
"""

from __future__ import annotations

import time
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.reactive import var
from textual.scroll_view import ScrollView
from textual.timer import Timer

from sparktop.model.telemetry import LogLine
from sparktop.observe.lines import LineRing
from sparktop.ui.widgets.log_frame import Frame, Top
from sparktop.ui.widgets.log_held import Held
from sparktop.ui.widgets.log_paint import GUTTER_CELLS, TIME_CELLS, Row

POLL_S = 0.1
DRAW_S = 0.19
"""A flood is drawn at most every other poll: all rows move each time, and nobody reads faster."""


class LogScroll(ScrollView, inherit_bindings=False):
    """Follow and pause, wrap, scroll up, down and sideways; what a row looks like is LogView's."""

    DEFAULT_CSS = """
    LogScroll {
        overflow-x: hidden;
        overflow-y: scroll;
        scrollbar-size-vertical: 1;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("g", "first", "First line", show=False),
        Binding("G", "last", "Newest line", show=False),
        Binding("left", "sideways(-1)", "Left", show=False),
        Binding("right", "sideways(1)", "Right", show=False),
    ]
    """Beside the registry's, which the pane around it binds."""

    wrap: var[bool] = var(False, init=False)
    show_time: var[bool] = var(False, init=False)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 (Textual's name)
        super().__init__(id=id, classes=classes)
        self._ring: LineRing | None = None
        self._held: Held | None = None
        self._tail: list[LogLine] = []
        self._tail_first = 0
        self._top: Top = (0, 0)
        """The first visible row: a line's number, and which of its rows."""
        self._left = 0
        self._rows: list[Row] = []
        self._widest = 0
        self._seen_version = -1
        self._drawn_s = 0.0
        self._is_placing = False
        self._is_shown = False
        self._poll_timer: Timer | None = None

    # What LogView adds

    def _other_lines(self) -> None:
        """Another ring, or its tail instead of what was held."""

    def _more_lines(self) -> None:
        """Lines came while paused."""

    def _placed(self) -> None:
        """The view stands somewhere, perhaps elsewhere than before."""

    # What it shows

    @property
    def ring(self) -> LineRing | None:
        return self._ring

    def set_ring(self, ring: LineRing | None) -> None:
        """Show another log from its newest line on, or nothing; the search stays."""
        if ring is self._ring:
            return
        self._ring = ring
        self._held = None
        self._tail = []
        self._tail_first = 0
        self._seen_version = -1
        self._drawn_s = 0.0
        self._left = self._widest = 0
        self._other_lines()
        self._poll()
        if ring is None:
            self._place((0, 0))
        self._wake()

    @property
    def is_following(self) -> bool:
        return self._held is None

    @property
    def new_count(self) -> int:
        """Lines that arrived since the view was paused."""
        return 0 if self._held is None or self._ring is None else self._ring.end - self._held.paused_at

    @property
    def visible_rows(self) -> list[Row]:
        """What is on screen, from the top."""
        return list(self._rows)

    def visible_text(self) -> str:
        """The visible lines, whole, without what the view adds."""
        lines = {row.number: row.line.text for row in self._rows}
        return "\n".join(lines.values())

    # Following and pausing

    def pause(self) -> None:
        """Stand still on what is on screen."""
        if self._held is not None or self._ring is None:
            return
        self._held = Held(self._ring)
        top, row = self._top
        self._place((min(max(top, self._held.first), max(self._held.first, self._held.end - 1)), row))

    def follow(self) -> None:
        """Go to the newest line and stay there."""
        self._held = None
        self._other_lines()
        self._show_tail()

    def toggle_follow(self) -> None:
        if self.is_following:
            self.pause()
        else:
            self.follow()

    def on_mount(self) -> None:
        self._poll_timer = self.set_interval(POLL_S, self._poll, pause=True)
        self._wake()

    def on_show(self) -> None:
        self._is_shown = True
        self._wake()
        self._poll()

    def on_hide(self) -> None:
        self._is_shown = False
        self._wake()

    @property
    def is_polling(self) -> bool:
        """Shown, with a ring to look at: otherwise it wakes up for nothing."""
        return self._is_shown and self._ring is not None

    def _wake(self) -> None:
        """Poll from now on, or no longer."""
        if self._poll_timer is None:
            return
        if self.is_polling:
            self._poll_timer.resume()
        else:
            self._poll_timer.pause()

    def _poll(self) -> None:
        ring = self._ring
        if ring is None or ring.version == self._seen_version or not self.size.height:
            return
        if self._held is None:
            now_s = time.monotonic()
            if now_s - self._drawn_s >= DRAW_S and not self._is_covered():
                self._drawn_s = now_s
                self._seen_version = ring.version
                self._show_tail()
            return
        self._seen_version = ring.version
        self._held.catch_up(ring)
        self._place(self._top)
        self._more_lines()

    def _is_covered(self) -> bool:
        """An opaque screen lies on top: nobody sees what would be drawn here."""
        on_top = self.app.screen
        return on_top is not self.screen and on_top.styles.background.a == 1

    def _show_tail(self) -> None:
        ring = self._ring
        if ring is None:
            return
        self._tail = ring.slice(ring.end - max(1, self.size.height), ring.end)
        self._tail_first = ring.end - len(self._tail)
        self._place(self._frame().last_top())

    # Where it stands

    @property
    def _cells(self) -> int:
        """The width that is seen: Textual's `size` counts the scroll bar in."""
        return max(1, self.size.width - self.scrollbar_size_vertical)

    @property
    def _text_cells(self) -> int:
        return max(1, self._cells - GUTTER_CELLS - (TIME_CELLS if self.show_time else 0))

    def _frame(self) -> Frame:
        """The window onto the lines at hand: those held, or the ring's tail."""
        held = self._held
        first = held.first if held is not None else self._tail_first
        return Frame(
            line=held.line if held is not None else self._tail_line,
            first=first,
            end=held.end if held is not None else first + len(self._tail),
            height=self.size.height,
            cells=self._text_cells,
            left=self._left,
            wrap=self.wrap,
        )

    def _tail_line(self, number: int) -> LogLine:
        return self._tail[number - self._tail_first]

    def _first(self) -> int:
        """The number of the first line that can be reached."""
        if self._held is not None:
            return self._held.first
        return min(self._ring.first, self._tail_first) if self._ring is not None else 0

    def _place(self, top: Top) -> None:
        """Put a row at the top, as far as the log's ends allow, and draw what changed."""
        frame, first = self._frame(), self._first()
        last_top = frame.last_top()
        self._top = min(max(top, (first, 0)), last_top)
        rows = frame.rows(self._top)
        self._widest = max(self._widest, max((len(row.line.text) for row in rows), default=0))
        self._is_placing = True
        try:
            # Wrapped lines above and below aren't measured, so the bar counts lines: its end is the last screenful.
            has_more = last_top > (first, 0)
            reach = max(last_top[0] - first, 1) if has_more else 0
            self._set_reach(reach + max(self.size.height, 1) if has_more else 0)
            self.scroll_y = self.scroll_target_y = reach if self._top == last_top else self._top[0] - first
        finally:
            self._is_placing = False
        if rows != self._rows:
            self._rows = rows
            self.refresh()
        self._placed()

    def _set_reach(self, height: int) -> None:
        """Tell the bar alone: assigning `virtual_size` plainly lays the whole screen out anew, 16 ms each time."""
        self.set_reactive(LogScroll.virtual_size, Size(self.size.width, height))
        self.vertical_scrollbar.window_virtual_size = height
        self.vertical_scrollbar.window_size = self.size.height

    # Moving

    def move(self, rows: int) -> None:
        """Scroll by rows. Up pauses; down beyond the end follows again."""
        self._poll()
        if rows < 0:
            self.pause()
            self._place(self._frame().up(self._top, -rows))
        elif self._held is not None:
            frame = self._frame()
            if self._top >= frame.last_top():
                self.follow()
            else:
                self._place(frame.down(self._top, rows))

    def page(self, pages: int) -> None:
        """Scroll by screens, one row kept."""
        self.move(pages * max(1, self.size.height - 1))

    def action_first(self) -> None:
        """To the oldest line held."""
        self.pause()
        self._place((self._first(), 0))

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
            self._place(self._top)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """The bar was dragged, or something else scrolled the widget: stand where it says."""
        if self.show_vertical_scrollbar:
            self.vertical_scrollbar.position = new_value
        if self._is_placing or round(old_value) == round(new_value) or self._ring is None:
            return
        if new_value >= self.max_scroll_y:
            self.follow()
        else:
            number = self._first() + round(new_value)
            self.pause()
            self._place((number, 0))

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

    def watch_wrap(self) -> None:
        self._left = 0
        self._redraw()

    def watch_show_time(self) -> None:
        self._redraw()

    def on_resize(self) -> None:
        self._redraw()

    def _redraw(self) -> None:
        """Everything again: the width, the wrapping or the columns are other ones."""
        self._rows = []
        if self._held is None:
            self._show_tail()
        else:
            self._place(self._top if not self.wrap else (self._top[0], 0))
        self.refresh()
