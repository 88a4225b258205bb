"""A bounded ring of log lines with absolute numbers, so that a view can scroll while lines arrive and expire."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice

from sparktop.model.telemetry import LogLine

CAPACITY = 50_000

Entry = tuple[str, float | None, float | None, int | None, bool]
"""A line as it is kept, in LogLine's order. Plain tuples of plain values cost the garbage collector nothing, where
50,000 objects would hold up the screen each time it walks them."""


def line_of(entry: Entry) -> LogLine:
    """The line that was kept as this entry."""
    text, wall_s, boot_s, priority, replaces_last = entry
    return LogLine(text=text, wall_s=wall_s, boot_s=boot_s, priority=priority, replaces_last=replaces_last)


class LineRing:
    """The last lines of one log. Line numbers count from the first line ever seen and never change."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._lines: deque[Entry] = deque(maxlen=capacity)
        self._end = 0
        self._version = 0

    @property
    def first(self) -> int:
        """The number of the oldest line still held."""
        return self._end - len(self._lines)

    @property
    def end(self) -> int:
        """One past the number of the newest line."""
        return self._end

    @property
    def version(self) -> int:
        """Changes whenever the content does, also when a progress bar's line is replaced."""
        return self._version

    def __len__(self) -> int:
        return len(self._lines)

    def extend(self, lines: Iterable[LogLine]) -> None:
        """Append lines; one that `replaces_last` takes the newest line's place."""
        for line in lines:
            entry = (line.text, line.wall_s, line.boot_s, line.priority, line.replaces_last)
            if line.replaces_last and self._lines:
                self._lines[-1] = entry
            else:
                self._lines.append(entry)
                self._end += 1
            self._version += 1

    def slice(self, start: int, stop: int) -> list[LogLine]:
        """Lines `start` to `stop` (exclusive) by number, clipped to what is held."""
        return [line_of(entry) for entry in self.entries(start, stop)]

    def entries(self, start: int, stop: int) -> list[Entry]:
        """The same as they are kept: for many lines at once."""
        first = self.first
        low, high = max(start - first, 0), max(stop - first, 0)
        size = len(self._lines)
        if size - low <= low:  # a deque is walked from its nearer end
            tail = list(islice(reversed(self._lines), max(0, size - high), max(0, size - low)))
            tail.reverse()
            return tail
        return list(islice(self._lines, low, high))
