"""The search line below a log or a list, and what has one: each query is searched as it is typed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

from rich.text import Text
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input, Static

from sparktop.ui.widgets.search import Query, parse_query

Row = TypeVar("Row")


class SearchBar(Horizontal):
    """The search line: hidden until opened."""

    DEFAULT_CSS = """
    SearchBar {
        height: 1;
        display: none;
        & > .search-sign { width: 2; }
        & > Input { width: 1fr; }
        & > .search-status { width: auto; padding: 0 1; }
    }
    """
    query_now: Query | None = None
    """What is typed; None for nothing."""

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
        self.query_now = None
        field = self.query_one(Input)
        with field.prevent(Input.Changed):
            field.value = ""
        self.show_status("")

    def show_status(self, status: str) -> None:
        """Show the search's status at the right, after what is wrong with the query."""
        why_text = self.query_now.why_text if self.query_now is not None else ""
        label = self.query_one(".search-status", Static)
        label.set_class(bool(why_text), "-wrong")
        label.update(Text("  ".join(filter(None, (why_text, status))), no_wrap=True, overflow="ellipsis"))

    def on_input_changed(self, event: Input.Changed) -> None:
        self.query_now = parse_query(event.value)
        self.show_status("")


class Searched(Widget):
    """A pane with a search line, which it yields: hands each query on, and takes the focus back at its end."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "end_search", "End the search", show=False)]

    def __init__(self, *children: Widget, **options: Any) -> None:
        super().__init__(*children, **options)
        self.search_bar = SearchBar()

    def look_for(self, query: Query | None) -> None:
        """Search for what is typed now; None ends the search."""
        raise NotImplementedError

    def action_end_search(self) -> None:
        """End the search; without one the key is the console's."""
        if not self.search_bar.is_open:
            raise SkipAction
        self.search_bar.close()
        self.look_for(None)
        self.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.look_for(self.search_bar.query_now)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.focus()
        if self.search_bar.query_now is None:
            self.search_bar.close()


class Filtered(Searched):
    """A pane that shows only the rows in which each word of the search line is found; a word is an expression."""

    def refill(self) -> None:
        """Show the rows again, as the query has changed."""
        raise NotImplementedError

    @property
    def is_filtered(self) -> bool:
        return self.search_bar.query_now is not None

    def look_for(self, query: Query | None) -> None:
        self.refill()

    def matching(self, rows: Sequence[Row], text_of: Callable[[Row], str]) -> tuple[Row, ...]:
        """The rows that the filter finds in their texts, and their number in the search line; all without a filter."""
        query = self.search_bar.query_now
        if query is None:
            return tuple(rows)
        words = [word for word in map(parse_query, query.text.split()) if word is not None]
        found = tuple(row for row in rows if all(word.found_in(text_of(row)) for word in words))
        self.search_bar.show_status(f"{len(found)} of {len(rows)}")
        return found

    def action_filter(self) -> None:
        self.search_bar.open()
