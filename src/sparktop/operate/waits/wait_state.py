"""The types by which a wait is judged: from the newest picture, and what has been seen since the wait began."""

from __future__ import annotations

from enum import StrEnum

from sparktop.dataclass import dataclass
from sparktop.model.fleet import NodeView


class WaitVerdict(StrEnum):
    """Whether a wait is over."""

    WAITING = "waiting"
    MET = "met"
    FAILED = "failed"
    """The condition will not be met any more, or has stalled for good: `detail` says what is in the way and what to
    do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitStatus:
    """The state of a wait."""

    verdict: WaitVerdict
    detail: str = ""
    """For the run's screen: "96.4 of 108 GiB available, there in 0:20"."""
    ratio: float | None = None
    late: str = ""
    """Added to the message when the wait times out in this state: whether it is slow or stuck, and what to do."""


def waiting(detail: str, ratio: float | None = None) -> WaitStatus:
    return WaitStatus(verdict=WaitVerdict.WAITING, detail=detail, ratio=ratio)


def met(detail: str, ratio: float | None = 1.0) -> WaitStatus:
    return WaitStatus(verdict=WaitVerdict.MET, detail=detail, ratio=ratio)


def failed(detail: str) -> WaitStatus:
    return WaitStatus(verdict=WaitVerdict.FAILED, detail=detail)


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
