"""Draws a history in braille: two moments per cell, four levels per row; gaps are marked. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from sparktop.model.telemetry import Series
from sparktop.text.bars import merged
from sparktop.text.lines import Line, Run

SPANS_S = (120.0, 300.0, 600.0)
"""The time spans of a graph; a short history gets a short span, which shows changes within seconds."""
SPAN_S = SPANS_S[-1]
_LEFT = (0x00, 0x40, 0x44, 0x46, 0x47)
_RIGHT = (0x00, 0x80, 0xA0, 0xB0, 0xB8)
"""Braille dots of one half cell, filled from below; the index is the number of filled levels, 0 to 4."""
GAP = float("nan")
"""A moment within a gap; None is a moment before the first value."""
CARRY = 3.0
"""A value is carried on for this many intervals; then the history has a gap."""

Column = float | None


def span_of(series: Series) -> float:
    """The shortest span of SPANS_S that covers this history, else the longest."""
    known_s = series.times[-1] - series.times[0] if series.times else 0.0
    return next((span_s for span_s in SPANS_S if known_s <= span_s), SPAN_S)


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
    cells = [
        (
            _level(moments[index], top, levels),
            _level(moments[index + 1], top, levels),
            _lowest_tone(moments[index : index + 2], tone),
        )
        for index in range(0, len(moments) - 1, 2)
    ]
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
    return lines


def _level(value: Column, top: float, levels: int) -> int | None:
    if value is None or value != value:
        return None
    return max(1, min(levels, round(value / top * levels))) if top > 0 else 1


def _lowest_tone(pair: Sequence[Column], tone: Callable[[float], str]) -> str:
    values = [value for value in pair if value is not None and value == value]
    if values:
        return tone(min(values))
    return "gap" if any(value is not None for value in pair) else ""


def _labelled(line: Line, cells: Sequence[tuple[int | None, int | None, str]], row: int, rows: int) -> Line:
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


def time_axis(cells: int, span_s: float = SPAN_S) -> Line:
    """The labels of the time axis: "10 min ago      5 min       now"."""
    minutes = f"{span_s / 60:g}"
    left, right = f"{minutes} min ago", "now"
    if cells < len(left) + len(right) + 2:
        return Line.of((right.rjust(cells)[:cells], "faint"))
    middle = f"{span_s / 120:g} min"
    room = cells - len(left) - len(right)
    if cells >= 40:
        before = cells // 2 - len(left) - len(middle) // 2
        gap = " " * before + middle + " " * (room - before - len(middle))
    else:
        gap = " " * room
    return Line.of((left + gap + right, "faint"))
