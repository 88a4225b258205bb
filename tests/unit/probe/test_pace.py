"""How often the probe samples."""

from __future__ import annotations

import pytest
from tests.table import over

from sparktop.probe.remote.pace import FAST_S, SampleInterval, until_beat_s

TOTAL = 127_535_276


def run(pace: SampleInterval, available: list[int], step_s: float = 1.0, start_s: float = 0.0) -> list[float]:
    intervals = []
    for index, kb in enumerate(available):
        boot_s = start_s + index * step_s
        pace.saw(boot_s, kb, TOTAL)
        intervals.append(pace.next_s(boot_s))
    return intervals


def test_a_steep_fall_quickens_sampling_and_calm_slows_it_again() -> None:
    pace = SampleInterval(1.0)
    assert run(pace, [90_000_000, 89_500_000, 80_000_000]) == [1.0, 1.0, FAST_S]
    assert run(pace, [80_000_000] * 11, start_s=3.0) == [FAST_S] * 9 + [1.0] * 2


def test_low_memory_quickens_sampling_while_it_moves_but_not_at_rest() -> None:
    pace = SampleInterval(1.0)
    rest = 8_134_368  # 6.4 %: how a serving Spark rests
    assert run(pace, [rest] * 20)[-1] == 1.0
    assert run(pace, [rest - 200_000], start_s=20.0) == [FAST_S]
    assert run(SampleInterval(1.0), [rest]) == [FAST_S]
    # Up and down across the mark is not a new alarm each time.
    edge = int(TOTAL * 0.08)
    wobble = [edge - 1000 if n % 2 else edge + 1000 for n in range(30)]
    assert run(SampleInterval(1.0), wobble)[-1] == 1.0


def test_a_rate_faster_than_that_is_kept() -> None:
    pace = SampleInterval(0.1)
    assert run(pace, [90_000_000, 70_000_000])[-1] == pytest.approx(0.1)


def test_a_sample_that_takes_long_slows_sampling_until_three_were_quick() -> None:
    pace = SampleInterval(1.0)
    pace.took(0.3)
    assert pace.next_s(0.0) == 5.0
    pace.took(0.01)
    pace.took(0.15)  # neither slow nor quick
    pace.took(0.01)
    assert pace.next_s(0.0) == 5.0
    pace.took(0.01)
    assert pace.next_s(0.0) == 1.0


@over(
    "interval_s, wall_s, expected",
    [
        (1.0, 1_780_000_000.0, 1.0), (1.0, 1_780_000_000.002, 0.998), (1.0, 1_780_000_000.5, 0.5),
        (1.0, 1_779_999_999.999, 1.001), (0.25, 1_780_000_000.3, 0.2), (60.0, 1_780_000_010.0, 70.0),
    ],
    ids=["on the beat", "just after it", "between", "just before it", "fast", "slow"],
)  # fmt: skip
def test_nodes_whose_clocks_agree_sample_at_the_same_moment(interval_s: float, wall_s: float, expected: float) -> None:
    found = until_beat_s(interval_s, wall_s)
    assert found == pytest.approx(expected, abs=1e-4)
    assert interval_s / 2 <= found <= 1.5 * interval_s
