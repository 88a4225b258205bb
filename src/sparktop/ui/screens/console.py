"""The console: header, verdict, nodes, engines, log and kernel on one screen, arranged to the size of the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Container
from textual.screen import Screen
from textual.widget import Widget

from sparktop.clock import Clock
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState, Link, LinkState, NodeView
from sparktop.observe.watch import Watch
from sparktop.ui.attention import Attention
from sparktop.ui.commands import Command, bindings
from sparktop.ui.panes.bottom import Bottom
from sparktop.ui.panes.engines import EnginePane
from sparktop.ui.panes.finding_lines import place_of
from sparktop.ui.panes.findings import FindingsPane
from sparktop.ui.panes.header import Header, KeyLine
from sparktop.ui.panes.node import NodePane
from sparktop.ui.panes.run_line import RunLine
from sparktop.ui.panes.verdict import Verdict
from sparktop.ui.screens.acting_keys import ActingKeys
from sparktop.ui.screens.arrangement import VIEWS, Arrangement, Asked, arrange

if TYPE_CHECKING:
    from sparktop.operate.wishes import Selection
    from sparktop.ui.screens.finding import FindingScreen


def _first_link(clock: Clock) -> Link:
    """Connecting, from now on."""
    return Link(since_s=clock.monotonic(), since_wall_s=clock.wall())


class ConsoleScreen(ActingKeys, Screen[None]):
    """Shows each picture it is given; asks the Watch only for logs."""

    BINDINGS = bindings("console")
    AUTO_FOCUS = "EnginePane"

    def __init__(
        self,
        *,
        node_names: tuple[str, ...],
        clock: Clock,
        title: str = "",
        read_only: bool = False,
        protected: frozenset[str] = frozenset(),
        attention: Attention | None = None,
    ) -> None:
        """`protected` are nodes that nothing may be done to."""
        super().__init__()
        self._clock = clock
        self._attention = attention or Attention(clock)
        self._fleet = FleetState(nodes=tuple(NodeView(name=name, link=_first_link(clock)) for name in node_names))
        self._watch: Watch | None = None
        self._view = "overview"
        self._is_solo = False
        self._node = 0
        self._bottom = "log"
        self._has_details = False
        self._details: FindingScreen | None = None
        self._arranged: Arrangement | None = None
        self.is_read_only = read_only
        self.header = Header(clock, title=title, read_only=read_only, protected=protected)
        self.runs = RunLine()
        self.verdict = Verdict(clock, standing_of=self._attention.standing)
        self.findings = FindingsPane(clock, self._attention)
        self.nodes = tuple(NodePane(name, clock) for name in node_names)
        self._node_row = Container(*self.nodes, id="nodes")
        self.engines = EnginePane()
        self.bottom = Bottom(clock)
        self.keys = KeyLine(read_only=read_only)

    def compose(self) -> ComposeResult:
        self._arrange()  # before anything is mounted: the first layout is then the right one
        yield self.header
        yield self.runs
        yield self.verdict
        yield self.findings
        yield self._node_row
        yield self.engines
        yield self.bottom
        yield self.keys

    @property
    def view(self) -> str:
        """The open view, one of VIEWS."""
        return self._view

    @property
    def fleet(self) -> FleetState:
        """The picture shown."""
        return self._fleet

    @property
    def selected_node(self) -> NodeView | None:
        """The node whose pane is shown alone on a narrow screen."""
        return self._fleet.nodes[self._node] if self._node < len(self._fleet.nodes) else None

    def on_mount(self) -> None:
        self.show(self._fleet)

    def on_resize(self, event: events.Resize) -> None:
        self._arrange()

    async def complete(self) -> None:
        """Add what the first paint could do without."""
        await self.bottom.complete()
        self._arrange()

    def attach(self, watch: Watch) -> None:
        """From now on logs can be asked for."""
        self._watch = watch
        self.bottom.attach(watch)
        self._follow_log()

    def show_runs(self) -> None:
        """What is being done has moved on."""
        self.runs.show(self.acting.shown if self.acting is not None else ())
        self._arrange()

    def show(self, fleet: FleetState) -> None:
        """Show this picture; a pane paints only what changed."""
        self._fleet = fleet
        self._attention.follow(fleet.findings)
        with self.app.batch_update():
            self.header.show(fleet)
            self.verdict.show(fleet)
            self.findings.show(fleet)
            self.engines.show(fleet)
            self.bottom.show(fleet)
            self._show_nodes()
            self._arrange()
        self._follow_log()
        self._renew_details()

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
            self.findings.tick()
            for pane in self.nodes:
                if pane.display:
                    pane.tick()

    def fail(self, text: str) -> None:
        """Watching has ended by a fault: say so and keep the last picture."""
        self.verdict.fail(text)
        self._arrange()

    def _arrange(self) -> None:
        width, height = self.app.size
        self.verdict.leave_to_list(self._view == "findings")
        arranged = arrange(
            Asked(
                width=width,
                height=height,
                view=self._view,
                nodes=len(self.nodes),
                is_solo=self._is_solo,
                verdict_lines=self.verdict.wanted_lines,
                run_lines=self.runs.wanted_lines,
                engine_lines=self.engines.wanted_lines,
                detail_lines=self.engines.detail_lines(width) if self._has_details else 0,
                bottom=self._bottom if self.engines.selected or self._view == "log" else "kernel",
            )
        )
        for index, pane in enumerate(self.nodes):
            pane.display = arranged.panes > 1 or index == self._node
        if arranged != self._arranged:
            self._arranged = arranged
            self._apply(arranged)
        self.engines.set_details(self._has_details or self._view == "engines")
        self.keys.show(self._view)
        self._show_nodes()

    def _apply(self, arranged: Arrangement) -> None:
        self.verdict.styles.height = arranged.verdict
        self.runs.styles.height = arranged.runs
        self.runs.display = arranged.runs > 0
        nodes, bottom = self._node_row, self.bottom
        parts: tuple[tuple[Widget, int], ...] = (
            (self.findings, arranged.findings),
            (nodes, arranged.nodes),
            (self.engines, arranged.engines),
            (bottom, arranged.logs),
        )
        for widget, lines in parts:
            widget.display = lines > 0
            widget.styles.height = lines
        nodes.set_class(arranged.columns > 1, "-beside")
        bottom.set_class(not arranged.logs_stacked, "-beside")
        bottom.show_only(log=arranged.log, kernel=arranged.kernel)

    def _follow_log(self) -> None:
        row = self.engines.selected
        feed = self._watch.log(row.node, row.engine.key) if self._watch is not None and row is not None else None
        self.bottom.follow(feed)

    def perform(self, command: Command) -> None:
        """Run a command chosen by a click or in the palette; what is done to a finding wants one to be seen first."""
        if not {"app", "console"} & set(command.scopes):
            if self._view != "findings":
                self.action_view("findings")
                return
            self.call_later(self.app.run_action, command.action, self.findings)
            return
        self.call_later(self.app.run_action, command.action, self.app if "app" in command.scopes else self)

    @on(KeyLine.Chosen)
    def _chosen(self, message: KeyLine.Chosen) -> None:
        self.perform(message.command)

    @on(EnginePane.Selected)
    def _selected(self) -> None:
        self._follow_log()

    @on(NodePane.OtherWanted)
    def _other_wanted(self, message: NodePane.OtherWanted) -> None:
        self._node = next((i for i, pane in enumerate(self.nodes) if pane.node_name == message.node_name), self._node)
        self._arrange()
        self.nodes[self._node].focus()

    def action_details(self) -> None:
        """Of the verdict's first line; with nothing wrong, of the selected engine."""
        finding = self.verdict.first
        if finding is not None:
            self._open_finding(finding)
        else:
            self._toggle_engine_details()

    @on(FindingsPane.DetailsWanted)
    def _finding_wanted(self, message: FindingsPane.DetailsWanted) -> None:
        self._open_finding(message.finding)

    @on(FindingsPane.FixWanted)
    def _fix_wanted(self, message: FindingsPane.FixWanted) -> None:
        self.fix(message.finding)

    @on(FindingsPane.PlaceWanted)
    def _place_wanted(self, message: FindingsPane.PlaceWanted) -> None:
        self._open_place(message.finding)

    def _open_finding(self, finding: Finding) -> None:
        from sparktop.ui.screens.finding import FindingScreen

        pane = self.findings
        self._details = FindingScreen(
            pane.told(finding),
            acknowledge=pane.acknowledge,
            snooze=pane.snooze,
            open_place=self._open_place,
            fix=self.fix,
        )
        self.app.push_screen(self._details)

    def _renew_details(self) -> None:
        """An open finding is kept up with the picture; one that is no longer in it stays as it was last."""
        screen = self._details
        if screen is None:
            return
        if not screen.is_attached:
            self._details = None
            return
        finding = next((one for one in self._fleet.findings if one.key == screen.finding.key), screen.finding)
        screen.show(self.findings.told(finding))

    @on(FindingsPane.Changed)
    def _attention_changed(self) -> None:
        self.verdict.redraw()
        self._arrange()
        self._renew_details()

    def _open_place(self, finding: Finding) -> None:
        """Show the log that holds a finding's evidence."""
        place = place_of(finding)
        if place is None:
            self.notify("its evidence is from no log", markup=False, timeout=4)
        elif place.engine and self.engines.find(place.node, place.engine):
            self.action_view("log")
        elif not place.engine:
            self.action_view("kernel")
        else:
            self.notify(f"{place.engine} on {place.node} is no longer among the engines", markup=False, timeout=4)

    @on(EnginePane.DetailsWanted)
    def _toggle_engine_details(self) -> None:
        self._has_details = not self._has_details
        self._arrange()

    def action_view(self, view: str) -> None:
        assert view in VIEWS
        self._view, self._is_solo = view, False
        if view in ("log", "kernel"):
            self._bottom = view
        self._arrange()
        if view == "findings":
            self.findings.refill()
        panes = {
            "nodes": self.nodes[self._node],
            "log": self.bottom.log_pane,
            "kernel": self.bottom.kernel,
            "findings": self.findings,
        }
        self._focus(panes.get(view) or self.engines)

    def action_back(self) -> None:
        if self._has_details and self._view != "engines":
            self._toggle_engine_details()
        elif self._view != "overview":
            self.action_view("overview")

    def action_maximise(self) -> None:
        if self._view != "overview":
            self.action_view("overview")
            return
        pane = self._focused_pane()
        if isinstance(pane, NodePane):
            self._node = self.nodes.index(pane)
            self.action_view("nodes")
            self._is_solo = True
            self._arrange()
        elif pane is not None and pane is self.bottom.log_pane:
            self.action_view("log")
        elif pane is not None and pane is self.bottom.kernel:
            self.action_view("kernel")
        else:
            self.action_view("engines")

    def _panes(self) -> list[Widget]:
        """What Tab moves through, as shown."""
        nodes = [pane for pane in self.nodes if pane.display and self._node_row.display]
        others: list[Widget] = [pane for pane in (self.findings, self.engines) if pane.display]
        return [*nodes, *others, *self.bottom.shown]

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

    def selection(self) -> Selection:
        """Where the operator is: the engine under the cursor; the node whose pane has the focus, else that engine's."""
        from sparktop.operate.wishes import Selection

        row, pane, view = self.engines.selected, self._focused_pane(), self.selected_node
        engine = row.engine.name if row is not None else ""
        if isinstance(pane, NodePane):
            return Selection(node=pane.node_name, engine=engine)
        return Selection(node=row.node if row is not None else view.name if view is not None else "", engine=engine)

    @on(RunLine.Wanted)
    def _run_wanted(self) -> None:
        self.action_runs()

    def action_logs(self) -> None:
        self.action_view("log")

    def show_log(self, node: str, engine: str) -> bool:
        """The log of that engine on the whole screen; False where it isn't there."""
        if not self.engines.find(node, engine):
            return False
        self.action_view("log")
        return True

    def _on_log(self, action: str) -> None:
        """What keys outside a log mean: the engine's log, or the kernel's where only that is shown."""
        if not self.bottom.shown:
            self.action_view("log")
        if self.bottom.shown:
            pane = self.bottom.shown[0]
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
