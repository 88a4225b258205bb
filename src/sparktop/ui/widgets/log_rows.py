"""The rows of a log that a window shows: where lines break, how far a step goes, how a row is painted. Pure.

Markup is never parsed, so remote text can't style anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

from rich.cells import get_character_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from sparktop.dataclass import dataclass
from sparktop.diagnose.logs.head import NONE, Head
from sparktop.model.telemetry import LogLine
from sparktop.observe.log_ring import Snapshot
from sparktop.text.units import clock_time

Top = tuple[int, int]
"""A row: (number of its line, index of the row within that line)."""
LEVEL_CELLS = 2
"""One letter for the level and one space; blank on continued rows."""
TIME_CELLS = 9
SOURCE_GAP = 3
"""Least cells between a message and the source file at the row's right end."""
_MARKS = {"error": "E", "warning": "W"}
_TONES = {"error": "log-error", "warning": "log-warning", "debug": "quiet", "gap": "info"}
_LEVELS = {
    "critical": "error",
    "fatal": "error",
    "error": "error",
    "warning": "warning",
    "warn": "warning",
    "debug": "debug",
    "trace": "debug",
    "gap": "gap",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gutter:
    """What stands before the text of each row: the level, the time and the process that wrote it."""

    has_time: bool = False
    process_cells: int = 0
    """Room for the process's name; 0: it is not shown."""

    @property
    def cells(self) -> int:
        return LEVEL_CELLS + TIME_CELLS * self.has_time + (self.process_cells + 1 if self.process_cells else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRow:
    """One row on the screen: a part of one log line, by character offsets."""

    number: int
    line: LogLine
    start: int
    stop: int
    continues: bool = False
    """The second or a later row of a wrapped line."""
    is_cut: bool = False
    """The line continues to the right of the screen."""
    head: Head = NONE
    """The line's head, folded into the gutter; NONE where the line is shown as it was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A window of `height` rows and `cells` columns onto these lines.

    Only the lines that it passes are measured, never the whole log.
    """

    lines: Snapshot
    height: int
    cells: int
    left: int
    """The first column shown, when not wrapping."""
    wrap: bool
    head: Callable[[LogLine], Head]
    """The head of a line that is folded away."""

    def _spans(self, line: LogLine) -> Sequence[tuple[int, int]]:
        """The (start, stop) character offsets of a line's rows."""
        text, start = line.text, self.head(line).stop
        return fold(text, self.cells, start) if self.wrap else (window(text, self.left, self.cells, start),)

    def up(self, top: Top, rows: int) -> Top:
        """The row `rows` above `top`, or the first row."""
        number, row = top
        while rows > row and number > self.lines.first:
            rows -= row
            number -= 1
            row = len(self._spans(self.lines.line(number)))
        return number, max(0, row - rows)

    def down(self, top: Top, rows: int) -> Top:
        """The row `rows` below `top`; at most one past the end."""
        number, row = top
        row += rows
        while number < self.lines.end and row >= (height := len(self._spans(self.lines.line(number)))):
            number, row = number + 1, row - height
        return number, row if number < self.lines.end else 0

    def last_top(self) -> Top:
        """The top row of the last screen of lines."""
        return self.up((self.lines.end, 0), max(1, self.height))

    def rows(self, top: Top) -> list[LogRow]:
        """The visible rows with this row at the top."""
        rows: list[LogRow] = []
        for number in range(top[0], self.lines.end):
            line = self.lines.line(number)
            head, skipped = self.head(line), top[1] if number == top[0] else 0
            for index, (start, stop) in list(enumerate(self._spans(line)))[skipped:]:
                if len(rows) >= self.height:
                    return rows
                is_cut = not self.wrap and stop < len(line.text)
                rows.append(
                    LogRow(
                        number=number, line=line, start=start, stop=stop, continues=index > 0, is_cut=is_cut, head=head
                    )
                )
        return rows


@lru_cache(maxsize=512)
def fold(text: str, width: int, start: int = 0) -> tuple[tuple[int, int], ...]:
    """The (start, stop) character offsets of a line's rows at a width in cells; breaks at spaces where it can.

    The first row begins at the character `start`.
    """
    width = max(width, 2)
    rows: list[tuple[int, int]] = []
    while (stop := _fitting(text, start, width)) < len(text):
        space = text.rfind(" ", start + 1, stop + 1)
        if space > start + (stop - start) // 2:
            rows.append((start, space))
            start = space + 1
        else:
            rows.append((start, stop))
            start = stop
    return (*rows, (start, len(text)))


def window(text: str, left: int, width: int, first: int = 0) -> tuple[int, int]:
    """The (start, stop) character offsets shown by a window of `width` cells, `left` cells after the `first` one."""
    start = _fitting(text, first, left) if left else first
    return start, _fitting(text, start, width)


def _fitting(text: str, start: int, width: int) -> int:
    """The end of the longest text from `start` that fits in `width` cells; at least one character."""
    if text.isascii():
        return min(start + max(1, width), len(text))
    cells = 0
    for index in range(start, len(text)):
        cells += get_character_cell_size(text[index])
        if cells > width:
            return max(index, start + 1)
    return len(text)


def level_name(name: str | None, priority: int | None) -> str | None:
    """ "error", "warning", "debug", "gap" or None, from an engine's level name or a kernel line's syslog priority."""
    if name is not None:
        return _LEVELS.get(name.lower())
    if priority is None:
        return None
    return "error" if priority <= 3 else "warning" if priority == 4 else "debug" if priority == 7 else None


def paint(
    row: LogRow,
    styles: Mapping[str, Style],
    *,
    width: int,
    level: str | None,
    gutter: Gutter,
    marks: Sequence[tuple[int, int, Style]] = (),
    goes_left: bool = False,
) -> Strip:
    """One row as exactly `width` cells.

    Offsets are (character, line number), so that a selection stays on its text while lines move.

    Args:
        styles: of the tones.
        marks: (start, stop, style) of the parts of the line that are marked.
        goes_left: the line starts to the left of the screen.
    """
    ink, faint, base = styles[_TONES.get(level or "", "")], styles["faint"], styles[""]
    room = max(1, width - gutter.cells)
    text = Strip(_segments(row, ink, marks)).apply_offsets(row.start, row.number)
    source = "" if row.continues else row.head.source
    after: list[Segment] = []
    if row.is_cut:
        after = [Segment("›", faint)]
    elif source and text.cell_length + len(source) + SOURCE_GAP <= room:
        after = [Segment(source, faint)]
    body = text.adjust_cell_length(room - sum(segment.cell_length for segment in after), base)
    before = [Segment(_MARKS.get(level or "", " ") if not row.continues else " ", ink)]
    before.append(Segment("‹", faint) if goes_left else Segment(" ", base))
    if gutter.has_time:
        time = row.head.time if row.line.wall_s is None and row.head.time else clock_time(row.line.wall_s)
        before.append(Segment(" " * TIME_CELLS if row.continues else f"{time} ", styles["quiet"]))
    if cells := gutter.process_cells:
        process = "" if row.continues else row.head.process[:cells]
        before.append(Segment(f"{process:<{cells}} ", faint))
    return Strip([*before, *body, *after], width)  # each strip has seven caches: one row has few of them


def _segments(row: LogRow, ink: Style, marks: Sequence[tuple[int, int, Style]]) -> list[Segment]:
    """The row's text as segments, split where the style changes."""
    offsets = (offset for start, stop, _ in marks for offset in (start, stop) if row.start < offset < row.stop)
    return [
        Segment(row.line.text[start:stop], sum((style for a, b, style in marks if a <= start and stop <= b), ink))
        for start, stop in pairwise(sorted({row.start, row.stop, *offsets}))
    ]
