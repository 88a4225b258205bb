"""The kernel pane: the nodes' kernel events in a list, or one node's whole kernel log."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Static

from sparktop.clock import Clock
from sparktop.documents.events import (
    EventRow,
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
from sparktop.ui.theme import styled, tones
from sparktop.ui.widgets.event_list import EventList
from sparktop.ui.widgets.filtered import Filtered
from sparktop.ui.widgets.line_widget import Movable
from sparktop.ui.widgets.log_file import mask
from sparktop.ui.widgets.log_view import LogView
from sparktop.ui.widgets.search_bar import SearchBar
from sparktop.ui.widgets.searchable_log import LogFrame


class KernelPane(Filtered, LogFrame):
    """Shows the kernel events of each fleet state; the key a cycles through them and each node's whole kernel log."""

    DEFAULT_CSS = """
    KernelPane { height: 1fr; width: 1fr; border: round $foreground 30%; padding: 0 0 0 1; }
    KernelPane > .log-empty { height: auto; max-height: 60%; padding: 0 1 0 2; }
    KernelPane > EventList { height: 1fr; }
    KernelPane > SearchableLog { display: none; }
    KernelPane.-raw > SearchableLog { display: block; }
    KernelPane.-raw > EventList { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = bindings("kernel")

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__(id="kernel", show_time=True, clock=clock)
        self._fleet = FleetState()
        self._watch: Watch | None = None
        self.raw_node: str | None = None
        """The node whose whole kernel log is shown; None while the events are."""
        self._first_raw_node = ""
        self._shown: tuple[object, ...] = ()
        self.filter_bar = SearchBar()
        self._note = Static(classes="log-empty", markup=False)
        self.event_list: EventList[EventRow] = EventList(key=lambda row: row.key, draw_row=self._row)

    def compose(self) -> ComposeResult:
        yield self._note
        yield self.event_list
        yield self._log
        yield self.filter_bar

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
            and is_quiet(self.event_list.rows)
            and self.filter_query is None
            and not troubles(self._fleet)
        )

    @property
    def note(self) -> Line:
        """What the kernel's events come to, for the log's frame while this pane is hidden."""
        return Line.of(("kernel ", "faint")) + summary(self.event_list.rows) if self._fleet.nodes else Line()

    def moving(self) -> Movable:
        return self.event_list if self.raw_node is None else self.log_view

    def focus(self, scroll_visible: bool = True) -> KernelPane:
        (self.log_view if self.raw_node else self.event_list).focus(scroll_visible)
        return self

    def show(self, fleet: FleetState) -> None:
        """Show the kernel events of this fleet state; draws nothing where they are unchanged."""
        self._fleet = fleet
        inputs = tuple(
            value
            for node in fleet.nodes
            for value in (node.name, node.kernel_events, node.kernel_source, node.collectors.get("kernel"))
        )
        if len(inputs) == len(self._shown) and all(a is b or a == b for a, b in zip(inputs, self._shown, strict=True)):
            return
        self._shown = inputs
        self.refill()

    def refill(self) -> None:
        self.event_list.show(self.matching(rows(self._fleet), searched_text))
        self._restyle()

    def _row(self, row: EventRow, width: int) -> Line:
        show_node = len(self._fleet.nodes) > 1 and width >= 40
        return event_line(row, width, show_node=show_node, now_wall_s=self._fleet.wall_s)

    def _update_note(self) -> None:
        """Update the note above the events: which logs can't be read and why, or that there is no event."""
        if not self.is_attached:
            return
        lines = [Line.of(("▲ ", "warning"), (f"{node}  ", "strong"), why) for node, why in troubles(self._fleet)]
        if not self.event_list.rows and self.filter_query is None and (quiet := nothing(self._fleet)):
            lines.append(Line.of((quiet, "quiet")))
        if self.raw_node is not None and self._watch is not None and not self._has_raw_lines():
            lines.append(Line.of((f"No line from {self.raw_node}'s kernel yet.", "quiet")))
        self._note.display = bool(lines) and not self._has_raw_lines()
        self._note.update(styled(lines, tones(self.app, self.background_colors[1])))

    def _has_raw_lines(self) -> bool:
        return bool(self.raw_node and self._watch and len(self._watch.kernel_lines(self.raw_node)))

    def _retitle(self) -> None:
        if not self.is_attached:
            return
        names = [node.name for node in self._fleet.nodes]
        if self.raw_node is not None:
            node = self._fleet.node(self.raw_node)
            title = Line.of(("kernel", "quiet"), ("  ", ""), (f"{self.raw_node}, all lines", "title"))
            self._edge.show(title, self.log_status(), Line.of((node.kernel_source if node else "", "faint")))
            return
        nodes_text = "both" if len(names) == 2 else ", ".join(names)
        title = Line.of(("kernel", "quiet"), ("  ", ""), (nodes_text, "title"))
        has_read = self.event_list.rows or any(node.kernel_source for node in self._fleet.nodes)
        status = summary(self.event_list.rows) if has_read else Line.of(("not read", "quiet"))
        if self.filter_query is not None:
            status = Line.of((f"{len(self.event_list.rows)} found", "warning"))
        elif not self.event_list.is_following:
            status = status + Line.of((" · ", "quiet"), ("held", "warning"))
        self._edge.show(title, status, Line())

    def _restyle(self) -> None:
        self._update_note()
        self._retitle()

    @on(EventList.Moved)
    def _selection_moved(self) -> None:
        self._retitle()

    @on(LogView.Changed)
    def _log_changed(self) -> None:
        if self.raw_node is not None:
            self._restyle()

    # Commands of the scope "kernel"

    def action_raw(self) -> None:
        """Show the next of: the events, then each node's whole kernel log."""
        names = [node.name for node in self._fleet.nodes]
        if self._watch is None or not names:
            return
        selected = self.event_list.selected
        if self.raw_node is None:
            next_node: str | None = selected.node if selected is not None and selected.node in names else names[0]
            self._first_raw_node = next_node or ""
        else:
            order = [self._first_raw_node, *(name for name in names if name != self._first_raw_node)]
            index = order.index(self.raw_node) + 1 if self.raw_node in order else len(order)
            next_node = order[index] if index < len(order) else None
        had_focus = self.has_focus_within
        if self.filter_bar.is_open:
            self.action_end_filter()
        self.raw_node = next_node
        self.set_class(next_node is not None, "-raw")
        self._log.show(self._watch.kernel_lines(next_node) if next_node else None, f"kernel @ {next_node}")
        self._restyle()
        if had_focus:
            self.focus()

    def action_details(self) -> None:
        row = self.event_list.selected
        if row is not None and self.raw_node is None:
            from sparktop.ui.screens.kernel_event import details  # not needed until somebody asks

            self.app.push_screen(details(row))

    @on(EventList.Opened)
    def action_open(self) -> None:
        self.action_details()

    def action_search(self) -> None:
        """Filter the events; without one, or where a whole kernel log is shown, search that."""
        if self.raw_node is None and (self.event_list.rows or self.filter_query is not None):
            self.action_filter()
            return
        if self.raw_node is None:
            self.action_raw()
        if self.raw_node is not None:
            self._log.search()

    def action_pause(self) -> None:
        if self.raw_node is not None:
            self.log_view.toggle_follow()
        elif self.event_list.is_following:
            self.event_list.hold()
        else:
            self.event_list.action_last()

    def action_copy(self) -> None:
        row = self.event_list.selected
        if self.raw_node is not None:
            self._log.copy()
        elif row is not None:
            self.app.copy_to_clipboard(mask(f"{row.node}: {row.event.text}"))
            self.notify("Copied the kernel's line.", markup=False, timeout=3)

    def action_save(self) -> None:
        """Save the whole kernel log of the shown node, or of the selected event's node."""
        if self.raw_node is not None:
            self._log.save()
        elif self._watch is not None and self._fleet.nodes:
            row = self.event_list.selected
            node = row.node if row is not None else self._fleet.nodes[0].name
            self._log.save_ring(self._watch.kernel_lines(node), f"kernel @ {node}")
