"""The window of a log view onto its lines: which rows it shows, and where a step up or down leads. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparktop.model.telemetry import LogLine
from sparktop.ui.widgets.log_paint import Row, fold, window

Top = tuple[int, int]
"""A row: its line's number, and which of that line's rows it is, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """`height` rows of `cells` columns onto the lines `first` to `end` (exclusive).

    When wrapping, only the lines it passes are measured, never the whole log.
    """

    line: Callable[[int], LogLine]
    first: int
    end: int
    height: int
    cells: int
    left: int = 0
    """The first column shown, when not wrapping."""
    wrap: bool = False

    def _breaks(self, number: int) -> tuple[tuple[int, int], ...]:
        return fold(self.line(number).text, self.cells)

    def up(self, top: Top, rows: int) -> Top:
        """The row so many rows above; the first one where there are not so many."""
        number, row = top
        if not self.wrap:
            return max(number - rows, self.first), 0
        while rows > row:
            rows -= row
            if number <= self.first:
                return self.first, 0
            number -= 1
            row = len(self._breaks(number))
        return number, row - rows

    def down(self, top: Top, rows: int) -> Top:
        """The row so many rows below; at most one past the end."""
        number, row = top
        if not self.wrap:
            return min(number + rows, self.end), 0
        while number < self.end:
            height = len(self._breaks(number))
            if row + rows < height:
                return number, row + rows
            rows -= height - row
            number, row = number + 1, 0
        return number, 0

    def last_top(self) -> Top:
        """The topmost row of the last screenful."""
        return self.up((self.end, 0), max(1, self.height))

    def rows(self, top: Top) -> list[Row]:
        """What is visible with this row at the top."""
        found: list[Row] = []
        number, skip = top
        while len(found) < self.height and number < self.end:
            line = self.line(number)
            if self.wrap:
                for at, (start, stop) in enumerate(self._breaks(number)):
                    if at >= skip and len(found) < self.height:
                        found.append(Row(number=number, line=line, start=start, stop=stop, continues=at > 0))
            else:
                start, stop = window(line.text, self.left, self.cells)
                found.append(Row(number=number, line=line, start=start, stop=stop, is_cut=stop < len(line.text)))
            number, skip = number + 1, 0
        return found
