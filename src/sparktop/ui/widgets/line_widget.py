"""Widgets that draw themselves as lines: the base, a list with a cursor, a scrolling sheet; the titles in a frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.containers import Vertical
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

    def _draw(self, width: int, height: int) -> list[Line]:
        try:
            return self.draw(width, height)[:height]
        except Exception as error:  # noqa: BLE001 - the other panes are drawn all the same
            text = faults.named(f"the pane {self.id or type(self).__name__}", error)
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


class Movable(Protocol):
    """A list with a cursor, or a log."""

    def move(self, rows: int) -> None:
        """Move down by rows, or up."""

    def page(self, pages: int) -> None:
        """Move down by screens, or up."""

    def action_first(self) -> None: ...

    def action_last(self) -> None: ...


class CursorKeys:
    """The keys that move what a pane shows: by rows, by screens, to either end; a mixin."""

    def moving(self) -> Movable:
        """What the keys move."""
        raise NotImplementedError

    def action_up(self) -> None:
        self.moving().move(-1)

    def action_down(self) -> None:
        self.moving().move(1)

    def action_page_up(self) -> None:
        self.moving().page(-1)

    def action_page_down(self) -> None:
        self.moving().page(1)

    def action_first(self) -> None:
        self.moving().action_first()

    def action_last(self) -> None:
        self.moving().action_last()


Row = TypeVar("Row")


class CursorList(CursorKeys, LineWidget, Generic[Row]):
    """Rows with a cursor; shows as many around it as there is room for."""

    HEAD_ROWS = 0
    """Lines of the widget above the first row."""
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

    def moving(self) -> Movable:
        return self

    def select(self, index: int) -> None:
        """Move the cursor to this row, or to the nearest one."""
        self._at = max(0, min(len(self._rows) - 1, index))
        self.redraw()
        self.post_message(self.Moved())

    def move(self, rows: int) -> None:
        self.select(self._at + rows)

    def page(self, pages: int) -> None:
        self.move(pages * max(1, self.size.height - 1))

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

    def cursor(self, line: Line, width: int) -> Line:
        """The line with the cursor's mark before it, and a background while the widget has the focus."""
        cursor_mark = Line.of(("▌", "frame-focus" if self.has_focus else "frame"))
        text = line.fit(width - 1)
        return cursor_mark + (text.on("cursor") if self.has_focus else text)

    def row_at(self, y: int) -> int | None:
        """The index of the row on this line of the widget; None where there is none."""
        index = self._top + y - self.HEAD_ROWS
        return index if y >= self.HEAD_ROWS and index < len(self._rows) else None

    def on_click(self, event: events.Click) -> None:
        if (index := self.row_at(event.y)) is not None:
            was = self._at
            self.select(index)
            if was == index and event.chain == 2:
                self.action_open()


BAR_CELLS = 2


class ScrollingLines(LineWidget):
    """A widget that shows a part of its lines, scrolled by lines, pages and the mouse wheel."""

    EDGE_ROWS = 0
    """Rows of the widget that don't scroll."""
    _top = 0

    def scroll_lines(self, lines: int) -> None:
        """Scroll down by lines, or up."""
        self._top += lines
        self.redraw()

    def scroll_pages(self, pages: int) -> None:
        """Scroll down by screens, or up; one line stays in sight."""
        self.scroll_lines(pages * max(1, self.size.height - self.EDGE_ROWS - 1))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.scroll_lines(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.scroll_lines(-3)


class Sheet(ScrollingLines):
    """A scrolling widget, as high as its `content` where its style sheet permits."""

    DEFAULT_CSS = "Sheet { height: auto; width: 1fr; }"

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

    def watched(self, lines: list[Line]) -> int | None:
        """Index of the line that must stay in sight; None: none."""
        return None

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(1, len(self.content(max(1, width - BAR_CELLS))))

    def draw(self, width: int, height: int) -> list[Line]:
        lines = self.content(max(1, width - BAR_CELLS))
        hidden_count = len(lines) - height
        if (watched_line := self.watched(lines)) is not None:
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


class Edge:
    """Sets a pane's border titles where they changed, and repaints only the edge that shows them."""

    def __init__(self, widget: Widget) -> None:
        self._widget = widget
        self._shown: dict[str, tuple[object, ...]] = {}
        self.repainted: tuple[Region, ...] = ()
        """The edge whose title is being set, by its place in the content: Textual would repaint the whole widget."""

    def show(self, left: Line, right: Line, below: Line) -> None:
        """Set the two parts of the upper edge and the note in the lower edge; no markup is parsed."""
        widget = self._widget
        is_focused = widget.has_focus_within
        width, height = widget.outer_size
        room = width - 6
        if room < 1:
            return  # not laid out yet: an empty title would stay until something else changed
        look = (room, is_focused, widget.app.theme)
        if self._has_changed("border_title", (left, right, *look)):
            self._set("border_title", self._upper(left, right, room, is_focused), 0)
        if self._has_changed("border_subtitle", (below, *look)):
            self._set("border_subtitle", self._text(below.cut(max(1, room))) if below.runs else "", height - 1)

    def _has_changed(self, name: str, state: tuple[object, ...]) -> bool:
        old, self._shown[name] = self._shown.get(name), state
        return state != old

    def _set(self, name: str, text: Text | str, row: int) -> None:
        x, y = self._widget.content_offset
        self.repainted = (Region(-x, row - y, self._widget.outer_size.width, 1),)
        try:
            setattr(self._widget, name, text)
        finally:
            self.repainted = ()

    def _upper(self, left: Line, right: Line, room: int, is_focused: bool) -> Text:
        left = left.cut(max(1, room))
        spare = room - left.width - right.width - 2
        if spare < 1 or not right.runs:
            return self._text(left)
        rule = (f" {'─' * spare} ", "frame-focus" if is_focused else "frame")
        return self._text(Line((*left.runs, rule, *right.runs)))

    def _text(self, line: Line) -> Text:
        styles = tones(self._widget.app, self._widget.background_colors[0])
        return Text.assemble(*((run, styles[tone]) for run, tone in line.runs), no_wrap=True, end="")


class TitledPane(CursorKeys, Vertical):
    """A framed pane whose titles are drawn again when its size, its focus or the theme changes."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 (Textual's name)
        super().__init__(id=id)
        self._edge = Edge(self)

    def refresh(
        self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False
    ) -> TitledPane:
        """Repaint these regions, or all of it; while a title is set, only its edge."""
        return super().refresh(*(regions or self._edge.repainted), repaint=repaint, layout=layout, recompose=recompose)

    def _retitle(self) -> None:
        """Draw the titles."""
        raise NotImplementedError

    def _restyle(self) -> None:
        """Draw all that isn't drawn by the children, in the theme's colours."""
        self._retitle()

    def on_mount(self) -> None:
        self._restyle()
        self._retitle_later()
        self.watch(self.app, "theme", self._recolour, init=False)

    def _recolour(self) -> None:
        self.call_after_refresh(self._restyle)  # the theme's colours are set only then

    def on_resize(self) -> None:
        self._retitle()
        self._retitle_later()  # the event may come before the new size

    def _retitle_later(self) -> None:
        self.call_after_refresh(self._retitle)

    on_show = on_descendant_focus = on_descendant_blur = _retitle_later


def count_text(count: int) -> str:
    """A growing count, shortened so that it changes rarely: "940", "12 k", "1.2 M"."""
    if count < 10_000:
        return f"{count:,}"
    return f"{count / 1000:.0f} k" if count < 1_000_000 else f"{count / 1e6:.1f} M"
