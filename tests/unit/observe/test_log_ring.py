"""The ring of log lines: numbers that never change, progress bars that collapse."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparktop.model.telemetry import LogLine
from sparktop.observe.log_ring import LineRing


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


@given(
    st.integers(1, 600),
    st.lists(st.integers(0, 700), min_size=1, max_size=4),
    st.lists(st.integers(0, 700), min_size=1, max_size=4),
    st.integers(0, 500),
)
def test_a_snapshot_keeps_its_lines_and_joins_what_follows(
    capacity: int, before: list[int], after: list[int], room: int
) -> None:
    ring, count = LineRing(capacity), 0

    def feed(lines: int) -> None:
        nonlocal count
        ring.extend(LogLine(text=str(number)) for number in range(count, count + lines))
        count += lines

    for lines in before:
        feed(lines)
    held = ring.snapshot()
    stop = held.end + room
    first, joins = held.first, True
    for lines in after:
        feed(lines)
        joins = joins and (ring.first < held.end or held.end == held.first == ring.first)
        held = held.joined(ring.snapshot(), stop=stop)
        assert held.first == first
        assert held.end <= max(stop, first)
        assert [entry[0] for entry in held.entries(-5, count + 5)] == [str(n) for n in range(first, held.end)]
        assert all(held.entry(n)[0] == str(n) for n in range(first, held.end, 97))
    if joins:
        assert held.end == min(count, stop)
    newest = ring.snapshot(room + 1)
    assert (newest.first, newest.end) == (max(ring.first, count - room - 1), count)
    assert [newest.text(n) for n in range(newest.first, count)] == [str(n) for n in range(newest.first, count)]


def test_a_snapshot_takes_a_progress_bars_last_state() -> None:
    ring = LineRing()
    ring.extend([LogLine(text="a"), LogLine(text="1/3")])
    held = ring.snapshot()
    ring.extend([LogLine(text="2/3", replaces_last=True)])
    assert held.entry(1)[0] == "1/3"
    assert held.joined(ring.snapshot(), stop=10).entry(1)[0] == "2/3"
    ring.extend([LogLine(text="done")])
    assert [entry[0] for entry in held.joined(ring.snapshot(), stop=10).entries(0, 9)] == ["a", "2/3", "done"]


def test_what_is_kept_is_what_was_given() -> None:
    ring = LineRing()
    line = LogLine(text="x", wall_s=1.0, boot_s=2.0, priority=3)
    ring.extend([line])
    assert ring.slice(0, 1) == [line]
