"""What is wrong now, worst first, one line each; a quiet line when nothing is."""

from __future__ import annotations

from sparktop.clock import Clock
from sparktop.model.event import Severity
from sparktop.model.fleet import FleetState, LinkState, Notice
from sparktop.ui.format import countdown
from sparktop.ui.widgets.ink import Line, LineWidget, spread

SIGNS: dict[Severity, tuple[str, str]] = {
    Severity.CRITICAL: ("✖", "critical"),
    Severity.WARNING: ("▲", "warning"),
    Severity.INFO: ("•", "info"),
}
"""Severity -> (glyph, tone)."""
MAX_LINES = 4


class Verdict(LineWidget):
    """The fleet's notices."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(id="verdict")
        self._clock = clock
        self._fleet = FleetState()
        self._failure = ""

    @property
    def wanted_lines(self) -> int:
        """How many lines there are to say."""
        return max(1, min(MAX_LINES, len(self._fleet.notices) + bool(self._failure)))

    def show(self, fleet: FleetState) -> None:
        """Show what this picture says is wrong."""
        self._fleet = fleet
        self.redraw()

    def fail(self, text: str) -> None:
        """The watching itself has ended: said before anything else, and it stays."""
        self._failure = text
        self.redraw()

    def tick(self) -> None:
        """A second has passed: times to the next attempt."""
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        lines: list[Line] = []
        if self._failure:
            lines.append(Line.of((f" ✖ {self._failure}", "critical")).cut(width))
        shown = self._fleet.notices
        room = height - len(lines)
        if len(shown) > room:
            shown = shown[: max(0, room - 1)]
        lines += [self._notice(notice, width) for notice in shown]
        hidden = len(self._fleet.notices) - len(shown)
        if hidden and len(lines) < height:
            lines.append(Line.of((f" … and {hidden} more", "quiet")))
        return lines or [self._quiet()]

    def _notice(self, notice: Notice, width: int) -> Line:
        glyph, tone = SIGNS[notice.severity]
        name = f"{notice.node}  " if notice.node else ""
        text_tone = "strong" if notice.severity is Severity.CRITICAL else ""
        left = Line.of((f" {glyph} ", tone), (name, tone), (notice.text, text_tone))
        return spread(width, left, self._when(notice))

    def _when(self, notice: Notice) -> Line:
        """For a lost link: when it is tried again."""
        view = self._fleet.node(notice.node) if notice.node else None
        if view is None or view.link.state is not LinkState.LOST:
            return Line()
        if notice is not next(other for other in self._fleet.notices if other.node == notice.node):
            return Line()
        wait_s = (view.link.next_attempt_s or 0.0) - self._clock.monotonic()
        return Line.of((f"next try in {countdown(wait_s)}  r now " if wait_s > 0 else "trying now ", "quiet"))

    def _quiet(self) -> Line:
        states = {view.link.state for view in self._fleet.nodes}
        if not states or states == {LinkState.CONNECTING}:
            return Line.of((" connecting…", "quiet"))
        if states & {LinkState.CONNECTING}:
            waiting = ", ".join(v.name for v in self._fleet.nodes if v.link.state is LinkState.CONNECTING)
            return Line.of((f" nothing wrong on the node that answers; {waiting} is still connecting", "quiet"))
        return Line.of((" ✓", "ok"), (" nothing wrong that can be seen from here", "quiet"))
