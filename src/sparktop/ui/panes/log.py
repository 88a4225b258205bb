"""The log pane: one engine's live log, which follows its newest line or is paused."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Static

from sparktop.clock import Clock
from sparktop.diagnose.logs.head import head_of
from sparktop.diagnose.logs.level import level_of
from sparktop.observe.watch import LogFeed
from sparktop.text.lines import Line, joined
from sparktop.ui.commands import bindings
from sparktop.ui.widgets.log_frame import LogFrame, count_text
from sparktop.ui.widgets.log_view import LogView

MIN_STATUS_CELLS = 30
"""Cells of the upper edge for what isn't about folded lines."""
NO_ENGINE = "No engine is selected. An engine that runs here shows up in the engine pane; its log follows."


class LogPane(LogFrame):
    """Shows one LogFeed; the console gives it with `show`."""

    DEFAULT_CSS = """
    LogPane > .log-empty { display: none; height: auto; max-height: 50%; padding: 0 2; }
    LogPane.-empty > .log-empty { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = bindings("log")

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__(LogView(level_of=level_of, head_of=head_of), clock=clock, id="log")
        self._empty = Static(classes="log-empty", markup=False)
        self._feed: LogFeed | None = None
        self._shows_previous = False
        self._empty_text = ""
        self.note = Line()
        """What stands in the lower edge beside the log's source."""

    def compose(self) -> ComposeResult:
        yield self._empty
        yield self.log_view
        yield self.search_bar

    def show(self, feed: LogFeed | None) -> None:
        """Show this feed; also called with each fleet state, to read the feed's status again."""
        if feed is not self._feed:
            self._feed, self._shows_previous = feed, False
        self._show_ring()

    @property
    def _shown_feed(self) -> LogFeed | None:
        """The feed, or that of the container before."""
        feed = self._feed
        return feed.previous if feed is not None and self._shows_previous else feed

    def _show_ring(self) -> None:
        feed = self._shown_feed
        self.show_log(feed.ring if feed else None, feed.title if feed else "log", feed.brief if feed else None)
        self._retitle()

    def _retitle(self) -> None:
        if not self.is_attached:
            return
        feed = self._shown_feed
        is_empty = feed is None or not len(feed.ring)
        self.set_class(is_empty, "-empty")
        text = NO_ENGINE if feed is None else f"No line yet. {feed.status}" if feed.status else "No line yet."
        if is_empty and text != self._empty_text:
            self._empty_text = text
            self._empty.update(Text(text))
        title = Line.of(("log", "quiet"), ("  ", ""), (feed.title, "title")) if feed else Line.of(("log", "quiet"))
        if self._shows_previous:
            title += Line.of(("  earlier container", "warning"))
        status = Line() if feed is None or is_empty else self._folded(feed, title.width) + self.log_status()
        source = feed.status if feed is not None and not is_empty else ""
        below = [Line.of((source, "faint"))] if source else []
        if feed is not None and feed is self._feed and feed.previous is not None:
            below.append(Line.of(("b", "key"), (" earlier container's", "faint")))
        below += [self.note] if self.note.runs else []
        self.show_titles(title, status, joined(below, "   "))

    def _folded(self, feed: LogFeed, title_cells: int) -> Line:
        """ "412 folded (statistics 380, probes 32)  z unfold  ", as much of it as has room beside the title."""
        count = sum(feed.folded.values())
        if feed.brief is None or not count:
            return Line()
        if not self.is_folded:
            return Line.of(("z", "key"), (" fold  ", "quiet"))
        kinds = ", ".join(f"{kind} {count_text(number)}" for kind, number in feed.folded.items())
        key = Line.of(("z", "key"), (" unfold  ", "quiet"))
        whole = Line.of((f"{count_text(count)} folded ({kinds})  ", "faint")) + key
        room = self.outer_size.width - title_cells - MIN_STATUS_CELLS
        short = Line.of((f"{count_text(count)} folded  ", "faint")) + key
        return next((line for line in (whole, short) if line.width <= room), Line())

    # Commands of the scope "log"

    def action_routine(self) -> None:
        """Fold the routine lines away, or show them."""
        self.is_folded = not self.is_folded
        self._show_ring()

    def action_heads(self) -> None:
        self.log_view.is_folded = not self.log_view.is_folded

    def action_previous(self) -> None:
        """Show the log of the container that had this engine's name before, or this one's again."""
        if self._feed is None or (self._feed.previous is None and not self._shows_previous):
            self.notify("No earlier container of this name was seen.", markup=False, timeout=3)
            return
        self._shows_previous = not self._shows_previous
        self._show_ring()
