"""The ring of log lines: numbers that never change, progress bars that collapse."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparktop.model.telemetry import LogLine
from sparktop.observe.lines import LineRing


def test_numbers_stay_when_lines_expire() -> None:
    ring = LineRing(3)
    ring.extend(LogLine(text=str(number)) for number in range(5))
    assert (ring.first, ring.end, len(ring)) == (2, 5, 3)
    assert [line.text for line in ring.slice(0, 100)] == ["2", "3", "4"]
    assert [line.text for line in ring.slice(3, 4)] == ["3"]


def test_a_progress_bar_takes_one_line() -> None:
    ring = LineRing()
    ring.extend([LogLine(text="a"), LogLine(text="1/3"), LogLine(text="2/3", replaces_last=True)])
    assert [line.text for line in ring.slice(0, 9)] == ["a", "2/3"]
    assert ring.version == 3


@given(st.integers(1, 50), st.integers(0, 120), st.integers(-5, 130), st.integers(-5, 130))
def test_a_slice_is_what_a_list_would_give(capacity: int, count: int, start: int, stop: int) -> None:
    ring = LineRing(capacity)
    ring.extend(LogLine(text=str(number)) for number in range(count))
    wanted = [str(n) for n in range(count) if n >= count - capacity and start <= n < stop]
    assert [line.text for line in ring.slice(start, stop)] == wanted
