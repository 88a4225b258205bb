"""A framed pane with a log and its search line, and the commands to search, copy and save."""

from __future__ import annotations

from typing import Any

from sparktop.clock import Clock, SystemClock
from sparktop.observe.log_ring import LineRing
from sparktop.text.lines import Line
from sparktop.ui.widgets.line_widget import CursorList
from sparktop.ui.widgets.log_file import copy, export
from sparktop.ui.widgets.log_view import Jump, LogView
from sparktop.ui.widgets.search import LogSearch, Query
from sparktop.ui.widgets.search_bar import Searched
from sparktop.ui.widgets.titled_pane import TitledPane


class LogFrame(TitledPane, Searched):
    """The log, its keys, and the choice between all lines and those that aren't routine."""

    shows_log = True
    """Whether the log is shown, and not what else the pane has."""

    def __init__(self, log_view: LogView, *, clock: Clock | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.log_view = log_view
        self._clock = clock or SystemClock()
        self._title = "log"
        self._whole: LineRing | None = None
        self._brief: LineRing | None = None
        self.is_folded = True
        """Whether the ring without routine lines is shown, where there is one, and nothing is searched."""

    def moving(self) -> CursorList[Any] | LogView:
        return self.log_view

    def show_log(self, ring: LineRing | None, title: str, brief: LineRing | None = None) -> None:
        """Show a ring, or what is left of it in `brief`; `title` becomes part of a saved file's name."""
        self._title, self._whole, self._brief = title, ring, brief
        self._choose(self.log_view.query_now)

    def _choose(self, query: Query | None) -> None:
        """Show the ring that is to be shown; a search is one of all lines."""
        is_brief = self._brief is not None and self.is_folded and query is None
        self.log_view.set_ring(self._brief if is_brief else self._whole)

    def look_for(self, query: Query | None) -> None:
        self._choose(query)
        self.log_view.search(query)
        self.on_log_view_changed()

    def on_log_view_changed(self) -> None:
        if self.search_bar.is_open:
            self.search_bar.show_status(self.log_view.search_status())
        self._restyle()

    def log_status(self) -> Line:
        """ "following", "paused · 12 new"."""
        if self.log_view.is_following:
            return Line.of(("following", "quiet"))
        new_count = self.log_view.new_count
        return Line.of(("paused", "warning"), (f" · {count_text(new_count)} new" if new_count else "", "quiet"))

    # Commands

    def action_search(self) -> None:
        self.search_bar.open()

    def action_next_match(self) -> None:
        self._go_to_match(LogSearch.to_next)

    def action_previous_match(self) -> None:
        self._go_to_match(LogSearch.to_previous)

    def _go_to_match(self, jump: Jump) -> None:
        if not self.shows_log:
            return
        if self.log_view.query_now is None:
            self.search_bar.open()
        else:
            self.log_view.find(jump)

    def action_wrap(self) -> None:
        self.log_view.wrap_wish = not self.log_view.wrap

    def action_times(self) -> None:
        self.log_view.time_wish = not self.log_view.show_time

    def action_pause(self) -> None:
        self.log_view.toggle_follow()
        self._retitle()  # in the same paint, not only after the view's message

    def action_copy(self) -> None:
        """Copy the selection, else the visible lines, to the clipboard (OSC 52), with secrets masked."""
        selected = self.screen.get_selected_text()
        text = selected or self.log_view.visible_text()
        if not text:
            self.notify("There is no line to copy yet.", severity="warning", markup=False)
            return
        count = text.count("\n") + 1
        source = "the selection" if selected else "what is on screen"
        copy(self, text, f"{source}: {count} line{'s' if count > 1 else ''}")

    def action_save(self) -> None:
        """Save the whole shown ring to a file."""
        self.save_ring(self._whole, self._title)

    def save_ring(self, ring: LineRing | None, title: str) -> None:
        """Save a whole ring to a file named after `title`; notifies where."""
        if ring is None or not len(ring):
            self.notify("There is no line to save yet.", severity="warning", markup=False)
            return
        entries = ring.snapshot().entries(ring.first, ring.end)
        what = f"The log of {len(entries):,} lines"
        self.run_worker(export(self, entries, what, title=title, wall_s=self._clock.wall()), group="save")


def count_text(count: int) -> str:
    """A growing count, shortened so that it changes rarely: "940", "12 k", "1.2 M"."""
    if count < 10_000:
        return f"{count:,}"
    return f"{count / 1000:.0f} k" if count < 1_000_000 else f"{count / 1e6:.1f} M"
