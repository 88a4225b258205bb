"""The console: header, verdict, nodes, engines, log and kernel on one screen, arranged to the size of the terminal."""

from __future__ import annotations

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Container
from textual.screen import Screen
from textual.widget import Widget

from sparktop.clock import Clock
from sparktop.model.fleet import FleetState, Link, LinkState, NodeView
from sparktop.observe.watch import Watch
from sparktop.ui.commands import Command, bindings
from sparktop.ui.panes.engines import DETAIL_LINES, EnginePane
from sparktop.ui.panes.header import Header, KeyLine
from sparktop.ui.panes.kernel import KernelPane
from sparktop.ui.panes.log import LogPane
from sparktop.ui.panes.node import NodePane
from sparktop.ui.panes.verdict import Verdict
from sparktop.ui.screens.arrangement import VIEWS, Arrangement, Asked, arrange


def _first_link(clock: Clock) -> Link:
    """Connecting, from now on."""
    return Link(since_s=clock.monotonic(), since_wall_s=clock.wall())


class ConsoleScreen(Screen[None]):
    """Shows each picture it is given; asks the Watch only for logs."""

    BINDINGS = bindings("console")
    AUTO_FOCUS = "EnginePane"

    def __init__(self, *, node_names: tuple[str, ...], clock: Clock, title: str = "", read_only: bool = False) -> None:
        super().__init__()
        self._clock = clock
        self._fleet = FleetState(nodes=tuple(NodeView(name=name, link=_first_link(clock)) for name in node_names))
        self._watch: Watch | None = None
        self._view = "overview"
        self._is_solo = False
        self._node = 0
        self._bottom = "log"
        self._arranged: Arrangement | None = None
        self.header = Header(clock, title=title, read_only=read_only)
        self.verdict = Verdict(clock)
        self.nodes = tuple(NodePane(name, clock) for name in node_names)
        self.engines = EnginePane()
        self.log_pane = LogPane(clock=clock, id="log")
        self.kernel = KernelPane(clock=clock, id="kernel")
        self.keys = KeyLine()

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.verdict
        yield Container(*self.nodes, id="nodes")
        yield self.engines
        yield Container(self.log_pane, self.kernel, id="logs")
        yield self.keys

    @property
    def view(self) -> str:
        """The open view, one of VIEWS."""
        return self._view

    @property
    def selected_node(self) -> NodeView | None:
        """The node whose pane is shown alone on a narrow screen."""
        return self._fleet.nodes[self._node] if self._node < len(self._fleet.nodes) else None

    def on_mount(self) -> None:
        self.show(self._fleet)

    def on_resize(self, event: events.Resize) -> None:
        self._arrange()

    def attach(self, watch: Watch) -> None:
        """From now on logs can be asked for."""
        self._watch = watch
        self.kernel.attach(watch)
        self._follow_log()

    def show(self, fleet: FleetState) -> None:
        """Show this picture; a pane paints only what changed."""
        self._fleet = fleet
        with self.app.batch_update():
            self.header.show(fleet)
            self.verdict.show(fleet)
            self.engines.show(fleet)
            self.kernel.show(fleet)
            self._show_nodes()
            self._arrange()
        self._follow_log()

    def _show_nodes(self) -> None:
        shown = [pane for pane in self.nodes if pane.display]
        hidden = [pane.node_name for pane in self.nodes if not pane.display]
        others = tuple(view for view in self._fleet.nodes if view.name in hidden)
        for pane in shown:
            view = self._fleet.node(pane.node_name)
            if view is not None:
                pane.show(view, others)

    def tick(self) -> None:
        """A second has passed: ages, countdowns, the clock."""
        with self.app.batch_update():
            self.header.tick()
            self.verdict.tick()
            for pane in self.nodes:
                if pane.display:
                    pane.tick()

    def fail(self, text: str) -> None:
        """Watching has ended by a fault: say so and keep the last picture."""
        self.verdict.fail(text)
        self._arrange()

    def _arrange(self) -> None:
        width, height = self.app.size
        arranged = arrange(
            Asked(
                width=width,
                height=height,
                view=self._view,
                nodes=len(self.nodes),
                is_solo=self._is_solo,
                verdict_lines=self.verdict.wanted_lines,
                engine_lines=self.engines.wanted_lines,
                detail_lines=DETAIL_LINES if self.engines.details else 0,
                bottom=self._bottom,
            )
        )
        for index, pane in enumerate(self.nodes):
            pane.display = arranged.panes > 1 or index == self._node
        if arranged != self._arranged:
            self._arranged = arranged
            self._apply(arranged)
        self.keys.show(self._view)
        self._show_nodes()

    def _apply(self, arranged: Arrangement) -> None:
        self.verdict.styles.height = arranged.verdict
        nodes = self.query_one("#nodes", Container)
        logs = self.query_one("#logs", Container)
        for widget, lines in ((nodes, arranged.nodes), (self.engines, arranged.engines), (logs, arranged.logs)):
            widget.display = lines > 0
            widget.styles.height = lines
        nodes.set_class(arranged.columns > 1, "-beside")
        logs.set_class(not arranged.logs_stacked, "-beside")
        self.log_pane.display = arranged.log
        self.kernel.display = arranged.kernel

    def _follow_log(self) -> None:
        row = self.engines.selected
        feed = self._watch.log(row.node, row.engine.key) if self._watch is not None and row is not None else None
        self.log_pane.show(feed)

    def perform(self, command: Command) -> None:
        """Run a command chosen by a click or in the palette."""
        self.call_later(self.app.run_action, command.action, self.app if "app" in command.scopes else self)

    @on(KeyLine.Chosen)
    def _chosen(self, message: KeyLine.Chosen) -> None:
        self.perform(message.command)

    @on(EnginePane.Selected)
    def _selected(self) -> None:
        self._follow_log()

    @on(EnginePane.DetailsWanted)
    def action_details(self) -> None:
        self.engines.details = not self.engines.details
        self._arrange()
        self.engines.redraw()

    def action_view(self, view: str) -> None:
        assert view in VIEWS
        self._view, self._is_solo = view, False
        if view in ("log", "kernel"):
            self._bottom = view
        self._arrange()
        target = {"nodes": self.nodes[self._node], "engines": self.engines, "log": self.log_pane, "kernel": self.kernel}
        self._focus(target.get(view, self.engines))

    def action_back(self) -> None:
        if self.engines.details and self._view != "engines":
            self.action_details()
        elif self._view != "overview":
            self.action_view("overview")

    def action_maximise(self) -> None:
        if self._view != "overview":
            self.action_view("overview")
            return
        pane = self._focused_pane()
        view = {"NodePane": "nodes", "LogPane": "log", "KernelPane": "kernel"}.get(type(pane).__name__, "engines")
        if isinstance(pane, NodePane):
            self._node = self.nodes.index(pane)
        self.action_view(view)
        if view == "nodes":
            self._is_solo = True
            self._arrange()

    def _panes(self) -> list[Widget]:
        """What Tab moves through, as shown."""
        panes = [*self.nodes, self.engines, self.log_pane, self.kernel]
        return [
            pane for pane in panes if pane.display and (pane.parent is None or getattr(pane.parent, "display", True))
        ]

    def _focused_pane(self) -> Widget | None:
        return next((pane for pane in self._panes() if pane.has_focus or pane.has_focus_within), None)

    def _focus(self, pane: Widget) -> None:
        if isinstance(pane, NodePane):
            self._node = self.nodes.index(pane)
        pane.focus()

    def _step_pane(self, step: int) -> None:
        panes = self._panes()
        focused = self._focused_pane()
        at = panes.index(focused) if focused in panes else -1 if step > 0 else 0
        if panes:
            self._focus(panes[(at + step) % len(panes)])

    def action_next_pane(self) -> None:
        self._step_pane(1)

    def action_previous_pane(self) -> None:
        self._step_pane(-1)

    def _step_node(self, step: int) -> None:
        had_focus = isinstance(self._focused_pane(), NodePane)
        self._node = (self._node + step) % len(self.nodes)
        self._arrange()
        if had_focus or (self._arranged is not None and self._arranged.panes > 1):
            self.nodes[self._node].focus()

    def action_next_node(self) -> None:
        self._step_node(1)

    def action_previous_node(self) -> None:
        self._step_node(-1)

    def action_retry(self) -> None:
        """Try every node that has no live link again now."""
        if self._watch is None:
            return
        down = [view.name for view in self._fleet.nodes if view.link.state is not LinkState.LIVE]
        for name in down:
            self._watch.retry_now(name)
        text = f"reconnecting to {', '.join(down)}" if down else "all nodes are live"
        self.notify(text, markup=False, timeout=3)

    def action_logs(self) -> None:
        self.action_view("log")

    def _log(self) -> LogPane | KernelPane:
        """The log that keys outside a log mean: the kernel's where only that is shown."""
        return self.kernel if self.kernel.display and not self.log_pane.display else self.log_pane

    def _on_log(self, action: str) -> None:
        if self._arranged is not None and not self._arranged.logs:
            self.action_view("log")
        pane = self._log()
        self._focus(pane)
        self.call_later(self.app.run_action, action, pane)

    def action_search(self) -> None:
        self._on_log("search")

    def action_pause(self) -> None:
        self._on_log("pause")

    def action_wrap(self) -> None:
        self._on_log("wrap")

    def action_save(self) -> None:
        self._on_log("save")
