"""Placing samples, gaps in a history, and the trend of available memory."""

from __future__ import annotations

import pytest
from tests.table import over

from sparktop.observe.history import History, Placement, Thinned, trend

GB = 1e9


def test_a_late_burst_is_placed_when_it_was_taken() -> None:
    placement = Placement()
    placement.boot("one")
    assert placement.place(10.0, 1000.2) == pytest.approx(1000.2)
    assert placement.place(11.0, 1001.1) == pytest.approx(1001.1)
    # The laptop slept for 20 s: the next three come at once, and still stand a second apart.
    late = [placement.place(12.0 + i, 1022.0) for i in range(3)]
    assert late == pytest.approx([1002.1, 1003.1, 1004.1])


def test_another_boot_id_is_a_reboot_and_starts_its_own_offset() -> None:
    placement = Placement()
    assert placement.boot("one") is False
    placement.place(5000.0, 100.0)
    assert placement.boot("one") is False
    assert placement.boot("two") is True
    assert placement.place(3.0, 200.0) == pytest.approx(200.0)


def test_a_pause_becomes_a_gap_and_time_never_runs_back() -> None:
    history = History()
    for time_s in (1.0, 2.0, 3.0, 20.0, 19.0):
        history.add(time_s, time_s)
    assert history.series().values == (1.0, 2.0, 3.0, None, 20.0)
    assert history.series().times[3] == pytest.approx(11.5)


def test_a_series_is_made_once_for_each_value() -> None:
    history = History()
    history.add(1.0, 1.0)
    once = history.series()
    assert history.series() is once
    history.cut()
    history.add(2.0, 2.0)
    assert history.series().values == (1.0, None, 2.0)


def test_the_recent_stretch_ends_at_a_gap() -> None:
    history = History()
    for time_s in (1.0, 2.0, 20.0, 21.0, 22.0):
        history.add(time_s, time_s)
    assert history.recent(100.0) == [(20.0, 20.0), (21.0, 21.0), (22.0, 22.0)]
    assert history.recent(1.5) == [(21.0, 21.0), (22.0, 22.0)]


def test_history_is_bounded() -> None:
    history = History(kept_s=10.0)
    for second in range(100):
        history.add(float(second), 1.0)
    assert history.series().times[0] >= 89.0


def test_the_spike_of_field_report_001_is_seen_coming() -> None:
    # available GB at two-second steps, as the report logged it
    fall = [45.4, 43.7, 31.9, 11.4]
    points = [(2.0 * i, gb * GB) for i, gb in enumerate(fall)]
    seen = trend(points[:3])
    assert seen is not None
    assert seen.time_to_empty_s is not None
    assert seen.time_to_empty_s < 10
    seen = trend(points[1:])
    assert seen is not None
    assert seen.time_to_empty_s is not None
    assert seen.time_to_empty_s < 2


@over(
    "points",
    [
        [],
        [(0.0, 1 * GB), (1.0, 2 * GB)],
        [(0.0, 1 * GB), (0.1, 1 * GB), (0.2, 1 * GB)],
    ],
)
def test_too_little_says_nothing(points: list[tuple[float, float]]) -> None:
    assert trend(points) is None


def test_an_idle_wobble_and_a_recovery_have_no_time_to_empty() -> None:
    wobble = trend([(float(i), 100 * GB - (i % 2) * 0.02 * GB) for i in range(6)])
    assert wobble is not None
    assert wobble.time_to_empty_s is None
    rising = trend([(float(i), i * GB) for i in range(6)])
    assert rising is not None
    assert rising.bytes_per_s > 0
    assert rising.time_to_empty_s is None


def test_what_is_far_beyond_the_window_is_not_foretold() -> None:
    slow = trend([(float(i), 27 * GB - i * 0.07 * GB) for i in range(6)])  # a request begins: empty in six minutes
    assert slow is not None
    assert slow.bytes_per_s < -60e6
    assert slow.time_to_empty_s is None
    loading = trend([(float(i), 27 * GB - i * 0.5 * GB) for i in range(6)])
    assert loading is not None
    assert loading.time_to_empty_s == pytest.approx(49, abs=2)


def test_a_cut_ends_the_stretch_however_soon_the_next_value_comes() -> None:
    history = History()
    for second in range(4):
        history.add(float(second), 100.0)
    history.cut()
    history.cut()
    history.add(4.0, 20.0)
    assert history.series().values == (100.0, 100.0, 100.0, 100.0, None, 20.0)
    assert history.recent(60.0) == [(4.0, 20.0)]


def test_what_leaves_a_history_is_thinned_and_keeps_its_lowest_and_its_gaps() -> None:
    history = History(kept_s=60.0)
    for second in range(600):
        if not 300 <= second < 400:
            history.add(float(second), 3.0 if second == 100 else 9.0)
    recent, earlier = history.series(), history.earlier()
    assert earlier.times[-1] < recent.times[0]
    assert recent.times[0] >= 539.0
    assert len(earlier.times) < 40
    assert min(value for value in earlier.values if value is not None) == 3.0
    assert None in earlier.values


def test_a_long_session_is_thinned_further_and_still_begins_at_its_start() -> None:
    thinned = Thinned(stretch_s=15.0, most=100)
    for second in range(0, 36_000, 5):
        thinned.add(float(second), 2.0 if second == 40 else 5.0)
    series = thinned.series()
    assert len(series.times) <= 100
    assert series.times[0] == 0.0
    assert series.times[-1] > 35_000
    assert series.values[0] == 2.0
