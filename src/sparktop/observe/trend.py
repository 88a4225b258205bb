"""Which way things go between readings: available memory by a line through the last seconds, traffic by two counts."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.model.fleet import Trend
from sparktop.model.telemetry import NetworkReading, Sample

WINDOW_S = 5.0
"""Short on purpose: available memory has fallen 47 GB in 6 s (field report 001)."""
NOISE_BYTES_PER_S = 60e6
"""Below this an idle desktop wanders by itself; no time to empty is given."""


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
    # A fall that has only begun is steeper in its last step than over the window: believe the worse of the two.
    (before_t, before_v), (last_t, last_v) = points[-2], points[-1]
    step = (last_v - before_v) / (last_t - before_t)
    if step < slope < 0:
        slope = (slope + step) / 2
    to_empty = last_v / -slope if slope < -NOISE_BYTES_PER_S else None
    return Trend(bytes_per_s=slope, time_to_empty_s=to_empty)


PAGE_BYTES = 4096


def swap_rate(before: Sample, now: Sample) -> float | None:
    """Bytes per second in and out of swap together; None where the kernel doesn't count them."""
    elapsed_s = now.boot_s - before.boot_s
    if elapsed_s <= 0 or now.swap_in_pages is None or now.swap_out_pages is None:
        return None
    if before.swap_in_pages is None or before.swap_out_pages is None:
        return None
    pages = (now.swap_in_pages - before.swap_in_pages) + (now.swap_out_pages - before.swap_out_pages)
    return max(0, pages) * PAGE_BYTES / elapsed_s


def rdma_rate(before: NetworkReading, now: NetworkReading) -> float | None:
    """Bytes per second both ways over the RDMA ports that both readings counted; None where none was."""
    elapsed_s = now.boot_s - before.boot_s
    if elapsed_s <= 0:
        return None
    old = {(port.device, port.port): port for port in before.rdma_ports}
    moved = [
        (port.received_bytes - was.received_bytes) + (port.sent_bytes - was.sent_bytes)
        for port in now.rdma_ports
        if (was := old.get((port.device, port.port))) is not None
        and port.received_bytes is not None
        and port.sent_bytes is not None
        and was.received_bytes is not None
        and was.sent_bytes is not None
    ]
    return max(0, sum(moved)) / elapsed_s if moved else None
