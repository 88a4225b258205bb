"""Texts of perftest: results in each unit, and what is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.operate.measure.perftest import parse_bandwidth, parse_latency

TEXTS = Path(__file__).parents[3] / "cases" / "perftest"


def text(name: str) -> str:
    return (TEXTS / f"{name}.txt").read_text()


@over(
    "name, gbps, message_bytes, mtu_bytes",
    [
        ("bw-half", 111.86, 65536, 4096),
        ("bw-slow", 12.86, 65536, 4096),
        ("bw-mtu1024", 92.57, 65536, 1024),
        ("bw-conflicting-cpu", 98.02, 65536, None),
        ("bw-mib", 11030.45 * 8 * 2**20 / 1e9, 65536, None),
        ("bw-mb", 15128.0 * 8 * 2**20 / 1e9, 65536, None),
        ("bw-all-sizes", 196.92, 8388608, None),
    ],
)
def test_a_bandwidth_is_read_in_every_unit(name: str, gbps: float, message_bytes: int, mtu_bytes: int | None) -> None:
    reading = parse_bandwidth(text(name))
    assert reading.problem == ""
    assert reading.gbps == pytest.approx(gbps)
    assert (reading.message_bytes, reading.mtu_bytes) == (message_bytes, mtu_bytes)
    assert reading.transferred_bytes == message_bytes * reading.iterations > 0


@over(
    "said, problem",
    [
        ("bw-no-server", "Couldn't connect to 10.0.0.2:18515"),
        ("bw-retry-exceeded", "Completion with error at client"),
        ("bw-no-device", "IB device rocep1s0f9 not found"),
        ("bw-memory", "Couldn't allocate MR"),
        ("bw-cut", "ib_write_bw printed no result that can be read"),
        ("bw-other-language", "ib_write_bw printed no result that can be read"),
        ("lat-small", "ib_write_bw printed no result that can be read"),
    ],
)
def test_a_text_without_a_bandwidth_says_why(said: str, problem: str) -> None:
    reading = parse_bandwidth(text(said))
    assert reading.gbps is None
    assert reading.problem.startswith(problem)


def test_a_run_that_moved_nothing_has_no_figure() -> None:
    assert parse_bandwidth(text("bw-half").replace("111.86", "0.00")).problem == "ib_write_bw moved nothing"
    unit = parse_bandwidth(text("bw-half").replace("BW average[Gb/sec]", "BW average[KiB/sec]"))
    assert unit.gbps is None
    assert "KiB/sec" in unit.problem


@over(
    "name, typical_us, p99_us",
    [("lat-small", 1.42, 1.57), ("lat-slow", 13.12, 15.02), ("lat-duration", 1.44, None)],
)
def test_a_latency_is_read(name: str, typical_us: float, p99_us: float | None) -> None:
    reading = parse_latency(text(name))
    assert (reading.typical_us, reading.p99_us, reading.message_bytes, reading.problem) == (typical_us, p99_us, 2, "")


@over("name", ["bw-half", "bw-no-server", "bw-cut"])
def test_a_text_without_a_latency_says_why(name: str) -> None:
    reading = parse_latency(text(name))
    assert reading.typical_us is None
    assert reading.problem


LETTERS = st.sampled_from("#bytesiraonBW avg[Gb/sec]tyuplcd_\n 0123456789.,e-")


@given(st.text(alphabet=LETTERS, max_size=400), st.integers())
def test_any_text_is_a_figure_or_a_reason(said: str, cut: int) -> None:
    whole = text("bw-half")
    for words in (said, whole[: cut % len(whole)] + said):
        bandwidth, latency = parse_bandwidth(words), parse_latency(words)
        assert (bandwidth.gbps is None) == bool(bandwidth.problem)
        assert (latency.typical_us is None) == bool(latency.problem)
