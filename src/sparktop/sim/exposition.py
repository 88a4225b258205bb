"""An engine's /metrics text, vLLM's and SGLang's, as facts/engines.md section 3 has names, types and labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sparktop.sim.counters import ITL_BUCKETS_S, TTFT_BUCKETS_S
from sparktop.sim.script import EngineScript
from sparktop.sim.spark import Spark

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
KV_TOKENS = 412_000
"""The pool that a full KV cache is of."""


class _Text:
    """Families of samples with one set of labels."""

    def __init__(self, prefix: str, labels: Mapping[str, str]) -> None:
        self._prefix = prefix
        self._labels = dict(labels)
        self._lines: list[str] = []

    def family(self, kind: str, name: str, meaning: str) -> None:
        self._lines += [f"# HELP {self._prefix}{name} {meaning}", f"# TYPE {self._prefix}{name} {kind}"]

    def sample(self, name: str, value: float, **labels: str) -> None:
        pairs = ",".join(f'{key}="{value}"' for key, value in sorted((self._labels | labels).items()))
        self._lines.append(f"{self._prefix}{name}{{{pairs}}} {value!r}")

    def gauge(self, name: str, meaning: str, value: float, **labels: str) -> None:
        self.family("gauge", name, meaning)
        self.sample(name, float(value), **labels)

    def counter(self, name: str, meaning: str, value: float, **labels: str) -> None:
        """As prometheus_client writes one: TYPE and sample both end in _total."""
        self.family("counter", f"{name}_total", meaning)
        self.sample(f"{name}_total", float(math.floor(value)), **labels)

    def histogram(
        self, name: str, meaning: str, bounds: Sequence[float], counts: Sequence[float], total: float
    ) -> None:
        self.family("histogram", name, meaning)
        for bound, count in zip(bounds, counts, strict=True):
            self.sample(f"{name}_bucket", float(math.floor(count)), le=str(float(bound)))
        whole = float(math.floor(max(counts)))
        self.sample(f"{name}_bucket", whole, le="+Inf")
        self.sample(f"{name}_count", whole)
        self.sample(f"{name}_sum", round(total, 6))

    def relabelled(self, **labels: str) -> None:
        """Other labels from here on."""
        self._labels = labels

    def encode(self) -> bytes:
        return ("\n".join(self._lines) + "\n").encode()


def exposition(spark: Spark, engine: EngineScript, t: float) -> bytes:
    """The text at second `t`."""
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
    seen = t - t % decode_s
    text.gauge("num_running_reqs", "The number of running requests.", round(tracks["running"].at(seen)))
    text.gauge("num_queue_reqs", "The number of requests in the waiting queue.", round(tracks["waiting"].at(t)))
    text.gauge("gen_throughput", "The generation throughput (token/s).", round(tracks["gen_tps"].at(seen), 2))
    text.gauge("token_usage", "The token usage.", round(tracks["kv"].at(seen), 4))
    text.gauge("cache_hit_rate", "The prefix cache hit rate.", 0.0)
    text.gauge("num_used_tokens", "The number of used tokens.", math.floor(tracks["kv"].at(seen) * KV_TOKENS))
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
