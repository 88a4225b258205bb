"""When the guard acts, and how it reads Docker: pure functions over tables and over whatever may come."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import accumulate, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.table import over

from sparktop.probe.remote.guard.decision import decide, falling, look_after_s, parse_order, reason
from sparktop.probe.remote.guard.docker import parse_answer

GIB = 1024**2
"""In kB, as /proc/meminfo counts."""
FLOOR = 4 * GIB

SPIKE = ((0, 45.4), (2, 43.7), (4, 31.9), (6, 11.4), (8, 0.4))
"""Field report 001, "the memory spike the budget doesn't count": 18:55:56 to 18:56:04, GB available."""


def at(curve: tuple[tuple[float, float], ...], second: float) -> int:
    """A curve's value in kB, straight between its points."""
    if second <= curve[0][0]:
        return round(curve[0][1] * GIB)
    for (start, first), (end, last) in pairwise(curve):
        if start <= second <= end:
            return round((first + (last - first) * (second - start) / (end - start)) * GIB)
    return round(curve[-1][1] * GIB)


def watched(
    available: Callable[[float], int], *, within_s: float | None, floor: int = FLOOR, start_s: float, until_s: float
) -> tuple[float, int, str] | None:
    """As the probe looks: (second, what was left, why) of the first time that it would act."""
    readings: list[tuple[float, int]] = []
    second = start_s
    while second <= until_s:
        readings = [*readings[-40:], (second, available(second))]
        if why := decide(readings, floor, within_s):
            return second, readings[-1][1], why
        second += look_after_s(readings, floor)
    return None


@given(
    phase=st.floats(0, 0.25),
    floor_gib=st.floats(2, 8),
    within_s=st.none() | st.floats(0.5, 10),
)
def test_it_acts_before_the_spike_of_field_report_001_has_emptied_the_host(
    phase: float, floor_gib: float, within_s: float | None
) -> None:
    acted = watched(
        lambda second: at(SPIKE, second),
        within_s=within_s,
        floor=round(floor_gib * GIB),
        start_s=phase - 4.0,
        until_s=8.0,
    )
    assert acted is not None
    second, left, _ = acted
    assert left > (floor_gib - 0.7) * GIB  # 5.5 GB/s, looked at ten times a second
    assert 2.0 < second < 7.9


def test_a_prediction_acts_earlier_than_the_floor() -> None:
    def when(within_s: float | None) -> float:
        acted = watched(lambda second: at(SPIKE, second), within_s=within_s, start_s=-4.0, until_s=8.0)
        assert acted is not None
        return acted[0]

    assert when(5.0) < when(2.0) < when(None)


@given(
    level_gib=st.floats(4.3, 100),
    noise=st.lists(st.floats(-0.25, 0.25), min_size=40, max_size=120),
    within_s=st.none() | st.floats(0.1, 600),
)
@example(level_gib=4.3, noise=[0.25, 0.125, 0.0, -0.125, -0.25] * 10, within_s=600.0)
@example(level_gib=4.3, noise=([0.25] * 4 + [-0.25] * 4) * 6, within_s=600.0)
def test_noise_is_no_reason(level_gib: float, noise: list[float], within_s: float | None) -> None:
    def available(second: float) -> int:
        return round((level_gib + noise[int(second * 10) % len(noise)]) * GIB)

    assert watched(available, within_s=within_s, start_s=0.0, until_s=12.0) is None


@given(
    rates=st.lists(st.floats(0, 0.45), min_size=30, max_size=60),
    end_gib=st.floats(4.2, 60),
    within_s=st.none() | st.floats(0.1, 600),
)
def test_a_slow_load_is_no_reason(rates: list[float], end_gib: float, within_s: float | None) -> None:
    """GiB a second, for half a second each; it ends above the floor."""
    fallen = [0.0, *accumulate(rate / 2 for rate in rates)]

    def available(second: float) -> int:
        index = min(int(second * 2), len(rates) - 1)
        gone = fallen[index] + rates[index] * min(0.5, second - index / 2)
        return round((end_gib + fallen[-1] - gone) * GIB)

    assert watched(available, within_s=within_s, start_s=0.0, until_s=len(rates) / 2) is None


@given(drop_gib=st.floats(0.5, 40), left_gib=st.floats(4.5, 30))
def test_a_step_that_is_over_is_no_fall(drop_gib: float, left_gib: float) -> None:
    def available(second: float) -> int:
        return round((left_gib + (drop_gib if second < 3 else 0.0)) * GIB)

    assert watched(available, within_s=60.0, start_s=0.0, until_s=12.0) is None


@over(
    "readings, within_s, why",
    [
        ([(0, 5)], None, ""),
        ([(0, 3.9)], None, "floor"),
        ([(0, 4.0)], None, ""),
        ([(0, 60), (0.25, 3)], 5.0, "floor"),
        ([(0, 60), (0.25, 30)], 5.0, ""),  # two readings are no trend
        ([(0, 60), (0.25, 50), (0.5, 40)], 5.0, ""),  # nor is half a second
        ([(0, 60), (1, 50), (2, 40)], 5.0, "empty"),
        ([(0, 60), (1, 50), (2, 40)], 3.9, ""),
        ([(0, 60), (1, 50), (2, 40)], None, ""),
        ([(0, 60), (5, 40), (10, 20)], 6.0, "empty"),  # a host that stalls lets few readings through
        ([(0, 60), (40, 40), (80, 20)], 600.0, ""),  # too old to say anything of now
        ([(0, 10), (1, 9.6), (2, 9.2)], 600.0, ""),  # 0.4 GiB a second is slow
    ],
)
def test_the_table(readings: list[tuple[float, float]], within_s: float | None, why: str) -> None:
    assert decide([(second, round(left * GIB)) for second, left in readings], FLOOR, within_s) == why


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 1 << 40)), min_size=1), st.none() | st.floats(0.01, 600))
def test_readings_of_any_kind_are_judged(readings: list[tuple[float, int]], within_s: float | None) -> None:
    readings.sort()
    why = decide(readings, FLOOR, within_s)
    assert falling(readings) >= 0
    assert look_after_s(readings, FLOOR) <= 0.25
    if why:
        assert "GiB" in reason(why, readings, FLOOR)


# --- Docker's answers

BODY = json.dumps({"Id": "5a" * 32, "Name": "/x", "State": {"Running": True}}).encode()
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (
    BODY[:5],
    len(BODY) - 5,
    BODY[5:],
)


@over(
    "data, status, body",
    [
        (PLAIN, 200, BODY),
        (CHUNKED, 200, BODY),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN, 200, BODY),
        (b"HTTP/1.1 204 No Content\r\nApi-Version: 1.51\r\n\r\n", 204, b""),
        (b"HTTP/1.1 304 Not Modified\r\n\r\n", 304, b""),
    ],
)
def test_an_answer_is_read_when_it_is_whole(data: bytes, status: int, body: bytes) -> None:
    following = b"HTTP/1.1 204 No Content\r\n\r\n"
    assert parse_answer(data + following) == (status, body, following)
    assert all(parse_answer(data[:length]) is None for length in range(len(data)))


@over(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
        b"a" * 70_000,
    ],
)
def test_what_is_no_http_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        parse_answer(data)


@given(st.binary(max_size=300) | st.tuples(st.sampled_from([PLAIN, CHUNKED]), st.binary(max_size=50)).map(b"".join))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        found = parse_answer(data)
    except ValueError:
        return
    assert found is None or len(found[1]) + len(found[2]) <= len(data)


JSON = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=80) | st.lists(st.none(), max_size=2)


@given(st.dictionaries(st.sampled_from(["id", "name", "floor", "within", "stay", "token", "again"]), JSON))
def test_any_order_is_understood_or_refused(words: dict[str, object]) -> None:
    try:
        order = parse_order(words)
    except (ValueError, TypeError, OverflowError):
        return
    assert order["id"] == "" or (len(order["id"]) == 64 and order["floor"] > 0)
    assert 0 <= order["stay"] <= 24 * 3600
