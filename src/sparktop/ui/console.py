"""The console screen: arranges the panes, gives them each fleet state, and carries out its commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Container
from textual.screen import Screen
from textual.widget import Widget

from sparktop import faults
from sparktop.documents.attention import Attention
from sparktop.documents.finding import evidence_log
from sparktop.documents.finding_tree import worst
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState, Link, LinkState, NodeView, Notice
from sparktop.observe.watch import Watch
from sparktop.text.graph import WINDOWS_S
from sparktop.text.lines import Line
from sparktop.ui.commands import Command, bindings
from sparktop.ui.console_layout import TILES_FROM, Arrangement, LayoutInputs, arrange, shown_nodes
from sparktop.ui.panes.bottom import Bottom
from sparktop.ui.panes.charts import Window
from sparktop.ui.panes.engines import EnginePane
from sparktop.ui.panes.findings import FindingsPane
from sparktop.ui.panes.header import Header, KeyLine, RunLine
from sparktop.ui.panes.node import NodePane
from sparktop.ui.panes.verdict import VerdictPane
from sparktop.ui.setup import Setup
from sparktop.ui.widgets.line_widget import CursorList, LineWidget

if TYPE_CHECKING:
    from sparktop.model.engine import Container as EngineContainer
    from sparktop.operate.targets import Selection
    from sparktop.ui.action_flow import ActionFlow
    from sparktop.ui.screens.finding import FindingScreen
    from sparktop.ui.session_runs import SessionRuns

BEFORE_LOSS_S = 120.0
"""How long before a loss its replay begins."""
TICK_S, TICK_ALONE_S = 0.5, 0.9
"""Ages and the clock that are this old are drawn again together with a picture, or alone by a timer of one second."""


class ConsoleScreen(Screen[None]):
    """The console: shows each fleet state that it is given; asks the Watch only for logs and reconnects."""

    BINDINGS = bindings("console")
    AUTO_FOCUS = "EnginePane"
    session_runs: SessionRuns
    acting: Callable[[], ActionFlow]
    """Both are set by the app."""

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self._setup = setup
        clock = self._clock = setup.clock
        self.attention = setup.attention or Attention(clock)
        link = Link(since_s=clock.monotonic(), since_wall_s=clock.wall())
        self.fleet = FleetState(nodes=tuple(NodeView(name=name, link=link) for name in setup.node_names))
        """The fleet state shown."""
        self._watch: Watch | None = None
        self.view = "overview"
        """The open view: "overview", "nodes", "engines", "findings", or a pane of the lower part."""
        self._is_solo = False
        self._node = 0
        self._bottom = "log"
        self._has_details = False
        self._window_s: float | None = None
        """How far back the graphs reach: one of WINDOWS_S."""
        self._details: FindingScreen | None = None
        self._arranged: Arrangement | None = None
        self._ticked_s = float("-inf")
        self._failed: dict[str, Notice] = {}
        """What failed when it was shown last, by the pane's name."""
        self.is_read_only = setup.read_only
        self.header = Header(clock, title=setup.title, read_only=setup.read_only, protected=setup.protected)
        self.runs = setup.runs or RunLine()
        self.verdict = VerdictPane(clock, standing_of=self.attention.standing)
        self.findings = FindingsPane(clock, self.attention)
        self.nodes = tuple(NodePane(name, clock) for name in setup.node_names)
        self._node_row = Container(*self.nodes, id="nodes")
        self.engines = EnginePane()
        self.bottom = Bottom(clock, self.contain)
        self.keys = KeyLine(read_only=setup.read_only)

    def compose(self) -> ComposeResult:
        self._arrange()  # before anything is mounted, so that the first layout is the right one
        yield self.header
        yield self.runs
        yield self.verdict
        yield self.findings
        yield self._node_row
        yield self.engines
        yield self.bottom
        yield self.keys

    @property
    def selected_node(self) -> NodeView | None:
        """The node whose pane is shown alone on a narrow screen."""
        return self.fleet.nodes[self._node] if self._node < len(self.fleet.nodes) else None

    def on_mount(self) -> None:
        self.show(self.fleet)

    def on_resize(self, event: events.Resize) -> None:
        self._arrange()

    async def complete(self) -> None:
        """Mount what the first paint does without."""
        try:
            await self.bottom.complete()
        except Exception as error:  # noqa: BLE001 - the figures are shown all the same
            self._note_fault("logs", error)
            self._show_verdict()
        self._arrange()

    def attach(self, watch: Watch) -> None:
        """Take the Watch, which has the logs."""
        self._watch = watch
        self.bottom.attach(watch)
        self._follow_log()

    def show_runs(self) -> None:
        """Show the newest states of the runs."""
        self.runs.show(self.session_runs.shown)
        self.verdict.has_run = self.session_runs.has_read_run
        self._arrange()

    def show(self, fleet: FleetState) -> None:
        """Show this fleet state; a pane paints only what changed."""
        self.fleet = fleet
        with self.app.batch_update():
            self.contain("attention", lambda: self.attention.follow(fleet.findings))
            for pane in (self.header, self.findings, self.engines):
                self.contain(pane_name(pane), partial(pane.show, fleet))
            self.bottom.show(fleet)
            self._show_nodes()
            self.contain("log", self._follow_log)
            self.contain("details", self._renew_details)
            # Last: it names what has failed in the others.
            self.contain("verdict", self._show_verdict)
            self._arrange()
            if self._is_older(TICK_S):
                self._tick(self.header, self.findings, *self.nodes)  # painted together with the picture

    def contain(self, name: str, show: Callable[[], object]) -> None:
        """Show something in this pane; a fault in it costs only this pane, and the top line names it."""
        try:
            show()
        except Exception as error:  # noqa: BLE001 - whatever it is, the rest of the console goes on
            self._note_fault(name, error)
        else:
            self._failed.pop(name, None)

    def _note_fault(self, pane: str, error: Exception) -> None:
        text = faults.report(f"the pane {pane}", error)
        self._failed[pane] = Notice(severity=Severity.WARNING, text=text)

    def _show_verdict(self) -> None:
        failed = tuple(self._failed.values())
        self.verdict.show(replace(self.fleet, notices=(*self.fleet.notices, *failed)) if failed else self.fleet)

    def _show_nodes(self) -> None:
        visible_panes = [pane for pane in self.nodes if pane.display]
        hidden = [pane.node_name for pane in self.nodes if not pane.display]
        hidden_views = tuple(view for view in self.fleet.nodes if view.name in hidden)
        for pane in visible_panes:
            others = hidden_views if pane is visible_panes[-1] else ()
            view = self.fleet.node(pane.node_name)
            if view is not None:
                findings = tuple(found for found in self.fleet.findings if pane.node_name in found.nodes)
                window = Window(
                    span_s=self._window_s,
                    findings=findings,
                    is_tile=len(visible_panes) >= TILES_FROM,
                    worst=worst(findings, self.attention.standing) if len(self.nodes) >= TILES_FROM else None,
                    interventions=tuple(one for one in self.fleet.interventions if one.node == pane.node_name),
                    wall_s=self._clock.wall(),
                    has_colour=not self.app.no_color,
                )
                self.contain(pane.node_name, partial(pane.show, view, others, window))

    def tick(self) -> None:
        """Redraw ages, countdowns and the clock, unless a picture has done so in the last second."""
        if self._is_older(TICK_ALONE_S):
            with self.app.batch_update():
                self._tick(self.header, self.verdict, self.findings, *self.nodes)

    def _is_older(self, seconds: float) -> bool:
        return self._clock.monotonic() - self._ticked_s >= seconds

    def _tick(self, *panes: LineWidget) -> None:
        self._ticked_s = self._clock.monotonic()
        for pane in panes:
            if pane.display:
                self.contain(f"{pane_name(pane)}'s clock", pane.tick)

    def has_line_of(self, finding: Finding) -> bool:
        """Whether the finding has a line on the screen now, be it in a dialog's own view of the verdict."""
        if getattr(self.app.screen, "has_glance", False):
            first = worst(self.fleet.findings, self.attention.standing)
            return first is not None and first.key == finding.key
        return self.app.screen is self and (self.view == "findings" or self.verdict.has_line_of(finding))

    def glance(self, nodes: Sequence[str], width: int) -> list[Line]:
        """The verdict and the memory of these nodes now, for a dialog that covers the console."""
        from sparktop.documents.snapshot import glance  # not needed until somebody acts

        height, now_s = self.app.size.height, self._clock.wall()
        return glance(
            self.fleet,
            nodes,
            width,
            height,
            now_wall_s=now_s,
            standing_of=self.attention.standing,
            calm=self.verdict.calm(width),
        )

    def fail(self, text: str) -> None:
        """Show that watching ended with an error, and keep the last fleet state."""
        self.verdict.fail(text)
        self.findings.has_failed = True
        self._arrange()

    def _arrange(self) -> None:
        self.contain("layout", self._rearrange)

    def _rearrange(self) -> None:
        width, height = self.app.size
        self.verdict.is_listed = self.view == "findings"
        arrangement = arrange(
            LayoutInputs(
                width=width,
                height=height,
                view=self.view,
                nodes=len(self.nodes),
                is_solo=self._is_solo,
                verdict_lines=self.verdict.wanted_lines,
                run_lines=self.runs.wanted_lines,
                engine_lines=self.engines.wanted_lines,
                detail_lines=self.engines.detail_lines(width) if self._has_details else 0,
                bottom=self._bottom if self.engines.selected or self.view == "log" else "kernel",
                is_kernel_quiet=self.bottom.is_kernel_quiet,
            )
        )
        shown = shown_nodes(
            [self._weight(pane.node_name) for pane in self.nodes],
            arrangement.panes,
            selected=self._node,
            before=[index for index, pane in enumerate(self.nodes) if pane.display],
        )
        for index, pane in enumerate(self.nodes):
            pane.display = index in shown
        if arrangement != self._arranged:
            self._arranged = arrangement
            self._apply(arrangement)
        self.engines.is_alone = self.view == "engines"
        self.engines.has_details = self._has_details or self.engines.is_alone
        self.keys.view = self.view
        self._show_nodes()

    def _weight(self, name: str) -> int:
        """How bad it is with a node: of many, the worst are on the screen."""
        view = self.fleet.node(name)
        if view is not None and view.link.state not in (LinkState.LIVE, LinkState.CONNECTING):
            return Severity.CRITICAL.weight
        first = worst([found for found in self.fleet.findings if name in found.nodes], self.attention.standing)
        return 0 if first is None or first.severity is Severity.INFO else first.severity.weight

    def _apply(self, arrangement: Arrangement) -> None:
        self.verdict.styles.height = arrangement.verdict
        self.runs.styles.height = arrangement.runs
        self.runs.display = arrangement.runs > 0
        nodes, bottom = self._node_row, self.bottom
        heights: tuple[tuple[Widget, int], ...] = (
            (self.findings, arrangement.findings),
            (nodes, arrangement.nodes),
            (self.engines, arrangement.engines),
            (bottom, arrangement.logs),
        )
        for widget, lines in heights:
            widget.display = lines > 0
            widget.styles.height = lines
        nodes.styles.grid_size_columns = arrangement.columns
        bottom.set_class(not arrangement.logs_stacked, "-beside")
        bottom.show_only(arrangement.bottom)

    @on(CursorList.Moved)
    def _follow_log(self) -> None:
        row = self.engines.selected
        feed = self._watch.log(row.node, row.engine.key) if self._watch is not None and row is not None else None
        self.bottom.follow(feed)

    def perform(self, command: Command) -> None:
        """Run a command chosen by a click or in the palette; one for a finding first opens the list of findings."""
        if not {"app", "console"} & set(command.scopes):
            if self.view != "findings":
                self.action_view("findings")
                return
            self.call_later(self.app.run_action, command.action, self.findings)
            return
        self.call_later(
            self.app.run_action, command.action_in("console"), self.app if "app" in command.scopes else self
        )

    @on(KeyLine.Chosen)
    def _command_clicked(self, message: KeyLine.Chosen) -> None:
        self.perform(message.command)

    @on(NodePane.OtherNodeWanted)
    def _other_wanted(self, message: NodePane.OtherNodeWanted) -> None:
        self._node = next((i for i, pane in enumerate(self.nodes) if pane.node_name == message.node_name), self._node)
        self._arrange()
        self.nodes[self._node].focus()

    @on(CursorList.Opened)
    def _open_row(self) -> None:
        if self.findings.has_focus:
            self.action_details()
        elif self.engines.has_focus:
            self._toggle_engine_details()

    def _chosen_finding(self, otherwise: Finding | None) -> Finding | None:
        """The selected one in the list of findings; `otherwise` where another view is open."""
        if self.view != "findings":
            return otherwise
        return self.findings.selected.finding if self.findings.selected is not None else None

    def action_details(self) -> None:
        """Open the details of the selected finding, or of the verdict's finding or note; without one, those of the
        selected engine."""
        finding = self._chosen_finding(self.verdict.first or self.verdict.note)
        if finding is not None:
            self._open_finding(finding)
        elif self.view != "findings":
            self._toggle_engine_details()

    def _open_finding(self, finding: Finding) -> None:
        from sparktop.ui.screens.finding import FindingScreen

        pane = self.findings
        screen = self._details = FindingScreen(pane.finding_view(finding), acknowledge=pane.acknowledge)
        next_of = {"snooze": pane.snooze, "log": self._open_evidence_log, "fix": self.fix}

        def closed(chosen: str | None) -> None:
            if chosen is not None:
                next_of[chosen](screen.finding)

        self.app.push_screen(screen, closed)

    def _renew_details(self) -> None:
        """Update the open finding from the newest fleet state; one that is no longer in it stays as last seen."""
        screen = self._details
        if screen is None:
            return
        if not screen.is_attached:
            self._details = None
            return
        finding = next((other for other in self.fleet.findings if other.key == screen.finding.key), screen.finding)
        screen.show(self.findings.finding_view(finding))

    @on(FindingsPane.Changed)
    def _attention_changed(self) -> None:
        self.verdict.redraw()
        self._arrange()
        self._renew_details()

    def _open_evidence_log(self, finding: Finding) -> None:
        """Show the log that has a finding's evidence."""
        log = evidence_log(finding)
        if log is None:
            self.notify("its evidence is from no log", markup=False, timeout=4)
        elif log.engine and self.engines.find(log.node, log.engine):
            self.action_view("log")
        elif not log.engine:
            self.action_view("kernel")
        else:
            self.notify(f"{log.engine} on {log.node} is no longer among the engines", markup=False, timeout=4)

    def _toggle_engine_details(self) -> None:
        self._has_details = not self._has_details
        self._arrange()

    def action_view(self, view: str) -> None:
        self.view, self._is_solo = view, False
        if view in ("log", "kernel"):
            self._bottom = view
        self._arrange()
        if view == "findings":
            self.findings.refill()
            self.findings.select_worst()
        panes = {"nodes": self.nodes[self._node], "findings": self.findings, **self.bottom.panes}
        self._focus(panes.get(view) or self.engines)

    def action_back(self) -> None:
        if self._has_details and self.view != "engines":
            self._toggle_engine_details()
        elif self.view != "overview":
            self.action_view("overview")

    def action_maximise(self) -> None:
        if self.view != "overview":
            self.action_view("overview")
            return
        pane = self._focused_pane()
        if isinstance(pane, NodePane):
            self._node = self.nodes.index(pane)
            self.action_view("nodes")
            self._is_solo = True
            self._arrange()
        else:
            self.action_view(next((name for name, other in self.bottom.panes.items() if other is pane), "engines"))

    def _panes(self) -> list[Widget]:
        """The shown panes, in the order of Tab."""
        nodes = [pane for pane in self.nodes if pane.display and self._node_row.display]
        other_panes: list[Widget] = [pane for pane in (self.findings, self.engines) if pane.display]
        return [*nodes, *other_panes, *self.bottom.shown]

    def _focused_pane(self) -> Widget | None:
        return next((pane for pane in self._panes() if pane.has_focus or pane.has_focus_within), None)

    def _focus(self, pane: Widget) -> None:
        if isinstance(pane, NodePane):
            self._node = self.nodes.index(pane)
        pane.focus()

    def action_step_pane(self, step: int) -> None:
        """Move the focus to the next pane, or to the one before."""
        panes = self._panes()
        focused = self._focused_pane()
        index = panes.index(focused) if focused in panes else -1 if step > 0 else 0
        self._focus(panes[(index + step) % len(panes)])

    def action_step_node(self, step: int) -> None:
        """Select the next node, or the one before."""
        had_focus = isinstance(self._focused_pane(), NodePane)
        self._node = (self._node + step) % len(self.nodes)
        self._arrange()
        if had_focus or (self._arranged is not None and self._arranged.panes > 1):
            self.nodes[self._node].focus()

    def action_window(self) -> None:
        """Let the graphs reach further back; after the whole session as far as they begin."""
        self._window_s = WINDOWS_S[(WINDOWS_S.index(self._window_s) + 1) % len(WINDOWS_S)]
        self.engines.window_s = self._window_s
        self._show_nodes()

    def action_retry(self) -> None:
        """Reconnect every node that is not live now."""
        if self._watch is None:
            return
        down = [view.name for view in self.fleet.nodes if view.link.state is not LinkState.LIVE]
        for name in down:
            self._watch.retry_now(name)
        text = f"reconnecting to {', '.join(down)}" if down else "all nodes are live"
        self.notify(text, markup=False, timeout=3)

    async def action_forward(self) -> None:
        """Open a local port to the selected engine, or close the one that leads there."""
        from sparktop.errors import UsageError

        chosen = self.selection()
        if self._watch is None or not chosen.engine:
            self.notify("Select an engine first.", markup=False, timeout=3)
            return
        if any((one.node, one.engine) == (chosen.node, chosen.engine) for one in self.fleet.forwards):
            await self._watch.end_forward(chosen.node, chosen.engine)
            self.notify(f"The local port to {chosen.engine} is closed.", markup=False, timeout=4)
            return
        try:
            made = await self._watch.forward(chosen.node, chosen.engine)
        except UsageError as error:
            self.notify(f"{error.message}{f': {error.hint}' if error.hint else ''}", severity="error", markup=False)
            return
        text = f"http://127.0.0.1:{made.port} leads to {made.engine} on {made.node} until you quit; F closes it."
        self.notify(text, markup=False, timeout=8)

    def selection(self) -> Selection:
        """The engine under the cursor, and the node whose pane has the focus, or whose process, else that engine's."""
        from sparktop.operate.targets import Selection
        from sparktop.ui.panes.processes import ProcessPane

        row, pane, view = self.engines.selected, self._focused_pane(), self.selected_node
        engine = row.engine.name if row is not None else ""
        if isinstance(pane, NodePane):
            return Selection(node=pane.node_name, engine=engine, subject="node")
        if isinstance(pane, ProcessPane) and (process := pane.row_list.selected) is not None:
            return Selection(node=process.node, engine=engine, pid=str(process.pid), subject="process")
        node = row.node if row is not None else view.name if view is not None else ""
        return Selection(node=node, engine=engine, subject="engine" if engine else "node")

    async def action_shell(self) -> None:
        """Open a shell in the selected engine's container, else on the node of what is selected."""
        from sparktop.model.request import Request
        from sparktop.operate.run.gate import request_refusal
        from sparktop.ui.shell import open_shell

        node, container = self._shell_place()
        refused = request_refusal(
            Request(action="shell", nodes=(node,)), is_read_only=self.is_read_only, protected=self._setup.protected
        )
        if (shell := self._setup.shell) is None:
            self.notify("The Sparks of a demo are simulated: there is no shell on them.", markup=False, timeout=4)
        elif refused is not None:
            self.notify(f"A shell could change anything. {refused}", severity="warning", markup=False)
        elif not self._has_shell:
            place = f"{container.name} on {node}" if container is not None else node
            argv = shell(node, container.container_id if container is not None else "")
            self.run_worker(open_shell(self.app, argv, place), group="shell")

    @property
    def _has_shell(self) -> bool:
        return any(worker.group == "shell" and not worker.is_finished for worker in self.workers)

    def action_replay(self) -> None:
        """Open what was recorded of the selected node, shortly before it was lost."""
        from sparktop.ui.shell import open_shell, replay_argv

        view = self.fleet.node(self.selection().node)
        if self._setup.recordings is None or view is None:
            self.notify("Nothing is recorded here.", markup=False, timeout=4)
        elif not self._has_shell:
            lost = [one.wall_s for one in view.link_history if one.state in (LinkState.LOST, LinkState.STALE)]
            seen = [view.last_seen.wall_s] if view.last_seen is not None else []
            at_s = max((*lost, *seen)) - BEFORE_LOSS_S if (*lost, *seen) else self._clock.wall() - 5 * BEFORE_LOSS_S
            argv = replay_argv(view.name, self._setup.recordings, at_s)
            replay = open_shell(self.app, argv, f"the recording of {view.name}", leave="q", failed=range(1, 256))
            self.run_worker(replay, group="shell")

    def _shell_place(self) -> tuple[str, EngineContainer | None]:
        """(node, the container that runs there) of what is selected; None: the node itself."""
        chosen, engine = self.selection(), self.engines.selected
        container = engine.engine.container if engine is not None else None
        is_running = container is not None and container.status == "running" and not container.is_gone
        return chosen.node, container if chosen.subject == "engine" and is_running else None

    def fix(self, finding: Finding | None) -> None:
        """Choose among the remedies of this finding."""
        self.acting().fix(finding, self.verdict.roots)

    def action_fix(self) -> None:
        """Choose a remedy of the selected finding, or of the verdict's first, or start again what was stopped."""
        self.fix(self._chosen_finding(self.verdict.fixable))

    def action_act(self, name: str) -> None:
        self.acting().act(name, self.selection())

    def action_actions(self) -> None:
        self.acting().choose(self.selection())

    def action_launch(self) -> None:
        self.acting().launch(self.selection())

    def action_bring_up(self) -> None:
        self.acting().bring_up()

    @on(RunLine.Wanted)
    def action_runs(self) -> None:
        self.acting().open_run()

    def action_logs(self) -> None:
        """Show the log with the selected finding's evidence, else that of the selected engine."""
        if (finding := self._chosen_finding(None)) is not None:
            self._open_evidence_log(finding)
        else:
            self.action_view("log")

    def show_log(self, node: str, engine: str) -> bool:
        """Show the log of that engine on the whole screen; False where there is no such engine."""
        if not self.engines.find(node, engine):
            return False
        self.action_view("log")
        return True

    def action_on_log(self, action: str) -> None:
        """Run a log action on the shown log: the engine's, or the kernel's where only that is shown."""
        if not self.bottom.shown_logs:
            self.action_view("log")
        if self.bottom.shown_logs:
            pane = self.bottom.shown_logs[0]
            self._focus(pane)
            self.call_later(self.app.run_action, action, pane)

    async def action_export(self) -> None:
        """Write this fleet state to a file, as `sparktop status` prints it, secrets masked."""
        from sparktop.documents.snapshot import snapshot_lines
        from sparktop.text.lines import CLIPBOARD_CELLS
        from sparktop.ui.widgets.log_file import export

        lines = [(line.plain.rstrip(), None) for line in snapshot_lines(self.fleet, CLIPBOARD_CELLS)]
        await export(self, lines, "The state", title="status", wall_s=self._clock.wall())


def pane_name(pane: Widget) -> str:
    """What a pane is called where a fault in it is named."""
    return pane.node_name if isinstance(pane, NodePane) else pane.id or type(pane).__name__
