"""Widgets that draw themselves as lines: the base, a list with a cursor, a scrolling sheet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from sparktop import faults
from sparktop.text.lines import BLANK, Line, wrapped
from sparktop.ui.theme import tones


class LineWidget(Widget):
    """A widget that draws itself as lines, and repaints only the cells that changed."""

    DEFAULT_CSS = "LineWidget { height: 1; width: 1fr; }"
    ALLOW_SELECT = False

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 (Textual's name)
        super().__init__(id=id, classes=classes)
        self._lines: list[Line] = []
        self._drawn: tuple[int, int] = (0, 0)
        self._is_rendering = False
        self._palette: Mapping[str, Style] | None = None
        """The tones of the lines that are rendered together."""

    def draw(self, width: int, height: int) -> list[Line]:
        """The lines to show; called when the content or the size has changed."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Draw again, and repaint the cells that differ."""
        width, height = self.size
        if not width or not height or not self.is_attached:
            if self._drawn != (0, 0):
                # Hidden: once it is shown again, perhaps as large as before, each of its lines is another one.
                self._drawn = (0, 0)
                self.refresh()
            return
        old_lines, self._lines = self._lines, self._draw(width, height)
        if self._drawn != (width, height):
            self._drawn = (width, height)
            self.refresh()
            return
        lines = self._lines
        changed: list[Region] = []
        for y in range(height):
            span = changed_span(_at(old_lines, y), _at(lines, y), width)
            if span is not None:
                changed.append(Region(span[0], y, span[1], 1))
        if changed:
            self.refresh(*changed)

    def tick(self) -> None:
        """A second has passed: redraw ages, countdowns and the clock."""
        self.redraw()

    def _draw(self, width: int, height: int) -> list[Line]:
        try:
            return self.draw(width, height)[:height]
        except Exception as error:  # noqa: BLE001 - the other panes are drawn all the same
            text = faults.report(f"the pane {self.id or type(self).__name__}", error)
            return wrapped(text, width, "warning")[:height]

    def render_lines(self, crop: Region) -> list[Strip]:
        self._is_rendering = True
        try:
            return super().render_lines(crop)
        finally:
            self._is_rendering, self._palette = False, None

    def render_line(self, y: int) -> Strip:
        width, height = self.size
        if self._drawn != (width, height):
            self._lines, self._drawn = self._draw(width, height), (width, height)
        palette = self._palette or tones(self.app, self.background_colors[1])
        if self._is_rendering:
            self._palette = palette
        line = _at(self._lines, y).fit(width)
        plain = palette[""]
        return Strip([Segment(text, palette.get(tone, plain)) for text, tone in line.runs if text], width)

    def on_focus(self, event: events.Focus) -> None:
        self.redraw()

    def on_blur(self, event: events.Blur) -> None:
        self.redraw()

    def text(self) -> str:
        """The shown lines as plain text."""
        return "\n".join(line.plain.rstrip() for line in self._lines)


def changed_span(old: Line, new: Line, width: int) -> tuple[int, int] | None:
    """(column, cells) of the span in which two lines differ; None where they are equal."""
    if old == new:
        return None
    start = 0
    for before, after in zip(old.runs, new.runs, strict=False):
        if before != after:
            break
        start += cell_len(before[0])
    stop = width
    if old.width == new.width:
        stop = new.width
        for before, after in zip(reversed(old.runs), reversed(new.runs), strict=False):
            if before != after:
                break
            stop -= cell_len(before[0])
    return (start, stop - start) if start < stop else (0, width)


def _at(lines: Sequence[Line], y: int) -> Line:
    return lines[y] if y < len(lines) else BLANK


Row = TypeVar("Row")


class CursorList(LineWidget, Generic[Row]):
    """Rows with a cursor; shows as many around it as there is room for."""

    head_rows = 0
    """Lines of the widget above the first row."""
    WHEEL_ROWS = 1
    """Rows that one turn of the mouse wheel moves."""
    _rows: Sequence[Row] = ()
    _at = 0
    _top = 0

    class Opened(Message):
        """The operator asked for the selected row's details."""

    class Moved(Message):
        """Another row was selected, or following began or ended."""

    @property
    def rows(self) -> Sequence[Row]:
        return self._rows

    @property
    def selected(self) -> Row | None:
        """The row under the cursor."""
        return self._rows[self._at] if self._rows else None

    def key(self, row: Row) -> object:
        """What a row is known by when others take its place."""
        raise NotImplementedError

    def show_rows(self, rows: Sequence[Row]) -> None:
        """Show these rows; the cursor stays on its row."""
        self._at, self._rows = self.index_in(rows), rows
        self.redraw()

    def index_in(self, rows: Sequence[Row]) -> int:
        """Where the selected row is in these; at its place, where it isn't."""
        own = self.key(self.selected) if self.selected is not None else None
        same = (index for index in reversed(range(len(rows))) if self.key(rows[index]) == own)
        return next(same, max(0, min(self._at, len(rows) - 1)))

    def select(self, index: int) -> None:
        """Move the cursor to this row, or to the nearest one."""
        self._at = max(0, min(len(self._rows) - 1, index))
        self.redraw()
        self.post_message(self.Moved())

    def action_move(self, rows: int) -> None:
        self.select(self._at + rows)

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.size.height - 1))

    def action_first(self) -> None:
        self.select(0)

    def action_last(self) -> None:
        self.select(len(self._rows) - 1)

    def action_open(self) -> None:
        self.post_message(self.Opened())

    def window(self, room: int) -> range:
        """The indices of the rows shown in `room` lines."""
        top = max(0, min(self._top, self._at, len(self._rows) - room))
        self._top = max(top, self._at - room + 1)
        return range(self._top, min(len(self._rows), self._top + room))

    def row_at(self, y: int) -> int | None:
        """The index of the row on this line of the widget; None where there is none."""
        index = self._top + y - self.head_rows
        return index if y >= self.head_rows and index < len(self._rows) else None

    def on_click(self, event: events.Click) -> None:
        if (index := self.row_at(event.y)) is not None:
            was = self._at
            self.select(index)
            if was == index and event.chain == 2:
                self.action_open()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_move(-self.WHEEL_ROWS)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_move(self.WHEEL_ROWS)


def marked(row: Line, width: int, *, is_at: bool, has_focus: bool = True) -> Line:
    """A row of a list: the one under the cursor has a mark and, while the list has the focus, a background."""
    row = row.fit(width - 1)
    if not is_at:
        return Line.of(" ") + row
    return Line.of(("▌", "frame-focus" if has_focus else "frame")) + (row.on("cursor") if has_focus else row)


BAR_CELLS = 2


class Sheet(LineWidget):
    """A widget as high as its `content` where its style sheet permits, else scrolled: by lines, pages and the wheel."""

    DEFAULT_CSS = "Sheet { height: auto; width: 1fr; }"
    _top = 0

    def __init__(
        self,
        content: Callable[[int], list[Line]],
        *,
        id: str | None = None,  # noqa: A002 (Textual's name)
        classes: str | None = None,
    ) -> None:
        """`content`: all lines at a width in cells."""
        super().__init__(id=id, classes=classes)
        self.content = content
        self._height = 0

    def watched(self) -> int | None:
        """Index of the line that must stay in sight; None: none."""
        return None

    def scroll_lines(self, lines: int) -> None:
        """Scroll down by lines, or up."""
        self._top += lines
        self.redraw()

    def scroll_pages(self, pages: int) -> None:
        """Scroll down by screens, or up; one line stays in sight."""
        self.scroll_lines(pages * max(1, self.size.height - 1))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.scroll_lines(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.scroll_lines(-3)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(1, len(self.content(max(1, width - BAR_CELLS))))

    def draw(self, width: int, height: int) -> list[Line]:
        lines = self.content(max(1, width - BAR_CELLS))
        hidden_count = len(lines) - height
        if (watched_line := self.watched()) is not None:
            self._top = max(min(self._top, watched_line - 1), watched_line - height + 2)
        self._top = max(0, min(self._top, hidden_count))
        if hidden_count <= 0:
            return lines
        thumb = max(1, height * height // len(lines))
        start = round((height - thumb) * self._top / hidden_count)
        drawn = []
        for y, line in enumerate(lines[self._top : self._top + height]):
            bar = ("┃", "frame-focus") if start <= y < start + thumb else ("│", "frame")
            drawn.append(line.fit(width - 1) + Line.of(bar))
        return drawn

    def changed(self) -> int:
        """Redraw changed content and adapt the height; returns the number of lines."""
        line_count = len(self.content(max(1, (self.size.width or 1) - BAR_CELLS)))
        if line_count != self._height:
            self._height = line_count
            self.refresh(layout=True)
        self.redraw()
        return line_count

    def line_at(self, y: int) -> int:
        """The index of the line in this row of the widget."""
        return self._top + y
