"""The search line below a log or a table: it posts each query as it is typed."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static

from sparktop.ui.widgets.search_query import Query, parse_query


class SearchBar(Horizontal):
    """The search line: hidden until opened, posts each query as it is typed."""

    DEFAULT_CSS = """
    SearchBar {
        height: 1;
        display: none;
        & > .search-sign { width: 2; }
        & > Input { width: 1fr; }
        & > .search-status { width: auto; padding: 0 1; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "End the search", show=False)]

    class Typed(Message):
        """The query has changed; None for an empty one."""

        def __init__(self, query: Query | None) -> None:
            super().__init__()
            self.query = query

    class Accepted(Message):
        """Enter: keep the query, return the focus to the log."""

    class Left(Message):
        """Esc: end the search."""

    def compose(self) -> ComposeResult:
        yield Static("/", classes="search-sign", markup=False)
        yield Input(compact=True, placeholder="regular expression", select_on_focus=True)
        yield Static("", classes="search-status", markup=False)

    @property
    def is_open(self) -> bool:
        return bool(self.display)

    def open(self) -> None:
        """Show the search line and focus it."""
        self.display = True
        self.query_one(Input).focus()

    def close(self) -> None:
        """Hide the search line and clear the query."""
        self.display = False
        field = self.query_one(Input)
        with field.prevent(Input.Changed):
            field.value = ""
        self.show_status("")

    def show_status(self, status: str, *, is_wrong: bool = False) -> None:
        """Show the search's status at the right; `is_wrong`: what is typed is no regular expression."""
        label = self.query_one(".search-status", Static)
        label.set_class(is_wrong, "-wrong")
        label.update(Text(status, no_wrap=True, overflow="ellipsis"))

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.show_status("")
        self.post_message(self.Typed(parse_query(event.value)))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Accepted())

    def action_leave(self) -> None:
        self.post_message(self.Left())
