"""The memory guard of one node: the probe kills one engine before memory runs out."""

from __future__ import annotations

from enum import StrEnum

from sparktop.dataclass import dataclass


class GuardPhase(StrEnum):
    ARMED = "armed"
    FIRED = "fired"
    """The engine was killed; a guard fires once."""
    FAILED = "failed"
    """It couldn't kill it, or can't be armed; `detail` says why."""
    DISARMED = "disarmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardState:
    """The guard's state as last reported by the probe."""

    phase: GuardPhase
    container_id: str = ""
    """Of an engine that runs in no container "pid:PID:START"."""
    container_name: str = ""
    floor_bytes: int = 0
    empty_within_s: float | None = None
    stay_s: float = 0.0
    since_wall_s: float | None = None
    """When this phase began, node time."""
    available_bytes: int | None = None
    """When it fired."""
    answered_s: float | None = None
    """How long after it fired the container or the processes had ended; None until then."""
    until_wall_s: float | None = None
    """Of a guard that stayed after its console had gone: until when, node time. A new order takes its place."""
    detail: str = ""
    """Which threshold was met, or why it failed."""

    @property
    def has_acted(self) -> bool:
        """Whether memory fell so far that it had to act, whatever came of it."""
        return self.phase in (GuardPhase.FIRED, GuardPhase.FAILED) and self.available_bytes is not None


def pid_of(target: str) -> int | None:
    """The process that a guard is over; None of a container."""
    return int(target.split(":")[1]) if target.startswith("pid:") else None
