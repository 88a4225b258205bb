"""An engine's log and its /metrics, as text."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence

from sparktop.dataclass import dataclass
from sparktop.sim.scenario.script import ENGINE_TRACKS, ContainerScript, EngineScript, LogEntry, Repeat
from sparktop.sim.spark.spark import ITL_BUCKETS_S, TTFT_BUCKETS_S, Spark


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One piece of output, as the Docker Engine streams it."""

    at_s: float
    stream: str
    data: bytes
    """Ends in a newline, except for states of a progress bar drawn in place."""


def records(spark: Spark, container: ContainerScript, after_s: float, until_s: float) -> list[Record]:
    """All output after `after_s` up to `until_s`, in order."""
    engine = next((e for e in spark.script.engines if e.name == container.name), None)
    all_records = [
        Record(at_s=at, stream=entry.stream, data=data)
        for entry in container.log
        for at, data in _entry_output(spark, container, engine, entry, after_s, until_s)
    ]
    all_records.sort(key=lambda record: record.at_s)
    return all_records


def _entry_output(
    spark: Spark,
    container: ContainerScript,
    engine: EngineScript | None,
    entry: LogEntry,
    after_s: float,
    until_s: float,
) -> Iterator[tuple[float, bytes]]:
    if entry.total is not None:
        yield from _bar(spark, engine, entry, after_s, until_s)
        return
    recurs = entry.every_s is not None or _loops(spark, entry)
    for at in _times(spark, entry, after_s, until_s):
        if entry.busy and not _busy(engine, at, entry.every_s or 0.0):
            continue
        if recurs and not any(r.start_s <= at < (at + 1 if r.end_s is None else r.end_s) for r in container.runs):
            continue
        if recurs and entry.every_s is None and engine is not None and not engine.serves_at(at):
            continue
        yield at, (entry.text.format_map(_fields(spark, engine, at)) + "\n").encode()


def _loops(spark: Spark, entry: LogEntry) -> bool:
    return spark.scenario.repeat is Repeat.LOOP and entry.at_s >= 0 and not entry.once


def _times(spark: Spark, entry: LogEntry, after_s: float, until_s: float) -> Iterator[float]:
    step = entry.every_s or (spark.scenario.length_s if _loops(spark, entry) else None)
    if step is None:
        if after_s < entry.at_s <= until_s:
            yield entry.at_s
        return
    last = until_s if entry.every_s is None or entry.until_s is None else min(until_s, entry.until_s)
    number = int((after_s - entry.at_s) // step) if after_s > entry.at_s else 0
    while (at := entry.at_s + number * step) <= last:
        if at > after_s:
            yield at
        number += 1


def _busy(engine: EngineScript | None, t: float, window_s: float) -> bool:
    if engine is None:
        return False
    if engine.kind == "sglang":
        return engine.tracks["gen_tps"].mean(t - window_s, t) > 0
    # vLLM logs its line once more after the last token: it stops after two windows without tokens.
    return any(engine.tracks[name].mean(t - 2 * window_s, t) > 0 for name in ("gen_tps", "prompt_tps"))


def _bar(
    spark: Spark, engine: EngineScript | None, entry: LogEntry, after_s: float, until_s: float
) -> Iterator[tuple[float, bytes]]:
    total, steps = entry.total or 1, max(0, entry.last - entry.first)
    end = entry.until_s if entry.until_s is not None else entry.at_s
    for i in range(steps + 1):
        at = entry.at_s + (end - entry.at_s) * (i / steps if steps else 0.0)
        if not after_s < at <= until_s:
            continue
        step_number, elapsed = entry.first + i, at - entry.at_s
        rate = i / elapsed if elapsed > 0 else 0.0
        filled = 10 * step_number // total
        fields = _fields(spark, engine, at) | {
            "done": step_number,
            "total": total,
            "percent": 100.0 * step_number / total,
            "bar": "█" * filled + " " * (10 - filled),
            "elapsed": _clock(elapsed),
            "left": _clock((total - step_number) / rate) if rate else "?",
            "rate": rate,
        }
        ending = "\n" if entry.newline or step_number == total else ""
        yield at, f"\r{entry.text.format_map(fields)}{ending}".encode()


def _fields(spark: Spark, engine: EngineScript | None, t: float) -> dict[str, float | str]:
    at = time.gmtime(spark.wall_s(t))
    fields: dict[str, float | str] = dict.fromkeys(ENGINE_TRACKS, 0.0)
    fields |= {"prompt_tokens": 0.0, "generation_tokens": 0.0}
    if engine is not None:
        fields |= {name: track.mean(t - 10, t) if name.endswith("_tps") else track.at(t)
                   for name, track in engine.tracks.items()}  # fmt: skip
        totals = spark.counters[engine.name].at(t)
        fields |= {"prompt_tokens": totals["prompt"], "generation_tokens": totals["generation"]}
    return fields | {
        "vllm_time": time.strftime("%m-%d %H:%M:%S", at),
        "sglang_time": time.strftime("%Y-%m-%d %H:%M:%S", at),
        "kv_percent": 100 * float(fields["kv"]),
        "kv_tokens": KV_TOKENS * float(fields["kv"]),
        "hit_percent": 100 * float(fields["prefix_hit"]),
        "available_gib": spark.figure("available_gib", t),
    }


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


KV_TOKENS = 412_000
"""Size of the KV cache pool in tokens."""


class _Text:
    """Writes Prometheus samples with common labels."""

    def __init__(self, prefix: str, labels: Mapping[str, str]) -> None:
        self._prefix = prefix
        self._labels = dict(labels)
        self._lines: list[str] = []

    def family(self, kind: str, name: str, meaning: str) -> None:
        self._lines += [f"# HELP {self._prefix}{name} {meaning}", f"# TYPE {self._prefix}{name} {kind}"]

    def sample(self, name: str, value: float, **labels: str) -> None:
        pairs = ",".join(f'{key}="{value}"' for key, value in sorted((self._labels | labels).items()))
        self._lines.append(f"{self._prefix}{name}{{{pairs}}} {value!r}")

    def gauge(self, name: str, meaning: str, value: float) -> None:
        self.family("gauge", name, meaning)
        self.sample(name, float(value))

    def counter(self, name: str, meaning: str, value: float, **labels: str) -> None:
        """Write a counter as prometheus_client does: TYPE and sample both end in _total."""
        self.family("counter", f"{name}_total", meaning)
        self.sample(f"{name}_total", float(math.floor(value)), **labels)

    def histogram(
        self, name: str, meaning: str, bounds: Sequence[float], counts: Sequence[float], total: float
    ) -> None:
        self.family("histogram", name, meaning)
        # The first of few observations lies near the median, as most do: a bucket counts it at half its share.
        count_of_all = float(math.floor(max(counts) + 0.25))
        for bound, count in zip(bounds, counts, strict=True):
            self.sample(f"{name}_bucket", min(count_of_all, float(math.floor(count + 0.5))), le=str(float(bound)))
        self.sample(f"{name}_bucket", count_of_all, le="+Inf")
        self.sample(f"{name}_count", count_of_all)
        self.sample(f"{name}_sum", round(total, 6))

    def relabelled(self, **labels: str) -> None:
        """Use other labels from here on."""
        self._labels = labels

    def encode(self) -> bytes:
        return ("\n".join(self._lines) + "\n").encode()


def exposition(spark: Spark, engine: EngineScript, t: float) -> bytes:
    """The text of /metrics at second `t`."""
    return _vllm(spark, engine, t) if engine.kind == "vllm" else _sglang(spark, engine, t)


def _vllm(spark: Spark, engine: EngineScript, t: float) -> bytes:
    counted = spark.counters[engine.name].at(t)
    tracks = engine.tracks
    text = _Text("vllm:", {"engine": "0", "model_name": engine.model})
    text.gauge("num_requests_running", "Number of requests in model execution batches.", round(tracks["running"].at(t)))
    text.gauge("num_requests_waiting", "Number of requests waiting to be processed.", round(tracks["waiting"].at(t)))
    text.gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", round(tracks["kv"].at(t), 6))
    text.counter("prefix_cache_queries", "Prefix cache queries, in tokens.", counted["prompt"])
    text.counter("prefix_cache_hits", "Prefix cache hits, in tokens.", counted["cached"])
    text.counter("num_preemptions", "Number of preemptions by the engine.", counted["preemptions"])
    text.counter("prompt_tokens", "Number of prefill tokens processed.", counted["prompt"])
    text.counter("generation_tokens", "Number of generation tokens processed.", counted["generation"])
    text.counter("request_success", "Finished requests.", counted["requests"], finished_reason="stop")
    _latencies(text, counted)
    return text.encode()


def _sglang(spark: Spark, engine: EngineScript, t: float) -> bytes:
    counted = spark.counters[engine.name].at(t)
    tracks = engine.tracks
    common = {"engine_type": "unified", "model_name": engine.model}
    text = _Text("sglang:", {**common, "moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"})
    # 0.5.12 refreshes its gauges every 40 decode steps: they lag, and the throughput stays when idle.
    decode_s = max(1.0, 40 * tracks["itl_s"].at(t))
    refreshed_s = t - t % decode_s
    text.gauge("num_running_reqs", "The number of running requests.", round(tracks["running"].at(refreshed_s)))
    text.gauge("num_queue_reqs", "The number of requests in the waiting queue.", round(tracks["waiting"].at(t)))
    text.gauge("gen_throughput", "The generation throughput (token/s).", round(tracks["gen_tps"].at(refreshed_s), 2))
    text.gauge("token_usage", "The token usage.", round(tracks["kv"].at(refreshed_s), 4))
    text.gauge("cache_hit_rate", "The prefix cache hit rate.", 0.0)
    text.gauge("num_used_tokens", "The number of used tokens.", math.floor(tracks["kv"].at(refreshed_s) * KV_TOKENS))
    text.gauge("max_total_num_tokens", "Maximum total number of tokens in the KV cache pool.", KV_TOKENS)
    text.counter("num_retracted_requests", "Number of retracted requests.", counted["preemptions"])
    text.relabelled(**common)
    text.counter("prompt_tokens", "Number of prefill tokens processed.", counted["prompt"])
    text.counter("generation_tokens", "Number of generation tokens processed.", counted["generation"])
    text.counter("cached_tokens", "Number of cached prompt tokens.", counted["cached"], cache_source="device")
    text.counter("num_requests", "Number of requests processed.", counted["requests"])
    _latencies(text, counted)
    return text.encode()


def _latencies(text: _Text, counted: Mapping[str, float]) -> None:
    text.histogram(
        "time_to_first_token_seconds",
        "Histogram of time to first token in seconds.",
        TTFT_BUCKETS_S,
        [counted[f"ttft{i}"] for i in range(len(TTFT_BUCKETS_S))],
        counted["ttft_sum"],
    )
    text.histogram(
        "inter_token_latency_seconds",
        "Histogram of inter-token latency in seconds.",
        ITL_BUCKETS_S,
        [counted[f"itl{i}"] for i in range(len(ITL_BUCKETS_S))],
        counted["itl_sum"],
    )
