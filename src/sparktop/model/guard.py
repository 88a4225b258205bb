"""The guard of one node: the probe's own promise to end one container before memory is gone."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class GuardPhase(StrEnum):
    ARMED = "armed"
    FIRED = "fired"
    """The container was ended; it does so once."""
    FAILED = "failed"
    """It should have ended it and couldn't, or can't be armed; `detail` says why."""
    DISARMED = "disarmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardState:
    """What the probe last said of its guard."""

    phase: GuardPhase
    container_id: str = ""
    container_name: str = ""
    floor_bytes: int = 0
    empty_within_s: float | None = None
    stay_s: float = 0.0
    since_wall_s: float | None = None
    """Node time of this phase."""
    available_bytes: int | None = None
    """When it fired."""
    detail: str = ""
    """Which threshold was met, or why it failed."""
