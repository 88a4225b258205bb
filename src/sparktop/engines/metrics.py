"""Parse an engine's /metrics into figures."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any

from sparktop import sanitise
from sparktop.bounds import LARGEST, number_in
from sparktop.dataclass import dataclass
from sparktop.model.engine import EndpointState, EngineKind, EngineMetrics
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


def _finished(reason: str) -> Source:
    return Source(name="vllm:request_success_total", where={"finished_reason": frozenset((reason,))})


FIGURES: Mapping[EngineKind, Mapping[str, Sequence[Source]]] = {
    EngineKind.VLLM: {
        "running": (Source(name="vllm:num_requests_running"),),
        "waiting": (Source(name="vllm:num_requests_waiting"),),
        "prompt_tokens": (  # of those computed, where cached ones are told apart
            Source(name="vllm:prompt_tokens_by_source_total", where={"source": frozenset(("local_compute",))}),
            Source(name="vllm:prompt_tokens_total"),
        ),
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
        "answers": (Source(name="vllm:request_success_total"),),
        "cut": (_finished("length"),),
        "repeated": (_finished("repetition"),),
    },
    EngineKind.SGLANG: {
        "running": (Source(name="sglang:num_running_reqs"),),
        "waiting": (Source(name="sglang:num_queue_reqs"),),
        "prompt_tokens": (_realtime("prefill_compute"), Source(name="sglang:prompt_tokens_total")),
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
_WITHOUT_NAMES: Mapping[EngineKind, str] = {
    EngineKind.VLLM: "no vllm: names in it: is it started with --disable-log-stats, or is this another server?",
    EngineKind.SGLANG: "no sglang: names in it: start it with --enable-metrics",
}
_WITHOUT_FIGURES = "its names have no figures yet: SGLang has some after half a minute or its first request"
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
        has_names = f"\n{kind}:".encode() in b"\n" + text
        reason = _WITHOUT_FIGURES if has_names else _WITHOUT_NAMES[kind]
        return NotMetrics(state=EndpointState.NO_FIGURES, reason=reason)
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
    """Values by their labels without the rank; of several ranks, the lowest one's value.

    SGLang with priorities gives each one's share beside the total, whose priority is empty.
    """
    if any(labels.get("priority") == "" for labels, _ in rows):
        rows = [row for row in rows if not row[0].get("priority")]
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
