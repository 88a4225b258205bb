"""The newest stretch of a history, walked backwards: rules look at that instead of the whole quarter hour.

Times are on the operator's monotonic clock, like `FleetState.monotonic_s`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from sparktop.dataclass import dataclass
from sparktop.model.engine import Engine
from sparktop.model.finding import Evidence, LogPlace
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.telemetry import Series

FRESH_S = 6.0
"""An older GPU reading says nothing about now: its collector hangs, or the link lags."""
FRESH_INTERVALS = 1.5
"""The same where the probe samples more rarely."""


def newest(series: Series, seconds: float) -> Iterator[tuple[float, float]]:
    """(time, value) pairs, newest first, over at most this many seconds and up to the first gap."""
    if not series.times:
        return
    horizon_s = series.times[-1] - seconds
    for time_s, value in zip(reversed(series.times), reversed(series.values), strict=True):
        if value is None or time_s < horizon_s:
            return
        yield time_s, value


def highest(series: Series, seconds: float) -> float | None:
    """The highest value of the last seconds; None without values."""
    return max((value for _, value in newest(series, seconds)), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuStretch:
    """The newest stretch in which each GPU reading was of one kind."""

    seconds: float
    count: int
    power_w: float
    """Mean over the stretch, like the others."""
    util_percent: float
    clock_mhz: float | None


GpuTest = Callable[[float, float, float | None], bool]
"""(utilisation percent, power in watts, SM clock in MHz or None) of one reading."""


def gpu_stretch(node: NodeView, fleet: FleetState, test: GpuTest, *, longest_s: float) -> GpuStretch | None:
    """The newest stretch in which all readings (but a lone one in ten) pass; None if the newest fails or is old."""
    util, power = node.utilisation_history, node.power_history
    interval_s = min((late - early for early, late in pairwise(util.times[-3:])), default=0.0)
    fresh_s = max(FRESH_S, FRESH_INTERVALS * interval_s)
    if not util.times or fleet.monotonic_s - util.times[-1] > fresh_s or len(power.times) != len(util.times):
        return None
    clocks = node.clock_history.values if len(node.clock_history.times) == len(util.times) else ()
    horizon_s = util.times[-1] - longest_s
    count = misses = 0
    since_s = util.times[-1]
    sums = [0.0, 0.0, 0.0]
    lone = False
    for index in range(len(util.times) - 1, -1, -1):
        time_s, busy, watts = util.times[index], util.values[index], power.values[index]
        if time_s < horizon_s or busy is None or watts is None:
            break
        clock = clocks[index] if clocks else None
        if not test(busy, watts, clock):
            misses += 1
            if lone or count < 10 * misses:
                break
            lone = True
            continue
        lone = False
        count += 1
        since_s = time_s
        sums[0] += busy
        sums[1] += watts
        sums[2] += clock or 0.0
    if not count:
        return None
    return GpuStretch(
        seconds=util.times[-1] - since_s,
        count=count,
        util_percent=sums[0] / count,
        power_w=sums[1] / count,
        clock_mhz=sums[2] / count if clocks and sums[2] else None,
    )


def of_engine(engine: Engine, node: NodeView, text: str, *, part: str = "", wall_s: float | None = None) -> Evidence:
    """What an engine shows as evidence; `part`: its metrics or its log."""
    source = f"{engine.name} @ {node.name} {part}".rstrip()
    log = LogPlace(node.name, engine.name) if part != "metrics" else None
    return Evidence(source=source, text=text, wall_s=wall_s, log=log)


def seen(node: NodeView, metric: str, text: str) -> Evidence:
    """A value as evidence, timed by the node's newest sample."""
    return Evidence(source=f"{node.name} {metric}", text=text, wall_s=node.sample.wall_s if node.sample else None)
