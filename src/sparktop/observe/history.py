"""Histories of a node's figures over the last minutes, their trends and rates."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from sparktop.dataclass import dataclass
from sparktop.model.engine import Engine
from sparktop.model.fleet import Absence, Growth, Reach, Trend
from sparktop.model.telemetry import GpuReading, NetworkReading, Sample, Series

KEPT_S = 15 * 60.0
_OFFSETS_KEPT = 60


class Placement:
    """Maps the node's boot-time clock to the operator's monotonic clock."""

    def __init__(self) -> None:
        self._boot_id = ""
        self._offsets: deque[float] = deque(maxlen=_OFFSETS_KEPT)
        self._offset = 0.0

    def boot(self, boot_id: str) -> bool:
        """Set the boot that the next samples belong to; True when it is another one: a reboot, not a gap."""
        changed = boot_id != self._boot_id
        rebooted = bool(self._boot_id) and changed
        if changed:
            self._boot_id = boot_id
            self._offsets.clear()
        return rebooted

    def place(self, boot_s: float, arrived_s: float) -> float:
        """When the sample was taken, on the operator's clock; never after its arrival."""
        self._offsets.append(arrived_s - boot_s)
        self._offset = min(self._offsets)
        return boot_s + self._offset

    def at(self, boot_s: float) -> float | None:
        """Another boot-time moment on the operator's clock; None before the first sample."""
        return boot_s + self._offset if self._offsets else None


class Thinned:
    """A figure's older values, the lowest of each stretch of time; the stretches grow with the session, and what gaps
    they hold goes."""

    def __init__(self, *, stretch_s: float = 15.0, most: int = 960) -> None:
        self._stretch_s = stretch_s
        self._most = most
        self._points: list[tuple[float, float | None]] = []
        self._series: Series | None = None

    def add(self, time_s: float, value: float | None) -> None:
        """Take the next older value; None ends a stretch as a gap."""
        last = self._points[-1] if self._points else None
        if last is not None and last[1] is not None and value is not None and self._is_same_stretch(last[0], time_s):
            self._points[-1] = (last[0], min(last[1], value))
            return
        if value is not None and last is not None and len(self._points) > 1:  # then that was a gap
            begin_s, lowest = self._points[-2]
            if lowest is not None and self._is_same_stretch(begin_s, time_s):
                self._points[-2:] = [(begin_s, min(lowest, value))]
                return
        if value is None and (last is None or last[1] is None):
            return
        self._points.append((time_s, value))
        if len(self._points) > self._most:
            points, self._points = self._points, []
            self._stretch_s *= 2
            for point in points:
                self.add(*point)
        self._series = None

    def _is_same_stretch(self, one_s: float, other_s: float) -> bool:
        return one_s // self._stretch_s == other_s // self._stretch_s

    def series(self) -> Series:
        """The values as frozen data; built anew only when a stretch has begun, so the last one may be behind."""
        if self._series is None:
            times, values = zip(*self._points, strict=True) if self._points else ((), ())
            self._series = Series(times=times, values=values)
        return self._series


Points = list[tuple[float, float | None]]
"""(seconds, value), oldest first; None: a gap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A node's figures before this session, by wall clock: bytes, percent, watts, tokens a second."""

    available: Points
    utilisation: Points
    power: Points
    tokens: Points


MOST_POINTS = 8192
"""Of one figure's last minutes: twice as many as the shortest interval of a probe makes (`config.check_interval`)."""


class History:
    """One figure over the last minutes, with gaps as None, and thinned out from before that."""

    def __init__(self, kept_s: float = KEPT_S) -> None:
        self._kept_s = kept_s
        self._times: list[float] = []  # parallel lists: a series is made of them a second, and copies them at once
        self._values: list[float | None] = []
        self._series: Series | None = Series()
        self._older = Thinned()

    def add(self, time_s: float, value: float | None, *, expected_s: float = 1.0) -> None:
        """Append a value; a pause of over three intervals before it becomes a gap."""
        times = self._times
        if times:
            last_s = times[-1]
            if time_s <= last_s:
                return  # a late duplicate: history never runs backwards
            if time_s - last_s > 3 * expected_s + 1.0:
                self._append((time_s + last_s) / 2, None)
        self._append(time_s, value)
        while times[0] < time_s - self._kept_s or len(times) > MOST_POINTS:
            self._older.add(times.pop(0), self._values.pop(0))

    def earlier(self) -> Series:
        """What came before the series begins."""
        return self._older.series()

    def remember(self, points: Points) -> None:
        """Take what was recorded before this session, once, before any value of its own has become old."""
        if points and not self._older.series().times:
            for point in (*points, (points[-1][0] + 0.001, None)):
                self._older.add(*point)

    def cut(self) -> None:
        """End the current stretch: the next value doesn't join on (another boot)."""
        if self._values and self._values[-1] is not None:
            self._append(self._times[-1] + 0.001, None)

    def series(self) -> Series:
        """The history as frozen data; the same object until a value comes."""
        if self._series is None:
            self._series = Series(times=tuple(self._times), values=tuple(self._values))
        return self._series

    def recent(self, seconds: float) -> list[tuple[float, float]]:
        """The newest stretch without gaps, at most `seconds` long, oldest first."""
        stretch: list[tuple[float, float]] = []
        for time_s, value in zip(reversed(self._times), reversed(self._values), strict=True):
            if value is None or (stretch and stretch[0][0] - time_s > seconds):
                break
            stretch.append((time_s, value))
        stretch.reverse()
        return stretch

    def _append(self, time_s: float, value: float | None) -> None:
        self._times.append(time_s)
        self._values.append(value)
        self._series = None


WINDOW_S = 5.0
"""Short on purpose: available memory has fallen 47 GB in 6 s (field report 001)."""
NOISE_BYTES_PER_S = 60e6
"""Below this rate an idle desktop wanders by itself: no time to empty is estimated."""
EMPTY_WITHIN_S = 300.0
"""A fall of five seconds tells nothing of what is later than this: a request that begins takes its memory and stops."""


def trend(points: Sequence[tuple[float, float]]) -> Trend | None:
    """The least-squares slope of (seconds, available bytes); None with fewer than three points or one second."""
    if len(points) < 3 or points[-1][0] - points[0][0] < 1.0:
        return None
    start_s = points[0][0]
    times = [time_s - start_s for time_s, _ in points]
    values = [value for _, value in points]
    mean_t = sum(times) / len(times)
    mean_v = sum(values) / len(values)
    spread = sum((time_s - mean_t) ** 2 for time_s in times)
    slope = sum((t - mean_t) * (v - mean_v) for t, v in zip(times, values, strict=True)) / spread
    # A fall that has only begun is steeper in its last step than over the window: average the two.
    (before_t, before_v), (last_t, last_v) = points[-2], points[-1]
    step = (last_v - before_v) / (last_t - before_t)
    if step < slope < 0:
        slope = (slope + step) / 2
    to_empty_s = last_v / -slope if slope < -NOISE_BYTES_PER_S else math.inf
    return Trend(bytes_per_s=slope, time_to_empty_s=to_empty_s if to_empty_s <= EMPTY_WITHIN_S else None)


PAGE_BYTES = 4096


def swap_rate(previous: Sample, current: Sample) -> float | None:
    """Bytes per second swapped in and out together; None where the kernel doesn't count them."""
    elapsed_s = current.boot_s - previous.boot_s
    if elapsed_s <= 0 or current.swap_in_pages is None or current.swap_out_pages is None:
        return None
    if previous.swap_in_pages is None or previous.swap_out_pages is None:
        return None
    pages = (current.swap_in_pages - previous.swap_in_pages) + (current.swap_out_pages - previous.swap_out_pages)
    return max(0, pages) * PAGE_BYTES / elapsed_s


def remembering(previous: NetworkReading, current: NetworkReading) -> NetworkReading:
    """The current reading, with the addresses that went with a carrier."""
    had = {one.name: one.addresses or one.lost_addresses for one in previous.interfaces}
    rows = (
        replace(one, lost_addresses=had.get(one.name, ())) if one.is_up is False and not one.addresses else one
        for one in current.interfaces
    )
    return replace(current, interfaces=tuple(rows))


def rdma_rate(previous: NetworkReading, current: NetworkReading) -> float | None:
    """Bytes per second in both directions over the RDMA ports that both readings counted; None where there are none."""
    elapsed_s = current.boot_s - previous.boot_s
    if elapsed_s <= 0:
        return None
    earlier_ports = {(port.device, port.port): port for port in previous.rdma_ports}
    deltas = [
        (port.received_bytes - earlier.received_bytes) + (port.sent_bytes - earlier.sent_bytes)
        for port in current.rdma_ports
        if (earlier := earlier_ports.get((port.device, port.port))) is not None
        and port.received_bytes is not None
        and port.sent_bytes is not None
        and earlier.received_bytes is not None
        and earlier.sent_bytes is not None
    ]
    return max(0, sum(deltas)) / elapsed_s if deltas else None


SPAN_S = 6.0
MOST_READINGS = 64
"""Within the span: a Spark may say of any number that they were taken in it."""
LEAST_BYTES_PER_S = 100e6
SHOWN = 5


class GrowthWatch:
    """Finds GPU processes whose memory grew over the last seconds."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, dict[int, tuple[str, int]]]] = deque(maxlen=MOST_READINGS)

    def saw(self, at_s: float, reading: GpuReading) -> None:
        """Add a reading; one that isn't later than the last is ignored."""
        if self._readings and at_s <= self._readings[-1][0]:
            return
        bytes_by_pid: dict[int, tuple[str, int]] = {}
        for gpu in reading.gpus:
            for row in gpu.processes or ():
                if row.used_bytes is not None and row.used_bytes > bytes_by_pid.get(row.pid, ("", -1))[1]:
                    bytes_by_pid[row.pid] = (row.name.rsplit("/", 1)[-1], row.used_bytes)
        self._readings.append((at_s, bytes_by_pid))
        while self._readings[0][0] < at_s - SPAN_S:
            self._readings.popleft()

    def growing(self, engines: Sequence[Engine]) -> tuple[Growth, ...]:
        """The growing processes, fastest first; a new process has grown from nothing."""
        if len(self._readings) < 2:
            return ()
        (then_s, earlier), (now_s, latest) = self._readings[0], self._readings[-1]
        names = {pid: engine.name for engine in engines for pid in engine.pids}
        grown = [
            Growth(
                label=names.get(pid, name),
                pid=pid,
                held_bytes=held_bytes,
                bytes_per_s=(held_bytes - earlier.get(pid, ("", 0))[1]) / (now_s - then_s),
            )
            for pid, (name, held_bytes) in latest.items()
        ]
        fast = [growth for growth in grown if growth.bytes_per_s >= LEAST_BYTES_PER_S]
        return tuple(sorted(fast, key=lambda row: -row.bytes_per_s)[:SHOWN])


AWAY_S = 30.0
"""A shorter silence is told by the link's history alone."""
NOTICED_S = 60.0
"""Samples that were missed no sooner: the operator's machine slept, or sparktop was stopped."""


class AbsenceWatch:
    """Finds when a node was away while this console watched."""

    def __init__(self) -> None:
        self.newest: Absence | None = None
        self._last: tuple[Sample, float] | None = None
        self._missed_s: float | None = None
        self._reaches: list[Reach] = []

    def missed(self, reach: Reach, now_s: float) -> None:
        """Take that samples are missing, and what a test of the host showed; on the operator's monotonic clock."""
        if self._missed_s is None:
            self._missed_s = now_s
        if reach is not Reach.UNTESTED and reach not in self._reaches:
            self._reaches.append(reach)

    def saw(self, sample: Sample, arrived_s: float) -> None:
        """Take the next sample of the same boot."""
        if self._last is not None and self._missed_s is not None:
            before, seen_s = self._last
            absence = Absence(before=before, after=sample, reaches=tuple(self._reaches))
            has_watched = self._missed_s - seen_s < NOTICED_S and arrived_s - seen_s > absence.away_s / 2
            if absence.away_s >= AWAY_S and has_watched:
                self.newest = absence
        self._last, self._missed_s, self._reaches = (sample, arrived_s), None, []
