"""A full-screen page of scrolling lines, and a dialog of sections with details.

A page is opaque: under a translucent screen Textual blends the whole console at each paint, and a page must appear at
once even while a log floods.
"""

from __future__ import annotations

from typing import ClassVar, Generic, Self, TypeVar

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.geometry import Region
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from sparktop.dataclass import dataclass
from sparktop.text.lines import CLIPBOARD_CELLS, PAGE_CELLS, Line, framed, plain
from sparktop.ui.theme import styled, tones
from sparktop.ui.widgets.line_widget import ScrollingLines
from sparktop.ui.widgets.log_file import mask

FRAME_CELLS = 4
SCROLLING: list[BindingType] = [
    Binding("j,down", "scroll(1)", "Down", show=False),
    Binding("k,up", "scroll(-1)", "Up", show=False),
    Binding("pagedown,space", "page(1)", "Page down", show=False),
    Binding("pageup", "page(-1)", "Page up", show=False),
    Binding("home,g", "page(-10000)", "First", show=False),
    Binding("end,G", "page(10000)", "Last", show=False),
]
"""The keys that scroll a page or a dialog; none has ten thousand screens."""


class Page(ScrollingLines):
    """Scrolling lines in a frame, whose right edge shows the position."""

    EDGE_ROWS = 2

    def title(self) -> Line:
        """The title in the frame's upper edge."""
        raise NotImplementedError

    def content(self, width: int) -> tuple[Line, ...]:
        """All lines at a width in cells."""
        raise NotImplementedError

    def keys(self) -> tuple[str, ...]:
        """More key hints for the frame's upper edge; where there is no room, the first ones are left out."""
        return ()

    def draw(self, width: int, height: int) -> list[Line]:
        cells = min(width, PAGE_CELLS)
        lines = self.content(cells - FRAME_CELLS)
        height = min(height, len(lines) + 2)
        shown_count = max(1, height - 2)
        self._top = max(0, min(self._top, len(lines) - shown_count))
        title = self.title()
        keys = ["y copy", *self.keys(), *(["↑↓ scroll"] if shown_count < len(lines) else []), "Esc close"]
        while keys[1:] and sum(map(cell_len, keys)) + 3 * len(keys) > cells - 8 - title.width:
            del keys[0]
        drawn = framed(
            lines[self._top : self._top + shown_count],
            width=cells,
            height=height,
            title=title,
            right=Line.of(("   ".join(keys), "quiet")),
            tone="frame",
        )
        if shown_count < len(lines) and len(drawn) == shown_count + 2:
            thumb = max(1, shown_count * shown_count // len(lines))
            start = 1 + round((shown_count - thumb) * self._top / (len(lines) - shown_count))
            for y in range(start, start + thumb):
                drawn[y] = Line((*drawn[y].runs[:-1], (" ┃", "frame-focus")))
        margin = Line.of(" " * ((width - cells) // 2))
        return [margin + line for line in drawn]


Answer = TypeVar("Answer")


class CoveringScreen(Screen[Answer], Generic[Answer]):
    """A screen that covers the console; the key y copies what it says."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,c", "copy", "Copy", show=False),
        Binding("ctrl+z", "app.suspend_process", "Suspend", show=False),
    ]
    is_opaque: ClassVar[bool] = True
    """Whether nothing shines through: under a translucent dialog Textual blends the whole console at each paint."""

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, (events.Mount, events.Resize)) and self not in self.app.screen_stack:
            return  # a key of the same read has closed it before it was composed
        await super().on_event(event)

    def copied(self) -> tuple[str, str]:
        """(the text to copy, what it is called); an empty text: there is nothing to copy."""
        return "", ""

    def action_copy(self) -> None:
        text, what = self.copied()
        if text:
            self.app.copy_to_clipboard(mask(text))
            self.notify(f"Copied {what}.", markup=False, timeout=3)

    def action_close(self) -> None:
        self.dismiss(None)

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """As Textual's, but ignores regions: they are repaints of the console, which is covered."""
        if regions and self.is_opaque:
            return self
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)


class PageScreen(CoveringScreen[None]):
    """Shows one page; Esc or q closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "close", "Close", show=False), *SCROLLING]

    def __init__(self, page: Page) -> None:
        super().__init__()
        self._page = page

    def compose(self) -> ComposeResult:
        yield self._page

    def copied(self) -> tuple[str, str]:
        return plain(self._page.content(CLIPBOARD_CELLS)), f"the {self._page.title().plain}"

    def action_scroll(self, lines: int) -> None:
        self._page.scroll_lines(lines)

    def action_page(self, pages: int) -> None:
        self._page.scroll_pages(pages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading with facts, paragraphs, or both; text is shown as it is, never as markup."""

    heading: str
    facts: tuple[tuple[str, str], ...] = ()
    """(label, value) pairs; the values are in one column."""
    paragraphs: tuple[Line, ...] = ()
    """Each is wrapped to the dialog's width."""

    def plain(self) -> str:
        """The section as plain text, for the clipboard."""
        rows = [self.heading, *(f"{label}: {value}" for label, value in self.facts)]
        return "\n".join([*rows, *(line.plain for line in self.paragraphs)])


class DetailsScreen(CoveringScreen[None], ModalScreen[None]):
    """Shows sections; Esc, q, d or Enter closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,d,enter", "close", "Close", show=False),
        *SCROLLING,
    ]
    is_opaque = False
    DEFAULT_CSS = """
    DetailsScreen { align: center middle; }
    DetailsScreen > .dialog { width: 100; max-width: 94%; height: auto; max-height: 92%; }
    DetailsScreen VerticalScroll { height: auto; max-height: 100%; }
    DetailsScreen .section { height: auto; }
    """

    def __init__(self, title: str, sections: tuple[Section, ...], *, tone: str = "title") -> None:
        super().__init__()
        self._heading = title
        self._sections = sections
        self._tone = tone

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = Text(self._heading)
            dialog.border_subtitle = Text("Esc close   y copy   ↑↓ scroll")
            with VerticalScroll(can_focus=False):
                yield from (Static(classes="section", markup=False) for _ in self._sections)

    def on_mount(self) -> None:
        for static, section in zip(self.query(".section").results(Static), self._sections, strict=True):
            static.update(self._text(section))

    def _text(self, section: Section) -> Text:
        styles = tones(self.app, self.query_one(".dialog").background_colors[1])
        widest = max((len(label) for label, _ in section.facts), default=0)
        facts = [Line.of((f"{label:<{widest}}  ", "quiet"), value) for label, value in section.facts]
        return styled([Line.of((section.heading, "title")), *facts, *section.paragraphs], styles)

    def copied(self) -> tuple[str, str]:
        return "\n\n".join([self._heading, *(section.plain() for section in self._sections)]), "the details"

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_page(self, pages: int) -> None:
        body = self.query_one(VerticalScroll)
        body.scroll_relative(y=pages * max(1, body.size.height - 1), animate=False)
