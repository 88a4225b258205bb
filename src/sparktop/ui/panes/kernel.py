"""The kernel pane: the nodes' kernel events in a list, or one node's whole kernel log."""

from __future__ import annotations

from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Static

from sparktop.clock import Clock
from sparktop.documents.events import (
    EventRow,
    details,
    event_line,
    is_quiet,
    nothing,
    rows,
    searched_text,
    summary,
    troubles,
)
from sparktop.model.fleet import FleetState
from sparktop.observe.watch import Watch
from sparktop.text.lines import Line
from sparktop.ui.commands import bindings
from sparktop.ui.panes.list_pane import ListPane, RowList
from sparktop.ui.theme import styled, tones
from sparktop.ui.widgets.line_widget import CursorList
from sparktop.ui.widgets.log_frame import LogFrame
from sparktop.ui.widgets.log_view import LogView
from sparktop.ui.widgets.search import Query


class KernelPane(ListPane[EventRow], LogFrame):
    """Shows the kernel events of each fleet state; the key a cycles through them and each node's whole kernel log."""

    DEFAULT_CSS = """
    KernelPane > .log-empty { height: auto; max-height: 60%; padding: 0 1 0 2; }
    KernelPane > LogView { display: none; }
    KernelPane.-raw > LogView { display: block; }
    KernelPane.-raw > RowList { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = bindings("kernel")

    def __init__(self, *, clock: Clock | None = None) -> None:
        row_list = RowList(key=lambda row: row.key, draw_row=self._row)
        super().__init__(row_list, log_view=LogView(show_time=True), clock=clock, id="kernel")
        self._watch: Watch | None = None
        self.raw_node: str | None = None
        """The node whose whole kernel log is shown; None while the events are."""
        self._first_raw_node = ""
        self._shown: tuple[object, ...] = ()
        self._note = Static(classes="log-empty", markup=False)

    def compose(self) -> ComposeResult:
        yield self._note
        yield self.log_view
        yield from super().compose()

    def attach(self, watch: Watch) -> None:
        """Take the Watch, which has the whole kernel logs."""
        self._watch = watch

    @property
    def shows_log(self) -> bool:  # type: ignore[override]
        return self.raw_node is not None

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to look at, so that the log may have the room."""
        return (
            self.raw_node is None
            and is_quiet(self.row_list.rows)
            and not self.is_filtered
            and not troubles(self._fleet)
        )

    @property
    def note(self) -> Line:
        """What the kernel's events come to, for the log's frame while this pane is hidden."""
        return Line.of(("kernel ", "faint")) + summary(self.row_list.rows) if self._fleet.nodes else Line()

    def moving(self) -> CursorList[Any] | LogView:  # type: ignore[override]
        return self.row_list if self.raw_node is None else self.log_view

    def look_for(self, query: Query | None) -> None:
        if self.raw_node is None:
            self.refill()
        else:
            LogFrame.look_for(self, query)

    def show(self, fleet: FleetState) -> None:
        """Show the kernel events of this fleet state; draws nothing where they are unchanged."""
        self._fleet = fleet
        inputs = tuple(
            value
            for node in fleet.nodes
            for value in (node.name, node.kernel_events, node.kernel_source, node.collectors.get("kernel"))
        )
        if inputs != self._shown:
            self._shown = inputs
            self.refill()

    def refill(self) -> None:
        self.row_list.show_rows(self.rows())
        self._restyle()

    def rows(self) -> tuple[EventRow, ...]:
        return self.matching(rows(self._fleet), searched_text)

    def _row(self, row: EventRow, width: int) -> Line:
        show_node = len(self._fleet.nodes) > 1 and width >= 40
        return event_line(row, width, show_node=show_node, now_wall_s=self._fleet.wall_s)

    def _update_note(self) -> None:
        """Update the note above the events: which logs can't be read and why, or that there is no event."""
        if not self.is_attached:
            return
        lines = [Line.of(("▲ ", "warning"), (f"{node}  ", "strong"), why) for node, why in troubles(self._fleet)]
        if not self.row_list.rows and not self.is_filtered and (quiet := nothing(self._fleet)):
            lines.append(Line.of((quiet, "quiet")))
        if self.raw_node is not None and not self._whole:
            lines.append(Line.of((f"No line from {self.raw_node}'s kernel yet.", "quiet")))
        self._note.display = bool(lines) and not self._whole
        self._note.update(styled(lines, tones(self.app, self.background_colors[1])))

    def _retitle(self) -> None:
        if not self.is_attached:
            return
        names = [node.name for node in self._fleet.nodes]
        if self.raw_node is not None:
            node = self._fleet.node(self.raw_node)
            title = Line.of(("kernel", "quiet"), ("  ", ""), (f"{self.raw_node}, all lines", "title"))
            self.show_titles(title, self.log_status(), Line.of((node.kernel_source if node else "", "faint")))
            return
        nodes_text = "both" if len(names) == 2 else ", ".join(names)
        title = Line.of(("kernel", "quiet"), ("  ", ""), (nodes_text, "title"))
        has_read = self.row_list.rows or any(node.kernel_source for node in self._fleet.nodes)
        status = summary(self.row_list.rows) if has_read else Line.of(("not read", "quiet"))
        if self.is_filtered:
            status = Line.of((f"{len(self.row_list.rows)} found", "warning"))
        elif not self.row_list.is_following:
            status = status + Line.of((" · ", "quiet"), ("held", "warning"))
        self.show_titles(title, status, Line())

    def _restyle(self) -> None:
        self._update_note()
        self._retitle()

    @on(RowList.Moved)
    def _selection_moved(self) -> None:
        self._retitle()

    # Commands of the scope "kernel"

    def action_raw(self) -> None:
        """Show the next of: the events, then each node's whole kernel log."""
        names = [node.name for node in self._fleet.nodes]
        if self._watch is None or not names:
            return
        if self.raw_node is None:
            selected = self.row_list.selected
            self._first_raw_node = selected.node if selected is not None and selected.node in names else names[0]
        order = [None, self._first_raw_node, *(name for name in names if name != self._first_raw_node)]
        index = order.index(self.raw_node) if self.raw_node in order else -1
        next_node = order[(index + 1) % len(order)]
        had_focus = self.has_focus_within
        if self.search_bar.is_open and (self.raw_node is None or next_node is None):
            self.action_end_search()
        self.raw_node = next_node
        self.set_class(next_node is not None, "-raw")
        self.show_log(self._watch.kernel_lines(next_node) if next_node else None, f"kernel @ {next_node}")
        self._restyle()
        if had_focus:
            self.focus()

    def action_details(self) -> None:
        if self.raw_node is None:
            super().action_details()

    def details_of(self, row: EventRow) -> tuple[str, list[list[Line]]]:
        return row.event.headline, details(row)

    def action_search(self) -> None:
        """Filter the events; without one, or where a whole kernel log is shown, search that."""
        if self.raw_node is None and not self.row_list.rows and not self.is_filtered:
            self.action_raw()
        if self.raw_node is not None or self.row_list.rows or self.is_filtered:
            super().action_search()

    def action_pause(self) -> None:
        if self.raw_node is not None:
            super().action_pause()
        elif self.row_list.is_following:
            self.row_list.hold()
        else:
            self.row_list.action_last()

    def action_copy(self) -> None:
        (ListPane if self.raw_node is None else LogFrame).action_copy(self)

    def copied_of(self, row: EventRow) -> tuple[str, str]:
        return f"{row.node}: {row.event.text}", "the kernel's line"

    def action_save(self) -> None:
        """Save the whole kernel log of the shown node, or of the selected event's node."""
        if self.raw_node is not None:
            super().action_save()
        elif self._watch is not None and self._fleet.nodes:
            row = self.row_list.selected
            node = row.node if row is not None else self._fleet.nodes[0].name
            self.save_ring(self._watch.kernel_lines(node), f"kernel @ {node}")
