"""The probe: when the guard acts, pure; the simulated Spark asks here too (the rest: `remote_guard`)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Message = dict[str, Any]

LOOK_S = 0.25
CLOSE_LOOK_S = 0.1
"""While memory falls fast, or less than twice the floor is left."""
WINDOW_S = 2.0
RECENT_S = 0.6
FALL_KB_PER_S = 512 * 1024.0
"""Slower than this is no fall to predict from: the floor sees to that."""
STAY_AT_MOST_S = 24 * 3600.0
_GIB_KB = 1024**2


def decide(readings: Sequence[tuple[float, int]], floor_kb: int, within_s: float | None) -> str:
    """Whether to act: "floor", "empty", or "" for no.

    Args:
        readings: (seconds, MemAvailable in kB), oldest first, at least one.
        floor_kb: acted on at once when less than this is available.
        within_s: acted on too when memory would be empty within so many seconds at the rate at which it falls.
    """
    left = readings[-1][1]
    if left < floor_kb:
        return "floor"
    if within_s is not None and left < within_s * falling(readings):
        return "empty"
    return ""


def falling(readings: Sequence[tuple[float, int]]) -> float:
    """At how many kB a second memory falls, surely; 0 when that is less than FALL_KB_PER_S, or not known.

    The slope from the window's start to its end, the median of those between all its pairs, and that of its last part:
    a step that is over, noise, and what comes back again are no fall. The slowest is believed.
    """
    now = readings[-1][0]
    window = [one for one in readings if one[0] >= now - WINDOW_S]
    if len(window) < 3:
        window = list(readings[-3:])
    recent = [one for one in window if one[0] >= now - RECENT_S]
    if len(recent) < 3:
        recent = window[-3:]
    if len(window) < 3 or not WINDOW_S * 0.6 <= now - window[0][0] <= WINDOW_S * 5:
        return 0.0
    whole = (window[0][1] - window[-1][1]) / (now - window[0][0])
    rate = min(whole, _median_fall(window), _median_fall(recent))
    return rate if rate > FALL_KB_PER_S else 0.0


def _median_fall(readings: Sequence[tuple[float, int]]) -> float:
    slopes = sorted(
        (before - after) / (later - earlier)
        for index, (earlier, before) in enumerate(readings)
        for later, after in readings[index + 1 :]
        if later > earlier
    )
    return slopes[(len(slopes) - 1) // 2] if slopes else 0.0


def look_after_s(readings: Sequence[tuple[float, int]], floor_kb: int) -> float:
    """When to look again."""
    left = readings[-1][1]
    fell = readings[-2][1] - left if len(readings) > 1 else 0
    passed = readings[-1][0] - readings[-2][0] if len(readings) > 1 else 1.0
    return CLOSE_LOOK_S if left < 2 * floor_kb or fell > FALL_KB_PER_S / 2 * passed else LOOK_S


def reason(why: str, readings: Sequence[tuple[float, int]], floor_kb: int) -> str:
    """Which threshold was met, in words."""
    left = readings[-1][1]
    if why == "floor":
        return f"{left / _GIB_KB:.1f} GiB were available, less than {floor_kb / _GIB_KB:.1f}"
    rate = falling(readings)
    return (
        f"memory fell {rate / _GIB_KB:.1f} GiB/s with {left / _GIB_KB:.1f} GiB available: empty in {left / rate:.1f} s"
    )


def parse_order(words: Message) -> Message:
    """An order as it is kept: id, name, floor (bytes), within (s), stay (s), token, again.

    Raises:
        ValueError, TypeError, OverflowError: it makes no sense.
    """
    within = words.get("within")
    order: Message = {
        "id": str(words.get("id") or ""),
        "name": str(words.get("name") or "")[:256],
        "floor": int(words.get("floor") or 0),
        "within": None if within is None else float(within),
        "stay": min(STAY_AT_MOST_S, max(0.0, float(words.get("stay") or 0.0))),
        "token": str(words.get("token") or "")[:64],
        "again": bool(words.get("again")),
    }
    if order["id"] and (len(order["id"]) != 64 or set(order["id"]) - set("0123456789abcdef")):
        raise ValueError("that is no container's id")
    if order["id"] and (order["floor"] <= 0 or not (within is None or 0 < order["within"] <= 600)):
        raise ValueError("that is no threshold")
    return order
