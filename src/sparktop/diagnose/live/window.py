"""The newest stretch of a picture's histories, walked backwards: what rules look at instead of the whole quarter hour.

Times are the operator's monotonic clock, as `FleetState.monotonic_s` is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sparktop.model.finding import Evidence
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.model.telemetry import Series

GIB = 1024**3
FRESH_S = 6.0
"""A GPU reading older than this says nothing of now: its collector hangs, or the line lags."""


def is_current(node: NodeView) -> bool:
    """Whether the node's figures are of now: claims about a silent node are for the rules about silence."""
    return node.link.state is LinkState.LIVE and node.sample is not None


def node_wall_s(node: NodeView, fleet: FleetState) -> float | None:
    """The node's own clock now, to which its log lines' times belong."""
    if node.sample is None or node.sample_at_s is None:
        return None
    return node.sample.wall_s + max(0.0, fleet.monotonic_s - node.sample_at_s)


def newest(series: Series, seconds: float) -> Iterator[tuple[float, float]]:
    """(time, value) from the newest back, over at most so many seconds and up to the first gap."""
    if not series.times:
        return
    horizon_s = series.times[-1] - seconds
    for time_s, value in zip(reversed(series.times), reversed(series.values), strict=True):
        if value is None or time_s < horizon_s:
            return
        yield time_s, value


def highest(series: Series, seconds: float) -> float | None:
    """The highest value of the last seconds; None where there is none."""
    return max((value for _, value in newest(series, seconds)), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuStretch:
    """The newest stretch in which each GPU reading was of one kind."""

    seconds: float
    count: int
    power_w: float
    """Mean, as are the others."""
    util_percent: float
    clock_mhz: float | None


GpuTest = Callable[[float, float, float | None], bool]
"""(utilisation percent, power in watts, SM clock in MHz or None) of one reading."""


def gpu_stretch(node: NodeView, fleet: FleetState, test: GpuTest, *, longest_s: float) -> GpuStretch | None:
    """Since when every reading but a lone one in ten passes; None when the newest doesn't, or is old."""
    util, power = node.utilisation_history, node.power_history
    if not util.times or fleet.monotonic_s - util.times[-1] > FRESH_S or len(power.times) != len(util.times):
        return None
    clocks = node.clock_history.values if len(node.clock_history.times) == len(util.times) else ()
    horizon_s = util.times[-1] - longest_s
    count = odd = 0
    since_s = util.times[-1]
    sums = [0.0, 0.0, 0.0]
    lone = False
    for index in range(len(util.times) - 1, -1, -1):
        time_s, busy, watts = util.times[index], util.values[index], power.values[index]
        if time_s < horizon_s or busy is None or watts is None:
            break
        clock = clocks[index] if clocks else None
        if not test(busy, watts, clock):
            odd += 1
            if lone or count < 10 * odd:
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


def seen(node: NodeView, what: str, text: str) -> Evidence:
    """A value as evidence, with the node's time of the newest sample."""
    return Evidence(source=f"{node.name} {what}", text=text, wall_s=node.sample.wall_s if node.sample else None)


def gib(size: float) -> str:
    """Bytes as GiB for a sentence: "45.4 GiB"."""
    return f"{size / GIB:.1f} GiB"


def span(seconds: float) -> str:
    """A time for a sentence: "41 s", "6 min"."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
