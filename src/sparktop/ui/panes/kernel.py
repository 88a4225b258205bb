"""What the kernels say: the events that matter, folded, or a node's whole kernel log."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.widgets import Static

from sparktop.clock import Clock
from sparktop.model.fleet import FleetState
from sparktop.observe.watch import Watch
from sparktop.ui.commands import bindings
from sparktop.ui.panes.kernel_rows import EventRow, event_line, nothing, rows, sections, summary, troubles
from sparktop.ui.screens.details import DetailsScreen
from sparktop.ui.theme import tones
from sparktop.ui.widgets.event_list import EventList
from sparktop.ui.widgets.ink import Line
from sparktop.ui.widgets.log_file import mask
from sparktop.ui.widgets.log_view import LogView
from sparktop.ui.widgets.pane_title import Edge, count_text
from sparktop.ui.widgets.searchable_log import SearchableLog


class KernelPane(Vertical):
    """Shows each picture's kernel events; `a` goes round: what matters, then each node's whole log."""

    DEFAULT_CSS = """
    KernelPane { height: 1fr; width: 1fr; border: round $foreground 30%; padding: 0 0 0 1; }
    KernelPane > .log-empty { height: auto; max-height: 60%; padding: 0 1 0 2; }
    KernelPane > EventList { height: 1fr; }
    KernelPane > SearchableLog { display: none; }
    KernelPane.-raw > SearchableLog { display: block; }
    KernelPane.-raw > EventList { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = bindings("kernel")
    ALLOW_MAXIMIZE = True

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        id: str | None = None,  # noqa: A002 - Textual's own parameter name
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._fleet = FleetState()
        self._watch: Watch | None = None
        self._raw_node: str | None = None
        self._first_raw = ""
        self._shown: tuple[object, ...] = ()
        self._edge = Edge(self)
        self._note = Static(classes="log-empty", markup=False)
        self._events: EventList[EventRow] = EventList(key=lambda row: row.key, draw_row=self._row)
        self._log = SearchableLog(show_time=True, clock=clock)

    def compose(self) -> ComposeResult:
        yield self._note
        yield self._events
        yield self._log

    def attach(self, watch: Watch) -> None:
        """From now on whole kernel logs can be asked for."""
        self._watch = watch

    @property
    def raw_node(self) -> str | None:
        """Whose whole log is shown; None while it is the events that matter."""
        return self._raw_node

    @property
    def event_list(self) -> EventList[EventRow]:
        return self._events

    @property
    def log_view(self) -> LogView:
        return self._log.view

    def focus(self, scroll_visible: bool = True) -> KernelPane:
        (self.log_view if self._raw_node else self._events).focus(scroll_visible)
        return self

    def show(self, fleet: FleetState) -> None:
        """Show this picture; nothing is drawn where nothing of the kernels has changed."""
        self._fleet = fleet
        shown = tuple(
            part
            for node in fleet.nodes
            for part in (node.name, node.kernel_events, node.kernel_source, node.collectors.get("kernel"))
        )
        if len(shown) == len(self._shown) and all(a is b or a == b for a, b in zip(shown, self._shown, strict=True)):
            return
        self._shown = shown
        self._events.show(rows(fleet))
        self._say()
        self._retitle()

    def _row(self, row: EventRow, width: int) -> Line:
        return event_line(row, width, show_node=len(self._fleet.nodes) > 1 and width >= 48)

    def _say(self) -> None:
        """Above the events: which node's log can't be read and what would permit it; or that there is none."""
        if not self.is_attached:
            return
        styles = tones(self.app, self.background_colors[1])
        text = Text()
        for node, why in troubles(self._fleet):
            text.append("\n" if text else "").append("▲ ", styles["warning"])
            text.append(f"{node}  ", styles["strong"]).append(why, styles[""])
        if not self._events.rows and (quiet := nothing(self._fleet)):
            text.append("\n" if text else "").append(quiet, styles["quiet"])
        if self._raw_node is not None and self._watch is not None and not len(self._watch.kernel_lines(self._raw_node)):
            text.append("\n" if text else "").append(f"No line from {self._raw_node}'s kernel yet.", styles["quiet"])
        self._note.display = bool(text) and (self._raw_node is None or not self._has_raw_lines())
        self._note.update(text)

    def _has_raw_lines(self) -> bool:
        return bool(self._raw_node and self._watch and len(self._watch.kernel_lines(self._raw_node)))

    def _retitle(self) -> None:
        if not self.is_attached:
            return
        names = [node.name for node in self._fleet.nodes]
        if self._raw_node is not None:
            view = self.log_view
            node = self._fleet.node(self._raw_node)
            left = Line.of(("kernel", "quiet"), ("  ", ""), (f"{self._raw_node}, all of it", "title"))
            new = view.new_count
            right = (
                Line.of(("following", "quiet"))
                if view.is_following
                else Line.of(("paused", "warning"), (f" · {count_text(new)} new" if new else "", "quiet"))
            )
            self._edge.show(left, right, Line.of((node.kernel_source if node else "", "faint")))
            return
        who = "both" if len(names) == 2 else ", ".join(names)
        left = Line.of(("kernel", "quiet"), ("  ", ""), (who, "title"))
        right = summary(self._events.rows)
        if not self._events.is_following:
            right = right + Line.of((" · ", "quiet"), ("held", "warning"))
        self._edge.show(left, right, Line())

    def on_mount(self) -> None:
        self._say()
        self._retitle()
        self.watch(self.app, "theme", self._recolour, init=False)

    def _recolour(self) -> None:
        self.call_after_refresh(self._restyle)  # the theme's colours are there only then

    def _restyle(self) -> None:
        self._say()
        self._retitle()

    def on_resize(self, event: events.Resize) -> None:
        self._retitle()
        self.call_after_refresh(self._retitle)  # the event may come before the size does

    def on_show(self) -> None:
        self.call_after_refresh(self._retitle)

    def on_descendant_focus(self) -> None:
        self.call_after_refresh(self._retitle)

    def on_descendant_blur(self) -> None:
        self.call_after_refresh(self._retitle)

    @on(EventList.Moved)
    def _moved(self) -> None:
        self._retitle()

    @on(LogView.Changed)
    def _log_changed(self) -> None:
        if self._raw_node is not None:
            self._say()
            self._retitle()

    # Commands of the scope "kernel"

    def action_raw(self) -> None:
        """Next of: what matters, the first node's whole log, the second node's."""
        names = [node.name for node in self._fleet.nodes]
        if self._watch is None or not names:
            return
        selected = self._events.selected
        if self._raw_node is None:
            following: str | None = selected.node if selected is not None and selected.node in names else names[0]
            self._first_raw = following or ""
        else:
            order = [self._first_raw, *(name for name in names if name != self._first_raw)]
            at = order.index(self._raw_node) + 1 if self._raw_node in order else len(order)
            following = order[at] if at < len(order) else None
        had_focus = self.has_focus_within
        self._raw_node = following
        self.set_class(following is not None, "-raw")
        self._log.show(self._watch.kernel_lines(following) if following else None, f"kernel @ {following}")
        self._say()
        self._retitle()
        if had_focus:
            self.focus()

    def action_details(self) -> None:
        row = self._events.selected
        if row is not None and self._raw_node is None:
            self.app.push_screen(DetailsScreen(row.event.title, sections(row)))

    @on(EventList.Opened)
    def action_open(self) -> None:
        self.action_details()

    def _move(self, step: int) -> None:
        if self._raw_node is None:
            self._events.move(step)
        else:
            self.log_view.move(step)

    def action_up(self) -> None:
        self._move(-1)

    def action_down(self) -> None:
        self._move(1)

    def action_page_up(self) -> None:
        self._move(-max(1, self.content_size.height - 1))

    def action_page_down(self) -> None:
        self._move(max(1, self.content_size.height - 1))

    def action_first(self) -> None:
        if self._raw_node is None:
            self._events.select(0)
        else:
            self.log_view.action_first()

    def action_last(self) -> None:
        if self._raw_node is None:
            self._events.select_last()
        else:
            self.log_view.action_last()

    def action_search(self) -> None:
        """Searching is for the whole log: it opens that first."""
        if self._raw_node is None:
            self.action_raw()
        if self._raw_node is not None:
            self._log.search()

    def action_next_match(self) -> None:
        if self._raw_node is not None:
            self._log.next_match()

    def action_previous_match(self) -> None:
        if self._raw_node is not None:
            self._log.previous_match()

    def action_pause(self) -> None:
        if self._raw_node is not None:
            self.log_view.toggle_follow()
        elif self._events.is_following:
            self._events.hold()
        else:
            self._events.select_last()

    def action_wrap(self) -> None:
        self.log_view.wrap = not self.log_view.wrap

    def action_times(self) -> None:
        self.log_view.show_time = not self.log_view.show_time

    def action_copy(self) -> None:
        row = self._events.selected
        if self._raw_node is not None:
            self._log.copy()
        elif row is not None:
            self.app.copy_to_clipboard(mask(f"{row.node}: {row.event.text}"))
            self.notify("Copied the kernel's line.", markup=False, timeout=3)

    def action_save(self) -> None:
        """Save the whole log of the node shown, or of the selected event."""
        if self._raw_node is not None:
            self._log.save()
        elif self._watch is not None and self._fleet.nodes:
            row = self._events.selected
            node = row.node if row is not None else self._fleet.nodes[0].name
            self._log.save_ring(self._watch.kernel_lines(node), f"kernel @ {node}")
