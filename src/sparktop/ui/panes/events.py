"""What happened on all nodes, one stream on one clock: link, boots, kernel, engines, actions, findings."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from sparktop.documents.events import event_words, happened_line
from sparktop.model.event import Event
from sparktop.model.fleet import FleetState
from sparktop.text.lines import Line
from sparktop.text.units import clock_time, day_time
from sparktop.ui.commands import bindings
from sparktop.ui.widgets.event_list import EventList
from sparktop.ui.widgets.filtered import Filtered
from sparktop.ui.widgets.line_widget import TitledPane
from sparktop.ui.widgets.search_bar import SearchBar


class EventPane(Filtered, TitledPane):
    """Shows what happened while it is displayed; follows the newest."""

    DEFAULT_CSS = """
    EventPane { height: 1fr; width: 1fr; border: round $foreground 30%; padding: 0 0 0 1; }
    EventPane > EventList { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = bindings("events")

    def __init__(self) -> None:
        super().__init__(id="events")
        self._fleet = FleetState()
        self.filter_bar = SearchBar()
        self.event_list: EventList[Event] = EventList(key=lambda event: event, draw_row=self._row)

    def compose(self) -> ComposeResult:
        yield self.event_list
        yield self.filter_bar

    def moving(self) -> EventList[Event]:
        return self.event_list

    def show(self, fleet: FleetState) -> None:
        """Show this fleet state; nothing is drawn while the pane is hidden."""
        is_new = fleet.events is not self._fleet.events
        self._fleet = fleet
        if is_new:
            self.refill()

    def refill(self) -> None:
        if self.display and self.is_attached:
            self.event_list.show(self.matching(self._fleet.events, event_words))
            self._retitle()

    def _retitle(self) -> None:
        note = Line.of(("/ filter   Enter whole   y copy", "faint"))
        if self.filter_query is not None:
            note = Line.of((f"{len(self.event_list.rows)} found   ", "warning")) + note
        count = f"{len(self._fleet.events)} events"
        self._edge.show(Line.of(("what happened", "quiet")), Line.of((count, "quiet")), note)

    def focus(self, scroll_visible: bool = True) -> EventPane:
        self.event_list.focus(scroll_visible)
        return self

    def on_show(self) -> None:
        self.refill()

    # Commands of the scope "events"

    @on(EventList.Opened)
    def action_open(self) -> None:
        self.action_details()

    def action_details(self) -> None:
        if (event := self.event_list.selected) is not None:
            from sparktop.ui.dialogs.page import DetailsScreen, Section  # not needed until somebody asks

            when = f"{day_time(event.at_s)[:7]}{clock_time(event.at_s)}  {'+'.join(event.nodes)}"
            section = Section(heading=when, paragraphs=(Line.of(event.text), Line.of((event.subject, "quiet"))))
            self.app.push_screen(DetailsScreen(f"{event.kind}", (section,)))

    def action_copy(self) -> None:
        if (event := self.event_list.selected) is not None:
            self.app.copy_to_clipboard(happened_line(event, nodes=2).plain)
            self.notify("Copied the line.", markup=False, timeout=3)

    def _row(self, event: Event, width: int) -> Line:
        return happened_line(event, nodes=len(self._fleet.nodes)).cut(width)
