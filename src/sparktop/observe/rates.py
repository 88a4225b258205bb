"""What an engine's scrapes say together: tokens a second, hit ratio, latencies, and since when nothing moved.

Pure. Facts: facts/engines.md section 3. SGLang refreshes gauges only every 40 decode steps: rates come from counters.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparktop.model.engine import EngineMetrics, EngineRates

RATE_SPAN_S = 4.0
"""Token rates are taken over at least so long: one scrape's jitter is a tenth of that."""
LATENCY_SPAN_S = 60.0
_COUNTERS = (
    "prompt_tokens",
    "generation_tokens",
    "iterations",
    "prefix_queries",
    "preemptions",
    "ttft_count",
    "itl_count",
)
_PROGRESS = ("prompt_tokens", "generation_tokens", "iterations")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrapes:
    """The scrapes of the last minute, oldest first, and since when the token counters stand."""

    kept: tuple[EngineMetrics, ...] = ()
    moved_wall_s: float | None = None
    """When a token counter was last seen to move, or work came after a rest; the first scrape, while neither was."""


def advance(scrapes: Scrapes, metrics: EngineMetrics) -> tuple[Scrapes, EngineRates]:
    """Take in one scrape: the scrapes to keep, and the rates that hold now."""
    kept = scrapes.kept
    if kept and (restarted(kept[-1], metrics) or metrics.wall_s < kept[-1].wall_s):
        kept, scrapes = (), Scrapes()
    moved = scrapes.moved_wall_s
    if moved is None or not kept or _moved(kept[-1], metrics) or (_held(metrics) and not _held(kept[-1])):
        moved = metrics.wall_s  # a rest is no standstill: it begins when there is work to do
    base = _base(kept, metrics.wall_s, RATE_SPAN_S)
    wide = _base(kept, metrics.wall_s, LATENCY_SPAN_S)
    rates = between(base, metrics, wide=wide, moved_wall_s=moved)
    horizon = metrics.wall_s - LATENCY_SPAN_S
    fresh = tuple(scrape for index, scrape in enumerate(kept) if _still_needed(kept, index, horizon))
    return Scrapes(kept=(*fresh, metrics), moved_wall_s=moved), rates


def between(
    previous: EngineMetrics | None,
    current: EngineMetrics,
    *,
    wide: EngineMetrics | None = None,
    moved_wall_s: float | None = None,
) -> EngineRates:
    """The rates from one scrape to a later one.

    Args:
        previous: the earlier scrape; None, or one from before a restart, gives no rates (and never negative ones).
        wide: an older scrape for latencies and the hit ratio, which need more requests than rates do.
        moved_wall_s: when a token counter last moved, or work came after a rest.
    """
    if previous is not None and restarted(previous, current):
        previous = None
    if wide is None or restarted(wide, current):
        wide = previous
    ttft, ttft_of_life = _median(wide, current, "ttft_buckets")
    itl, itl_of_life = _median(wide, current, "itl_buckets")
    return EngineRates(
        prompt_tokens_per_s=_per_second(previous, current, "prompt_tokens"),
        generation_tokens_per_s=_per_second(previous, current, "generation_tokens"),
        prefix_hit_ratio=_hit_ratio(wide, current),
        ttft_p50_s=ttft,
        itl_p50_s=itl,
        lifetime_latency=(ttft is not None and ttft_of_life) or (itl is not None and itl_of_life),
        progress_age_s=None if moved_wall_s is None else max(0.0, current.wall_s - moved_wall_s),
    )


def restarted(previous: EngineMetrics, current: EngineMetrics) -> bool:
    """A counter that fell: the engine has started anew in between."""
    return any(
        before is not None and after is not None and after < before
        for before, after in ((_value(previous, name), _value(current, name)) for name in _COUNTERS)
    )


def quantile(buckets: tuple[tuple[float, float], ...], share: float) -> float | None:
    """A quantile of a cumulative histogram, linear inside its bucket; None when it counted nothing.

    In the last, open bucket it is that bucket's lower bound, as Prometheus has it.
    """
    if not buckets or buckets[-1][1] <= 0:
        return None
    rank = share * buckets[-1][1]
    low_bound, low_count = 0.0, 0.0
    for bound, count in buckets:
        if count >= rank and count > low_count:
            if bound == float("inf"):
                return low_bound
            return low_bound + (bound - low_bound) * max(0.0, rank - low_count) / (count - low_count)
        low_bound, low_count = bound, max(low_count, count)
    return None


def _value(metrics: EngineMetrics, name: str) -> float | None:
    value = getattr(metrics, name)
    return value if isinstance(value, float | int) else None


def _moved(previous: EngineMetrics, current: EngineMetrics) -> bool:
    return any(_value(previous, name) != _value(current, name) for name in _PROGRESS)


def _held(metrics: EngineMetrics) -> bool:
    return bool(metrics.running or metrics.waiting)


def _base(kept: tuple[EngineMetrics, ...], now_s: float, span_s: float) -> EngineMetrics | None:
    """The newest scrape at least `span_s` old, else the oldest."""
    old = [scrape for scrape in kept if now_s - scrape.wall_s >= span_s]
    return old[-1] if old else (kept[0] if kept else None)


def _still_needed(kept: tuple[EngineMetrics, ...], index: int, horizon_s: float) -> bool:
    """Within the minute, or the last one before it."""
    return kept[index].wall_s > horizon_s or index == len(kept) - 1 or kept[index + 1].wall_s > horizon_s


def _per_second(previous: EngineMetrics | None, current: EngineMetrics, name: str) -> float | None:
    if previous is None or current.wall_s <= previous.wall_s:
        return None
    before, after = _value(previous, name), _value(current, name)
    if before is None or after is None:
        return None
    return (after - before) / (current.wall_s - previous.wall_s)


def _hit_ratio(previous: EngineMetrics | None, current: EngineMetrics) -> float | None:
    """Of the window where it had queries, else of the engine's life."""
    queries, hits = current.prefix_queries, current.prefix_hits
    if queries is None or hits is None:
        return None
    if previous is not None and previous.prefix_queries is not None and previous.prefix_hits is not None:
        asked = queries - previous.prefix_queries
        if asked > 0:
            return min(1.0, max(0.0, (hits - previous.prefix_hits) / asked))
    return min(1.0, hits / queries) if queries > 0 else None


def _median(previous: EngineMetrics | None, current: EngineMetrics, name: str) -> tuple[float | None, bool]:
    """(median, whether it is of the engine's whole life)."""
    after: tuple[tuple[float, float], ...] = getattr(current, name)
    before: tuple[tuple[float, float], ...] = getattr(previous, name) if previous is not None else ()
    if before and len(before) == len(after):
        window = tuple((bound, max(0.0, count - old)) for (bound, count), (_, old) in zip(after, before, strict=True))
        median = quantile(window, 0.5)
        if median is not None:
            return median, False
    return quantile(after, 0.5), True
