"""Parse an engine's /metrics into figures, and compute rates between two scrapes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sparktop import sanitise
from sparktop.bounds import LARGEST, number_in
from sparktop.model.engine import EndpointState, EngineKind, EngineMetrics, EngineRates
from sparktop.model.telemetry import NO_GAPS, GapReason

_ANY: Mapping[str, frozenset[str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class NotMetrics:
    """Why an answer has no figures of this engine."""

    state: EndpointState
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a figure comes from: a sample's name, the labels to match, and how several samples combine."""

    name: str
    where: Mapping[str, frozenset[str]] = field(default_factory=lambda: _ANY)
    largest: bool = False
    """Take the largest value instead of the sum: for ratios."""


def _realtime(*modes: str) -> Source:
    """SGLang's counters that advance at each log interval; the others wait for a request's end (0.5.10 and later)."""
    return Source(name="sglang:realtime_tokens_total", where={"mode": frozenset(modes)})


FIGURES: Mapping[EngineKind, Mapping[str, Sequence[Source]]] = {
    EngineKind.VLLM: {
        "running": (Source(name="vllm:num_requests_running"),),
        "waiting": (Source(name="vllm:num_requests_waiting"),),
        "prompt_tokens": (Source(name="vllm:prompt_tokens_total"),),
        "generation_tokens": (Source(name="vllm:generation_tokens_total"),),
        "iterations": (Source(name="vllm:iteration_tokens_total_count"),),
        "kv_cache_ratio": (
            Source(name="vllm:kv_cache_usage_perc", largest=True),
            Source(name="vllm:gpu_cache_usage_perc", largest=True),  # before 0.11
        ),
        "prefix_queries": (
            Source(name="vllm:prefix_cache_queries_total"),
            Source(name="vllm:gpu_prefix_cache_queries_total"),
        ),
        "prefix_hits": (Source(name="vllm:prefix_cache_hits_total"), Source(name="vllm:gpu_prefix_cache_hits_total")),
        "preemptions": (Source(name="vllm:num_preemptions_total"),),
    },
    EngineKind.SGLANG: {
        "running": (Source(name="sglang:num_running_reqs"),),
        "waiting": (Source(name="sglang:num_queue_reqs"),),
        "prompt_tokens": (_realtime("prefill_compute", "prefill_cache"), Source(name="sglang:prompt_tokens_total")),
        "generation_tokens": (_realtime("decode"), Source(name="sglang:generation_tokens_total")),
        "iterations": (Source(name="sglang:cuda_graph_passes_total"),),
        "kv_cache_ratio": (Source(name="sglang:token_usage", largest=True),),
        # not sglang:cache_hit_rate: 0.5.12 sets it to 0 with every decode report
        "prefix_queries": (_realtime("prefill_compute", "prefill_cache"), Source(name="sglang:prompt_tokens_total")),
        "prefix_hits": (_realtime("prefill_cache"), Source(name="sglang:cached_tokens_total")),
        "preemptions": (Source(name="sglang:num_retracted_requests_total"),),
    },
}


HISTOGRAMS: Mapping[EngineKind, Mapping[str, Sequence[str]]] = {
    EngineKind.VLLM: {
        "ttft": ("vllm:time_to_first_token_seconds",),
        "itl": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    },
    EngineKind.SGLANG: {
        "ttft": ("sglang:time_to_first_token_seconds",),
        "itl": ("sglang:inter_token_latency_seconds", "sglang:inter_token_latency"),
    },
}


RANK_LABELS = ("tp_rank", "pp_rank", "moe_ep_rank", "ep_rank", "cp_rank")


WITHOUT_FIGURES: Mapping[EngineKind, str] = {
    EngineKind.VLLM: "no vllm: names in it: is it started with --disable-log-stats, or is this another server?",
    EngineKind.SGLANG: "no sglang: names in it: start it with --enable-metrics",
}


MAX_ROWS = 4096
"""Samples of interest in one answer: an engine of eight ranks has some 600."""
_NAME = re.compile(rb"^([a-zA-Z_:][a-zA-Z0-9_:]*)[ {\t]")


def parse(text: bytes, kind: EngineKind, wall_s: float) -> EngineMetrics | NotMetrics:
    """The figures of one scrape; `gaps` names the missing ones.

    Args:
        text: the body of /metrics, any bytes.
        wall_s: the operator's wall clock at the scrape.
    """
    if text.lstrip()[:1] in (b"<", b"{"):
        return NotMetrics(state=EndpointState.NOT_METRICS, reason="it answers a page and not metrics")
    try:
        samples = _samples(text, kind)
    except TooManyRows:
        reason = f"its answer has more than {MAX_ROWS} samples of a name: left unread"
        return NotMetrics(state=EndpointState.NOT_METRICS, reason=reason)
    if not samples:
        if not _NAME.search(text) and b"\n# TYPE " not in b"\n" + text:
            return NotMetrics(state=EndpointState.NOT_METRICS, reason="its answer can't be read as metrics")
        return NotMetrics(state=EndpointState.NO_METRICS, reason=WITHOUT_FIGURES[kind])
    figures: dict[str, Any] = {name: _figure(samples, sources) for name, sources in FIGURES[kind].items()}
    for name, histograms in HISTOGRAMS[kind].items():
        sums = [Source(name=f"{histogram}_sum") for histogram in histograms]
        counts = [Source(name=f"{histogram}_count") for histogram in histograms]
        figures[f"{name}_sum_s"] = _figure(samples, sums)
        figures[f"{name}_count"] = _figure(samples, counts)
        figures[f"{name}_buckets"] = _buckets(samples, histograms)
    gaps = {name: GapReason.NOT_FOUND for name, value in figures.items() if value is None}
    return EngineMetrics(wall_s=wall_s, model=_model(samples), gaps=gaps or NO_GAPS, **figures)


class TooManyRows(Exception):
    """An answer with more samples than any engine has."""


_Samples = Mapping[str, Sequence[tuple[Mapping[str, str], float]]]


def _names_of(kind: EngineKind) -> frozenset[bytes]:
    names = {source.name for sources in FIGURES[kind].values() for source in sources}
    for histograms in HISTOGRAMS[kind].values():
        names |= {f"{name}{suffix}" for name in histograms for suffix in ("_sum", "_count", "_bucket")}
    return frozenset(name.encode() for name in names)


_SAMPLE_NAMES: Mapping[EngineKind, frozenset[bytes]] = {kind: _names_of(kind) for kind in EngineKind}


def _samples(text: bytes, kind: EngineKind) -> _Samples:
    """The samples of interest by name; an unreadable line is skipped, not the whole answer."""
    names = _SAMPLE_NAMES[kind]
    rows = []
    for row in text.split(b"\n"):  # nine of ten lines are not needed: parsing them would be slow
        match = _NAME.match(row)
        if match and match[1] in names:
            rows.append(row.decode("utf-8", "replace"))
            if len(rows) > MAX_ROWS:
                raise TooManyRows
    samples = _parse_rows(rows)
    if samples is None:
        samples = [sample for row in rows for sample in _parse_rows([row]) or ()]
    by_name: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for name, labels, value in samples:
        if abs(value) <= LARGEST:  # also false for NaN
            by_name.setdefault(name, []).append((labels, float(value)))
    return by_name


def _parse_rows(rows: Sequence[str]) -> list[tuple[str, Mapping[str, str], float]] | None:
    from prometheus_client.parser import text_string_to_metric_families  # costs 50 ms, which no first paint waits for

    try:
        families = list(text_string_to_metric_families("\n".join(rows) + "\n"))
    except Exception:  # noqa: BLE001 - the parser says nowhere what it raises; found so far: five kinds
        return None
    return [(sample.name, sample.labels, sample.value) for family in families for sample in family.samples]


def _figure(samples: _Samples, sources: Iterable[Source]) -> float | None:
    for source in sources:
        rows = samples.get(source.name)
        if rows:
            values = list(_once_per_rank(rows, source.where).values())
            if source.largest:
                return max(values, default=0.0)
            return sum(values)
    return None


def _once_per_rank(
    rows: Sequence[tuple[Mapping[str, str], float]], where: Mapping[str, frozenset[str]] = _ANY
) -> dict[tuple[tuple[str, str], ...], float]:
    """Values by their labels without the rank; of several ranks, the lowest one's value."""
    lowest: dict[tuple[tuple[str, str], ...], tuple[tuple[str, ...], float]] = {}
    for labels, value in rows:
        if any(labels.get(label) not in allowed for label, allowed in where.items()):
            continue
        group = tuple(sorted((name, text) for name, text in labels.items() if name not in RANK_LABELS))
        rank = tuple(labels.get(name, "").rjust(6, "0") for name in RANK_LABELS)
        if group not in lowest or rank < lowest[group][0]:
            lowest[group] = (rank, value)
    return {group: value for group, (_, value) in lowest.items()}


def _buckets(samples: _Samples, histograms: Iterable[str]) -> tuple[tuple[float, float], ...]:
    for histogram in histograms:
        rows = samples.get(f"{histogram}_bucket")
        if rows:
            by_bound: dict[float, float] = {}
            for group, count in _once_per_rank(rows).items():
                bound = _bound(dict(group).get("le", ""))
                if bound is not None:
                    by_bound[bound] = by_bound.get(bound, 0.0) + count
            return tuple(sorted(by_bound.items()))
    return ()


def _bound(text: str) -> float | None:
    return math.inf if text == "+Inf" else number_in(text)


def _model(samples: _Samples) -> str | None:
    for rows in samples.values():
        for labels, _ in rows:
            if labels.get("model_name"):
                return sanitise.name(labels["model_name"])
    return None


RATE_SPAN_S = 4.0
"""The least span of token rates: one scrape's jitter is a tenth of that."""


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
    """The scrapes of the last minute, oldest first, and when the token counters last advanced."""

    kept: tuple[EngineMetrics, ...] = ()
    moved_wall_s: float | None = None
    """When a token counter last advanced, or a request came after an idle time; before that, the first scrape."""


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
        or (_has_requests(metrics) and not _has_requests(kept[-1]))
    ):
        moved_wall_s = metrics.wall_s  # idle is no stall: a stall is counted from the first request on
    rate_base = _scrape_before(kept, metrics.wall_s, RATE_SPAN_S)
    latency_base = _scrape_before(kept, metrics.wall_s, LATENCY_SPAN_S)
    rates = between(rate_base, metrics, wide=latency_base, moved_wall_s=moved_wall_s)
    horizon = metrics.wall_s - LATENCY_SPAN_S
    recent = tuple(scrape for index, scrape in enumerate(kept) if _still_needed(kept, index, horizon))
    return Scrapes(kept=(*recent, metrics), moved_wall_s=moved_wall_s), rates


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


def _has_requests(metrics: EngineMetrics) -> bool:
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
