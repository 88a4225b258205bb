"""A pane whose rows a regular expression filters, in a search line below them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

from textual.actions import SkipAction
from textual.binding import Binding, BindingType
from textual.widget import Widget

from sparktop.ui.widgets.search_bar import SearchBar
from sparktop.ui.widgets.search_query import Query

Row = TypeVar("Row")


class Filtered(Widget):
    """Opens the search line, keeps its query and ends it; the pane yields `filter_bar` and shows `matching` rows."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "end_filter", "End the filter", show=False)]
    filter_bar: SearchBar
    filter_query: Query | None = None

    def refill(self) -> None:
        """Show the rows again, as the query has changed."""
        raise NotImplementedError

    def matching(self, rows: Sequence[Row], text_of: Callable[[Row], str]) -> tuple[Row, ...]:
        """The rows that the filter finds in their texts, and their number in the search line; all without a filter."""
        query = self.filter_query
        if query is None:
            return tuple(rows)
        found = tuple(row for row in rows if query.found_in(text_of(row)))
        status = "  ".join(filter(None, (query.why_text, f"{len(found)} of {len(rows)}")))
        self.filter_bar.show_status(status, is_wrong=bool(query.why_text))
        return found

    def action_filter(self) -> None:
        self.filter_bar.open()

    def action_end_filter(self) -> None:
        """Show all again; without a filter the key is the console's."""
        if not self.filter_bar.is_open:
            raise SkipAction
        self.filter_bar.close()
        self._filter(None)
        self.focus()

    def _filter(self, query: Query | None) -> None:
        self.filter_query = query
        self.refill()

    def on_search_bar_typed(self, event: SearchBar.Typed) -> None:
        event.stop()
        self._filter(event.query)

    def on_search_bar_accepted(self, event: SearchBar.Accepted) -> None:
        event.stop()
        self.focus()
        if self.filter_query is None:
            self.filter_bar.close()

    def on_search_bar_left(self, event: SearchBar.Left) -> None:
        event.stop()
        if self.filter_bar.is_open:  # a second Esc of the same read finds it closed
            self.action_end_filter()
