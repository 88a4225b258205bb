"""The lines a paused log view stands on: a copy that keeps what the ring lets go."""

from __future__ import annotations

from sparktop.model.telemetry import LogLine
from sparktop.observe.lines import LineRing

MORE_LINES = 10_000
"""How many newer lines a paused view takes on; beyond that it says how many it left out."""


class Held:
    """Lines by their absolute numbers, taken from a ring when the view paused and topped up since.

    What is on screen can't expire under the reader, and what comes next can be read in order as long as
    the ring hasn't turned over in between.
    """

    def __init__(self, ring: LineRing, *, more_lines: int = MORE_LINES) -> None:
        self.first = ring.first
        self.lines: list[LogLine] = ring.slice(ring.first, ring.end)
        self.paused_at = ring.end
        self._room = more_lines

    @property
    def end(self) -> int:
        """One past the number of the last line held."""
        return self.first + len(self.lines)

    def line(self, number: int) -> LogLine:
        return self.lines[number - self.first]

    def catch_up(self, ring: LineRing) -> None:
        """Take on what the ring got since, while it joins what is held and there is room."""
        end = self.end
        if self.lines and ring.first < end <= ring.end:  # a progress bar's line may have been replaced
            self.lines[-1:] = ring.slice(end - 1, end)
        if ring.first <= end < ring.end and self._room > 0:
            fresh = ring.slice(end, min(ring.end, end + self._room))
            self._room -= len(fresh)
            self.lines.extend(fresh)

    def is_current(self, ring: LineRing) -> bool:
        """Whether the newest line is held: going on from here leaves nothing out."""
        return self.end == ring.end
