"""Draws a history in braille (two moments per cell, four levels per row), or parts stacked in blocks (one moment,
eight levels); gaps are marked. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TypeVar

from sparktop.model.telemetry import Level, Series
from sparktop.text.bars import TEXTURES
from sparktop.text.lines import Line, Run, merged

SPANS_S = (30.0, 60.0, 120.0, 300.0, 600.0)
"""The time spans of a graph; a short history gets a short span, which shows changes within seconds."""
SPAN_S = SPANS_S[-1]
SESSION = float("inf")
"""The window that reaches back to the session's start."""
WINDOWS_S = (None, 120.0, 600.0, 3600.0, SESSION)
"""The windows to choose from; None: the shortest of SPANS_S that the history fills."""
_SESSION_SPANS_S = (
    *SPANS_S,
    1200.0,
    1800.0,
    2700.0,
    *(3600.0 * hours for hours in (1, 1.5, 2, 3, 4, 6, 8, 12, 18, 24)),
)
"""Spans of a whole session: few, so that a growing one doesn't move all columns with each second."""
_LEFT = (0x00, 0x40, 0x44, 0x46, 0x47)
_RIGHT = (0x00, 0x80, 0xA0, 0xB0, 0xB8)
"""Braille dots of one half cell, filled from below; the index is the number of filled levels, 0 to 4."""
GAP = float("nan")
"""A moment within a gap; None is a moment before the first value."""
CARRY = 3.0
"""A value is carried on for this many intervals; then the history has a gap."""

Column = float | None
UNKNOWN_CELL, GAP_CELL = " ", "╌"
"""The lowest of the cells above a moment before the first value, and within a gap."""
_Levels = tuple[int, ...]
"""Filled levels of a cell's two moments."""
_Stack = tuple[_Levels, str]
"""The levels up to the top of each part, and the tone of the top of what is used."""
_C = TypeVar("_C")


def span_of(series: Series, window_s: float | None = None) -> float:
    """Seconds that a graph of this history covers, in a window of WINDOWS_S.

    Without one it is the shortest span of SPANS_S that covers the history, else the longest.
    """
    known_s = series.times[-1] - series.times[0] if series.times else 0.0
    if window_s is None:
        return next((span_s for span_s in SPANS_S if known_s <= span_s), SPAN_S)
    if window_s != SESSION:
        return window_s
    days_s = -(-known_s // 86400.0) * 86400.0
    return next((span_s for span_s in _SESSION_SPANS_S if known_s <= span_s), days_s)


def joined(earlier: Series, recent: Series) -> Series:
    """One history of the two; the earlier one ends where the recent one begins."""
    return (
        Series(times=earlier.times + recent.times, values=earlier.values + recent.values) if earlier.times else recent
    )


def columns(
    series: Series, *, now_s: float, count: int, span_s: float = SPAN_S, takes_highest: bool = False
) -> list[Column]:
    """The history as `count` moments, the oldest first: the lowest value of each (or the highest), GAP, or None before
    the first value.

    `now_s` is the right edge on the series' own clock. Moments begin at multiples of their length, so that the drawing
    moves by whole columns and does not flicker.
    """
    step = span_s / count
    end = int(now_s // step) + 1
    start = end - count
    moments: list[Column] = [None] * count
    times, values = series.times, series.values
    index = max(0, bisect_left(times, start * step) - 1)
    stop = bisect_right(times, now_s)
    last_value: float | None = None
    last_column, last_time, interval = -1, 0.0, 1.0
    broken = False
    for time_s, value in zip(times[index:stop], values[index:stop], strict=True):
        if value is None:
            broken = True
            continue
        column = int(time_s // step) - start
        if column > last_column + 1 and last_value is not None:
            fill = GAP if broken else last_value
            for between in range(last_column + 1, column):
                moments[between] = fill
        if column >= 0:
            value_before = moments[column] if column == last_column else None
            is_kept = value_before is not None and value_before != value and (value > value_before) is not takes_highest
            moments[column] = value_before if is_kept else value
            last_column = column
        if last_value is not None and not broken:
            interval = time_s - last_time
        last_value, last_time, broken = value, time_s, False
    if last_value is not None:
        known_until = int((last_time + CARRY * interval) // step) - start
        for after in range(last_column + 1, count):
            moments[after] = last_value if after <= known_until and not broken else GAP
    return moments


def area(moments: Sequence[Column], *, top: float, rows: int, tone: str) -> list[Line]:
    """A filled curve of `rows` lines, two moments per cell."""
    pairs = zip(moments[::2], moments[1::2], strict=False)
    cells = tuple([_gap(pair) or tuple([_level(value, top, rows * 4) for value in pair]) for pair in pairs])
    return list(_curve(cells, rows, tone))


@lru_cache(maxsize=32)
def _curve(cells: tuple[_Levels | str, ...], rows: int, tone: str) -> tuple[Line, ...]:
    """The lines of these cells; kept, as most samples change no cell of a graph."""

    def dots(levels: _Levels, row: int) -> Run:
        left, right = (min(4, max(0, level - row * 4)) for level in levels)
        return (chr(0x2800 + _LEFT[left] + _RIGHT[right]) if left or right else " ", tone)

    return tuple(_drawn(cells, rows, dots))


def _gap(moments: Sequence[Column]) -> str:
    """For a cell without a value: GAP_CELL where one of its moments is within a gap, else UNKNOWN_CELL; else ""."""
    if any(value is not None and value == value for value in moments):
        return ""
    return UNKNOWN_CELL if all(value is None for value in moments) else GAP_CELL


def _drawn(cells: Sequence[_C | str], rows: int, draw: Callable[[_C, int], Run]) -> Iterator[Line]:
    """The lines of these cells, the upper first; `draw` draws one of those with values in a row, 0 being the lowest.
    Wide gaps say "no data" in the middle row."""
    for row in reversed(range(rows)):
        runs = [(cell if row == 0 else " ", "faint") if isinstance(cell, str) else draw(cell, row) for cell in cells]
        if rows >= 2 and row == rows - 1 - max(0, rows // 2 - (rows > 2)):
            for gap in re.finditer("g{11,}", "".join(["g" if cell == GAP_CELL else " " for cell in cells])):
                middle = gap.start() + (len(gap[0]) - 7) // 2
                runs[middle : middle + 7] = [(char, "quiet") for char in "no data"]
        yield Line(merged(runs))


def _level(value: Column, top: float, levels: int) -> int:
    """Filled levels; 0 without a value."""
    if value is None or value != value:
        return 0
    return max(1, min(levels, round(value / top * levels))) if top > 0 else 1


BANDS = ("engine", "processes", "unaccounted", "cache", "kernel")
"""The parts of a stack, from below; the last has the colour of what is used by nobody knows whom."""
_BLOCKS = " ▁▂▃▄▅▆▇█"


def stack(
    moments: Sequence[Column], *, top: float, rows: int, tone: Callable[[float], str], has_colour: bool = True
) -> list[Line]:
    """The parts of each Level up to `top` as `rows` lines, a cell for each moment; `tone` colours what is too high."""
    levels = rows * 8
    cells: list[_Stack | str] = []
    for value in moments:
        if value is None or value != value:
            cells.append(_gap((value,)))
            continue
        tops = (*value.tops, 0) if isinstance(value, Level) else (0, 0, 0, 0, top - value)
        cells.append((tuple([min(levels, round(part / top * levels)) for part in tops]), tone(value)))
    return list(_stacked(tuple(cells), rows, has_colour))


@lru_cache(maxsize=32)
def _stacked(cells: tuple[_Stack | str, ...], rows: int, has_colour: bool) -> tuple[Line, ...]:
    def block(cell: _Stack, row: int) -> Run:
        return _block(*cell, row * 8, has_colour)

    return tuple(_drawn(cells, rows, block))


def _block(tops: tuple[int, ...], edge: str, floor: int, has_colour: bool) -> Run:
    """One cell of a stack, whose lowest level is `floor`: its lowest part, before the largest of the others."""
    filled: list[tuple[int, str]] = []
    below = 0
    for band, part_top in zip(BANDS, tops, strict=True):
        if (size := min(part_top, floor + 8) - max(below, floor)) > 0:
            filled.append((size, band))
        below = max(below, part_top)
    if not filled:
        return " ", ""
    used = tops[2] or tops[-1]
    if edge and floor < used <= floor + 8:
        return _BLOCKS[used - floor], edge
    if not has_colour:
        band = _largest(filled)
        return (TEXTURES[band] if sum(size for size, _ in filled) >= 4 else " "), f"mark-{band}"
    free = 8 - sum(size for size, _ in filled)
    if filled[1:] and free < 4:
        return _BLOCKS[filled[0][0]], f"fill-{filled[0][1]}-{_largest(filled[1:])}"
    return _BLOCKS[8 - free], f"mark-{_largest(filled)}"


def _largest(filled: Sequence[tuple[int, str]]) -> str:
    """The largest of the parts in a cell; unaccounted memory only by more than a rounding."""
    return max(filled, key=lambda part: part[0] - (part[1] == "unaccounted"))[1]


Mark = tuple[float, Run, str]
"""(seconds ago, sign and tone, a word where there is room)."""


def time_axis(cells: int, span_s: float = SPAN_S, marks: Sequence[Mark] = ()) -> Line:
    """The labels of the time axis: "10 min ago      5 min       now", with marks where something began.

    Of marks at one place the first has it; the next stands beside it.
    """
    labels = _labels(cells, span_s)
    drawn: dict[int, Run] = {}
    placed: list[tuple[int, str]] = []
    for ago_s, sign, word in marks:
        at = cells - 1 - int(ago_s / span_s * cells)
        free = [cell for cell in (at, at - 1, at + 1) if cell not in drawn and 0 <= cell < cells]
        if 0 <= ago_s < span_s and free:
            drawn[free[0]] = sign
            placed.append((free[0], word))
    for at, word in placed:
        for start in (at + 1, at - len(word)):
            span = range(start, start + len(word))
            around = range(start - (start < at), span.stop + (start > at))
            if start >= 0 and span.stop <= cells and not any(cell in drawn for cell in around if cell != at):
                drawn.update((cell, (char, "quiet")) for cell, char in zip(span, word, strict=True))
                break
    if not drawn:
        return Line.of((labels, "faint"))
    for label in re.finditer(r"\S+(?: \S+)*", labels):  # one with a mark in it or beside it can't be read
        if any(label.start() - 1 <= cell <= label.end() for cell in drawn):
            labels = labels[: label.start()] + " " * len(label[0]) + labels[label.end() :]
    return Line(merged([drawn.get(cell, (char, "faint")) for cell, char in enumerate(labels)]))


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:g} s"
    return f"{seconds / 60:g} min" if seconds < 3600 else f"{seconds / 3600:g} h"


def _labels(cells: int, span_s: float) -> str:
    left, right = f"{_duration(span_s)} ago", "now"
    if cells < len(left) + len(right) + 2:
        return right.rjust(cells)[:cells]
    middle = _duration(span_s / 2)
    room = cells - len(left) - len(right)
    if cells >= 40:
        before = cells // 2 - len(left) - len(middle) // 2
        gap = " " * before + middle + " " * (room - before - len(middle))
    else:
        gap = " " * room
    return left + gap + right
