"""A bounded ring buffer of log lines, and its lines at one moment.

Lines are plain tuples in chunks of plain tuples: the garbage collector doesn't walk such tuples, while 50,000 objects
stopped the screen for 30 ms now and then. A snapshot shares the chunks instead of copying them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from sparktop.dataclass import dataclass
from sparktop.model.telemetry import LogLine

CAPACITY = 50_000
CHUNK = 256
"""Lines per chunk: chunk n always has the lines n * CHUNK up to (n + 1) * CHUNK."""
Entry = tuple[str, float | None, float | None, int | None, bool]
"""A stored line: LogLine's fields in their order."""


def line_of(entry: Entry) -> LogLine:
    """The stored entry as a LogLine."""
    text, wall_s, boot_s, priority, replaces_last = entry
    return LogLine(text=text, wall_s=wall_s, boot_s=boot_s, priority=priority, replaces_last=replaces_last)


def entry_of(line: LogLine) -> Entry:
    """The line as it is stored."""
    return (line.text, line.wall_s, line.boot_s, line.priority, line.replaces_last)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The lines `first` to `end` (exclusive) of a ring at one moment; they stay when the ring drops them."""

    first: int
    end: int
    chunks: Sequence[Sequence[Entry]] = ()
    chunk_number: int = 0
    """The number of the first chunk."""

    def entry(self, number: int) -> Entry:
        """A line by its number, from `first` to `end`."""
        return self.chunks[number // CHUNK - self.chunk_number][number % CHUNK]

    def line(self, number: int) -> LogLine:
        return line_of(self.entry(number))

    def text(self, number: int) -> str:
        return self.entry(number)[0]

    def entries(self, start: int, stop: int) -> list[Entry]:
        """Lines `start` to `stop` (exclusive), clipped to the lines held."""
        start, stop = max(start, self.first), min(stop, self.end)
        result: list[Entry] = []
        for number in range(start // CHUNK, -(-stop // CHUNK)):
            chunk, base = self.chunks[number - self.chunk_number], number * CHUNK
            result.extend(chunk[max(0, start - base) : stop - base])
        return result

    def joined(self, newer: Snapshot, *, stop: int) -> Snapshot:
        """These lines followed by the newer ones, up to the number `stop`; unchanged where there is a gap between them.

        The last line is taken from the newer snapshot: a progress bar may have replaced it.
        """
        if self.end == self.first == newer.first:
            return Snapshot(newer.first, min(newer.end, stop), newer.chunks, newer.chunk_number)
        if not newer.first < self.end <= newer.end:
            return self
        kept_chunks = (self.end - 1) // CHUNK - self.chunk_number
        newer_chunks = newer.chunks[self.chunk_number + kept_chunks - newer.chunk_number :]
        return Snapshot(
            self.first, min(newer.end, stop), [*self.chunks[:kept_chunks], *newer_chunks], self.chunk_number
        )


class LineRing:
    """The newest lines of one log. Line numbers count from the first line ever seen and never change."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._chunks: deque[tuple[Entry, ...]] = deque()
        """Full chunks, oldest first."""
        self._chunk_number = 0
        self._open: list[Entry] = []
        """The last chunk, while it fills."""
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
        """Append lines; a line that `replaces_last` replaces the newest one."""
        for line in lines:
            self.add(entry_of(line))

    def add(self, entry: Entry) -> None:
        """Append a stored line, or put it in the newest one's place."""
        if entry[-1] and self._open:
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
        """Lines `start` to `stop` (exclusive), clipped to the lines held."""
        return [line_of(entry) for entry in self.snapshot().entries(start, stop)]

    def find(self, line: LogLine) -> int | None:
        """The number of the newest line like this one; None where none is held."""
        entry, held = entry_of(line), self.snapshot().entries(self.first, self.end)
        return next((self.first + index for index in range(len(held) - 1, -1, -1) if held[index] == entry), None)

    def snapshot(self, last: int = CAPACITY) -> Snapshot:
        """The `last` lines held now; cheap, as full chunks are shared."""
        first = max(self.first, self._end - last)
        skipped = first // CHUNK - self._chunk_number
        return Snapshot(first, self._end, [*self._chunks, tuple(self._open)][skipped:], self._chunk_number + skipped)
