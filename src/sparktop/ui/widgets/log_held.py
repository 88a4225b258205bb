"""The lines a paused log view stands on: what it had when it paused, also when the ring lets go of them."""

from __future__ import annotations

from sparktop.model.telemetry import LogLine
from sparktop.observe.lines import Entry, LineRing, line_of

MORE_LINES = 10_000
"""How many newer lines a paused view takes on; a flood would fill the memory otherwise."""


class Held:
    """Lines by their absolute numbers, taken from a ring when the view paused and topped up since.

    What is on screen can't expire under the reader, and what comes next can be read in order as long as
    the ring hasn't turned over in between.
    """

    def __init__(self, ring: LineRing, *, more_lines: int = MORE_LINES) -> None:
        self._lines = ring.snapshot()
        self._stop = ring.end + more_lines
        self.paused_at = ring.end

    @property
    def first(self) -> int:
        """The number of the first line held."""
        return self._lines.first

    @property
    def end(self) -> int:
        """One past the number of the last line held."""
        return self._lines.end

    def line(self, number: int) -> LogLine:
        return line_of(self._lines.entry(number))

    def text(self, number: int) -> str:
        return self._lines.entry(number)[0]

    def entries(self, start: int, stop: int) -> list[Entry]:
        """Lines `start` to `stop` (exclusive), clipped to what is held."""
        return self._lines.entries(start, stop)

    def catch_up(self, ring: LineRing) -> None:
        """Take on what the ring got since, while it joins what is held and there is room."""
        if self.end < self._stop:
            self._lines = self._lines.joined(ring.snapshot(), stop=self._stop)
