"""Draws a history in braille: two moments per cell, four levels per row; gaps are marked. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache

from sparktop.model.telemetry import Series
from sparktop.text.lines import Line, Run, merged

SPANS_S = (120.0, 300.0, 600.0)
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
Cell = tuple[int | None, int | None, str]
"""Filled levels of its two moments, and the tone of its upper edge."""


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


def columns(series: Series, *, now_s: float, count: int, span_s: float = SPAN_S) -> list[Column]:
    """The history as `count` moments, the oldest first: the lowest value of each, GAP, or None before the first value.

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
            moments[column] = value if value_before is None or value < value_before else value_before
            last_column = column
        if last_value is not None and not broken:
            interval = time_s - last_time
        last_value, last_time, broken = value, time_s, False
    if last_value is not None:
        known_until = int((last_time + CARRY * interval) // step) - start
        for after in range(last_column + 1, count):
            moments[after] = last_value if after <= known_until and not broken else GAP
    return moments


def area(
    moments: Sequence[Column],
    *,
    top: float,
    rows: int,
    tone: Callable[[float], str],
    fill: str = "graph-fill",
) -> list[Line]:
    """A filled curve of `rows` lines, two moments per cell; `tone` colours its upper edge by value."""
    levels = rows * 4
    cells = tuple(
        [
            (
                _level(moments[index], top, levels),
                _level(moments[index + 1], top, levels),
                _lowest_tone(moments[index : index + 2], tone),
            )
            for index in range(0, len(moments) - 1, 2)
        ]
    )
    return list(_drawn(cells, rows, fill))


@lru_cache(maxsize=32)
def _drawn(cells: tuple[Cell, ...], rows: int, fill: str) -> tuple[Line, ...]:
    """The lines of these cells; kept, as most samples change no cell of a graph."""
    lines: list[Line] = []
    for row in range(rows):
        floor = (rows - 1 - row) * 4
        runs: list[Run] = []
        for left, right, edge in cells:
            if left is None and right is None:
                runs.append(("╌" if edge == "gap" and row == rows - 1 else " ", "faint"))
                continue
            high, low = max(left or 0, right or 0), floor
            a, b = min(4, max(0, (left or 0) - low)), min(4, max(0, (right or 0) - low))
            glyph = chr(0x2800 + _LEFT[a] + _RIGHT[b]) if a or b else " "
            runs.append((glyph, edge if high <= low + 4 or edge != "graph" else fill))
        lines.append(_labelled(Line(merged(runs)), cells, row, rows))
    return tuple(lines)


def _level(value: Column, top: float, levels: int) -> int | None:
    if value is None or value != value:
        return None
    return max(1, min(levels, round(value / top * levels))) if top > 0 else 1


def _lowest_tone(pair: Sequence[Column], tone: Callable[[float], str]) -> str:
    values = [value for value in pair if value is not None and value == value]
    if values:
        return tone(min(values))
    return "gap" if any(value is not None for value in pair) else ""


def _labelled(line: Line, cells: Sequence[Cell], row: int, rows: int) -> Line:
    """The line with "no data" written into wide gaps, in the middle row."""
    if row != max(0, rows // 2 - (rows > 2)) or rows < 2:
        return line
    text = line.plain
    index = 0
    runs: list[Run] = []
    copied_to = 0
    while index < len(cells):
        stop = index
        while stop < len(cells) and cells[stop][2] == "gap":
            stop += 1
        if stop - index >= 11:
            middle = index + (stop - index - 7) // 2
            runs += [*_slice(line, copied_to, middle), ("no data", "quiet")]
            copied_to = middle + 7
        index = max(stop, index + 1)
    return Line((*runs, *_slice(line, copied_to, len(text)))) if runs else line


def _slice(line: Line, start: int, stop: int) -> list[Run]:
    runs: list[Run] = []
    offset = 0
    for text, tone in line.runs:
        low, high = max(start - offset, 0), min(stop - offset, len(text))
        if low < high:
            runs.append((text[low:high], tone))
        offset += len(text)
    return runs


def spark(moments: Sequence[Column], *, top: float, tone: str) -> Line:
    """A history as one line in one tone."""
    return area(moments, top=top, rows=1, tone=lambda _: tone, fill=tone)[0]


Mark = tuple[float, Run]
"""(seconds ago, sign and tone)."""


def time_axis(cells: int, span_s: float = SPAN_S, marks: Sequence[Mark] = ()) -> Line:
    """The labels of the time axis: "10 min ago      5 min       now", with marks where something began."""
    labels = _labels(cells, span_s)
    signs = {cells - 1 - int(ago_s / span_s * cells): sign for ago_s, sign in marks if 0 <= ago_s < span_s}
    if not signs:
        return Line.of((labels, "faint"))
    for label in re.finditer(r"\S+(?: \S+)*", labels):  # one with a mark in it can't be read
        if any(label.start() <= cell < label.end() for cell in signs):
            labels = labels[: label.start()] + " " * len(label[0]) + labels[label.end() :]
    return Line(merged([signs.get(cell, (char, "faint")) for cell, char in enumerate(labels)]))


def _duration(seconds: float) -> str:
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
