"""When the guard acts; pure. The simulated Spark's guard decides by it too."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Message = dict[str, Any]

LOOK_S = 0.25
"""Between two readings of memory."""
CLOSE_LOOK_S = 0.1
"""The same while memory falls fast or less than twice the floor is available."""
WINDOW_S = 2.0
"""Readings of so long are what a fall is computed from."""
RECENT_S = 0.6
"""The last part of them must fall too."""
FALL_KB_PER_S = 512 * 1024.0
"""A slower fall predicts nothing: the floor catches it."""
STAY_AT_MOST_S = 24 * 3600.0
_GIB_KB = 1024**2


def decide(readings: Sequence[tuple[float, int]], floor_kb: int, within_s: float | None) -> str:
    """Why to act now, "floor" or "empty"; "" for not now.

    Args:
        readings: (seconds, MemAvailable in kB), oldest first, at least one.
        floor_kb: act at once when less than this is available.
        within_s: act too when memory will be empty within so many seconds at its present fall; None: never.
    """
    left = readings[-1][1]
    if left < floor_kb:
        return "floor"
    if within_s is not None and left < within_s * falling(readings):
        return "empty"
    return ""


def falling(readings: Sequence[tuple[float, int]]) -> float:
    """How fast memory surely falls, in kB/s; 0 below FALL_KB_PER_S, and with too few readings.

    The least of three slopes: from the window's first reading to its last, the median over all pairs in it, and the
    median over pairs in its last part. So a step that is over, noise, and memory that comes back don't count as a fall.
    """
    now = readings[-1][0]
    window = [reading for reading in readings if reading[0] >= now - WINDOW_S]
    if len(window) < 3:
        window = list(readings[-3:])
    recent = [reading for reading in window if reading[0] >= now - RECENT_S]
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
    """Seconds until memory is to be read again."""
    left = readings[-1][1]
    fell = readings[-2][1] - left if len(readings) > 1 else 0
    passed = readings[-1][0] - readings[-2][0] if len(readings) > 1 else 1.0
    return CLOSE_LOOK_S if left < 2 * floor_kb or fell > FALL_KB_PER_S / 2 * passed else LOOK_S


def reason(why: str, readings: Sequence[tuple[float, int]], floor_kb: int) -> str:
    """The threshold that was crossed, as a sentence."""
    left = readings[-1][1]
    if why == "floor":
        return f"{left / _GIB_KB:.1f} GiB was available, less than {floor_kb / _GIB_KB:.1f}"
    rate = falling(readings)
    return (
        f"memory fell {rate / _GIB_KB:.1f} GiB/s with {left / _GIB_KB:.1f} GiB available: empty in {left / rate:.1f} s"
    )


def parse_order(words: Message) -> Message:
    """The console's order, checked: id, name, floor (bytes), within (s), stay (s), token, again.

    An empty id disarms.

    Raises:
        ValueError, TypeError, OverflowError: a value is of the wrong type or out of range.
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
    kind, *numbers = order["id"].split(":")
    is_process = kind == "pid" and len(numbers) == 2 and all(each.isdecimal() and len(each) < 20 for each in numbers)
    if order["id"] and not is_process and (len(order["id"]) != 64 or set(order["id"]) - set("0123456789abcdef")):
        raise ValueError("neither a container id nor pid:PID:START")
    if order["id"] and (order["floor"] <= 0 or not (within is None or 0 < order["within"] <= 600)):
        raise ValueError("not a threshold")
    return order
