"""Whether memory is about to be gone while something is to be stopped: then every second counts. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.diagnose.live.starvation import fall_of, is_dangerous
from sparktop.model.fleet import FleetState
from sparktop.model.plan import Request
from sparktop.operate.containersteps import grace_option
from sparktop.operate.part import Part

URGENT_GRACE_S = 2.0
_URGENT = ("memory.falling", "memory.first-request-spike")


def is_urgent(request: Request, found: Sequence[Part]) -> bool:
    """Whether the finding says so, or the figures do."""
    if request.finding is not None and request.finding.rule in _URGENT:
        return True
    seen = FleetState(nodes=tuple(part.view for part in found))
    falls = ((part, fall_of(part.view)) for part in found)
    return any(fall is not None and is_dangerous(part.view, fall, seen) for part, fall in falls)


def grace_of(request: Request, found: Sequence[Part]) -> float:
    """Seconds between SIGTERM and SIGKILL: as the operator set it, else by whether there is time.

    Raises:
        ValueError: what is set is no such number; says so.
    """
    text = request.options.get("grace_s", "")
    return URGENT_GRACE_S if not text and is_urgent(request, found) else grace_option(text)
