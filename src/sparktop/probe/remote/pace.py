"""How often the probe samples; pure."""

from __future__ import annotations

FAST_S = 0.25
"""Seconds between samples while memory moves."""


def until_beat_s(interval_s: float, wall_s: float) -> float:
    """Seconds to the next multiple of the interval on the wall clock; at least half an interval.

    Nodes whose clocks agree sample at the same moment: a picture compares like with like, and is drawn once.
    """
    left_s = interval_s - wall_s % interval_s
    return left_s if left_s >= interval_s / 2 else left_s + interval_s


class SampleInterval:
    """Seconds to the next sample: fewer while memory is low and moving or falls fast, more while sampling is slow."""

    FALL_KB_PER_S = 1_500_000.0
    """A fall this fast quickens sampling, however much memory is left."""
    STIR_KB_PER_S = 100_000.0
    """Change, up or down, that quickens sampling while memory is low."""
    LOW, CALM = 0.08, 0.10
    """Shares of memory available: low below the first, until above the second."""
    HOLD_S = 10.0
    """How long sampling stays fast after its last reason."""
    SLOW_S, QUICK_S = 0.25, 0.1
    """A sample that takes longer than the first slows sampling, until three in a row took less than the second."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._last: tuple[float, int] | None = None
        self._low = False
        self.guarded = False
        """A guard is armed: sample fast all the time."""
        self._fast_until = -1.0
        self._quick_samples = 3

    def saw(self, boot_s: float, available_kb: int, total_kb: int) -> None:
        """Take a sample's figures. A serving Spark rests at 6 % available: low memory alone is no reason to hurry."""
        rate = 0.0
        if self._last is not None and boot_s > self._last[0]:
            rate = (self._last[1] - available_kb) / (boot_s - self._last[0])
        self._last = boot_s, available_kb
        share = available_kb / total_kb if total_kb else 1.0
        was_low = self._low
        self._low = share < (self.CALM if was_low else self.LOW)
        if rate > self.FALL_KB_PER_S or (self._low and (not was_low or abs(rate) > self.STIR_KB_PER_S)):
            self._fast_until = boot_s + self.HOLD_S

    def took(self, seconds: float) -> None:
        """Take how long the last sample took."""
        if seconds > self.SLOW_S:
            self._quick_samples = 0
        elif seconds < self.QUICK_S:
            self._quick_samples = min(3, self._quick_samples + 1)

    def next_s(self, boot_s: float) -> float:
        """Seconds until the next sample."""
        if self._quick_samples < 3:
            return min(60.0, self.interval_s * 5)
        return min(self.interval_s, FAST_S) if self.guarded or boot_s < self._fast_until else self.interval_s
