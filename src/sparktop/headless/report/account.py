"""What a recording's pictures tell of a stretch of time, gathered in one pass. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter, itemgetter

from sparktop.dataclass import dataclass
from sparktop.diagnose.findings import ordered
from sparktop.model.engine import Engine
from sparktop.model.event import Event, EventKind
from sparktop.model.finding import Finding, FindingKey, Phase
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.model.telemetry import Series
from sparktop.text.units import gib, percent, speed, watts

Point = tuple[float, float | None]
"""Seconds since the epoch, value; None marks a gap."""
COLUMNS = 500
"""Of a plot: each shows its lowest and its highest value."""
MOST_POINTS = 16 * COLUMNS
SILENCE_S = 10.0
"""A shorter one without a loss is told by the timeline alone."""


FIGURES: Mapping[str, tuple[str, Callable[[float], str], str, Callable[[NodeView], Series]]] = {
    "available": ("available memory", gib, "", attrgetter("available_history")),
    "utilisation": ("SM", percent, " %", attrgetter("utilisation_history")),
    "power": ("power", watts, " W", attrgetter("power_history")),
    "tokens": ("tokens/s", speed, "", attrgetter("token_history")),
}
"""Name, how a value is told, unit of the scale, and the history of a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """A finding in its newest state, with when it fired."""

    finding: Finding
    first_s: float
    """Seconds since the epoch, as all times here."""
    last_s: float
    times: int = 1
    is_firing: bool = True
    """At the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A stretch without samples of a node."""

    node: str
    begin_s: float
    end_s: float | None
    """None: it lasted to the end."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What happened, and the figures of it."""

    begin_s: float
    end_s: float
    fleet: FleetState
    """The last picture."""
    events: tuple[Event, ...]
    occurrences: tuple[Occurrence, ...]
    """Worst first, each consequence after its cause."""
    outages: tuple[Outage, ...]
    points: dict[tuple[str, str], tuple[Point, ...]]
    """By node and one of FIGURES that was known."""
    engines: tuple[tuple[NodeView, Engine], ...]
    """All that were there, as last seen."""


def account_of(pictures: Iterable[FleetState], since_s: float) -> Account | None:
    """What these pictures tell from a moment on; None: none is from then or later."""
    occurrences: dict[FindingKey, Occurrence] = {}
    points: dict[tuple[str, str], list[Point]] = defaultdict(list)
    engines: dict[tuple[str, str], tuple[NodeView, Engine]] = {}
    events: list[Event] = []
    begin_s, last = None, FleetState()
    for picture in pictures:
        if picture.wall_s < since_s:
            continue
        begin_s = picture.wall_s if begin_s is None else begin_s
        events += picture.news
        _take_findings(occurrences, picture, last.wall_s)
        for node in picture.nodes:
            for figure, (_, _, _, history) in FIGURES.items():
                _take_points(points[node.name, figure], history(node), begin_s, picture.wall_s - picture.monotonic_s)
            engines.update({(node.name, engine.key): (node, engine) for engine in node.engines})
        last = picture
    if begin_s is None:
        return None
    firing = {finding.key for finding in last.findings if finding.phase is Phase.FIRING}
    by_key = {key: replace(one, is_firing=key in firing) for key, one in occurrences.items()}
    return Account(
        begin_s=begin_s,
        end_s=last.wall_s,
        fleet=last,
        events=tuple(sorted(events, key=lambda event: event.at_s)),
        occurrences=tuple(by_key[finding.key] for finding in ordered([one.finding for one in by_key.values()])),
        outages=outages(events, last.wall_s),
        points={key: tuple(rows) for key, rows in points.items() if any(value is not None for _, value in rows)},
        engines=tuple(engines.values()),
    )


def outages(events: Iterable[Event], end_s: float) -> tuple[Outage, ...]:
    """From when nodes were silent or lost, until they were live again; a short silence is none."""
    found: list[Outage] = []
    silent: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.kind is EventKind.LINK and event.severity is not None:
            silent[event.nodes[0]].append(event)
        elif event.kind is EventKind.LINK and event.subject == LinkState.LIVE:
            found += _outage(silent.pop(event.nodes[0], []), event.at_s)
    found += [replace(one, end_s=None) for rows in silent.values() for one in _outage(rows, end_s)]
    return tuple(sorted(found, key=lambda one: one.begin_s))


def _outage(silent: Sequence[Event], end_s: float) -> Iterator[Outage]:
    is_lost = any(event.subject != LinkState.STALE for event in silent)
    if silent and (is_lost or end_s - silent[0].at_s >= SILENCE_S):
        yield Outage(node=silent[0].nodes[0], begin_s=silent[0].at_s, end_s=end_s, reason=silent[-1].text)


def _take_findings(occurrences: dict[FindingKey, Occurrence], picture: FleetState, before_s: float) -> None:
    for finding in picture.findings:
        known = occurrences.get(finding.key)
        if finding.phase is not Phase.FIRING:
            if known is not None:
                occurrences[finding.key] = replace(known, finding=finding)
        elif known is None:
            first_s = picture.wall_s if finding.since_wall_s is None else finding.since_wall_s
            occurrences[finding.key] = Occurrence(finding=finding, first_s=first_s, last_s=picture.wall_s)
        else:
            times = known.times + (known.last_s < before_s)
            occurrences[finding.key] = replace(known, finding=finding, last_s=picture.wall_s, times=times)


def _take_points(points: list[Point], series: Series, begin_s: float, lead_s: float) -> None:
    """Add what is newer than the last one, with the gap before it."""
    newest_s = points[-1][0] if points else begin_s - 1.0
    fresh = bisect_right(series.times, newest_s - lead_s)
    rows = zip(series.times[fresh:], series.values[fresh:], strict=True)
    points += [(time_s + lead_s, value) for time_s, value in rows]
    if len(points) > MOST_POINTS:
        points[:] = thinned(points, MOST_POINTS // 4)


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
