"""The view of a log of any length: draws the visible rows with levels, search matches and selected text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.cache import LRUCache
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from textual.timer import Timer

from sparktop.diagnose.logs.head import NONE, Head
from sparktop.model.telemetry import LogLine
from sparktop.ui.theme import tones
from sparktop.ui.widgets.log_paint import LogRow, Palette, level_name, paint, palette
from sparktop.ui.widgets.log_scroll import LogScroll
from sparktop.ui.widgets.log_search import Finder
from sparktop.ui.widgets.search_query import Query

LevelOf = Callable[[str], str | None]
HeadOf = Callable[[str], Head]


class LogView(LogScroll, can_focus=True):
    """A virtualised view of one LineRing: LogScroll with drawing, search and text selection."""

    class Changed(Message):
        """The view became empty or filled, began or ended following, got new lines, or the search's state changed."""

        def __init__(self, view: LogView) -> None:
            super().__init__()
            self.view = view

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, LogView.Changed) and message.view is self.view

    def __init__(
        self, *, level_of: LevelOf | None = None, head_of: HeadOf | None = None, show_time: bool | None = None
    ) -> None:
        super().__init__()
        self._level_of = level_of
        self._head_of = head_of
        self._finder = Finder()
        self._jump: Callable[[Sequence[LogRow]], int | None] | None = None
        self._scan_timer: Timer | None = None
        self._palette: Palette | None = None
        self._strips: LRUCache[tuple[int, int, int], tuple[LogRow, Strip]] = LRUCache(64)
        self._reported: tuple[object, ...] = ()
        self.set_reactive(LogScroll.time_wish, show_time)

    # Hooks of LogScroll

    def _head(self, line: LogLine) -> Head:
        """The line's head; NONE where it is shown, as it holds a match of the search."""
        if self._head_of is None or not self.is_folded or line.is_note:
            return NONE
        head, query = self._head_of(line.text), self.query_now
        if query is not None and head.stop and any(start < head.stop for start, _ in query.spans(line.text)):
            return NONE
        return head

    def _lines_replaced(self) -> None:
        if self.is_attached and self.text_selection is not None:
            self.screen.clear_selection()
        self._set_query(self.query_now)

    def _lines_added(self) -> None:
        if self._held is not None and not self._finder.is_complete(self._held):
            self._scan()

    def _scrolled(self) -> None:
        self._report_changes()

    def _redraw(self) -> None:
        self._strips.clear()
        super()._redraw()

    # Searching

    @property
    def query_now(self) -> Query | None:
        return self._finder.query

    def search(self, query: Query | None) -> None:
        """Search and go to the match nearest the bottom of the screen, upwards first; None ends the search."""
        old_query = self.query_now
        if (query.text if query else None) == (old_query.text if old_query else None):
            return
        self._set_query(query)
        if query is not None:
            self._find(self._finder.to_nearest)
        self._report_changes()

    def _set_query(self, query: Query | None) -> None:
        self._stop_scan()
        had_query = self.query_now is not None
        self._finder.look_for(query)
        self._strips.clear()
        self.refresh()
        if self._head_of is not None and (had_query or query is not None) and self.ring is not None:
            self._scroll_to_row(self._top)  # heads that hold a match are unfolded

    def find_next(self) -> None:
        """Go to the next match below the current one, or below the top of the screen."""
        self._find(self._finder.to_next)

    def find_previous(self) -> None:
        """Go to the next match above the current one, or above the bottom of the screen."""
        self._find(self._finder.to_previous)

    def search_status(self) -> str:
        """ "3/41", "no match", or "" without a search or while following."""
        return self._finder.status(self._held)

    def _find(self, jump: Callable[[Sequence[LogRow]], int | None]) -> None:
        if self._finder.query is None or self.ring is None:
            return
        self.pause()
        self._jump = jump
        self._scan()

    def _scan(self) -> None:
        """Search one slice and continue after waiting keys were handled; jump when all lines are searched."""
        self._stop_scan()
        if self._held is None:
            return
        if not self._finder.scan(self._held):
            self._scan_timer = self.set_timer(0.001, self._scan)
        elif self._jump is not None:
            jump, self._jump = self._jump, None
            number = jump(self.visible_rows)
            if number is not None:
                self._go_to(number)
        self._report_changes()

    def _stop_scan(self) -> None:
        if self._scan_timer is not None:
            self._scan_timer.stop()
            self._scan_timer = None

    def _go_to(self, number: int) -> None:
        self._strips.clear()
        frame = self._frame()
        if number not in {row.number for row in self.visible_rows[: max(1, len(self.visible_rows) - 1)]}:
            self._scroll_to_row(frame.up((number, 0), self.size.height // 3))
        query = self.query_now
        spans = query.spans(frame.line(number).text) if query is not None and not self.wrap else []
        first = self._head(frame.line(number)).stop
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
        self.post_message(self.Changed(self))

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
        frame = self._frame()
        texts: list[str] = []
        for number in range(max(start, frame.first), min(stop + 1, frame.end)):
            text = frame.line(number).text
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
        self._palette = None
        self._strips.clear()

    def render_line(self, y: int) -> Strip:
        colours = self._palette or self._read_palette()
        if y >= len(self.visible_rows):
            return Strip.blank(self._cells, colours.base)
        row = self.visible_rows[y]
        key = (row.number, row.start, row.stop)
        cached = self._strips.get(key)
        if cached is not None and cached[0] == row:
            return cached[1]
        strip = self._paint(row, colours)
        self._strips.grow(2 * len(self.visible_rows))
        self._strips[key] = (row, strip)
        return strip

    def _paint(self, row: LogRow, colours: Palette) -> Strip:
        text, query = row.line.text, self.query_now
        name = "gap" if row.line.is_note else self._level_of(text) if self._level_of else None
        selection = self.text_selection
        return paint(
            row,
            colours,
            width=self._cells,
            level=level_name(name, row.line.priority),
            gutter=self.line_gutter,
            hits=query.spans(text) if query else (),
            is_current=row.number == self._finder.hit,
            selected=selection.get_span(row.number) if selection is not None else None,
            goes_left=self._left > 0 and not self.wrap and bool(text),
        )

    def _read_palette(self) -> Palette:
        selection = self.screen.get_component_rich_style("screen--selection")
        self._palette = palette(tones(self.app, self.background_colors[1]), selection)
        return self._palette
