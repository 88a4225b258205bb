"""A node's figures as plots: paths of inline SVG, in a box of 1000 by 100 that the page stretches, with their scales,
and what is marked on their time axis. A gap ends a path. Pure."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby

from sparktop.dataclass import dataclass
from sparktop.headless.report.account import FIGURES, Account, Point, thinned
from sparktop.model.event import EventKind
from sparktop.model.finding import Finding
from sparktop.model.fleet import NodeView
from sparktop.model.telemetry import Level
from sparktop.observe.replay.player import is_mark
from sparktop.text.units import GIB, gib

Mark = tuple[float, int, int, Finding]
"""Percent of the axis, lane, number, finding."""
LANES = 4
LANE_SHARE = 0.055
"""Marks that are nearer stand one below the other: their width on a narrow screen."""
WIDTH, HEIGHT = 1000.0, 100.0
PARTS = {"engine": "engines", "processes": "other processes", "unaccounted": "unaccounted", "cache": "page cache"}
"""Of a Level, from below: class, name."""
_STEPS_S = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200)
_DAY_S = 86_400
MOST_TICKS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Extremes:
    """The lowest and highest of a figure."""

    label: str
    low: str
    low_s: float
    high: str
    high_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One plot."""

    label: str
    paths: tuple[tuple[str, str, str], ...]
    """(class, name, path of the SVG)"""
    scale: tuple[tuple[str, str], ...]
    """(place, what it stands for)"""
    said: str
    """The decisive figures in words; where `said_s` is known, of that moment."""
    said_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlots:
    """A node's plots, on one time axis."""

    node: str
    panels: tuple[Panel, ...]
    marks: tuple[Mark, ...]
    bands: tuple[tuple[float, float], ...]
    """(left, right) of the stretches without samples, in percent."""
    extremes: tuple[Extremes, ...]


def node_plots(node: NodeView, account: Account) -> NodePlots:
    """A node's plots with what is marked on them; a figure that was never known has none."""
    begin_s, end_s = account.begin_s, account.end_s
    known = {figure: thinned(rows) for figure in FIGURES if (rows := account.points.get((node.name, figure)))}
    available = known.get("available", ())
    outages = [one for one in account.outages if one.node == node.name]
    edges = [(_last_before(one.begin_s, available), one.end_s or end_s) for one in outages]
    extremes = {figure: _extremes(figure, rows) for figure, rows in known.items()}
    return NodePlots(
        node=node.name,
        panels=tuple(_panels(node, known, extremes, account)),
        marks=tuple(_marks(node.name, account)),
        bands=tuple((share(left, begin_s, end_s) * 100, share(right, begin_s, end_s) * 100) for left, right in edges),
        extremes=tuple(extremes.values()),
    )


def _last_before(at_s: float, points: Sequence[Point]) -> float:
    """When the last sample before a moment was, which it stands in for where there is none."""
    return max((time_s for time_s, value in points if value is not None and time_s <= at_s), default=at_s)


def _extremes(figure: str, points: Sequence[Point]) -> Extremes:
    rows = [(value, at_s) for at_s, value in points if value is not None]
    (low, low_s), (high, high_s) = min(rows), max(rows)
    label, told, *_ = FIGURES[figure]
    return Extremes(label=label, low=told(low), low_s=low_s, high=told(high), high_s=high_s)


def _panels(
    node: NodeView, known: Mapping[str, Sequence[Point]], extremes: Mapping[str, Extremes], account: Account
) -> Iterator[Panel]:
    total = node.sample.memory.total_bytes if node.sample is not None else 0
    if "available" in known and total:
        low = extremes["available"]
        yield Panel(
            label="Memory",
            paths=memory_areas(known["available"], Box(begin_s=account.begin_s, end_s=account.end_s, top=total)),
            scale=(("mid", f"{total / GIB / 2:.0f}"), ("top", gib(total))),
            said=f"lowest {low.low} available at",
            said_s=low.low_s,
        )
    for label, figures in (("GPU", ("utilisation", "power")), ("Tokens", ("tokens",))):
        paths: list[tuple[str, str, str]] = []
        scale, said = [], []
        for figure in filter(known.__contains__, figures):
            name, _, unit, _ = FIGURES[figure]
            top = 100.0 if figure == "utilisation" else round_up(max(value or 0.0 for _, value in known[figure]))
            box = Box(begin_s=account.begin_s, end_s=account.end_s, top=top)
            side = " right" if paths else ""
            paths.append((figure, name, line(known[figure], box)))
            scale += [(f"mid{side}", f"{top / 2:g}"), (f"top{side}", f"{top:g}{unit}")]
            said.append(f"{name} {extremes[figure].low} to {extremes[figure].high}")
        if paths:
            yield Panel(label=label, paths=tuple(paths), scale=tuple(scale), said=" · ".join(said))


def _marks(node: str, account: Account) -> Iterator[Mark]:
    """What is worth a look, each below the one before where they are near."""
    taken: list[list[float]] = [[] for _ in range(LANES)]
    marks = [event for event in account.events if event.kind is EventKind.FOUND and is_mark(event)]
    for number, finding in enumerate((one.finding for one in account.occurrences), 1):
        seen = [event for event in marks if (event.subject, event.nodes) == (finding.rule, finding.nodes)]
        last = -1.0
        for at in (share(event.at_s, account.begin_s, account.end_s) for event in seen if node in event.nodes):
            if at - last >= LANE_SHARE:  # one that comes again at once is marked once
                free = (lane for lane, near in enumerate(taken) if all(abs(at - x) >= LANE_SHARE for x in near))
                lane, last = next(free, LANES - 1), at
                taken[lane].append(at)
                yield at * 100, lane, number, finding


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
