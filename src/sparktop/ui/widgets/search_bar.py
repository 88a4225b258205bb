"""One line at the bottom of a pane to type a search into; it says how the search goes."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static

from sparktop.ui.widgets.log_search import BadPattern, Query, parse_query


class SearchBar(Horizontal):
    """Hidden until opened; posts each query as it is typed."""

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
        """Another query; None where there is nothing to look for (yet)."""

        def __init__(self, query: Query | None) -> None:
            super().__init__()
            self.query = query

    class Accepted(Message):
        """Enter: the query stays, the keys go back to the log."""

    class Left(Message):
        """Esc: the search is over."""

    def compose(self) -> ComposeResult:
        yield Static("/", classes="search-sign", markup=False)
        yield Input(compact=True, placeholder="text, or re: and a regular expression", select_on_focus=True)
        yield Static("", classes="search-status", markup=False)

    @property
    def is_open(self) -> bool:
        return bool(self.display)

    def open(self) -> None:
        """Show the line and take the keys."""
        self.display = True
        self.query_one(Input).focus()

    def close(self) -> None:
        """Hide the line and forget the query."""
        self.display = False
        field = self.query_one(Input)
        with field.prevent(Input.Changed):
            field.value = ""
        self.say("")

    def say(self, status: str, *, is_wrong: bool = False) -> None:
        """How the search goes, at the right."""
        place = self.query_one(".search-status", Static)
        place.set_class(is_wrong, "-wrong")
        place.update(Text(status, no_wrap=True, overflow="ellipsis"))

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        try:
            query = parse_query(event.value)
        except BadPattern as error:
            self.say(str(error), is_wrong=True)
            return
        self.say("")
        self.post_message(self.Typed(query))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Accepted())

    def action_leave(self) -> None:
        self.post_message(self.Left())
