"""A log view with its search line, copy and save: what the log pane and the kernel pane's raw view share."""

from __future__ import annotations

import asyncio
from typing import Any

from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical

from sparktop.clock import Clock, SystemClock
from sparktop.observe.lines import Entry, LineRing
from sparktop.ui.widgets.log_file import mask, save
from sparktop.ui.widgets.log_view import LevelOf, LogView
from sparktop.ui.widgets.search_bar import SearchBar


class SearchableLog(Vertical):
    """LogView and SearchBar as one; a pane calls the methods below for its commands."""

    DEFAULT_CSS = """
    SearchableLog { height: 1fr; width: 1fr; & > LogView { height: 1fr; } }
    """
    BINDINGS = [Binding("escape", "end_search", "End the search", show=False)]  # noqa: RUF012 (as Textual has it)

    def __init__(
        self,
        *,
        level_of: LevelOf | None = None,
        show_time: bool = False,
        clock: Clock | None = None,
        **names: Any,
    ) -> None:
        super().__init__(**names)
        self._view = LogView(level_of=level_of, show_time=show_time)
        self._bar = SearchBar()
        self._clock = clock or SystemClock()
        self._title = "log"

    def compose(self) -> ComposeResult:
        yield self._view
        yield self._bar

    @property
    def view(self) -> LogView:
        return self._view

    def show(self, ring: LineRing | None, title: str) -> None:
        """Show a ring; the title names a saved file."""
        self._title = title
        self._view.set_ring(ring)

    # Commands

    def search(self) -> None:
        """Open the search line."""
        self._bar.open()

    def next_match(self) -> None:
        if self._view.query_now is None:
            self._bar.open()
        else:
            self._view.find_next()

    def previous_match(self) -> None:
        if self._view.query_now is None:
            self._bar.open()
        else:
            self._view.find_previous()

    def action_end_search(self) -> None:
        """Close the search line where it is open; otherwise the key is the console's."""
        if not self._bar.is_open:
            raise SkipAction
        self._end_search()

    def copy(self) -> None:
        """The selection, or what is on screen, to the operator's clipboard (OSC 52), secrets masked."""
        selected = self.screen.get_selected_text()
        text = selected or self._view.visible_text()
        if not text:
            self.notify("There is no line to copy yet.", severity="warning", markup=False)
            return
        self.app.copy_to_clipboard(mask(text))
        count = text.count("\n") + 1
        what = "the selection" if selected else "what is on screen"
        self.notify(f"Copied {what}: {count} line{'s' if count > 1 else ''}.", markup=False)

    def save(self) -> None:
        """Write all the ring holds to a file; says where."""
        self.save_ring(self._view.ring, self._title)

    def save_ring(self, ring: LineRing | None, title: str) -> None:
        """Write all that a ring holds to a file named after the title; says where."""
        if ring is None or not len(ring):
            self.notify("There is no line to save yet.", severity="warning", markup=False)
            return
        self.run_worker(self._save(ring.snapshot().entries(ring.first, ring.end), title), group="save", exclusive=False)

    async def _save(self, entries: list[Entry], title: str) -> None:
        try:
            path = await asyncio.to_thread(save, entries, title=title, wall_s=self._clock.wall())
        except OSError as error:
            reason = error.strerror or str(error)
            self.notify(
                f"The log was not saved: {reason} ({error.filename}). Point XDG_STATE_HOME at a writable directory.",
                severity="error",
                markup=False,
            )
            return
        self.notify(f"{len(entries):,} lines saved to {path}", title="Log saved", markup=False, timeout=10)

    # The search line

    def on_search_bar_typed(self, event: SearchBar.Typed) -> None:
        event.stop()
        self._view.search(event.query)
        self._say()

    def on_search_bar_accepted(self, event: SearchBar.Accepted) -> None:
        event.stop()
        self._view.focus()
        if self._view.query_now is None:
            self._bar.close()

    def on_search_bar_left(self, event: SearchBar.Left) -> None:
        event.stop()
        self._end_search()

    def on_log_view_changed(self) -> None:
        self._say()

    def _say(self) -> None:
        if self._bar.is_open and self._view.query_now is not None:
            self._bar.say(self._view.search_status())

    def _end_search(self) -> None:
        self._view.focus()
        self._view.search(None)
        self._bar.close()
