"""Lines in a dialog that scroll when there are more than fit; the last column then says where in them that is."""

from __future__ import annotations

from textual import events
from textual.geometry import Size

from sparktop.ui.widgets.ink import Line, LineWidget

BAR_CELLS = 2


class Sheet(LineWidget):
    """Draws `content`; as high as that, as far as its style sheet permits."""

    DEFAULT_CSS = "Sheet { height: auto; width: 1fr; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 (Textual's name)
        super().__init__(id=id, classes=classes)
        self._top = 0
        self._height = 0

    def content(self, width: int) -> list[Line]:
        """All lines at a width in cells."""
        raise NotImplementedError

    def watched(self, lines: list[Line]) -> int | None:
        """The line that is to be seen in any case."""
        return None

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(1, len(self.content(max(1, width - BAR_CELLS))))

    def draw(self, width: int, height: int) -> list[Line]:
        lines = self.content(max(1, width - BAR_CELLS))
        over = len(lines) - height
        if (at := self.watched(lines)) is not None:
            self._top = max(min(self._top, at - 1), at - height + 2)
        self._top = max(0, min(self._top, over))
        if over <= 0:
            return lines
        thumb = max(1, height * height // len(lines))
        start = round((height - thumb) * self._top / over)
        drawn = []
        for y, line in enumerate(lines[self._top : self._top + height]):
            mark = ("┃", "frame-focus") if start <= y < start + thumb else ("│", "frame")
            drawn.append(line.fit(width - 1) + Line.of(mark))
        return drawn

    def changed(self) -> int:
        """What is to be said is another, and the height may be too; how many lines there are."""
        wanted = len(self.content(max(1, (self.size.width or 1) - BAR_CELLS)))
        if wanted != self._height:
            self._height = wanted
            self.refresh(layout=True)
        self.redraw()
        return wanted

    def line_at(self, y: int) -> int:
        """Which of its lines stands in this row."""
        return self._top + y

    def scroll_lines(self, lines: int) -> None:
        """Down by lines, or up."""
        self._top += lines
        self.redraw()

    def scroll_pages(self, pages: int) -> None:
        """Down by screens, one line kept."""
        self.scroll_lines(pages * max(1, self.size.height - 1))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.scroll_lines(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.scroll_lines(-3)
