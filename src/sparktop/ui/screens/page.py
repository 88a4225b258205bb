"""One scrolling page on a screen of its own, opaque, with one widget on it.

Over a translucent one Textual blends the whole console anew at each of its paints, and a page must come up at once
also while a log floods.
"""

from __future__ import annotations

from typing import ClassVar, Self

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.screen import Screen

from sparktop.ui.widgets.ink import PAGE_CELLS, Line, LineWidget, framed

FRAME_CELLS = 4


class Page(LineWidget):
    """Lines in a frame, from one of them on; the frame's right edge says where in the page that is."""

    def title(self) -> Line:
        """What stands in the frame's upper edge."""
        raise NotImplementedError

    def content(self, width: int) -> tuple[Line, ...]:
        """All lines at a width in cells."""
        raise NotImplementedError

    def keys(self) -> tuple[str, ...]:
        """What else can be pressed, for the frame's upper edge; what has no room there is left out from the front."""
        return ()

    def __init__(self) -> None:
        super().__init__()
        self._top = 0

    def draw(self, width: int, height: int) -> list[Line]:
        cells = min(width, PAGE_CELLS)
        lines = self.content(cells - FRAME_CELLS)
        height = min(height, len(lines) + 2)
        seen = max(1, height - 2)
        self._top = max(0, min(self._top, len(lines) - seen))
        title = self.title()
        keys = [*self.keys(), *(["↑↓ scroll"] if seen < len(lines) else []), "Esc close"]
        while keys[1:] and sum(map(cell_len, keys)) + 3 * len(keys) > cells - 8 - title.width:
            del keys[0]
        drawn = framed(
            lines[self._top : self._top + seen],
            width=cells,
            height=height,
            title=title,
            right=Line.of(("   ".join(keys), "quiet")),
            tone="frame",
        )
        if seen < len(lines) and len(drawn) == seen + 2:
            thumb = max(1, seen * seen // len(lines))
            start = 1 + round((seen - thumb) * self._top / (len(lines) - seen))
            for y in range(start, start + thumb):
                drawn[y] = Line((*drawn[y].runs[:-1], (" ┃", "frame-focus")))
        margin = Line.of(" " * ((width - cells) // 2))
        return [margin + line for line in drawn]

    def scroll_lines(self, lines: int) -> None:
        """Down by lines, or up."""
        self._top += lines
        self.redraw()

    def scroll_pages(self, pages: int) -> None:
        """Down by screens, one line kept."""
        self.scroll_lines(pages * max(1, self.size.height - 3))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.scroll_lines(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.scroll_lines(-3)


class PageScreen(Screen[None]):
    """Shows one page; Esc or q closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "close", "Close", show=False),
        Binding("j,down", "scroll(1)", "Down", show=False),
        Binding("k,up", "scroll(-1)", "Up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("home,g", "page(-1000)", "First", show=False),
        Binding("end,G", "page(1000)", "Last", show=False),
    ]

    def __init__(self, page: Page) -> None:
        super().__init__()
        self._page = page

    def compose(self) -> ComposeResult:
        yield self._page

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """As Textual's, but for regions: those are what was painted on the console below, where nobody sees it."""
        if regions:
            return self
        return super().refresh(repaint=repaint, layout=layout, recompose=recompose)

    def action_close(self) -> None:
        self.dismiss(None)

    def action_scroll(self, lines: int) -> None:
        self._page.scroll_lines(lines)

    def action_page(self, pages: int) -> None:
        self._page.scroll_pages(pages)
