"""What happened on all nodes, one stream on one clock: link, boots, kernel, engines, actions, findings."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from sparktop.documents.events import event_words, happened_details, happened_line
from sparktop.model.event import Event
from sparktop.model.fleet import FleetState
from sparktop.text.lines import Line
from sparktop.ui.commands import bindings
from sparktop.ui.panes.list_pane import ListPane, RowList


class EventPane(ListPane[Event]):
    """Shows what happened while it is displayed; follows the newest."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("events")

    def __init__(self) -> None:
        super().__init__(RowList(key=lambda event: event, draw_row=self._row), id="events")

    def show(self, fleet: FleetState) -> None:
        is_new = fleet.events is not self._fleet.events
        self._fleet = fleet
        if is_new:
            self.refill()

    def rows(self) -> tuple[Event, ...]:
        return self.matching(self._fleet.events, event_words)

    def _row(self, event: Event, width: int) -> Line:
        return happened_line(event, nodes=len(self._fleet.nodes)).cut(width)

    def _retitle(self) -> None:
        count = Line.of((f"{len(self._fleet.events)} events", "quiet"))
        note = self.keys_note(Line(), "/ filter   Enter whole   y copy")
        self.show_titles(Line.of(("what happened", "quiet")), count, note)

    def details_of(self, row: Event) -> tuple[str, list[list[Line]]]:
        return str(row.kind), happened_details(row)

    def copied_of(self, row: Event) -> tuple[str, str]:
        return happened_line(row, nodes=2).plain, "the line"
