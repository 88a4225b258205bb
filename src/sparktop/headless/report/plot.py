"""Figures as paths of inline SVG, in a box of 1000 by 100 that the page stretches; a gap ends a path. Pure."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter

from sparktop.dataclass import dataclass
from sparktop.model.telemetry import Level

Point = tuple[float, float | None]
"""Seconds since the epoch, value; None marks a gap."""
COLUMNS = 500
"""Of a plot: each shows its lowest and its highest value."""
WIDTH, HEIGHT = 1000.0, 100.0
PARTS = {"engine": "engines", "processes": "other processes", "unaccounted": "unaccounted", "cache": "page cache"}
"""Of a Level, from below: class, name."""
_STEPS_S = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200)
_DAY_S = 86_400
MOST_TICKS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """What a plot spans."""

    begin_s: float
    end_s: float
    top: float
    """The value of its upper edge; the lower one is 0."""

    def x(self, at_s: float) -> float:
        """From 0 to WIDTH."""
        return share(at_s, self.begin_s, self.end_s) * WIDTH

    def y(self, value: float) -> float:
        """From HEIGHT, which is 0, up to 0."""
        return HEIGHT - min(1.0, max(0.0, value / self.top)) * HEIGHT


def share(at_s: float, begin_s: float, end_s: float) -> float:
    """Where a moment is between two, 0 to 1."""
    return min(1.0, max(0.0, (at_s - begin_s) / max(end_s - begin_s, 1e-3)))


def thinned(points: Sequence[Point], columns: int = COLUMNS) -> list[Point]:
    """At most two points and a gap for each column of time: its lowest and its highest."""
    if len(points) <= 2 * columns:
        return list(points)
    begin_s, step_s = points[0][0], max((points[-1][0] - points[0][0]) / columns, 1e-3)
    kept: list[Point] = []
    for (_, is_gap), rows in groupby(points, key=lambda point: ((point[0] - begin_s) // step_s, point[1] is None)):
        column = list(rows)
        if is_gap:
            kept.append(column[0])
            continue
        extremes = {min(column, key=itemgetter(1)), max(column, key=itemgetter(1))}
        kept += sorted(extremes, key=lambda point: point[0])
    return kept


def stretches(points: Iterable[Point]) -> Iterator[list[tuple[float, float]]]:
    """The stretches without a gap; one ends too where who holds the memory begins or ceases to be known."""
    for kind, rows in groupby(points, key=lambda point: type(point[1])):
        if kind is not type(None):
            yield [(at_s, value) for at_s, value in rows if value is not None]


def line(points: Iterable[Point], box: Box) -> str:
    """The path of a line."""
    return " ".join(_run((box.x(at_s), box.y(value)) for at_s, value in rows) for rows in stretches(points))


def area(
    points: Iterable[Point], box: Box, low: Callable[[float], float | None], high: Callable[[float], float | None]
) -> str:
    """The path of what lies between two edges that a value tells of; nothing where it tells of none."""
    paths = []
    for rows in stretches(points):
        upper = [(box.x(at_s), box.y(edge)) for at_s, value in rows if (edge := high(value)) is not None]
        lower = [(box.x(at_s), box.y(edge)) for at_s, value in rows if (edge := low(value)) is not None]
        if upper[1:] and lower and any(one != other for one, other in zip(upper, lower, strict=True)):
            paths.append(f"{_run([*upper, *reversed(lower)])}Z")
    return " ".join(paths)


def _run(corners: Iterable[tuple[float, float]]) -> str:
    places = [f"{x:.1f},{y:.1f}" for x, y in corners]
    return f"M{' '.join(places)}" if places[1:] else f"M{places[0]}h.1"  # a single one is a dot


def memory_areas(points: Sequence[Point], box: Box) -> tuple[tuple[str, str, str], ...]:
    """(class, name, path) of each part of the used memory, from below; all of it where its holders weren't known."""
    parts = [
        (f"hold-{kind}", name, area(points, box, partial(_top, part=part - 1), partial(_top, part=part)))
        for part, (kind, name) in enumerate(PARTS.items())
    ]
    bare = [(at_s, None if isinstance(value, Level) else value) for at_s, value in points]
    used = area(bare, box, lambda value: 0.0, lambda value: box.top - value)
    return tuple(row for row in (*parts, ("hold-used", "used", used)) if row[2])


def _top(value: float, part: int) -> float | None:
    if not isinstance(value, Level):
        return None
    return float(value.tops[part]) if part >= 0 else 0.0


def round_up(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(step * power for step in (1, 2, 5, 10) if value <= step * power * 1.0001)


def ticks(begin_s: float, end_s: float) -> list[tuple[float, str]]:
    """(percent of the axis, label), at round local times."""
    span_s = end_s - begin_s
    days_s = _DAY_S * math.ceil(span_s / MOST_TICKS / _DAY_S)
    step_s = next((step for step in _STEPS_S if span_s / step <= MOST_TICKS), days_s)
    shape = "%H:%M:%S" if step_s < 60 else "%H:%M" if step_s < _DAY_S else "%b %d"
    east_s = time.localtime(begin_s).tm_gmtoff
    numbers = range(math.ceil((begin_s + east_s) / step_s), math.floor((end_s + east_s) / step_s) + 1)
    moments = (number * step_s - east_s for number in numbers)
    return [(share(at_s, begin_s, end_s) * 100, time.strftime(shape, time.localtime(at_s))) for at_s in moments]
