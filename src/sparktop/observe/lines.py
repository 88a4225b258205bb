"""A bounded ring of log lines with absolute numbers, so that a view can scroll while lines arrive and expire.

Lines are kept as plain tuples in chunks of plain tuples. The garbage collector stops walking such tuples, where
50,000 objects held up the screen for 30 ms now and then, and a view that pauses shares the chunks instead of copying.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sparktop.model.telemetry import LogLine

CAPACITY = 50_000
CHUNK = 256
"""Chunk n has the lines n * CHUNK up to (n + 1) * CHUNK, always."""

Entry = tuple[str, float | None, float | None, int | None, bool]
"""A line as it is kept: LogLine's fields in their order."""


def line_of(entry: Entry) -> LogLine:
    """The line that was kept as this entry."""
    text, wall_s, boot_s, priority, replaces_last = entry
    return LogLine(text=text, wall_s=wall_s, boot_s=boot_s, priority=priority, replaces_last=replaces_last)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The lines `first` to `end` (exclusive) of a ring at one moment; they stay when the ring lets go of them."""

    first: int
    end: int
    chunks: Sequence[Sequence[Entry]] = ()
    chunk_number: int = 0
    """Of the first chunk."""

    def entry(self, number: int) -> Entry:
        """A line by its number; the number must be one of first to end."""
        return self.chunks[number // CHUNK - self.chunk_number][number % CHUNK]

    def entries(self, start: int, stop: int) -> list[Entry]:
        """Lines `start` to `stop` (exclusive) by number, clipped to what there is."""
        start, stop = max(start, self.first), min(stop, self.end)
        found: list[Entry] = []
        for number in range(start // CHUNK, -(-stop // CHUNK)):
            chunk, base = self.chunks[number - self.chunk_number], number * CHUNK
            found.extend(chunk[max(0, start - base) : stop - base])
        return found

    def joined(self, newer: Snapshot, *, stop: int) -> Snapshot:
        """These lines and those that came after them, up to the number `stop`; itself where they don't join on.

        The last line is taken from the newer one: a progress bar may have replaced it.
        """
        if self.end == self.first == newer.first:
            return Snapshot(newer.first, min(newer.end, stop), newer.chunks, newer.chunk_number)
        if not newer.first < self.end <= newer.end:
            return self
        kept = (self.end - 1) // CHUNK - self.chunk_number
        fresh = newer.chunks[self.chunk_number + kept - newer.chunk_number :]
        return Snapshot(self.first, min(newer.end, stop), [*self.chunks[:kept], *fresh], self.chunk_number)


class LineRing:
    """The last lines of one log. Line numbers count from the first line ever seen and never change."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._chunks: deque[tuple[Entry, ...]] = deque()
        """Full ones, oldest first."""
        self._chunk_number = 0
        self._open: list[Entry] = []
        """The last chunk while it grows."""
        self._end = 0
        self._version = 0

    @property
    def first(self) -> int:
        """The number of the oldest line still held."""
        return max(0, self._end - self._capacity)

    @property
    def end(self) -> int:
        """One past the number of the newest line."""
        return self._end

    @property
    def version(self) -> int:
        """Changes whenever the content does, also when a progress bar's line is replaced."""
        return self._version

    def __len__(self) -> int:
        return self._end - self.first

    def extend(self, lines: Iterable[LogLine]) -> None:
        """Append lines; one that `replaces_last` takes the newest line's place."""
        for line in lines:
            entry = (line.text, line.wall_s, line.boot_s, line.priority, line.replaces_last)
            if line.replaces_last and self._open:
                self._open[-1] = entry
            else:
                if len(self._open) == CHUNK:
                    self._chunks.append(tuple(self._open))
                    self._open = []
                    if self.first >= (self._chunk_number + 1) * CHUNK:
                        self._chunks.popleft()
                        self._chunk_number += 1
                self._open.append(entry)
                self._end += 1
            self._version += 1

    def slice(self, start: int, stop: int) -> list[LogLine]:
        """Lines `start` to `stop` (exclusive) by number, clipped to what is held."""
        return [line_of(entry) for entry in self.snapshot().entries(start, stop)]

    def snapshot(self) -> Snapshot:
        """All lines held now; cheap, as full chunks are shared."""
        return Snapshot(self.first, self._end, [*self._chunks, tuple(self._open)], self._chunk_number)
