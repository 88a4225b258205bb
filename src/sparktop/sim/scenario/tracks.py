"""A figure that changes over a scenario's time: straight lines between keyframes, and a little noise."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise

from sparktop.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Track:
    """Keyframes (second, value), ascending; two at one second are a jump.

    Before the first and after the last keyframe the value is constant. With a period the track repeats forever, and its
    integral keeps rising, so that counters computed from it never fall. Up to second `from_s` another track may apply:
    the one before an act.
    """

    times: tuple[float, ...]
    values: tuple[float, ...]
    areas: tuple[float, ...]
    """Integral from the first keyframe to each one."""
    period_s: float | None = None
    before: Track | None = None
    from_s: float = 0.0

    @classmethod
    def of(cls, points: Sequence[tuple[float, float]]) -> Track:
        """A track through these points; at least one is needed."""
        times = tuple(float(t) for t, _ in points)
        values = tuple(float(v) for _, v in points)
        areas = [0.0]
        for (t0, v0), (t1, v1) in pairwise(zip(times, values, strict=True)):
            areas.append(areas[-1] + (t1 - t0) * (v0 + v1) / 2)
        return cls(times, values, tuple(areas))

    @classmethod
    def constant(cls, value: float) -> Track:
        """A track with one value."""
        return cls.of([(0.0, value)])

    def repeating(self, period_s: float | None) -> Track:
        """The same track, starting over every `period_s` seconds from time 0 on; None: never."""
        return Track(self.times, self.values, self.areas, period_s)

    def then(self, from_s: float, after: Track) -> Track:
        """This track up to a second, `after` from then on."""
        until = self
        while until.before is not None and from_s <= until.from_s:
            until = until.before  # drop tracks that would start later
        return Track(after.times, after.values, after.areas, after.period_s, until, from_s)

    def cut(self, at_s: float) -> Track:
        """This track up to a second, and its last value from then on."""
        if self.before is None and self.period_s is None and self.times[-1] < at_s:
            return self
        return self.then(at_s, Track.constant(self.at(at_s - 1e-6)))

    def last(self, t: float) -> float:
        """The final value; for a repeating track, the value at second `t`."""
        return self.at(t) if self.period_s else self.values[-1]

    @property
    def first(self) -> float:
        """The value at second 0, before any act."""
        return self.stretches[0].at(0.0)

    @property
    def stretches(self) -> tuple[Track, ...]:
        """The tracks it consists of, the oldest first; each but the oldest applies from its `from_s` on."""
        return (*(self.before.stretches if self.before else ()), self)

    def holds(self, t: float) -> Track:
        """The one of its stretches that applies at second `t`."""
        return next((part for part in reversed(self.stretches) if part.before is None or t >= part.from_s), self)

    def weighted(self, by: Track, weigh: Callable[[float], float]) -> Track:
        """This rate times a weight of another figure: straight lines between the keyframes of both."""
        result: Track | None = None
        for from_s in sorted({part.from_s for track in (self, by) for part in track.stretches}):
            rate, figure = self.holds(from_s), by.holds(from_s)
            once, figure_once = rate.repeating(None), figure.repeating(None)
            seconds = [s for t in sorted({*rate.times, *figure.times}) for s in (t - 1e-6, t)]
            part = Track.of([(s, once.at(s) * weigh(figure_once.at(s))) for s in seconds])
            part = part.repeating(rate.period_s or figure.period_s)
            result = part if result is None else result.then(from_s, part)
        assert result is not None  # the oldest applies from the start
        return result

    def at(self, t: float) -> float:
        """The value at second `t`; on a jump, the one after it."""
        if self.before is not None and t < self.from_s:
            return self.before.at(t)
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
        """The area from second 0 to second `t` (negative before 0), for counters."""
        if self.before is not None:
            if t < self.from_s:
                return self.before.integral(t)
            return self.before.integral(self.from_s) + self._own_integral(t) - self._own_integral(self.from_s)
        return self._own_integral(t)

    def _own_integral(self, t: float) -> float:
        if self.period_s and t > 0:
            rounds, rest = divmod(t, self.period_s)
            return rounds * self._between(0.0, self.period_s) + self._between(0.0, rest)
        return self._between(0.0, t)

    def mean(self, start: float, end: float) -> float:
        """The average between two seconds."""
        if end <= start:
            return self.at(end)
        return (self.integral(end) - self.integral(start)) / (end - start)

    def risen(self, t: float) -> float:
        """The sum of all rises from second 0 to `t`; for a level such as swap in use: what went in so far."""
        if self.before is not None:
            if t < self.from_s:
                return self.before.risen(t)
            jump = max(0.0, self.at(self.from_s) - self.before.at(self.from_s))
            return self.before.risen(self.from_s) + jump + self._own_risen(t) - self._own_risen(self.from_s)
        return self._own_risen(t)

    def _own_risen(self, t: float) -> float:
        whole = 0.0
        if self.period_s and t > 0:
            rounds, t = divmod(t, self.period_s)
            whole = rounds * self._risen(self.period_s)
        return whole + self._risen(t)

    def _risen(self, t: float) -> float:
        levels = [self.values[0], *(v for s, v in zip(self.times, self.values, strict=True) if s <= t)]
        return sum(max(0.0, b - a) for a, b in pairwise([*levels, self.repeating(None).at(t)]))

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
    """A smooth value in -1..1 that depends only on its arguments: graphs look alive, and runs are repeatable."""
    step, rest = divmod(t, every_s)
    first, second = (_lattice(f"{seed}/{name}/{int(step) + i}") for i in (0, 1))
    return first + (second - first) * rest / every_s


def _lattice(key: str) -> float:
    return zlib.crc32(key.encode()) / 0x7FFFFFFF - 1.0
