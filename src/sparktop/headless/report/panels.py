"""A node's plots with their scales, and what is marked on their time axis. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from sparktop.dataclass import dataclass
from sparktop.headless.report.account import Account
from sparktop.headless.report.plot import Box, Point, line, memory_areas, round_up, share, thinned
from sparktop.model.event import EventKind
from sparktop.model.finding import Finding
from sparktop.model.fleet import NodeView
from sparktop.observe.replay.player import is_mark
from sparktop.text.units import GIB, gib, percent, speed, watts

FIGURES: Mapping[str, tuple[str, Callable[[float], str], str]] = {
    "available": ("available memory", gib, ""),
    "utilisation": ("SM", percent, " %"),
    "power": ("power", watts, " W"),
    "tokens": ("tokens/s", speed, ""),
}
"""Name, how a value is told, unit of the scale."""
Mark = tuple[float, int, int, Finding]
"""Percent of the axis, lane, number, finding."""
LANES = 4
LANE_SHARE = 0.055
"""Marks that are nearer stand one below the other: their width on a narrow screen."""


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
    label, told, _ = FIGURES[figure]
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
            name, _, unit = FIGURES[figure]
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
