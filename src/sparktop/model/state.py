"""State: what a check, a gate before a launch or a row of the bring-up found."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """What was found."""

    PASSED = "passed"
    NOTE = "note"
    """Worth knowing; it harms nothing by itself. A gate or row shows it as passed."""
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"
    """It doesn't apply, or what it needs is missing; the reason says which."""
    UNREACHED = "not reached"
    """Its node didn't answer."""
    UNKNOWN = "unknown"
    """It could not look; the reason says why. A launch goes on, with a warning."""

    @property
    def is_problem(self) -> bool:
        return self in (State.WARNING, State.FAILED)

    @property
    def shown(self) -> State:
        """As a gate or a row shows it."""
        return State.PASSED if self is State.NOTE else self
