"""One engine's log, live: what it says as it says it, held still at a key."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.widgets import Static

from sparktop.clock import Clock
from sparktop.diagnose.loglevel import level_of
from sparktop.observe.watch import LogFeed
from sparktop.ui.commands import bindings
from sparktop.ui.widgets.ink import Line
from sparktop.ui.widgets.log_view import LevelOf, LogView
from sparktop.ui.widgets.pane_title import Edge, count_text
from sparktop.ui.widgets.searchable_log import SearchableLog

NO_ENGINE = "No engine is selected. An engine that runs here shows up in the engine pane; its log follows."


class LogPane(Vertical):
    """Shows one LogFeed. The feed may change at any time; the console says so with `show`."""

    DEFAULT_CSS = """
    LogPane { height: 1fr; width: 1fr; border: round $foreground 30%; padding: 0 0 0 1; }
    LogPane > .log-empty { display: none; height: auto; max-height: 50%; padding: 0 2; }
    LogPane.-empty > .log-empty { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = bindings("log")
    ALLOW_MAXIMIZE = True

    def __init__(
        self,
        *,
        level_of: LevelOf = level_of,
        clock: Clock | None = None,
        id: str | None = None,  # noqa: A002 - Textual's own parameter name
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._log = SearchableLog(level_of=level_of, clock=clock)
        self._empty = Static(classes="log-empty", markup=False)
        self._feed: LogFeed | None = None
        self._said = ""
        self._edge = Edge(self)

    def compose(self) -> ComposeResult:
        yield self._empty
        yield self._log

    @property
    def log_view(self) -> LogView:
        """What takes the focus."""
        return self._log.view

    def focus(self, scroll_visible: bool = True) -> LogPane:
        self.log_view.focus(scroll_visible)
        return self

    def show(self, feed: LogFeed | None) -> None:
        """Follow this feed. Call it with each picture too: the feed's status is read again."""
        if feed is not self._feed:
            self._feed = feed
            self._log.show(feed.ring if feed else None, feed.title if feed else "log")
        self._retitle()

    def on_mount(self) -> None:
        self._retitle()
        self.call_after_refresh(self._retitle)
        self.watch(self.app, "theme", self._recolour, init=False)

    def _recolour(self) -> None:
        self.call_after_refresh(self._retitle)  # the theme's colours are there only then

    def on_resize(self, event: events.Resize) -> None:
        self._retitle()
        self.call_after_refresh(self._retitle)  # the event may come before the size does

    def on_show(self) -> None:
        self.call_after_refresh(self._retitle)

    def on_descendant_focus(self) -> None:
        self.call_after_refresh(self._retitle)

    def on_descendant_blur(self) -> None:
        self.call_after_refresh(self._retitle)

    def on_log_view_changed(self) -> None:
        self._retitle()

    def _retitle(self) -> None:
        if not self.is_attached:
            return
        feed, view = self._feed, self.log_view
        is_empty = feed is None or not len(feed.ring)
        self.set_class(is_empty, "-empty")
        said = NO_ENGINE if feed is None else f"No line yet. {feed.status}" if feed.status else "No line yet."
        if is_empty and said != self._said:
            self._said = said
            self._empty.update(Text(said))
        left = Line.of(("log", "quiet"), ("  ", ""), (feed.title, "title")) if feed else Line.of(("log", "quiet"))
        if is_empty:
            right = Line()
        elif view.is_following:
            right = Line.of(("following", "quiet"))
        else:
            new = view.new_count
            right = Line.of(("paused", "warning"), (f" · {count_text(new)} new" if new else "", "quiet"))
        source = feed.status if feed is not None and not is_empty else ""
        self._edge.show(left, right, Line.of((source, "faint")) if source else Line())

    # Commands of the scope "log"

    def action_up(self) -> None:
        self.log_view.move(-1)

    def action_down(self) -> None:
        self.log_view.move(1)

    def action_page_up(self) -> None:
        self.log_view.page(-1)

    def action_page_down(self) -> None:
        self.log_view.page(1)

    def action_first(self) -> None:
        self.log_view.action_first()

    def action_last(self) -> None:
        self.log_view.action_last()

    def action_search(self) -> None:
        self._log.search()

    def action_next_match(self) -> None:
        self._log.next_match()

    def action_previous_match(self) -> None:
        self._log.previous_match()

    def action_pause(self) -> None:
        self.log_view.toggle_follow()
        self._retitle()  # with the same paint, not after the view's message

    def action_wrap(self) -> None:
        self.log_view.wrap = not self.log_view.wrap

    def action_times(self) -> None:
        self.log_view.show_time = not self.log_view.show_time

    def action_copy(self) -> None:
        self._log.copy()

    def action_save(self) -> None:
        self._log.save()
