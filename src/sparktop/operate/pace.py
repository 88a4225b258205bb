"""How fast a long operation goes and when it will be over, from what is told of it about once a second. Pure."""

from __future__ import annotations

from collections import deque

from sparktop.operate.line import Progress
from sparktop.operate.telling import clock

WINDOW_S = 10.0
"""The rate is that of so long: of a moment it would jump, of the whole it would say nothing about now."""
STALLED_S = 15.0
LONGEST_S = 99 * 3600.0
"""A time left that is longer is no forecast."""
_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


class Pace:
    """One operation's."""

    def __init__(self) -> None:
        self._newest: Progress | None = None
        self._seen: deque[tuple[float, int]] = deque()
        self._moved_s: float | None = None
        """When there was last more of it."""
        self._now_s = 0.0

    def hear(self, progress: Progress, now_s: float) -> None:
        """What is told of it now, by any clock that only goes on."""
        old, self._newest, self._now_s = self._newest, progress, now_s
        done = progress.done_bytes
        is_other = old is None or progress.index != old.index or old.done_bytes is None
        if done is None or is_other or (self._seen and done < self._seen[-1][1]):
            self._seen.clear()  # another operation, or it has begun anew: unpacking after loading, a second try
            self._moved_s = now_s
        elif not self._seen or done > self._seen[-1][1]:
            self._moved_s = now_s
        if done is None:
            return
        self._seen.append((now_s, done))
        while len(self._seen) > 2 and self._seen[1][0] <= now_s - WINDOW_S:
            self._seen.popleft()

    def skip(self) -> None:
        """It was not heard for a while: what came meanwhile is no rate of now."""
        self._seen.clear()

    @property
    def rate(self) -> float | None:
        """Bytes a second of late; None while unknown."""
        if len(self._seen) < 2:
            return None
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else None

    @property
    def stalled_s(self) -> float | None:
        """Seconds without any more of it; None while it moves, or is all there."""
        newest = self._newest
        if newest is None or newest.done_bytes is None or self._moved_s is None:
            return None
        if newest.total_bytes is not None and newest.done_bytes >= newest.total_bytes:
            return None
        still_s = self._now_s - self._moved_s
        return still_s if still_s >= STALLED_S else None

    @property
    def left_s(self) -> float | None:
        """Seconds until all is there, at the rate of late."""
        newest, rate = self._newest, self.rate
        if newest is None or newest.done_bytes is None or not newest.total_bytes or not rate or rate <= 0:
            return None
        left_s = max(0, newest.total_bytes - newest.done_bytes) / rate
        return left_s if left_s <= LONGEST_S else None

    @property
    def ratio(self) -> float | None:
        """How far, 0 to 1, where that is known."""
        newest = self._newest
        if newest is None or newest.done_bytes is None or not newest.total_bytes:
            return None
        return min(1.0, newest.done_bytes / newest.total_bytes)

    @property
    def words(self) -> str:
        """ "12.4 of 34.6 GB · 84 MB/s · 4:20 left"; "12.4 of 34.6 GB · stalled for 0:40"."""
        newest = self._newest
        if newest is None:
            return ""
        parts = [amount(newest.done_bytes, newest.total_bytes)] if newest.done_bytes is not None else []
        if newest.words:
            parts.append(newest.words)
        if (stalled_s := self.stalled_s) is not None:
            parts.append(f"stalled for {clock(stalled_s)}")
        elif (rate := self.rate) is not None and rate > 0:
            parts.append(f"{size(rate)}/s")
            if (left_s := self.left_s) is not None and self.ratio != 1.0:
                parts.append(f"{clock(left_s)} left")
        return " · ".join(parts)


def amount(done: int, total: int | None) -> str:
    """ "12.4 of 34.6 GB", "0.9 of 1.2 GB", "310 MB"."""
    if not total:
        return size(done)
    unit, name = _unit(total)
    return f"{_figure(done / unit)} of {_figure(total / unit)} {name}"


def size(amount_bytes: float) -> str:
    """ "34.6 GB", "84 MB", decimal as registries and hubs count."""
    unit, name = _unit(amount_bytes)
    return f"{_figure(amount_bytes / unit)} {name}"


def _unit(amount_bytes: float) -> tuple[float, str]:
    return next(((unit, name) for unit, name in _UNITS if amount_bytes >= unit), (1.0, "bytes"))


def _figure(value: float) -> str:
    return f"{value:.1f}" if 0 < value < 99.95 and value != int(value) else f"{value:.0f}"
