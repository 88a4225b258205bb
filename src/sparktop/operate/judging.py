"""How a wait is judged: pure, from the newest picture and what has been seen since the wait began."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sparktop.model.fleet import NodeView


class Verdict(StrEnum):
    WAITING = "waiting"
    MET = "met"
    FAILED = "failed"
    """It will not come true any more, or has stalled for good: `detail` says what is in the way and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Where a wait is."""

    verdict: Verdict
    detail: str = ""
    """For the run's screen: "96.4 of 108 GiB available, there in 0:20"."""
    ratio: float | None = None
    late: str = ""
    """What is to be said too where the time is up while it is here: whether it is slow or stuck, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """What has been seen since a wait began, one entry for each new sample of the node."""

    began_monotonic_s: float
    began_wall_s: float
    """Operator's clock, as FleetState has it."""
    before: NodeView | None = None
    """The node as the run began, before its first step."""
    available: tuple[tuple[float, int], ...] = ()
    """(boot seconds, MemAvailable in bytes)."""
