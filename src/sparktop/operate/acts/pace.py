"""How fast a long operation goes: rate, time left, stall."""

from __future__ import annotations

from collections import deque

from sparktop.operate.runner.api import Progress
from sparktop.text.units import countdown

WINDOW_S = 10.0
"""The rate is averaged over so long: a shorter window jumps, the whole transfer hides a change."""
SHORTEST_S = 1e-3
"""Two reports closer together tell no rate."""
STALLED_S = 15.0
"""Without more bytes for so long it is reported as stalled."""
LONGEST_S = 99 * 3600.0
"""A longer time left is not forecast."""
_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


class ProgressRate:
    """How fast an operation's transfer goes: rate, time left, stall."""

    def __init__(self) -> None:
        self._newest: Progress | None = None
        self._samples: deque[tuple[float, int]] = deque()
        self._moved_s: float | None = None
        """When the byte count last rose."""
        self._now_s = 0.0

    def hear(self, progress: Progress, now_s: float) -> None:
        """Take in a progress report; `now_s` by any monotonic clock."""
        previous, self._newest, self._now_s = self._newest, progress, now_s
        done_bytes = progress.done_bytes
        is_new_operation = previous is None or progress.index != previous.index or previous.done_bytes is None
        if done_bytes is None or is_new_operation or (self._samples and done_bytes < self._samples[-1][1]):
            self._samples.clear()  # another operation, or one that began again: unpacking after download, a retry
            self._moved_s = now_s
        elif not self._samples or done_bytes > self._samples[-1][1]:
            self._moved_s = now_s
        if done_bytes is None:
            return
        self._samples.append((now_s, done_bytes))
        while len(self._samples) > 2 and self._samples[1][0] <= now_s - WINDOW_S:
            self._samples.popleft()

    def skip(self) -> None:
        """Forget the rate: reports were missed."""
        self._samples.clear()

    @property
    def rate(self) -> float | None:
        """Bytes a second of late; None while unknown."""
        if len(self._samples) < 2:
            return None
        (first_s, first), (last_s, last) = self._samples[0], self._samples[-1]
        return (last - first) / (last_s - first_s) if last_s - first_s > SHORTEST_S else None

    @property
    def stalled_s(self) -> float | None:
        """Seconds without more bytes, from STALLED_S on; None while it moves, or when it is complete."""
        newest = self._newest
        if newest is None or newest.done_bytes is None or self._moved_s is None:
            return None
        if newest.total_bytes is not None and newest.done_bytes >= newest.total_bytes:
            return None
        still_s = self._now_s - self._moved_s
        return still_s if still_s >= STALLED_S else None

    @property
    def left_s(self) -> float | None:
        """Seconds until it is complete, at the current rate."""
        newest, rate = self._newest, self.rate
        if newest is None or newest.done_bytes is None or not newest.total_bytes or not rate or rate <= 0:
            return None
        left_s = max(0, newest.total_bytes - newest.done_bytes) / rate
        return left_s if left_s <= LONGEST_S else None

    @property
    def ratio(self) -> float | None:
        """How far it is, 0 to 1; None where unknown."""
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
            parts.append(f"stalled for {countdown(round(stalled_s))}")
        elif (rate := self.rate) is not None and rate > 0:
            parts.append(f"{size(rate)}/s")
            if (left_s := self.left_s) is not None and self.ratio != 1.0:
                parts.append(f"{countdown(round(left_s))} left")
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
