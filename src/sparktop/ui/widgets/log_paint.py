"""Paints one row of a log as a strip of cells; markup is never parsed, so remote text can't style anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from rich.cells import get_character_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from sparktop.model.telemetry import LogLine
from sparktop.text.units import clock_time

GUTTER_CELLS = 2
"""One letter for the level and one space; blank on continued rows."""


TIME_CELLS = 9


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
def fold(text: str, width: int) -> tuple[tuple[int, int], ...]:
    """The (start, stop) character offsets of a line's rows at a width in cells; breaks at spaces where it can."""
    width = max(width, 2)
    rows: list[tuple[int, int]] = []
    start, size = 0, len(text)
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


def window(text: str, left: int, width: int) -> tuple[int, int]:
    """The (start, stop) character offsets shown by a window of `width` cells at cell `left`."""
    if text.isascii():
        return min(left, len(text)), min(left + width, len(text))
    start = _fitting(text, 0, left) if left else 0
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
    show_time: bool,
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
    room = max(1, width - GUTTER_CELLS - (TIME_CELLS if show_time else 0))
    segments = _segments(row, ink, palette, hits=hits, is_current=is_current, selected=selected)
    body = Strip(segments).apply_offsets(row.start, row.number).adjust_cell_length(room, base)
    if row.is_cut:
        body = Strip.join([body.crop(0, room - 1), Strip([Segment("›", palette.faint)], 1)])
    head = [Segment(_MARKS.get(level or "", " ") if not row.continues else " ", ink)]
    head.append(Segment("‹", palette.faint) if goes_left else Segment(" ", base))
    if show_time:
        head.append(Segment(" " * TIME_CELLS if row.continues else f"{clock_time(row.line.wall_s)} ", palette.quiet))
    return Strip.join([Strip(head, width - room), body])


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
