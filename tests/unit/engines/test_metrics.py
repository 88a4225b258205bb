"""/metrics text to figures, by engine and version."""

from __future__ import annotations

import math
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.engines.metrics import MAX_ROWS, NotMetrics, names_of, parse
from sparktop.model.engine import EndpointState, EngineKind, EngineMetrics
from sparktop.model.telemetry import GapReason

CAPTURES = Path(__file__).parents[2] / "real/captures"
VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="org/Model-35B"} 2.0
vllm:num_requests_running{engine="1",model_name="org/Model-35B"} 1.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="org/Model-35B"} 0.0
vllm:num_requests_waiting{engine="1",model_name="org/Model-35B"} 4.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="org/Model-35B",reason="capacity"} 99.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="org/Model-35B"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="org/Model-35B"} 0.5
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="org/Model-35B"} 1000.0
vllm:prefix_cache_queries_created{engine="0",model_name="org/Model-35B"} 1.7e+09
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="org/Model-35B"} 400.0
vllm:num_preemptions_total{engine="0",model_name="org/Model-35B"} 7.0
vllm:prompt_tokens_total{engine="0",model_name="org/Model-35B"} 60000.0
vllm:prompt_tokens_total{engine="1",model_name="org/Model-35B"} 40000.0
vllm:prompt_tokens_created{engine="0",model_name="org/Model-35B"} 1.7e+09
vllm:generation_tokens_total{engine="0",model_name="org/Model-35B"} 23117.0
# TYPE vllm:iteration_tokens_total histogram
vllm:iteration_tokens_total_bucket{engine="0",le="8.0",model_name="org/Model-35B"} 5000.0
vllm:iteration_tokens_total_count{engine="0",model_name="org/Model-35B"} 5100.0
vllm:iteration_tokens_total_sum{engine="0",model_name="org/Model-35B"} 83117.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.5",model_name="org/Model-35B"} 3.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.5",model_name="org/Model-35B"} 1.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="org/Model-35B"} 4.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf",model_name="org/Model-35B"} 2.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="org/Model-35B"} 4.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="org/Model-35B"} 1.59
python_info{implementation="CPython"} 1.0
"""

RANKS = 'engine_type="unified",model_name="m",moe_ep_rank="{tp}",pp_rank="{pp}",tp_rank="{tp}"'


def sglang(*rows: tuple[str, str, float]) -> bytes:
    return "\n".join(f"{name}{{{labels}}} {value}" for name, labels, value in rows).encode() + b"\n"


def metrics(text: bytes | str, kind: EngineKind) -> EngineMetrics:
    found = parse(text.encode() if isinstance(text, str) else text, kind, 100.0)
    assert isinstance(found, EngineMetrics), found
    return found


def test_vllm() -> None:
    found = metrics(VLLM, EngineKind.VLLM)
    assert (found.running, found.waiting) == (3.0, 4.0)
    assert (found.prompt_tokens, found.generation_tokens, found.iterations) == (100_000.0, 23_117.0, 5100.0)
    assert found.kv_cache_ratio == 0.5
    assert (found.prefix_queries, found.prefix_hits, found.preemptions) == (1000.0, 400.0, 7.0)
    assert found.ttft_buckets == ((0.5, 4.0), (float("inf"), 6.0))
    assert (found.ttft_sum_s, found.ttft_count) == (1.59, 4.0)
    assert (found.model, found.wall_s) == ("org/Model-35B", 100.0)
    assert found.itl_count is None
    assert found.gaps["itl_count"] is GapReason.NOT_FOUND
    assert "running" not in found.gaps


def test_names_before_0_11_still_count() -> None:
    found = metrics('vllm:gpu_cache_usage_perc{model_name="m"} 0.75\n', EngineKind.VLLM)
    assert found.kv_cache_ratio == 0.75


def test_a_missing_figure_is_a_gap_and_not_zero() -> None:
    text = "\n".join(row for row in VLLM.splitlines() if "kv_cache" not in row)
    found = metrics(text, EngineKind.VLLM)
    assert found.kv_cache_ratio is None
    assert found.gaps["kv_cache_ratio"] is GapReason.NOT_FOUND


def test_sglang_counts_each_data_rank_once_whatever_the_tensor_ranks() -> None:
    rows = []
    for tp in (0, 1):
        for pp in (0, 1):
            labels = RANKS.format(tp=tp, pp=pp)
            rows += [("sglang:num_running_reqs", labels, 2.0), ("sglang:token_usage", labels, 0.25)]
    found = metrics(sglang(*rows), EngineKind.SGLANG)
    assert (found.running, found.kv_cache_ratio) == (2.0, 0.25)


def test_sglang_with_data_parallel_attention_has_its_data_ranks_on_other_tensor_ranks() -> None:
    rows = []
    for tp in range(4):
        labels = RANKS.format(tp=tp, pp=0) + f',dp_rank="{tp // 2}"'
        rows.append(("sglang:num_running_reqs", labels, 3.0 if tp < 2 else 5.0))
    assert metrics(sglang(*rows), EngineKind.SGLANG).running == 8.0


def test_sglang_prefers_the_counters_that_move_while_a_request_runs() -> None:
    plain = 'engine_type="unified",model_name="m"'
    rows = [
        ("sglang:prompt_tokens_total", plain, 5210.0),
        ("sglang:generation_tokens_total", plain, 2048.0),
        ("sglang:cached_tokens_total", plain + ',cache_source="device"', 1000.0),
        ("sglang:cached_tokens_total", plain + ',cache_source="host"', 24.0),
        ("sglang:cache_hit_rate", plain, 0.0),
        ("sglang:num_queue_reqs", plain, 0.0),
    ]
    old = metrics(sglang(*rows), EngineKind.SGLANG)
    assert (old.prompt_tokens, old.generation_tokens) == (5210.0, 2048.0)
    assert (old.prefix_queries, old.prefix_hits) == (5210.0, 1024.0)
    rank = RANKS.format(tp=0, pp=0)
    rows += [
        ("sglang:realtime_tokens_total", rank + ',mode="prefill_compute"', 4500.0),
        ("sglang:realtime_tokens_total", rank + ',mode="prefill_cache"', 1500.0),
        ("sglang:realtime_tokens_total", rank + ',mode="decode"', 3000.0),
    ]
    new = metrics(sglang(*rows), EngineKind.SGLANG)
    assert (new.prompt_tokens, new.generation_tokens) == (4500.0, 3000.0)
    assert (new.prefix_queries, new.prefix_hits) == (6000.0, 1500.0)


def test_prompt_tokens_are_those_computed() -> None:
    by_source = "".join(
        f'vllm:prompt_tokens_by_source_total{{engine="0",model_name="m",source="{source}"}} {tokens}\n'
        for source, tokens in (("local_compute", 300.0), ("local_cache_hit", 700.0), ("external_kv_transfer", 0.0))
    )
    assert metrics(VLLM + by_source, EngineKind.VLLM).prompt_tokens == 300.0


def test_sglang_with_priorities_counts_its_total_alone() -> None:
    """One request of priority 1 and three of 9 run."""
    found = parse((CAPTURES / "sglang-0.5.23/metrics-priorities.txt").read_bytes(), EngineKind.SGLANG, 0.0)
    assert isinstance(found, EngineMetrics)
    assert (found.running, found.waiting) == (4.0, 0.0)


@over("when, running, generated", [("ready", 0.0, 0.0), ("under-load", 1.0, 829.0), ("after", 0.0, 2428.0)])
def test_a_real_vllm_before_under_and_after_load(when: str, running: float, generated: float) -> None:
    found = parse((CAPTURES / f"vllm-0.32.0/metrics-{when}.txt").read_bytes(), EngineKind.VLLM, 0.0)
    assert isinstance(found, EngineMetrics)
    assert (found.running, found.waiting, found.generation_tokens) == (running, 0.0, generated)


def test_sglang_before_its_first_request_has_names_without_figures() -> None:
    found = parse(sglang(("sglang:process_cpu_seconds_total", 'component="scheduler"', 8.1)), EngineKind.SGLANG, 1.0)
    assert isinstance(found, NotMetrics)
    assert found.state is EndpointState.NO_FIGURES
    assert "no sglang: names" not in found.reason


@over(
    "text, state, words",
    [
        (b"<!DOCTYPE html><html>[/x]</html>", EndpointState.NOT_METRICS, "a page"),
        (b'{"detail":"Not Found"}', EndpointState.NOT_METRICS, "a page"),
        (b"", EndpointState.NOT_METRICS, "can't be read"),
        (b"\xff\xfe\x00\x01", EndpointState.NOT_METRICS, "can't be read"),
        (b"# HELP x y\n# TYPE python_info gauge\npython_info 1.0\n", EndpointState.NO_FIGURES, "--disable-log-stats"),
    ],
)
def test_what_is_no_metrics(text: bytes, state: EndpointState, words: str) -> None:
    found = parse(text, EngineKind.VLLM, 1.0)
    assert isinstance(found, NotMetrics)
    assert found.state is state
    assert words in found.reason


def test_sglang_without_figures_says_the_flag() -> None:
    found = parse(b"# TYPE python_info gauge\npython_info 1.0\n", EngineKind.SGLANG, 1.0)
    assert isinstance(found, NotMetrics)
    assert "--enable-metrics" in found.reason


def test_one_broken_line_costs_only_itself() -> None:
    text = VLLM.replace(
        'vllm:num_preemptions_total{engine="0",model_name="org/Model-35B"} 7.0',
        "vllm:num_preemptions_total{engine= oops",
    )
    found = metrics(text, EngineKind.VLLM)
    assert found.preemptions is None
    assert found.running == 3.0


def test_a_value_that_is_no_number_is_a_gap() -> None:
    found = metrics("vllm:num_requests_running NaN\nvllm:num_requests_waiting 1\n", EngineKind.VLLM)
    assert found.running is None
    assert found.gaps["running"] is GapReason.NOT_FOUND


def test_a_hostile_model_name_is_plain() -> None:
    found = metrics('vllm:num_requests_running{model_name="\x1b]52;c;x\x07[/x]"} 1\n', EngineKind.VLLM)
    assert found.model == "[/x]"


@given(st.binary(max_size=300), st.sampled_from(EngineKind))
def test_any_bytes_are_an_answer(data: bytes, kind: EngineKind) -> None:
    assert isinstance(parse(data, kind, 0.0), EngineMetrics | NotMetrics)


_NAMES = sorted(name.decode() for kind in EngineKind for name in names_of(kind))


@given(
    st.lists(st.tuples(st.sampled_from(_NAMES), st.text(alphabet='{}="\\,le+Inf1.0 \t#', max_size=20)), max_size=8),
    st.sampled_from(EngineKind),
)
def test_any_broken_samples_are_an_answer(rows: list[tuple[str, str]], kind: EngineKind) -> None:
    text = "\n".join(name + rest for name, rest in rows)
    assert isinstance(parse(text.encode(), kind, 0.0), EngineMetrics | NotMetrics)


@over("value", ["1e308", "-1e308", "9" * 400, "+Inf", "1e99"])
def test_a_value_out_of_bounds_is_a_gap(value: str) -> None:
    found = metrics(f"vllm:num_requests_running {value}\nvllm:num_requests_waiting 1\n", EngineKind.VLLM)
    assert found.running is None
    assert found.waiting == 1.0


def test_a_bucket_out_of_bounds_is_left_out() -> None:
    rows = "".join(
        f'vllm:time_to_first_token_seconds_bucket{{le="{bound}"}} 1\n' for bound in ("-1e308", "9" * 400, "0.5", "+Inf")
    )
    assert metrics(rows, EngineKind.VLLM).ttft_buckets == ((0.5, 1.0), (math.inf, 1.0))


def test_more_samples_than_any_engine_has_are_left_unread() -> None:
    rows = "".join(f'vllm:num_requests_running{{engine="{number}"}} 1\n' for number in range(MAX_ROWS + 1))
    found = parse(rows.encode(), EngineKind.VLLM, 0.0)
    assert isinstance(found, NotMetrics)
    assert found.state is EndpointState.NOT_METRICS


def test_how_a_real_vllm_s_answers_ended_is_counted() -> None:
    """Those of its load test, which ask it not to end by itself."""
    found = parse((CAPTURES / "vllm-0.32.0/metrics-after.txt").read_bytes(), EngineKind.VLLM, 0.0)
    assert isinstance(found, EngineMetrics)
    assert (found.answers, found.cut, found.repeated) == (15.0, 15.0, 0.0)
