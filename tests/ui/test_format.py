"""Figures as people read them."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.model.telemetry import GapReason
from sparktop.text import units as fmt

GIB = 1024**3


@over(
    "value, text",
    [
        (None, "n/a"),
        (0, "0 B"),
        (512, "512 B"),
        (18 << 20, "18.0 MiB"),
        (int(45.4 * GIB), "45.4 GiB"),
        (999 * GIB, "999 GiB"),
        (1240 * GIB, "1.2 TiB"),
    ],
)
def test_sizes(value: int | None, text: str) -> None:
    assert fmt.size(value) == text


@over("value, text", [(None, "n/a"), (6.1e9, "6.1 GB/s"), (184e9, "184 GB/s"), (61e6, "61 MB/s"), (0, "0 MB/s")])
def test_rates(value: float | None, text: str) -> None:
    assert fmt.rate(value) == text


@over("seconds, text", [(7.9, "0:07"), (124, "2:04"), (3723, "1:02:03"), (-3, "0:00")])
def test_countdowns(seconds: float, text: str) -> None:
    assert fmt.countdown(seconds) == text


@over(
    "seconds, text",
    [(None, "n/a"), (42.9, "42 s"), (60, "1 min"), (7440, "2 h 04"), (1_051_200, "12 d 4 h"), (-1, "0 s")],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert fmt.duration(seconds) == text


@over(
    "seconds, text",
    [(None, "n/a"), (0.44, "0.4 s"), (9.94, "9.9 s"), (9.97, "9 s"), (12.3, "12 s"), (250, "4 min")],
)
def test_ages(seconds: float | None, text: str) -> None:
    assert fmt.age(seconds) == text


@over("seconds, text", [(None, "n/a"), (0.0306, "31 ms"), (0.9999, "1.0 s"), (1.24, "1.2 s"), (14.2, "14 s")])
def test_latencies(seconds: float | None, text: str) -> None:
    assert fmt.latency(seconds) == text


@over("value, text", [(None, "n/a"), (0, "0 %"), (0.09, "0.1 %"), (96.4, "96 %")])
def test_percentages(value: float | None, text: str) -> None:
    assert fmt.percent(value) == text


def test_a_time_of_another_day_is_its_day() -> None:
    now_s = time.mktime((2026, 11, 26, 3, 12, 44, 0, 0, -1))
    assert fmt.clock_time(now_s - 3600, now_s) == "02:12:44"
    assert fmt.clock_time(now_s - 26 * 3600, now_s) == "Nov 25  "
    assert fmt.clock_time(now_s - 26 * 3600) == "01:12:44", "without a now to compare it with"


def test_a_value_that_is_missing_says_why() -> None:
    assert fmt.missing("power_w", {"power_w": GapReason.NOT_SUPPORTED}) == "n/a (not supported)"
    assert fmt.missing("power_w", {}) == "n/a"


@given(st.floats(min_value=0, max_value=1e18, allow_nan=False))
def test_no_figure_is_long(value: float) -> None:
    for render in (fmt.size, fmt.age, fmt.latency, fmt.countdown, fmt.duration):
        assert len(render(min(value, 1e9) if render is not fmt.size else value)) <= 12


@given(st.floats(min_value=0, max_value=3e9, allow_nan=False))
def test_a_zero_is_never_shown_for_a_missing_value(value: float) -> None:
    assert fmt.NA not in fmt.rate(value)
