"""The console's first lines (header, runs) and its last line (keys)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual import events
from textual.message import Message

from sparktop.clock import Clock
from sparktop.documents.status import SIGNS, badge, guard_brief, guard_word, has_guard
from sparktop.model.fleet import FleetState
from sparktop.text.lines import Line, spread
from sparktop.text.units import clock_time, percent
from sparktop.ui.commands import COMMANDS, Command, key_name
from sparktop.ui.widgets.line_widget import LineWidget

if TYPE_CHECKING:
    from sparktop.operate.step.run import Run

MAX_LINES = 2


class RunLine(LineWidget):
    """Runs under way and runs that ended unread, one line each; hidden without any."""

    class Wanted(Message):
        """The line was clicked: open the run."""

    def __init__(self) -> None:
        super().__init__(id="runs")
        self._runs: Sequence[Run] = ()

    @property
    def wanted_lines(self) -> int:
        """How many lines there are to show."""
        return min(MAX_LINES, len(self._runs))

    def show(self, runs: Sequence[Run]) -> None:
        """Show these runs, the newest last."""
        self._runs = runs
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        if not self._runs:
            return []
        from sparktop.documents.run import summary  # not needed until somebody acts
        from sparktop.documents.step_text import masked

        lines = []
        key = Line.of(("o", "key"), (" open ", "quiet"))
        for run in self._runs[-height:]:
            told = summary(run, width - 1 - key.width - 2)
            summary_line = Line(tuple((masked(text, run.plan.secrets), tone) for text, tone in told.runs))
            lines.append(spread(width, Line.of(" ") + summary_line, key))
        return lines

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.post_message(self.Wanted())


COST_WORTH_SAYING = 0.05
"""Percent of one core; less is shown as "under 0.1 %"."""


ROOMY = 100
"""Width from which the keys are two blanks apart."""


class Header(LineWidget):
    """The nodes with their links and ages, the guard, the access mode, the probe's CPU cost, and the time."""

    def __init__(
        self, clock: Clock, *, title: str = "", read_only: bool = False, protected: frozenset[str] = frozenset()
    ) -> None:
        """`protected` are the nodes that may not be changed."""
        super().__init__(id="header")
        self._protected = protected
        self._clock = clock
        self._title = title
        self._read_only = read_only
        self._fleet = FleetState()

    def show(self, fleet: FleetState) -> None:
        """Show the links of this fleet state; ages are redrawn by `tick` alone, so that they don't flicker."""
        before = [(view.name, view.link.state, view.guard) for view in self._fleet.nodes]
        had = self._fleet.forwards
        self._fleet = fleet
        if had != fleet.forwards or before != [(view.name, view.link.state, view.guard) for view in fleet.nodes]:
            self.redraw()

    def tick(self) -> None:
        """A second has passed: redraw ages and the clock."""
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        now_s = self._clock.monotonic()
        nodes = [Line.of((f"{view.name} ", "strong")) + badge(view, now_s) for view in self._fleet.nodes]
        if len(nodes) > 2 and sum(line.width + 3 for line in nodes) > width:
            states = Counter(view.link.state for view in self._fleet.nodes)
            signs = ((count, state, *SIGNS[state]) for state, count in states.items())
            nodes = [Line.of((f"{glyph} {count} {state}", tone)) for count, state, glyph, tone in signs]
        links = Line(tuple(run for line in nodes for run in (*line.runs, ("   ", ""))))
        # "demo: a long title": the first word is never left out.
        mode, _, title = self._title.partition(": ")
        marked = Line.of((f"{mode}   ", "warning")) if mode else Line()
        brand = Line.of(" ", ("sparktop", "brand"), " " if mode else "   ") + marked
        clock = Line.of((clock_time(self._clock.wall()), "quiet"), " ")
        guard = guard_brief(self._fleet)
        forwards, access = self._forwards(), self._access()
        extras = [*forwards[:1], access]
        if title:
            extras.append(Line.of((title, "quiet")))
        if costs := self._probe_cost():
            extras.append(costs)
        branded, bare = brand + links, Line.of(" ") + marked + links
        # Left out where there is no room, in this order: the cost, the title, a guard that is off, the name of the
        # program, the access mode (in a demo the time), the time, local ports, and last a guard that isn't off.
        rights = [[guard, *extras[:keep], clock] for keep in range(len(extras), 0, -1)]
        alone = [[access]] if mode else []
        fewer = (
            [*([[guard, *right] for right in alone]), [guard, clock], [guard], [guard_word(self._fleet)]]
            if has_guard(self._fleet)
            else [[access, clock], *alone, [clock]]
        )
        first = [guard] if has_guard(self._fleet) else []
        ports = [[*first, port, *last] for port in forwards for last in ([clock], [])]
        if ports:
            rights += ports
        elif not has_guard(self._fleet):
            rights.append(fewer.pop(0))
        for nodes_line, choices in ((branded, rights), (bare, [*(ports or rights[-1:]), *fewer, []])):
            for parts in choices:
                details = Line(
                    tuple(run for item in parts for run in (*item.runs, ("   " if item is not clock else "", "")))
                )
                if nodes_line.width + details.width <= width:
                    return [nodes_line.fit(width - details.width) + details]
        return [bare.cut(width)]

    def _access(self) -> Line:
        """ "read-only", "read-write", "protected", or which nodes are protected."""
        if self._read_only:
            return Line.of(("read-only", "quiet"))
        protected = [view.name for view in self._fleet.nodes if view.name in self._protected]
        if not protected:
            return Line.of(("read-write", "quiet"))
        if len(protected) == len(self._fleet.nodes):
            return Line.of(("protected", "quiet"))
        return Line.of((f"read-write, {' and '.join(protected)} protected", "quiet"))

    def _forwards(self) -> list[Line]:
        """Local ports that lead to engines, ever shorter: "127.0.0.1:8001 → vllm", ":8001 → vllm", ":8001"."""
        if not self._fleet.forwards:
            return []
        named = ", ".join(f":{one.port} → {one.engine}" for one in self._fleet.forwards)
        ports = ", ".join(f":{one.port}" for one in self._fleet.forwards)
        return [Line.of(("127.0.0.1", "quiet"), (named, "info")), Line.of((named, "info")), Line.of((ports, "info"))]

    def _probe_cost(self) -> Line:
        costs = [(v.name, v.probe_cpu_percent) for v in self._fleet.nodes if v.probe_cpu_percent is not None]
        if not costs:
            return Line()
        name, highest = max(costs, key=lambda item: item[1])
        amount = percent(highest) if highest >= COST_WORTH_SAYING else "under 0.1 %"
        return Line.of(("costs ", "quiet"), (f"{name} " if len(costs) > 1 else "", "quiet"), (amount, "quiet"))


class KeyLine(LineWidget):
    """The footer: the main keys, with the open view marked; each can be clicked."""

    class Chosen(Message):
        """A command in the footer was clicked."""

        def __init__(self, command: Command) -> None:
            super().__init__()
            self.command = command

    ALWAYS = ("help", "quit")

    def __init__(self, *, read_only: bool = False) -> None:
        """`read_only` leaves out the commands that change a Spark."""
        super().__init__(id="keys")
        self._read_only = read_only
        self._view = "overview"
        self._command_spans: list[tuple[int, int, Command]] = []
        self._is_tight = False

    def show(self, view: str) -> None:
        """Mark this view as the open one."""
        if view != self._view:
            self._view = view
            self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        self._command_spans = []
        self._is_tight = width < ROOMY
        always = [command for command in COMMANDS if command.id in self.ALWAYS]
        others = [
            candidate
            for candidate in COMMANDS
            if candidate.footer and candidate.id not in self.ALWAYS and self._is_in_view(candidate)
        ]
        room = width - 1 - sum(self._item(command).width for command in always)
        fitting = set()
        for command in sorted(others, key=lambda command: command.id != self._view):  # the open view is never left out
            if (taken := self._item(command).width) <= room:
                room -= taken
                fitting.add(command.id)
        line = Line.of(" ")
        for command in others:
            if command.id in fitting:
                line = self._append(line, self._item(command), command)
        for command in always:
            line = self._append(line, self._item(command), command)
        return [line]

    def _is_in_view(self, command: Command) -> bool:
        if command.changes and self._read_only:
            return False
        return not command.footer_in or self._view in command.footer_in

    def _item(self, command: Command) -> Line:
        tone = "tab" if command.id == self._view else "quiet"
        after = "" if self._is_tight and tone != "tab" else " "
        return Line.of(
            (f" {key_name(command.keys[0])}", "tab" if tone == "tab" else "key"), (f" {command.footer}{after}", tone)
        )

    def _append(self, line: Line, item: Line, command: Command) -> Line:
        self._command_spans.append((line.width, line.width + item.width, command))
        return line + item

    def on_click(self, event: events.Click) -> None:
        for start, stop, command in self._command_spans:
            if start <= event.x < stop:
                self.post_message(self.Chosen(command))
                return
