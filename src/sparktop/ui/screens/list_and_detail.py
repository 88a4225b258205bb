"""A screen of a list with the selected row's details: beside it, or below it on a narrow screen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Generic, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.widget import Widget

from sparktop.ui.dialogs.page import CoveringScreen
from sparktop.ui.widgets.line_widget import CursorList, Sheet

BESIDE_CELLS = 150
"""Screen width from which the details are beside the list."""
Answer = TypeVar("Answer")
Table = TypeVar("Table", bound=CursorList[Any])


class ListAndDetail(CoveringScreen[Answer], Generic[Answer, Table]):
    """The frame, the keys and the arrangement; a subclass says what `renew` writes on the frame."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "Down", show=False),
        Binding("k,up", "move(-1)", "Up", show=False),
        Binding("home,g", "move(-10000)", "First", show=False),
        Binding("end,G", "move(10000)", "Last", show=False),
        Binding("pagedown,space", "page(1)", "The detail down", show=False),
        Binding("pageup", "page(-1)", "The detail up", show=False),
    ]
    AUTO_FOCUS = ""

    def __init__(self, name: str, table: Table, detail: Sheet) -> None:
        """`name`: what the styles call it; the screen's id is this with -screen."""
        super().__init__(id=f"{name}-screen")
        self._style_name = name
        self.table = table
        self.detail = detail

    def above(self) -> Iterator[Widget]:
        """What stands above the list, inside the frame."""
        yield from ()

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet-frame"):
            yield from self.above()
            with Container(id=self._style_name):
                yield self.table
                yield self.detail

    def on_resize(self, event: events.Resize) -> None:
        self.lay_out()

    def lay_out(self) -> None:
        """Lay list and details out for the screen's size."""
        width, height = self.app.size
        is_wide = width >= BESIDE_CELLS
        self.query_one(f"#{self._style_name}").set_class(is_wide, "-beside")
        self.table.styles.height = "1fr" if is_wide else self.list_lines(max(3, height - 4))
        self.renew()

    def list_lines(self, room: int) -> int:
        """Height of the list above its details, of so many lines for both."""
        raise NotImplementedError

    def renew(self) -> None:
        """Render everything again after a change of the cursor or the rows."""
        if self.is_attached and (frames := self.query(".sheet-frame")):
            self.write_frame(frames.first())
            self.table.redraw()
            self.detail.redraw()

    def write_frame(self, frame: Widget) -> None:
        """Write the frame's title and, below, what the keys do."""
        raise NotImplementedError

    def action_move(self, rows: int) -> None:
        self.table.move(rows)

    @on(CursorList.Moved)
    def show_detail(self) -> None:
        """Show the details of the row under the cursor from their first line on."""
        self.detail.scroll_pages(-10_000)
        self.renew()

    def action_page(self, pages: int) -> None:
        self.detail.scroll_pages(pages)

    def say(self, text: str) -> None:
        """Say in passing why a key did nothing, or that it did."""
        self.notify(text, severity="warning", markup=False, timeout=6)
