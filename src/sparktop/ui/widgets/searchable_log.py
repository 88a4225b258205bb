"""A log view with a search line below it, and the commands to search, copy and save."""

from __future__ import annotations

import asyncio

from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical

from sparktop.clock import Clock, SystemClock
from sparktop.observe.log_ring import Entry, LineRing
from sparktop.text.lines import Line
from sparktop.ui.widgets.line_widget import Movable, TitledPane, count_text
from sparktop.ui.widgets.log_file import mask, save
from sparktop.ui.widgets.log_view import HeadOf, LevelOf, LogView
from sparktop.ui.widgets.search_bar import SearchBar
from sparktop.ui.widgets.search_query import Query


class SearchableLog(Vertical):
    """A LogView with a SearchBar; panes call its methods for their commands."""

    DEFAULT_CSS = """
    SearchableLog { height: 1fr; width: 1fr; & > LogView { height: 1fr; } }
    """
    BINDINGS = [Binding("escape", "end_search", "End the search", show=False)]  # noqa: RUF012 (as Textual has it)

    def __init__(
        self,
        *,
        level_of: LevelOf | None = None,
        head_of: HeadOf | None = None,
        show_time: bool | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__()
        self.view = LogView(level_of=level_of, head_of=head_of, show_time=show_time)
        self._bar = SearchBar()
        self._clock = clock or SystemClock()
        self._title = "log"
        self._whole: LineRing | None = None
        self._brief: LineRing | None = None
        self.is_folded = True
        """Whether the ring without routine lines is shown, where there is one, and nothing is searched."""

    def compose(self) -> ComposeResult:
        yield self.view
        yield self._bar

    def show(self, ring: LineRing | None, title: str, brief: LineRing | None = None) -> None:
        """Show a ring, or what is left of it in `brief`; `title` becomes part of a saved file's name."""
        self._title, self._whole, self._brief = title, ring, brief
        self._choose()

    def fold(self) -> None:
        """Fold the routine lines away, or show them."""
        self.is_folded = not self.is_folded
        self._choose()

    def _choose(self, query: Query | None = None) -> None:
        """Show the ring that is to be shown; a search is one of all lines."""
        query = query or self.view.query_now
        is_brief = self._brief is not None and self.is_folded and query is None
        self.view.set_ring(self._brief if is_brief else self._whole)

    # Commands

    def search(self) -> None:
        """Open the search line."""
        self._bar.open()

    def next_match(self) -> None:
        if self.view.query_now is None:
            self._bar.open()
        else:
            self.view.find_next()

    def previous_match(self) -> None:
        if self.view.query_now is None:
            self._bar.open()
        else:
            self.view.find_previous()

    def action_end_search(self) -> None:
        """Close the search line if it is open; otherwise leave the key to the console."""
        if not self._bar.is_open:
            raise SkipAction
        self._end_search()

    def copy(self) -> None:
        """Copy the selection, else the visible lines, to the clipboard (OSC 52), with secrets masked."""
        selected = self.screen.get_selected_text()
        text = selected or self.view.visible_text()
        if not text:
            self.notify("There is no line to copy yet.", severity="warning", markup=False)
            return
        self.app.copy_to_clipboard(mask(text))
        count = text.count("\n") + 1
        source = "the selection" if selected else "what is on screen"
        self.notify(f"Copied {source}: {count} line{'s' if count > 1 else ''}.", markup=False)

    def save(self) -> None:
        """Save the whole shown ring to a file."""
        self.save_ring(self._whole, self._title)

    def save_ring(self, ring: LineRing | None, title: str) -> None:
        """Save a whole ring to a file named after `title`; notifies where."""
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
        self._choose(event.query)
        self.view.search(event.query)
        self._say()

    def on_search_bar_accepted(self, event: SearchBar.Accepted) -> None:
        event.stop()
        self.view.focus()
        if self.view.query_now is None:
            self._bar.close()

    def on_search_bar_left(self, event: SearchBar.Left) -> None:
        event.stop()
        self._end_search()

    def on_log_view_changed(self) -> None:
        self._say()

    def _say(self) -> None:
        query = self.view.query_now
        if self._bar.is_open and query is not None:
            status = "  ".join(text for text in (query.why_text, self.view.search_status()) if text)
            self._bar.show_status(status, is_wrong=bool(query.why_text))

    def _end_search(self) -> None:
        self.view.focus()
        self.view.search(None)
        self._choose()
        self._bar.close()


class LogFrame(TitledPane):
    """A framed pane with a SearchableLog, and the log's keys."""

    ALLOW_MAXIMIZE = True
    shows_log = True
    """Whether the log is shown, and not what else the pane has."""

    def __init__(
        self,
        *,
        id: str,  # noqa: A002 (Textual's name)
        level_of: LevelOf | None = None,
        head_of: HeadOf | None = None,
        show_time: bool | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(id=id)
        self._log = SearchableLog(level_of=level_of, head_of=head_of, show_time=show_time, clock=clock)

    @property
    def log_view(self) -> LogView:
        """The view of the log, which takes the focus."""
        return self._log.view

    def moving(self) -> Movable:
        return self.log_view

    def log_status(self) -> Line:
        """ "following", "paused · 12 new"."""
        if self.log_view.is_following:
            return Line.of(("following", "quiet"))
        new_count = self.log_view.new_count
        return Line.of(("paused", "warning"), (f" · {count_text(new_count)} new" if new_count else "", "quiet"))

    def action_next_match(self) -> None:
        if self.shows_log:
            self._log.next_match()

    def action_previous_match(self) -> None:
        if self.shows_log:
            self._log.previous_match()

    def action_wrap(self) -> None:
        self.log_view.wrap_wish = not self.log_view.wrap

    def action_times(self) -> None:
        self.log_view.time_wish = not self.log_view.show_time
