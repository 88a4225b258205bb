"""The process pane: who holds GPU memory and memory, on all nodes."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from sparktop.documents.process_table import (
    SORTS,
    ProcessColumn,
    ProcessRow,
    columns,
    facts,
    row_line,
    rows,
    searched_text,
    summary,
)
from sparktop.model.fleet import FleetState
from sparktop.text.lines import Line
from sparktop.text.table import Column, heading
from sparktop.ui.commands import bindings
from sparktop.ui.widgets.event_list import EventList
from sparktop.ui.widgets.filtered import Filtered
from sparktop.ui.widgets.line_widget import LineWidget, TitledPane
from sparktop.ui.widgets.log_file import mask
from sparktop.ui.widgets.search_bar import SearchBar


class _Heading(LineWidget):
    """The table's heading, above the rows."""

    def __init__(self, pane: ProcessPane) -> None:
        super().__init__()
        self._pane = pane

    def draw(self, width: int, height: int) -> list[Line]:
        return [Line.of("  ") + heading(self._pane.columns(width - 2), " ")]


class ProcessPane(Filtered, TitledPane):
    """Shows the processes of each fleet state while it is displayed, the largest holder first."""

    DEFAULT_CSS = """
    ProcessPane { height: 1fr; width: 1fr; border: round $foreground 30%; padding: 0 0 0 1; }
    ProcessPane > _Heading { height: 1; }
    ProcessPane > EventList { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = bindings("processes")

    def __init__(self) -> None:
        super().__init__(id="processes")
        self._fleet = FleetState()
        self._heading = _Heading(self)
        self.filter_bar = SearchBar()
        self._sorted_by: ProcessColumn | None = None
        self.process_list: EventList[ProcessRow] = EventList(
            key=lambda row: (row.node, row.pid), draw_row=self._row, follows=False
        )

    def compose(self) -> ComposeResult:
        yield self._heading
        yield self.process_list
        yield self.filter_bar

    def moving(self) -> EventList[ProcessRow]:
        return self.process_list

    def columns(self, width: int) -> tuple[Column, ...]:
        """The table's columns in this width."""
        return columns(width, nodes=len(self._fleet.nodes))

    def show(self, fleet: FleetState) -> None:
        """Show this fleet state; nothing is sorted or drawn while the pane is hidden."""
        self._fleet = fleet
        self.refill()

    def refill(self) -> None:
        if self.display and self.is_attached:
            self.process_list.show(self.matching(rows(self._fleet, self._sorted_by), searched_text))
            self._retitle()

    def focus(self, scroll_visible: bool = True) -> ProcessPane:
        self.process_list.focus(scroll_visible)
        return self

    def _row(self, row: ProcessRow, width: int) -> Line:
        return row_line(row, self.columns(width))

    def _retitle(self) -> None:
        names = [node.name for node in self._fleet.nodes]
        nodes_text = "both" if len(names) == 2 else ", ".join(names)
        title = Line.of(("processes", "quiet"), ("  ", ""), (nodes_text, "title"))
        by = f"by {self._sorted_by.value.lower()}" if self._sorted_by is not None else "largest holder first"
        note = Line.of((by, "quiet"), ("   S sort   / filter   Enter details   x actions", "faint"))
        if self.filter_query is not None:
            note = Line.of((f"{len(self.process_list.rows)} found   ", "warning")) + note
        self._edge.show(title, Line.of((summary(self._fleet), "quiet")), note)

    def on_show(self) -> None:
        self.show(self._fleet)

    # Commands of the scope "processes"

    def action_sort(self) -> None:
        """Sort by the next of SORTS."""
        self._sorted_by = SORTS[(SORTS.index(self._sorted_by) + 1) % len(SORTS)]
        self.show(self._fleet)

    @on(EventList.Opened)
    def action_open(self) -> None:
        self.action_details()

    def action_details(self) -> None:
        row = self.process_list.selected
        if row is None:
            return
        from sparktop.ui.dialogs.page import DetailsScreen, Section  # not needed until somebody asks

        command = " ".join(row.process.argv) if row.process is not None else ""
        sections = [Section(heading="What it is", facts=facts(row))]
        if command:
            sections.append(Section(heading="Its command", paragraphs=(Line.of(mask(command)),)))
        self.app.push_screen(DetailsScreen(f"{row.name} (pid {row.pid})", tuple(sections)))

    def action_copy(self) -> None:
        if (row := self.process_list.selected) is not None:
            self.app.copy_to_clipboard(str(row.pid))
            self.notify(f"Copied the pid {row.pid}.", markup=False, timeout=3)
