"""The process pane: who holds GPU memory and memory, on all nodes."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from sparktop.documents.process_table import (
    SORTS,
    ProcessRow,
    columns,
    facts,
    row_line,
    rows,
    searched_text,
    summary,
)
from sparktop.text.lines import Line, labelled, titled
from sparktop.text.table import Column, heading
from sparktop.ui.commands import bindings
from sparktop.ui.panes.list_pane import ListPane, RowList
from sparktop.ui.widgets.log_file import mask


class ProcessPane(ListPane[ProcessRow]):
    """Shows the processes of each fleet state, the largest holder first."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("processes")

    def __init__(self) -> None:
        row_list = RowList(
            key=lambda row: (row.node, row.pid), draw_row=self._row, draw_heading=self._heading, follows=False
        )
        super().__init__(row_list, id="processes")
        self._sorted_by: str | None = None

    def _columns(self, width: int) -> tuple[Column[ProcessRow], ...]:
        return columns(width, nodes=len(self._fleet.nodes))

    def _heading(self, width: int) -> Line:
        return heading(self._columns(width), " ")

    def rows(self) -> tuple[ProcessRow, ...]:
        return self.matching(rows(self._fleet, self._sorted_by), searched_text)

    def _row(self, row: ProcessRow, width: int) -> Line:
        return row_line(row, self._columns(width))

    def _retitle(self) -> None:
        names = [node.name for node in self._fleet.nodes]
        nodes_text = "both" if len(names) == 2 else ", ".join(names)
        title = Line.of(("processes", "quiet"), ("  ", ""), (nodes_text, "title"))
        by = f"by {self._sorted_by.lower()}" if self._sorted_by is not None else "largest holder first"
        note = self.keys_note(Line.of((by, "quiet")), "   S sort   / filter   Enter details   x actions")
        self.show_titles(title, Line.of((summary(self._fleet), "quiet")), note)

    # Commands of the scope "processes"

    def action_sort(self) -> None:
        """Sort by the next of SORTS."""
        self._sorted_by = SORTS[(SORTS.index(self._sorted_by) + 1) % len(SORTS)]
        self.refill()

    def details_of(self, row: ProcessRow) -> tuple[str, list[list[Line]]]:
        command = mask(" ".join(row.process.argv)) if row.process is not None else ""
        typed = titled("Its command", [Line.of(command)] if command else [])
        return f"{row.name} (pid {row.pid})", [titled("What it is", labelled(facts(row))), typed]

    def copied_of(self, row: ProcessRow) -> tuple[str, str]:
        return str(row.pid), f"the pid {row.pid}"
