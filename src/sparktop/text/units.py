"""Numbers with units as short text: sizes, rates, durations, percentages. Pure; None becomes "n/a"."""

from __future__ import annotations

import time
from collections.abc import Mapping

from sparktop.model.telemetry import GapReason

GIB = 1024**3


NA = "n/a"


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def bare_gib(value_bytes: float) -> str:
    """Bytes as a bare number of GiB with one decimal: "45.4"."""
    return f"{value_bytes / GIB:.1f}"


def size(value_bytes: float | None) -> str:
    """Bytes in a suitable unit: "45.4 GiB", "512 B", "n/a"."""
    if value_bytes is None:
        return NA
    value = float(value_bytes)
    for unit in _UNITS:
        if abs(value) < 1000 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or abs(value) >= 100 else f"{value:.1f} {unit}"


def rate(bytes_per_s: float | None) -> str:
    """Bytes per second in decimal GB/s or MB/s, as memory bandwidth is quoted: "6.1 GB/s"."""
    if bytes_per_s is None:
        return NA
    if abs(bytes_per_s) >= 1e9:
        value = bytes_per_s / 1e9
        return f"{value:.0f} GB/s" if abs(value) >= 100 else f"{value:.1f} GB/s"
    return f"{bytes_per_s / 1e6:.0f} MB/s"


def memory_rate(bytes_per_s: float) -> str:
    """How fast memory is taken or given back, in the units that memory is told in: "6.1 GiB/s", "45.4 MiB/s"."""
    return f"{size(bytes_per_s)}/s"


def countdown(seconds: float) -> str:
    """A running time: "0:07", "2:04", "1:02:03"."""
    whole = max(0, int(seconds))
    minutes, seconds_left = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds_left:02}" if hours else f"{minutes}:{seconds_left:02}"


def duration(seconds: float | None) -> str:
    """A duration in its two largest units: "42 s", "7 min", "2 h 04", "12 d 4 h"."""
    if seconds is None:
        return NA
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes:02}"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def age(seconds: float | None) -> str:
    """How old a sample is: "0.4 s", "12 s", "4 min"."""
    if seconds is None:
        return NA
    return f"{max(0.0, seconds):.1f} s" if seconds < 9.95 else duration(seconds)


def latency(seconds: float | None) -> str:
    """A latency: "38 ms", "1.2 s", "14 s"."""
    if seconds is None:
        return NA
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def percent(value: float | None) -> str:
    """A percentage from 0 to 100: "96 %"; small ones keep a decimal: "0.1 %"."""
    if value is None:
        return NA
    return f"{value:.1f} %" if 0 < abs(value) < 0.95 else f"{value:.0f} %"


def ratio(value: float | None) -> str:
    """A ratio from 0 to 1 as a percentage."""
    return percent(None if value is None else value * 100)


def watts(power_w: float | None) -> str:
    """Watts: "38 W", below 10 W with a decimal: "4.4 W"."""
    if power_w is None:
        return NA
    return f"{power_w:.1f} W" if power_w < 9.95 else f"{power_w:.0f} W"


def count(value: float | None) -> str:
    """A count of requests: "3", "n/a"."""
    return NA if value is None else f"{value:.0f}"


def speed(tokens_per_s: float | None) -> str:
    """Tokens per second: "32.7"."""
    if tokens_per_s is None:
        return NA
    return f"{tokens_per_s:.1f}" if tokens_per_s < 999.95 else f"{tokens_per_s:.0f}"


OTHER_DAY_S = 20 * 3600.0
"""A time of day this far from now would be taken for today's."""


def clock_time(wall_s: float | None, now_wall_s: float | None = None) -> str:
    """The operator's local time of day: "03:12:44"; blank where it isn't known.

    Args:
        now_wall_s: where given, a time of another day is its day instead: "Nov 25  ".
    """
    if wall_s is None:
        return " " * 8
    if now_wall_s and abs(now_wall_s - wall_s) > OTHER_DAY_S:
        return f"{_local(wall_s, '%b %d'):<8}"
    return _local(wall_s, "%H:%M:%S")


def day_time(wall_s: float) -> str:
    """The operator's local day and time: "Nov 25 19:20"."""
    return _local(wall_s, "%b %d %H:%M")


def _local(wall_s: float, form: str) -> str:
    try:
        return time.strftime(form, time.localtime(wall_s))
    except (OverflowError, ValueError, OSError):  # a node's clock can have any value
        return "--:--:--" if form == "%H:%M:%S" else "--:--"


def missing(field: str, gaps: Mapping[str, GapReason]) -> str:
    """The text for a missing value with its reason: "n/a (not supported)"."""
    reason = gaps.get(field)
    return f"{NA} ({reason})" if reason is not None else NA


def gib(size: float) -> str:
    """Bytes as GiB for a sentence: "45.4 GiB"."""
    return f"{bare_gib(size)} GiB"


def gb(size: float) -> str:
    """A size on disk, as registries and hubs count it: "34.6 GB"."""
    return f"{size / 10**9:.1f} GB" if size >= 10**8 else f"{size / 10**6:.0f} MB"


def requests(count: float) -> str:
    """So many requests, in words: "1 request"."""
    return f"{count:.0f} request{'s' * (round(count) != 1)}"


def span(seconds: float) -> str:
    """A duration for a sentence: "41 s", "6 min", "26 h", "4 days"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 2 * 86_400 else f"{seconds / 86_400:.0f} days"
