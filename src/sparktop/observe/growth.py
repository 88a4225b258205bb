"""Which processes take GPU memory now: each one's figure against what it was some seconds ago.

On GB10 this memory is the machine's own, so what grows here is what starves the host.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from sparktop.model.engine import Engine
from sparktop.model.fleet import Growth
from sparktop.model.telemetry import GpuReading

SPAN_S = 6.0
LEAST_BYTES_PER_S = 100e6
SHOWN = 5


class GrowthWatch:
    """The GPU processes' memory over the last seconds."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, dict[int, tuple[str, int]]]] = deque()

    def saw(self, at_s: float, reading: GpuReading) -> None:
        """Take in a reading; `at_s` goes forward, another time is left out."""
        if self._readings and at_s <= self._readings[-1][0]:
            return
        held: dict[int, tuple[str, int]] = {}
        for gpu in reading.gpus:
            for row in gpu.processes or ():
                if row.used_bytes is not None and row.used_bytes > held.get(row.pid, ("", -1))[1]:
                    held[row.pid] = (row.name.rsplit("/", 1)[-1], row.used_bytes)
        self._readings.append((at_s, held))
        while self._readings[0][0] < at_s - SPAN_S:
            self._readings.popleft()

    def growing(self, engines: Sequence[Engine]) -> tuple[Growth, ...]:
        """Those that grew, fastest first; a process that is new has grown from nothing."""
        if len(self._readings) < 2:
            return ()
        (then_s, then), (now_s, now) = self._readings[0], self._readings[-1]
        names = {pid: engine.name for engine in engines for pid in engine.pids}
        grown = [
            Growth(
                label=names.get(pid, name),
                pid=pid,
                held_bytes=held,
                bytes_per_s=(held - then.get(pid, ("", 0))[1]) / (now_s - then_s),
            )
            for pid, (name, held) in now.items()
        ]
        fast = [one for one in grown if one.bytes_per_s >= LEAST_BYTES_PER_S]
        return tuple(sorted(fast, key=lambda one: -one.bytes_per_s)[:SHOWN])
