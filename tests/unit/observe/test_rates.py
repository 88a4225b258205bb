"""What scrapes say together."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.model.engine import EngineMetrics, EngineRates
from sparktop.observe.engines.rates import Scrapes, advance, between, quantile, restarted

INF = float("inf")
BASE = EngineMetrics(
    wall_s=1000.0,
    running=1.0,
    prompt_tokens=10_000.0,
    generation_tokens=500.0,
    iterations=100.0,
    prefix_queries=8000.0,
    prefix_hits=2000.0,
    ttft_count=10.0,
    ttft_buckets=((0.5, 10.0), (1.0, 10.0), (INF, 10.0)),
    itl_count=500.0,
    itl_buckets=((0.05, 500.0), (0.1, 500.0), (INF, 500.0)),
)
LATER = replace(
    BASE,
    wall_s=1010.0,
    prompt_tokens=11_000.0,
    generation_tokens=850.0,
    iterations=135.0,
    prefix_queries=9000.0,
    prefix_hits=2900.0,
    ttft_count=12.0,
    ttft_buckets=((0.5, 10.0), (1.0, 12.0), (INF, 12.0)),
    itl_count=850.0,
    itl_buckets=((0.05, 500.0), (0.1, 850.0), (INF, 850.0)),
)


def run(*scrapes: EngineMetrics) -> EngineRates:
    kept, rates = Scrapes(), EngineRates()
    for scrape in scrapes:
        kept, rates = advance(kept, scrape)
    return rates


def test_tokens_of_requests_that_run_count_where_the_counter_waits_for_their_end() -> None:
    before, after = (replace(BASE, unfinished_tokens=300.0), replace(LATER, unfinished_tokens=150.0))
    assert between(before, after).generation_tokens_per_s == pytest.approx((850 + 150 - 500 - 300) / 10)
    ended_in_between = replace(after, generation_tokens=510.0)
    assert between(before, ended_in_between).generation_tokens_per_s == 0.0


def test_a_window_with_requests() -> None:
    rates = between(BASE, LATER)
    assert rates.prompt_tokens_per_s == pytest.approx(100.0)
    assert rates.generation_tokens_per_s == pytest.approx(35.0)
    assert rates.prefix_hit_ratio == pytest.approx(0.9)
    assert rates.ttft_p50_s == pytest.approx(0.75)
    assert rates.itl_p50_s == pytest.approx(0.075)
    assert not rates.of_life


def test_a_quiet_window_falls_back_to_the_engines_life_and_says_so() -> None:
    rates = between(LATER, replace(LATER, wall_s=1020.0))
    assert rates.generation_tokens_per_s == 0.0
    assert rates.prefix_hit_ratio == pytest.approx(2900 / 9000)
    assert rates.ttft_p50_s == pytest.approx(0.3)
    assert rates.of_life == {"ttft_p50_s", "itl_p50_s"}


def test_each_latency_says_itself_whether_it_is_of_the_engines_life() -> None:
    first_only = replace(LATER, itl_buckets=BASE.itl_buckets, itl_count=BASE.itl_count)
    assert between(BASE, first_only).of_life == {"itl_p50_s"}


def test_the_first_scrape_has_no_rates() -> None:
    rates = run(BASE)
    assert rates.generation_tokens_per_s is None
    assert rates.progress_age_s == 0.0
    assert rates.of_life == {"ttft_p50_s", "itl_p50_s"}


def test_a_restart_gives_no_rates_and_never_negative_ones() -> None:
    fresh = EngineMetrics(wall_s=1012.0, prompt_tokens=5.0, generation_tokens=1.0, prefix_queries=0.0, prefix_hits=0.0)
    assert restarted(LATER, fresh)
    assert between(LATER, fresh) == EngineRates()
    rates = run(BASE, LATER, fresh)
    assert rates.prompt_tokens_per_s is None
    assert rates.prefix_hit_ratio is None


def test_what_isnt_measured_stays_unknown() -> None:
    rates = between(replace(BASE, generation_tokens=None, prefix_hits=None), LATER)
    assert rates.generation_tokens_per_s is None
    assert rates.prompt_tokens_per_s is not None
    assert between(BASE, replace(LATER, prefix_hits=None)).prefix_hit_ratio is None
    assert between(BASE, replace(LATER, itl_buckets=())).itl_p50_s is None


def test_progress_ages_while_the_token_counters_stand() -> None:
    still = [replace(LATER, wall_s=1010.0 + 2 * step) for step in range(1, 61)]
    assert run(BASE, LATER, *still).progress_age_s == pytest.approx(120.0)
    moved = replace(still[-1], wall_s=1135.0, generation_tokens=851.0)
    assert run(BASE, LATER, *still, moved).progress_age_s == 0.0


def test_a_rest_before_the_work_is_no_standstill() -> None:
    resting = replace(BASE, running=0.0, waiting=0.0)
    came = replace(BASE, running=1.0, wall_s=1300.0)
    assert run(resting, replace(resting, wall_s=1298.0)).progress_age_s == 298.0
    assert run(resting, replace(resting, wall_s=1298.0), came).progress_age_s == 0.0
    assert run(resting, came, replace(came, wall_s=1360.0)).progress_age_s == 60.0


def test_waiting_requests_alone_are_no_progress() -> None:
    still = replace(LATER, wall_s=1030.0, waiting=5.0, running=3.0)
    assert run(BASE, LATER, still).progress_age_s == pytest.approx(20.0)


def test_a_cache_that_fills_is_progress() -> None:
    chunks = [replace(LATER, wall_s=1020.0 + n, kv_cache_ratio=n / 10) for n in range(4)]
    assert run(BASE, *chunks, replace(chunks[-1], wall_s=1030.0)).progress_age_s == pytest.approx(7.0)


def test_preemptions_are_counted_over_a_minute() -> None:
    steps = [replace(BASE, wall_s=1000.0 + 2 * n, preemptions=3.0 + n // 4) for n in range(40)]
    assert run(*steps).preemptions_per_min == pytest.approx(7.5, rel=0.1)
    assert run(BASE).preemptions_per_min is None


def test_rates_span_several_scrapes_and_latencies_a_minute() -> None:
    steps = [replace(BASE, wall_s=1000.0 + 2 * n, generation_tokens=500.0 + 70 * n) for n in range(40)]
    rates = run(*steps)
    assert rates.generation_tokens_per_s == pytest.approx(35.0)
    kept = Scrapes()
    for step in steps:
        kept, _ = advance(kept, step)
    assert len(kept.kept) <= 32
    burst = replace(steps[-1], wall_s=1080.0, ttft_buckets=((0.5, 10.0), (1.0, 14.0), (INF, 14.0)), ttft_count=14.0)
    assert run(*steps, burst, replace(burst, wall_s=1120.0)).ttft_p50_s == pytest.approx(0.75)
    long_quiet = [replace(burst, wall_s=1080.0 + 2 * n) for n in range(1, 60)]
    assert run(*steps, burst, *long_quiet).ttft_p50_s == pytest.approx(quantile(burst.ttft_buckets, 0.5))


def test_a_clock_that_goes_back_starts_over() -> None:
    rates = run(BASE, replace(LATER, wall_s=900.0))
    assert rates.generation_tokens_per_s is None


@over(
    "buckets, median",
    [
        ((), None),
        (((1.0, 0.0), (INF, 0.0)), None),
        (((1.0, 4.0), (INF, 4.0)), 0.5),
        (((1.0, 1.0), (2.0, 3.0), (INF, 3.0)), 1.25),
        (((1.0, 0.0), (INF, 5.0)), 1.0),
    ],
)
def test_the_median_of_a_histogram(buckets: tuple[tuple[float, float], ...], median: float | None) -> None:
    assert quantile(buckets, 0.5) == median


_COUNTS = st.none() | st.floats(0, 1e6)


@given(st.lists(st.tuples(_COUNTS, _COUNTS, _COUNTS, st.floats(0, 100)), max_size=12))
def test_no_rate_is_ever_negative(rows: list[tuple[float | None, float | None, float | None, float]]) -> None:
    kept, wall_s = Scrapes(), 0.0
    for prompt, generated, hits, gap_s in rows:
        wall_s += gap_s
        scrape = EngineMetrics(
            wall_s=wall_s, prompt_tokens=prompt, generation_tokens=generated, prefix_queries=prompt, prefix_hits=hits
        )
        kept, rates = advance(kept, scrape)
        for value in (rates.prompt_tokens_per_s, rates.generation_tokens_per_s, rates.progress_age_s):
            assert value is None or value >= 0
        assert rates.prefix_hit_ratio is None or 0 <= rates.prefix_hit_ratio <= 1


@over(
    "answers, told",
    [
        ([(0, 0), (10, 9)], None),
        ([(0, 0), (20, 19)], (20, 19)),
        ([(100, 0), (120, 20), (125, 25)], (25, 25)),
        ([(0, 0), (20, 20), (40, 20), (60, 20)], (20, 0)),
        ([(50, 50), (0, 0), (10, 0)], None),
    ],
)
def test_how_the_last_answers_ended_is_told_of_twenty_at_least(
    answers: list[tuple[int, int]], told: tuple[int, int] | None
) -> None:
    scrapes = [
        replace(BASE, wall_s=1000.0 + 10 * number, answers=float(count), cut=float(cut))
        for number, (count, cut) in enumerate(answers)
    ]
    rates = run(*scrapes)
    assert (rates.answers, rates.cut) == (told or (None, None))
