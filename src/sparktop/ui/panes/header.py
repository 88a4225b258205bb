"""The console's first lines (header, runs) and its last line (keys)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from textual import events
from textual.message import Message
from textual.reactive import var

from sparktop.clock import Clock
from sparktop.documents.node_figures import SIGNS, badge, guard_brief, guard_word, has_guard
from sparktop.model.fleet import FleetState, LinkState
from sparktop.text.lines import BLANK, Line, joined, spread
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
        from sparktop.documents.step_text import masked_lines

        lines = []
        key = Line.of(("o", "key"), (" open ", "quiet"))
        for run in self._runs[-height:]:
            (told,) = masked_lines([summary(run, width - 1 - key.width - 2)], run.plan.secrets)
            lines.append(spread(width, Line.of(" ") + told, key))
        return lines

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.post_message(self.Wanted())


COST_WORTH_SAYING = 0.05
"""Percent of one core; less is shown as "under 0.1 %"."""


GAP = Line.of("   ")
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

    def draw(self, width: int, height: int) -> list[Line]:
        mode, _, title = self._title.partition(": ")  # "demo: a long title": the first word is never left out
        ports, now_s = self._forwards(), self._clock.monotonic()
        nodes = [Line.of((f"{view.name} ", "strong")) + badge(view, now_s) for view in self._fleet.nodes]
        clock = Line.of((clock_time(self._clock.wall()), "quiet"), " ")
        parts = {
            "brand": Line.of(("sparktop", "brand"), " " if mode else "   "),
            "mode": Line.of((f"{mode}   ", "warning")) if mode else BLANK,
            "links": joined(line + GAP for line in nodes),
            "guard": guard_brief(self._fleet),
            "ports": ports[0] if ports else BLANK,
            "access": self._access(),
            "title": Line.of((title, "quiet")) if title else BLANK,
            "cost": self._probe_cost(),
            "clock": clock,
        }
        # What is shortened or left out where there is no room, in this order.
        cuts = [{"cost": BLANK}, {"title": BLANK}]
        if not has_guard(self._fleet):
            cuts.append({"guard": BLANK})
        shorter = [{"ports": port} for port in ports[1:]]
        cuts += [{"access": BLANK}, shorter[0], {"brand": BLANK}, shorter[1]] if ports else [{"brand": BLANK}]
        if len(nodes) > 2:  # their ages go early; then they are only counted, and the rest is back
            states = [view.link.state for view in self._fleet.nodes]
            named = (_link(view.link.state, f"{view.name} ") for view in self._fleet.nodes)
            counted = (_link(state, count=f"{count} ") for state, count in Counter(states).items())
            counts = {**parts, "links": joined(line + GAP for line in counted)}
            cuts = [*cuts[:2], {"links": joined(line + GAP for line in named)}, *cuts[2:], counts, *cuts]
        cuts += [{"clock": BLANK}, {"access": BLANK, "clock": clock}] if mode else [{"access": BLANK}]
        cuts += [{"clock": BLANK}, {"ports": BLANK}]
        if has_guard(self._fleet):
            cuts += [{"guard": guard_word(self._fleet)}, {"guard": BLANK}]
        for cut in ({}, *cuts):
            parts |= cut
            left, right = _ends(parts)
            if left.width + right.width <= width:
                break
        return [left.fit(width - right.width) + right]

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


def _link(state: LinkState, name: str = "", *, count: str = "") -> Line:
    """ "spark1 ● live", "● 8 live"."""
    glyph, tone = SIGNS[state]
    return Line.of((name, "strong"), (f"{glyph} {count}{state}", tone))


def _ends(parts: Mapping[str, Line]) -> tuple[Line, Line]:
    """The header's parts at the left, and those at the right."""
    left = (parts[name] for name in ("brand", "mode", "links"))
    right = (parts[name] for name in ("guard", "ports", "access", "title", "cost"))
    spaced = (line + GAP for line in right if line.runs)
    return joined([Line.of(" "), *left]), joined([*spaced, parts["clock"]])


class KeyLine(LineWidget):
    """The footer: the main keys, with the open view marked; each can be clicked."""

    class Chosen(Message):
        """A command in the footer was clicked."""

        def __init__(self, command: Command) -> None:
            super().__init__()
            self.command = command

    ALWAYS = ("help", "quit")
    view: var[str] = var("overview", init=False)
    """The open view, which is marked."""
    watch_view = LineWidget.redraw

    def __init__(self, *, read_only: bool = False) -> None:
        """`read_only` leaves out the commands that change a Spark."""
        super().__init__(id="keys")
        self._read_only = read_only
        self._command_spans: list[tuple[int, int, Command]] = []
        self._is_tight = False

    def draw(self, width: int, height: int) -> list[Line]:
        self._command_spans = []
        self._is_tight = width < ROOMY
        shown = [one for one in COMMANDS if one.id in self.ALWAYS or (one.footer and self._is_in_view(one))]
        shown.sort(key=lambda command: command.id in self.ALWAYS)
        room, fitting = width - 1, set()
        # The keys for help, to quit and of the open view are never left out.
        for command in sorted(shown, key=lambda one: (one.id not in self.ALWAYS, one.id != self.view)):
            if (taken := self._item(command).width) <= room:
                room -= taken
                fitting.add(command.id)
        line = Line.of(" ")
        for command in shown:
            if command.id in fitting:
                item = self._item(command)
                self._command_spans.append((line.width, line.width + item.width, command))
                line = line + item
        return [line]

    def _is_in_view(self, command: Command) -> bool:
        if command.changes and self._read_only:
            return False
        return not command.footer_in or self.view in command.footer_in

    def _item(self, command: Command) -> Line:
        tone = "tab" if command.id == self.view else "quiet"
        after = "" if self._is_tight and tone != "tab" else " "
        return Line.of(
            (f" {key_name(command.keys[0])}", "tab" if tone == "tab" else "key"), (f" {command.footer}{after}", tone)
        )

    def on_click(self, event: events.Click) -> None:
        for start, stop, command in self._command_spans:
            if start <= event.x < stop:
                self.post_message(self.Chosen(command))
                return
