"""The base of the screens that cover the console: a frame with its title and key hints, and lines that scroll in it.

They are opaque: under a translucent screen Textual blends the whole console at each paint, and a screen must appear at
once even while a log floods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

from rich.cells import cell_len
from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.geometry import Region
from textual.screen import Screen

from sparktop.text.lines import BLANK, CLIPBOARD_CELLS, Line, plain
from sparktop.ui.commands import bound
from sparktop.ui.widgets.line_widget import CursorList, Sheet
from sparktop.ui.widgets.log_file import copy
from sparktop.ui.widgets.search_bar import Filtered

MOST_LINES = 100_000
"""More than any screen has: scrolls to its first or last line."""
EDGE_CELLS = 6
"""Of the frame, beside its title or its hints."""
HINT_GAP = "   "
BESIDE_CELLS = 150
"""Screen width from which the details are beside their list."""
Answer = TypeVar("Answer")
Table = TypeVar("Table", bound=CursorList[Any])


class CoveringScreen(Screen[Answer], Generic[Answer]):
    """A screen that covers the console: keys scroll its lines, and y copies them; its `.frame` names them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *bound(copy="y,c"),
        Binding("j,down", "scroll(1)", show=False),
        Binding("k,up", "scroll(-1)", show=False),
        Binding("home,g", f"scroll(-{MOST_LINES})", show=False),
        Binding("end,G", f"scroll({MOST_LINES})", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("ctrl+z", "app.suspend_process", show=False),
        Binding("question_mark,f1", "app.help", show=False),
        Binding("ctrl+q", "app.quit", show=False),
    ]
    is_opaque: ClassVar[bool] = True
    """Whether nothing shines through: under a translucent dialog Textual blends the whole console at each paint."""
    watched_line: int | None = None
    """Index of the line that stays in sight; None: none."""
    alert = ""
    """A critical finding that appeared since it opened, on one line: "new: …", "again: …"."""
    closed: Answer | None = None
    """The answer of who closes it without one."""
    _settled: tuple[Answer | None, ...] = ()

    def heading(self) -> str:
        """The title in the frame's upper edge; remote text in it is sanitised."""
        raise NotImplementedError

    def keys(self) -> Sequence[str]:
        """The key hints in the frame's lower edge, the most important last; without room the first are left out."""
        raise NotImplementedError

    def content(self, width: int) -> list[Line]:
        """The scrolling lines, at a width in cells."""
        raise NotImplementedError

    def renew(self) -> None:
        """Render everything again after a change."""
        raise NotImplementedError

    def write_frame(self) -> None:
        """Write the frame's title and, below, what the keys do."""
        frame, hints = self.query_one(".frame"), list(self.keys())
        room = (frame.outer_size.width or self.app.size.width) - EDGE_CELLS
        while hints[1:] and cell_len(HINT_GAP.join(hints)) > room:
            del hints[0]
        frame.border_title, frame.border_subtitle = Text(self.heading()), Text(HINT_GAP.join(hints))

    def on_mount(self) -> None:
        self.app.clear_notifications()  # older toasts would cover it
        self.renew()

    def on_resize(self, event: events.Resize) -> None:
        self.renew()

    def tell(self, text: str) -> None:
        """Show a new critical finding, as a toast would cover what is to be chosen; an empty text ends that."""
        self.alert = text
        self.renew()

    def alert_lines(self, width: int) -> list[Line]:
        """The new finding, where it is told here."""
        return [Line.of((f"✖ {self.alert}", "critical")).cut(width)] if self.alert else []

    def clicked(self, line: int) -> None:
        """The line of this index was clicked."""

    def settle(self, answer: Answer | None) -> None:
        """Dismiss with this answer as soon as it is on top: nobody waits for another one any more."""
        self._settled = (answer,)
        if self.is_active:
            self.dismiss(answer)

    def on_screen_resume(self) -> None:
        if self._settled:
            self.dismiss(self._settled[0])

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, (events.Mount, events.Resize)) and self not in self.app.screen_stack:
            return  # a key of the same read has closed it before it was composed
        await super().on_event(event)

    def copied(self) -> tuple[str, str]:
        """(the text to copy, what it is called); an empty text: there is nothing to copy."""
        return plain(self.content(CLIPBOARD_CELLS)), "what the screen says"

    def action_copy(self) -> None:
        text, what = self.copied()
        if text:
            copy(self, text, what)

    def action_close(self) -> None:
        self.dismiss(self.closed)

    def action_scroll(self, lines: int) -> None:
        self.query_one(Body).scroll_lines(lines)

    def action_page(self, pages: int) -> None:
        self.query_one(Body).scroll_pages(pages)

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """As Textual's, but ignores regions: they are repaints of the console, which is covered."""
        if regions and self.is_opaque:
            return self
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)


class Body(Sheet):
    """The scrolling lines of a covering screen."""

    def __init__(self, covering: CoveringScreen[Any], *, id: str | None = None) -> None:  # noqa: A002 (Textual's name)
        super().__init__(covering.content, id=id)
        self._covering = covering

    def watched(self) -> int | None:
        return self._covering.watched_line

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self._covering.clicked(self.line_at(event.y))


class FilteredScreen(CoveringScreen[Answer], Filtered):
    """A covering screen with a list to choose from, which the key / filters."""

    BINDINGS = bound(close="escape,q", filter="slash", choose="enter")

    def focus(self, scroll_visible: bool = True) -> Self:
        """Give the keys back to the list."""
        self.set_focus(None)
        self.renew()
        return self

    def action_filter(self) -> None:
        super().action_filter()
        self.call_after_refresh(self.renew)

    def action_close(self) -> None:
        if self.search_bar.is_open:
            self.action_end_search()
        else:
            super().action_close()


class ListAndDetail(FilteredScreen[Answer], Generic[Answer, Table]):
    """A list with the selected row's details: beside it, or below it on a narrow screen."""

    AUTO_FOCUS = ""

    def __init__(self, name: str, table: Table) -> None:
        """`name`: what the styles call it; the screen's id is this with -screen."""
        super().__init__(id=f"{name}-screen")
        self._style_name = name
        self.table = table
        self.detail = Sheet(self._told, id=f"{name}-detail")

    def compose(self) -> ComposeResult:
        with Vertical(classes="frame"):
            yield self.search_bar
            with Container(id=self._style_name):
                yield self.table
                yield self.detail

    def on_resize(self, event: events.Resize) -> None:
        self.lay_out()

    def lay_out(self) -> None:
        """Lay list and details out for the screen's size."""
        if not self.query(".frame"):
            return  # not composed yet, or closed
        width, height = self.app.size
        is_wide = width >= BESIDE_CELLS
        self.query_one(f"#{self._style_name}").set_class(is_wide, "-beside")
        self.table.styles.height = "1fr" if is_wide else self.list_lines(max(3, height - 4))
        self.renew()

    def list_lines(self, room: int) -> int:
        """Height of the list above its details, of so many lines for both."""
        raise NotImplementedError

    def renew(self) -> None:
        if self.is_attached and self.query(".frame"):
            self.write_frame()
            self.table.redraw()
            self.detail.redraw()

    def tell(self, text: str) -> None:
        super().tell(text)
        self.show_detail()

    def _told(self, width: int) -> list[Line]:
        alert = self.alert_lines(width)
        return [*alert, *([BLANK] if alert else []), *self.content(width)]

    def action_scroll(self, lines: int) -> None:
        self.table.action_move(lines)

    @on(CursorList.Moved)
    def show_detail(self) -> None:
        """Show the details of the row under the cursor from their first line on."""
        self.detail.scroll_lines(-MOST_LINES)
        self.renew()

    def action_page(self, pages: int) -> None:
        self.detail.scroll_pages(pages)

    def say(self, text: str) -> None:
        """Say in passing why a key did nothing, or that it did."""
        self.notify(text, severity="warning", markup=False, timeout=6)
