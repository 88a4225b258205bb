"""An engine's rates between two scrapes of its /metrics."""

from __future__ import annotations

from dataclasses import replace

from sparktop.dataclass import dataclass
from sparktop.model.engine import EngineMetrics, EngineRates

RATE_SPAN_S = 4.0
"""The least span of token rates: one scrape's jitter is a tenth of that."""
LATENCY_SPAN_S = 60.0
ANSWERS = 20
"""How answers end is told of so many at least, however long they took."""

_COUNTERS = (
    "prompt_tokens",
    "generation_tokens",
    "iterations",
    "prefix_queries",
    "preemptions",
    "answers",
    "ttft_count",
    "itl_count",
)

_PROGRESS = ("prompt_tokens", "generation_tokens", "unfinished_tokens", "iterations", "kv_cache_ratio")
"""The cache fills with each chunk of a long prompt, whose tokens are counted at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrapes:
    """The scrapes of the last minute, oldest first, and when the token counters last advanced."""

    kept: tuple[EngineMetrics, ...] = ()
    moved_wall_s: float | None = None
    """When a token counter last advanced, or a request came after an idle time; before that, the first scrape."""
    answered: tuple[EngineMetrics, ...] = ()
    """The scrapes from before the last ANSWERS answers, and from before as many before those."""


def advance(scrapes: Scrapes, metrics: EngineMetrics) -> tuple[Scrapes, EngineRates]:
    """Add one scrape; returns the scrapes to keep, and the current rates."""
    kept = scrapes.kept
    if kept and (restarted(kept[-1], metrics) or metrics.wall_s < kept[-1].wall_s):
        kept, scrapes = (), Scrapes()
    moved_wall_s = scrapes.moved_wall_s
    if (
        moved_wall_s is None
        or not kept
        or _has_progressed(kept[-1], metrics)
        or (has_requests(metrics) and not has_requests(kept[-1]))
    ):
        moved_wall_s = metrics.wall_s  # idle is no stall: a stall is counted from the first request on
    rate_base = _scrape_before(kept, metrics.wall_s, RATE_SPAN_S)
    latency_base = _scrape_before(kept, metrics.wall_s, LATENCY_SPAN_S)
    rates = between(rate_base, metrics, wide=latency_base, moved_wall_s=moved_wall_s)
    horizon = metrics.wall_s - LATENCY_SPAN_S
    recent = tuple(scrape for index, scrape in enumerate(kept) if _still_needed(kept, index, horizon))
    answered = _before_answers(scrapes.answered, metrics)
    if answered and (base := answered[0]).answers != metrics.answers:
        count, *ended = (_more(base, metrics, name) for name in ("answers", "cut", "repeated"))
        if count is not None and count >= ANSWERS:
            rates = replace(rates, answers=count, cut=ended[0], repeated=ended[1])
    return Scrapes(kept=(*recent, metrics), moved_wall_s=moved_wall_s, answered=answered), rates


def _before_answers(answered: tuple[EngineMetrics, ...], metrics: EngineMetrics) -> tuple[EngineMetrics, ...]:
    if not answered or (_more(answered[-1], metrics, "answers") or 0.0) >= ANSWERS:
        return (*answered[-1:], metrics) if metrics.answers is not None else ()
    return answered


def _more(before: EngineMetrics, after: EngineMetrics, name: str) -> float | None:
    old, new = _value(before, name), _value(after, name)
    return None if old is None or new is None else new - old


def between(
    previous: EngineMetrics | None,
    current: EngineMetrics,
    *,
    wide: EngineMetrics | None = None,
    moved_wall_s: float | None = None,
) -> EngineRates:
    """The rates between two scrapes.

    Args:
        previous: the earlier scrape; None or one from before a restart gives no rates, never negative ones.
        wide: an older scrape for latencies and the hit ratio, which need more requests than rates do.
        moved_wall_s: when a token counter last advanced, or a request came after an idle time.
    """
    if previous is not None and restarted(previous, current):
        previous = None
    if wide is None or restarted(wide, current):
        wide = previous
    medians = {f"{name}_p50_s": _median(wide, current, f"{name}_buckets") for name in ("ttft", "itl")}
    preempted_per_s = _per_second(wide, current, "preemptions")
    return EngineRates(
        prompt_tokens_per_s=_per_second(previous, current, "prompt_tokens"),
        generation_tokens_per_s=_generated_per_second(previous, current),
        prefix_hit_ratio=_hit_ratio(wide, current),
        ttft_p50_s=medians["ttft_p50_s"][0],
        itl_p50_s=medians["itl_p50_s"][0],
        of_life=frozenset(name for name, (value, of_life) in medians.items() if of_life and value is not None),
        preemptions_per_min=None if preempted_per_s is None else 60 * preempted_per_s,
        progress_age_s=None if moved_wall_s is None else max(0.0, current.wall_s - moved_wall_s),
    )


def restarted(previous: EngineMetrics, current: EngineMetrics) -> bool:
    """Whether a counter fell: the engine has restarted in between."""
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


def _has_progressed(previous: EngineMetrics, current: EngineMetrics) -> bool:
    return any(_value(previous, name) != _value(current, name) for name in _PROGRESS)


def has_requests(metrics: EngineMetrics) -> bool:
    """Whether requests run or wait."""
    return bool(metrics.running or metrics.waiting)


def _scrape_before(kept: tuple[EngineMetrics, ...], now_s: float, span_s: float) -> EngineMetrics | None:
    """The newest scrape that is at least `span_s` old, else the oldest one."""
    old = [scrape for scrape in kept if now_s - scrape.wall_s >= span_s]
    return old[-1] if old else (kept[0] if kept else None)


def _still_needed(kept: tuple[EngineMetrics, ...], index: int, horizon_s: float) -> bool:
    """Whether the scrape is within the last minute, or the last one before it."""
    return kept[index].wall_s > horizon_s or index == len(kept) - 1 or kept[index + 1].wall_s > horizon_s


def _per_second(previous: EngineMetrics | None, current: EngineMetrics, name: str) -> float | None:
    if previous is None or current.wall_s <= previous.wall_s:
        return None
    before, after = _value(previous, name), _value(current, name)
    if before is None or after is None:
        return None
    return (after - before) / (current.wall_s - previous.wall_s)


def _generated_per_second(previous: EngineMetrics | None, current: EngineMetrics) -> float | None:
    """With the tokens of requests that still run, where the counter waits for their end; both are read in turn, so that
    a request which ends in between may count in neither."""
    rate, open_tokens = (
        _per_second(previous, current, "generation_tokens"),
        _per_second(previous, current, "unfinished_tokens"),
    )
    return rate if rate is None or open_tokens is None else max(0.0, rate + open_tokens)


def _hit_ratio(previous: EngineMetrics | None, current: EngineMetrics) -> float | None:
    """Prefix cache hit ratio in the window where there were queries, else since the engine's start."""
    queries, hits = current.prefix_queries, current.prefix_hits
    if queries is None or hits is None:
        return None
    if previous is not None and previous.prefix_queries is not None and previous.prefix_hits is not None:
        window_queries = queries - previous.prefix_queries
        if window_queries > 0:
            return min(1.0, max(0.0, (hits - previous.prefix_hits) / window_queries))
    return min(1.0, hits / queries) if queries > 0 else None


def _median(previous: EngineMetrics | None, current: EngineMetrics, name: str) -> tuple[float | None, bool]:
    """(median, whether it covers the engine's whole life)."""
    after: tuple[tuple[float, float], ...] = getattr(current, name)
    before: tuple[tuple[float, float], ...] = getattr(previous, name) if previous is not None else ()
    if before and len(before) == len(after):
        window = tuple((bound, max(0.0, count - old)) for (bound, count), (_, old) in zip(after, before, strict=True))
        median = quantile(window, 0.5)
        if median is not None:
            return median, False
    return quantile(after, 0.5), True
