"""Bounded histories of one node, placed by the node's own clock.

A sample's place is its boot time plus the smallest offset to the operator's clock seen lately: a burst that comes
late (a resumed laptop, a slow line) is placed when it was taken, not when it arrived (facts/reliability.md 1.4).
"""

from __future__ import annotations

from collections import deque

from sparktop.model.telemetry import Series

KEPT_S = 15 * 60.0
_OFFSETS_KEPT = 60


class Placement:
    """The node's boot-time clock on the operator's monotonic clock."""

    def __init__(self) -> None:
        self._boot_id = ""
        self._offsets: deque[float] = deque(maxlen=_OFFSETS_KEPT)
        self._offset = 0.0

    def boot(self, boot_id: str) -> bool:
        """Note which boot the coming samples belong to; True when it is another one: a reboot, not a gap."""
        changed = boot_id != self._boot_id
        rebooted = bool(self._boot_id) and changed
        if changed:
            self._boot_id = boot_id
            self._offsets.clear()
        return rebooted

    def place(self, boot_s: float, arrived_s: float) -> float:
        """When the sample was taken, on the operator's clock: never after it arrived."""
        self._offsets.append(arrived_s - boot_s)
        self._offset = min(self._offsets)
        return boot_s + self._offset

    def at(self, boot_s: float) -> float | None:
        """Where another moment of the node's stands; None before the first sample."""
        return boot_s + self._offset if self._offsets else None


class History:
    """One value over the last minutes, with gaps as None."""

    def __init__(self, kept_s: float = KEPT_S) -> None:
        self._kept_s = kept_s
        self._points: deque[tuple[float, float | None]] = deque()

    def add(self, time_s: float, value: float | None, *, expected_s: float = 1.0) -> None:
        """Append a value; a pause of over three intervals before it becomes a gap."""
        if self._points:
            last_s = self._points[-1][0]
            if time_s <= last_s:
                return  # a late duplicate: history never runs backwards
            if time_s - last_s > 3 * expected_s + 1.0:
                self._points.append(((time_s + last_s) / 2, None))
        self._points.append((time_s, value))
        while self._points[0][0] < time_s - self._kept_s:
            self._points.popleft()

    def cut(self) -> None:
        """End the stretch here: what comes next doesn't join on (another boot)."""
        if self._points and self._points[-1][1] is not None:
            self._points.append((self._points[-1][0] + 0.001, None))

    def series(self) -> Series:
        """The history as frozen data."""
        if not self._points:
            return Series()
        times, values = zip(*self._points, strict=True)
        return Series(times=times, values=values)

    def recent(self, seconds: float) -> list[tuple[float, float]]:
        """The unbroken newest stretch of at most so many seconds, oldest first."""
        found: list[tuple[float, float]] = []
        for time_s, value in reversed(self._points):
            if value is None or (found and found[0][0] - time_s > seconds):
                break
            if found and found[-1][0] - time_s > seconds:
                break
            found.append((time_s, value))
        found.reverse()
        return found
