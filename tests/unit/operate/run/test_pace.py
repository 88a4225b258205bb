"""How fast a long operation goes, in words: bytes, rate, time left, and when it stands still."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.operate.acts.pace import ProgressRate, amount, size
from sparktop.operate.runner.api import Progress

GB, MB = 1_000_000_000, 1_000_000


def paced(*seen: tuple[float, int | None], total: int | None = None, words: str = "") -> ProgressRate:
    pace = ProgressRate()
    for now_s, done in seen:
        pace.hear(Progress(index=0, done_bytes=done, total_bytes=total, words=words), now_s)
    return pace


def test_bytes_rate_and_time_left() -> None:
    seen = [(100.0 + second, 12_000 * MB + second * 84 * MB) for second in range(5)]
    pace = paced(*seen, total=34_600 * MB)
    assert pace.words == "12.3 of 34.6 GB · 84 MB/s · 4:25 left"
    assert pace.ratio == pytest.approx(0.3565, abs=0.001)


def test_what_is_not_known_is_not_told() -> None:
    assert ProgressRate().words == ""
    assert (ProgressRate().ratio, ProgressRate().rate) == (None, None)
    assert paced((0.0, 310 * MB)).words == "310 MB"
    assert paced((0.0, None), total=5, words="waiting").words == "waiting"
    assert paced((0.0, 5 * MB), (0.0, 9 * MB), total=10 * MB).words == "9 of 10 MB"  # no time between: no rate
    assert paced((0.0, 5 * MB), (1.0, 9 * MB), words="7 of 21 layers").words == "9 MB · 7 of 21 layers · 4 MB/s"


def test_the_rate_is_that_of_the_last_seconds() -> None:
    fast_then_slow = [(float(second), second * 100 * MB) for second in range(60)]
    fast_then_slow += [(60.0 + second, 5900 * MB + second * MB) for second in range(15)]
    assert paced(*fast_then_slow).rate == pytest.approx(MB, rel=0.01)


def test_standing_still() -> None:
    moving = [(0.0, 10 * MB), (1.0, 20 * MB)]
    assert paced(*moving, (15.0, 20 * MB), total=GB).stalled_s is None
    stalled = paced(*moving, *((float(second), 20 * MB) for second in range(2, 42)), total=GB)
    assert stalled.words == "0.0 of 1 GB · stalled for 0:40"
    assert paced(*moving, (60.0, 20 * MB), total=20 * MB).words == "20 of 20 MB"  # all is there: it unpacks, or checks


def test_it_begins_anew() -> None:
    """Unpacking after loading, a second try, another operation, and after a while unheard."""
    pace = paced((0.0, 10 * MB), (1.0, 90 * MB), (2.0, 5 * MB), total=100 * MB)
    assert pace.words == "5 of 100 MB"
    pace.hear(Progress(index=0, done_bytes=6 * MB, total_bytes=100 * MB), 3.0)
    assert pace.rate == pytest.approx(MB)
    pace.hear(Progress(index=1, done_bytes=50 * MB), 4.0)
    assert pace.rate is None
    pace.hear(Progress(index=1, done_bytes=60 * MB), 5.0)
    pace.skip()
    pace.hear(Progress(index=1, done_bytes=900 * MB), 3605.0)
    assert pace.rate is None
    assert pace.stalled_s is None


def test_more_than_was_said() -> None:
    assert paced((0.0, 11 * MB), (1.0, 12 * MB), total=10 * MB).ratio == 1.0
    assert paced((0.0, 0), (1e6, 1), total=GB).left_s is None  # years are no forecast


def test_sizes() -> None:
    assert [size(value) for value in (0, 999, 84_000_000, 34_600_000_000, 1.2e12)] == [
        "0 bytes", "999 bytes", "84 MB", "34.6 GB", "1.2 TB",
    ]  # fmt: skip
    assert amount(900 * MB, 1200 * MB) == "0.9 of 1.2 GB"
    assert amount(900 * MB, None) == "900 MB"


@given(
    st.lists(
        st.tuples(
            st.floats(0, 1e9),
            st.one_of(st.none(), st.integers(0, 1 << 60)),
            st.one_of(st.none(), st.integers(1, 1 << 60)),
            st.integers(0, 2),
        ),
        max_size=20,
    )
)
def test_whatever_is_told_there_are_words(seen: list[tuple[float, int | None, int | None, int]]) -> None:
    pace, now_s = ProgressRate(), 0.0
    for step_s, done, total, index in seen:
        now_s += step_s
        pace.hear(Progress(index=index, done_bytes=done, total_bytes=total, words="x"), now_s)
        assert pace.words
        assert pace.ratio is None or 0.0 <= pace.ratio <= 1.0
        assert pace.rate is None or (pace.rate >= 0 and math.isfinite(pace.rate))
