"""An engine's /metrics: the text of a real engine, with a simulated one's figures in place of its own."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from sparktop.sim.scenario.script import EngineScript
from sparktop.sim.spark.spark import Spark

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
KV_TOKENS = 412_000
"""Size of the KV cache pool in tokens."""
_SAMPLE = re.compile(r'(?m)^(?P<name>\w+:\w+?)(?P<labels>\{.*?(?:\ble="(?P<le>[^"]+)".*?)?\})? \S+')
_MODE = re.compile(r'(?:mode|source)="\w+"')
_OTHERS = re.compile(r'finished_reason="(?!stop)|is_streaming="false"|mode="prefill_none"')
"""Labels of a counter's samples that count nothing here: all requests are streamed, and end by themselves."""
_HISTOGRAMS = {"time_to_first_token_seconds": "ttft", "inter_token_latency_seconds": "itl"}


def exposition(spark: Spark, engine: EngineScript, t: float) -> bytes:
    """The text of /metrics at second `t`; what it doesn't simulate stays as the real engine had it."""
    figures = {f"{engine.kind}:{name}": value for name, value in _figures(spark, engine, t).items()}
    counters = spark.counters[engine.name]

    def filled(match: re.Match[str]) -> str:
        name, labels = match["name"], (match["labels"] or "").replace('"tiny"', f'"{engine.model}"')
        family, _, part = name.rpartition("_")
        if (histogram := _HISTOGRAMS.get(family.partition(":")[2])) is not None:
            bound = float(match["le"]) if match["le"] else math.inf
            # The first of few observations lies near the median, as most do: a bucket counts it at half its share.
            count = math.floor(counters.below(histogram, math.inf, t) + 0.25)
            below = min(count, math.floor(counters.below(histogram, bound, t) + 0.5)) if bound < math.inf else count
            value = round(counters.at(t)[f"{histogram}_sum"], 6) if part == "sum" else float(below)
        elif (figure := figures.get(name + "".join(_MODE.findall(labels)), figures.get(name))) is not None:
            value = 0.0 if _OTHERS.search(labels) else float(figure)
        else:
            return match[0].replace('"tiny"', f'"{engine.model}"')
        return f"{name}{labels} {value!r}"

    return re.sub(_SAMPLE, filled, _captured(engine.kind)).encode()


@cache
def _captured(kind: str) -> str:
    return (Path(__file__).parent / "metrics" / f"{kind}.txt").read_text(encoding="utf-8")


def _figures(spark: Spark, engine: EngineScript, t: float) -> Mapping[str, float]:
    counted = {name: float(math.floor(value)) for name, value in spark.counters[engine.name].at(t).items()}
    tracks = engine.tracks
    # SGLang refreshes its gauges every 40 decode steps: they lag, and the throughput stays when idle.
    seen_s = t - t % max(1.0, 40 * tracks["itl_s"].at(t)) if engine.kind == "sglang" else t
    return {
        "num_requests_running": round(tracks["running"].at(t)), "num_running_reqs": round(tracks["running"].at(seen_s)),
        "num_requests_waiting": round(tracks["waiting"].at(t)), "num_queue_reqs": round(tracks["waiting"].at(t)),
        "kv_cache_usage_perc": round(tracks["kv"].at(t), 6), "token_usage": round(tracks["kv"].at(seen_s), 4),
        "full_token_usage": round(tracks["kv"].at(seen_s), 4),
        "num_used_tokens": math.floor(tracks["kv"].at(seen_s) * KV_TOKENS), "max_total_num_tokens": KV_TOKENS,
        "gen_throughput": round(tracks["gen_tps"].at(seen_s), 2),
        "cache_hit_rate": round(tracks["prefix_hit"].at(seen_s), 4), "prefix_cache_queries_total": counted["prompt"],
        "prefix_cache_hits_total": counted["cached"],
        "prompt_tokens_total": counted["prompt"], "prompt_tokens_cached_total": counted["cached"],
        "generation_tokens_total": counted["generation"], "num_preemptions_total": counted["preemptions"],
        "num_retracted_reqs": counted["preemptions"], "request_success_total": counted["requests"],
        'realtime_tokens_totalmode="prefill_compute"': counted["prompt"] - counted["cached"],
        'realtime_tokens_totalmode="prefill_cache"': counted["cached"],
        'realtime_tokens_totalmode="decode"': counted["generation"],
        'prompt_tokens_by_source_totalsource="local_compute"': counted["prompt"] - counted["cached"],
        'prompt_tokens_by_source_totalsource="local_cache_hit"': counted["cached"],
        "cuda_graph_passes_total": counted["generation"], "iteration_tokens_total_count": counted["generation"],
        "iteration_tokens_total_sum": counted["prompt"] + counted["generation"],
        "num_requests_total": counted["requests"],
    }  # fmt: skip
