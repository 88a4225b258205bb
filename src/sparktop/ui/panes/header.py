"""The first line, who is watched and how fresh that is, and the last line, what the keys do."""

from __future__ import annotations

from textual import events
from textual.message import Message

from sparktop.clock import Clock
from sparktop.model.fleet import FleetState
from sparktop.ui.commands import COMMANDS, Command, key_name
from sparktop.ui.format import clock_time, percent
from sparktop.ui.panes.guard_text import guard_brief, guard_word, is_worth_its_room
from sparktop.ui.panes.link_text import badge
from sparktop.ui.widgets.ink import Line, LineWidget

COST_WORTH_SAYING = 0.05
"""Percent of one core; less is shown as a bound."""


ROOMY = 100
"""Cells from which the keys stand two blanks apart."""


class Header(LineWidget):
    """Nodes with their links and the age of their samples, the guard, what watching costs, and the time."""

    def __init__(
        self, clock: Clock, *, title: str = "", read_only: bool = False, protected: frozenset[str] = frozenset()
    ) -> None:
        """`protected` are nodes that nothing may be done to."""
        super().__init__(id="header")
        self._protected = protected
        self._clock = clock
        self._title = title
        self._read_only = read_only
        self._fleet = FleetState()

    def show(self, fleet: FleetState) -> None:
        """Show the links of this picture; ages move with the tick, so that they don't flicker with each message."""
        before = [(view.name, view.link.state, view.guard) for view in self._fleet.nodes]
        self._fleet = fleet
        if before != [(view.name, view.link.state, view.guard) for view in fleet.nodes]:
            self.redraw()

    def tick(self) -> None:
        """A second has passed: ages and the clock."""
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        now_s = self._clock.monotonic()
        nodes = [Line.of((f"{view.name} ", "strong")) + badge(view, now_s) for view in self._fleet.nodes]
        links = Line(tuple(run for line in nodes for run in (*line.runs, ("   ", ""))))
        brand = Line.of(" ", ("sparktop", "brand"), "   ")
        clock = Line.of((clock_time(self._clock.wall()), "quiet"), " ")
        guard = guard_brief(self._fleet)
        extras = [self._access()]
        if self._title:
            extras.append(Line.of((self._title, "quiet")))
        if costs := self._costs():
            extras.append(costs)
        left = brand + links
        is_guarded = is_worth_its_room(self._fleet)
        if left.width + (guard if is_guarded else clock).width > width:
            left = Line.of(" ") + links
        # What goes first when there is no room: the cost, the title, a guard that is off, the word read-only, the time,
        # and last a guard that isn't off.
        rights = [[guard, *extras[:keep], clock] for keep in range(len(extras), 0, -1)]
        last = [[guard, clock], [guard], [guard_word(self._fleet)]] if is_guarded else [[extras[0], clock], [clock]]
        for parts in (*rights, *last, []):
            right = Line(tuple(run for part in parts for run in (*part.runs, ("   " if part is not clock else "", ""))))
            if left.width + right.width <= width:
                return [left.fit(width - right.width) + right]
        return [left.cut(width)]

    def _access(self) -> Line:
        """Whether anything may be done, and to which nodes nothing."""
        if self._read_only:
            return Line.of(("read-only", "quiet"))
        kept = [view.name for view in self._fleet.nodes if view.name in self._protected]
        if not kept:
            return Line.of(("read-write", "quiet"))
        if len(kept) == len(self._fleet.nodes):
            return Line.of(("protected", "quiet"))
        return Line.of((f"read-write, {' and '.join(kept)} protected", "quiet"))

    def _costs(self) -> Line:
        known = [(v.name, v.probe_cpu_percent) for v in self._fleet.nodes if v.probe_cpu_percent is not None]
        if not known:
            return Line()
        name, most = max(known, key=lambda item: item[1])
        amount = percent(most) if most >= COST_WORTH_SAYING else "under 0.1 %"
        return Line.of(("costs ", "quiet"), (f"{name} " if len(known) > 1 else "", "quiet"), (amount, "quiet"))


class KeyLine(LineWidget):
    """The keys that matter, with the open view marked; each can be clicked."""

    class Chosen(Message):
        """A key's words were clicked."""

        def __init__(self, command: Command) -> None:
            super().__init__()
            self.command = command

    ALWAYS = ("help", "quit")

    def __init__(self, *, read_only: bool = False) -> None:
        """`read_only` leaves out what leads to a change."""
        super().__init__(id="keys")
        self._read_only = read_only
        self._view = "overview"
        self._places: list[tuple[int, int, Command]] = []
        self._is_tight = False

    def show(self, view: str) -> None:
        """Mark this view as the open one."""
        self._view = view
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        self._places = []
        self._is_tight = width < ROOMY
        last = [command for command in COMMANDS if command.id in self.ALWAYS]
        first = [one for one in COMMANDS if one.footer and one.id not in self.ALWAYS and self._is_here(one)]
        reserved = sum(self._item(command).width + 1 for command in last)
        line = Line.of(" ")
        for command in first:
            item = self._item(command)
            if line.width + item.width + 1 + reserved <= width:
                line = self._placed(line, item, command)
        for command in last:
            line = self._placed(line, self._item(command), command)
        return [line]

    def _is_here(self, command: Command) -> bool:
        if command.changes and self._read_only:
            return False
        return not command.footer_in or self._view in command.footer_in

    def _item(self, command: Command) -> Line:
        tone = "tab" if command.id == self._view else "quiet"
        after = "" if self._is_tight and tone != "tab" else " "
        return Line.of(
            (f" {key_name(command.keys[0])}", "tab" if tone == "tab" else "key"), (f" {command.footer}{after}", tone)
        )

    def _placed(self, line: Line, item: Line, command: Command) -> Line:
        self._places.append((line.width, line.width + item.width, command))
        return line + item

    def on_click(self, event: events.Click) -> None:
        for start, stop, command in self._places:
            if start <= event.x < stop:
                self.post_message(self.Chosen(command))
                return
