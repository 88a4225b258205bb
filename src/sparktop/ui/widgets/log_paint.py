"""Paints one row of a log as a strip of cells; markup is never parsed, so remote text can't style anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

from rich.cells import get_character_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from sparktop.dataclass import dataclass
from sparktop.diagnose.logs.head import NONE, Head
from sparktop.model.telemetry import LogLine
from sparktop.text.units import clock_time

LEVEL_CELLS = 2
"""One letter for the level and one space; blank on continued rows."""


TIME_CELLS = 9


MAX_PROCESS_CELLS = 14


SOURCE_GAP = 3
"""Least cells between a message and the source file at the row's right end."""


_MARKS = {"error": "E", "warning": "W"}


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
class Palette:
    """The styles of a log row."""

    base: Style
    levels: dict[str, Style]
    """By level: error, warning, debug, gap."""
    faint: Style
    quiet: Style
    hit: Style
    current_hit: Style
    selection: Style


def palette(tones: Mapping[str, Style], selection: Style) -> Palette:
    """The palette for the theme's tones; levels are not bold, as their letter also shows them."""
    calm = Style(bold=False)
    return Palette(
        base=tones[""],
        levels={
            "error": tones["critical"] + calm,
            "warning": tones["warning"] + calm,
            "debug": tones["quiet"],
            "gap": tones["info"],
        },
        faint=tones["faint"],
        quiet=tones["quiet"],
        hit=tones["cursor"] + Style(underline=True),
        current_hit=tones["warning"] + Style(reverse=True),
        selection=selection,
    )


def level_name(name: str | None, priority: int | None) -> str | None:
    """ "error", "warning", "debug", "gap" or None, from an engine's level name or a kernel line's syslog priority."""
    if name is not None:
        return _LEVELS.get(name.lower())
    if priority is None:
        return None
    return "error" if priority <= 3 else "warning" if priority == 4 else "debug" if priority == 7 else None


@lru_cache(maxsize=512)
def fold(text: str, width: int, start: int = 0) -> tuple[tuple[int, int], ...]:
    """The (start, stop) character offsets of a line's rows at a width in cells; breaks at spaces where it can.

    The first row begins at the character `start`.
    """
    width = max(width, 2)
    rows: list[tuple[int, int]] = []
    size = len(text)
    while True:
        stop = start + width if text.isascii() else _fitting(text, start, width)
        if stop >= size:
            rows.append((start, size))
            return tuple(rows)
        space = text.rfind(" ", start + 1, stop + 1)
        if space > start + (stop - start) // 2:
            rows.append((start, space))
            start = space + 1
        else:
            rows.append((start, stop))
            start = stop


def window(text: str, left: int, width: int, first: int = 0) -> tuple[int, int]:
    """The (start, stop) character offsets shown by a window of `width` cells, `left` cells after the `first` one."""
    if text.isascii():
        return min(first + left, len(text)), min(first + left + width, len(text))
    start = _fitting(text, first, left) if left else first
    return start, _fitting(text, start, width)


def _fitting(text: str, start: int, width: int) -> int:
    """The end of the longest text from `start` that fits in `width` cells; at least one character."""
    cells = 0
    for index in range(start, len(text)):
        cells += get_character_cell_size(text[index])
        if cells > width:
            return max(index, start + 1)
    return len(text)


def paint(
    row: LogRow,
    palette: Palette,
    *,
    width: int,
    level: str | None,
    gutter: Gutter,
    hits: Sequence[tuple[int, int]],
    is_current: bool,
    selected: tuple[int, int] | None,
    goes_left: bool = False,
) -> Strip:
    """One row as exactly `width` cells; `goes_left`: the line starts to the left of the screen.

    Offsets are (character, line number), so that a selection stays on its text while lines move.
    """
    base = palette.base
    ink = palette.levels.get(level or "", base)
    room = max(1, width - gutter.cells)
    segments = _segments(row, ink, palette, hits=hits, is_current=is_current, selected=selected)
    text = Strip(segments).apply_offsets(row.start, row.number)
    source = "" if row.continues else row.head.source
    after: list[Segment] = []
    if row.is_cut:
        after = [Segment("›", palette.faint)]
    elif source and text.cell_length + len(source) + SOURCE_GAP <= room:
        after = [Segment(source, palette.faint)]
    body = text.adjust_cell_length(room - sum(segment.cell_length for segment in after), base)
    before = [Segment(_MARKS.get(level or "", " ") if not row.continues else " ", ink)]
    before.append(Segment("‹", palette.faint) if goes_left else Segment(" ", base))
    if gutter.has_time:
        time = row.head.time if row.line.wall_s is None and row.head.time else clock_time(row.line.wall_s)
        before.append(Segment(" " * TIME_CELLS if row.continues else f"{time} ", palette.quiet))
    if cells := gutter.process_cells:
        process = "" if row.continues else row.head.process[:cells]
        before.append(Segment(f"{process:<{cells}} ", palette.faint))
    return Strip([*before, *body, *after], width)  # each strip has seven caches: one row has few of them


def _segments(
    row: LogRow,
    ink: Style,
    palette: Palette,
    *,
    hits: Sequence[tuple[int, int]],
    is_current: bool,
    selected: tuple[int, int] | None,
) -> list[Segment]:
    """The row's text as segments, split where the style changes."""
    text = row.line.text
    if not hits and selected is None:
        return [Segment(text[row.start : row.stop], ink)]
    styled_spans = [(start, stop, palette.current_hit if is_current else palette.hit) for start, stop in hits]
    if selected is not None:
        styled_spans.append((selected[0], len(text) if selected[1] < 0 else selected[1], palette.selection))
    edges = {row.start, row.stop}
    edges.update(offset for start, stop, _ in styled_spans for offset in (start, stop) if row.start < offset < row.stop)
    cuts = sorted(edges)
    segments: list[Segment] = []
    for start, stop in pairwise(cuts):
        style = ink
        for mark_start, mark_stop, mark_style in styled_spans:
            if mark_start <= start and stop <= mark_stop:
                style = style + mark_style
        segments.append(Segment(text[start:stop], style))
    return segments
