"""A figure that changes over a scenario's time: straight lines between keyframes, and a little noise."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Track:
    """Keyframes (second, value), ascending; two at one second are a jump.

    Before the first and after the last keyframe the value stands still. With a period the track repeats for ever,
    and its integral goes on rising, so that counters made from it never fall.
    """

    times: tuple[float, ...]
    values: tuple[float, ...]
    areas: tuple[float, ...]
    """Integral from the first keyframe to each one."""
    period_s: float | None = None

    @classmethod
    def of(cls, points: Sequence[tuple[float, float]], *, period_s: float | None = None) -> Track:
        """A track through these points; at least one is needed."""
        times = tuple(float(t) for t, _ in points)
        values = tuple(float(v) for _, v in points)
        areas = [0.0]
        for (t0, v0), (t1, v1) in pairwise(zip(times, values, strict=True)):
            areas.append(areas[-1] + (t1 - t0) * (v0 + v1) / 2)
        return cls(times, values, tuple(areas), period_s)

    @classmethod
    def constant(cls, value: float) -> Track:
        """A track that never moves."""
        return cls.of([(0.0, value)])

    def repeating(self, period_s: float) -> Track:
        """The same track, starting over every `period_s` seconds from time 0 on."""
        return Track(self.times, self.values, self.areas, period_s)

    def at(self, t: float) -> float:
        """The value at second `t`; on a jump, the one after it."""
        if len(self.values) == 1:
            return self.values[0]
        if self.period_s and t >= 0:
            t %= self.period_s
        i = bisect_right(self.times, t)
        if i == 0:
            return self.values[0]
        if i == len(self.times):
            return self.values[-1]
        t0, t1 = self.times[i - 1], self.times[i]
        v0, v1 = self.values[i - 1], self.values[i]
        return v0 + (v1 - v0) * (t - t0) / (t1 - t0)

    def integral(self, t: float) -> float:
        """The area from second 0 to second `t` (negative before 0): what a counter has counted."""
        if self.period_s and t > 0:
            rounds, rest = divmod(t, self.period_s)
            return rounds * self._between(0.0, self.period_s) + self._between(0.0, rest)
        return self._between(0.0, t)

    def mean(self, start: float, end: float) -> float:
        """The average between two seconds, as a moving average over that window shows it."""
        if end <= start:
            return self.at(end)
        return (self.integral(end) - self.integral(start)) / (end - start)

    def risen(self, t: float) -> float:
        """The sum of all rises from second 0 to `t`; of a level (swap in use), what went in so far."""
        whole = 0.0
        if self.period_s and t > 0:
            rounds, t = divmod(t, self.period_s)
            whole = rounds * self._risen(self.period_s)
        return whole + self._risen(t)

    def _risen(self, t: float) -> float:
        levels = [self.values[0], *(v for s, v in zip(self.times, self.values, strict=True) if s <= t)]
        last = self._flat(t)
        return sum(max(0.0, b - a) for a, b in pairwise([*levels, last]))

    def _flat(self, t: float) -> float:
        return Track(self.times, self.values, self.areas).at(t)

    def _between(self, start: float, end: float) -> float:
        return self._area(end) - self._area(start)

    def _area(self, t: float) -> float:
        i = bisect_right(self.times, t)
        if i == 0:
            return (t - self.times[0]) * self.values[0]
        t0, v0 = self.times[i - 1], self.values[i - 1]
        if i == len(self.times):
            return self.areas[-1] + (t - t0) * v0
        v = v0 + (self.values[i] - v0) * (t - t0) / (self.times[i] - t0)
        return self.areas[i - 1] + (t - t0) * (v0 + v) / 2


def noise(seed: int, name: str, t: float, *, every_s: float = 2.0) -> float:
    """A smooth value in -1..1 that depends on nothing but its arguments: graphs live, and runs repeat."""
    step, rest = divmod(t, every_s)
    first, second = (_lattice(f"{seed}/{name}/{int(step) + i}") for i in (0, 1))
    return first + (second - first) * rest / every_s


def _lattice(key: str) -> float:
    return zlib.crc32(key.encode()) / 0x7FFFFFFF - 1.0
