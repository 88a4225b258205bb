"""Clocks, injected: rules and widgets take the time from a Clock, so that replay and tests can set it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def wall(self) -> float:
        """Seconds since the epoch, for people."""

    def monotonic(self) -> float:
        """Seconds that only go forward, for ages and deadlines."""


class SystemClock:
    """The machine's own clocks."""

    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that stands still until it is advanced."""

    def __init__(self, wall: float = 1_780_000_000.0, monotonic: float = 1000.0) -> None:
        self._wall = wall
        self._monotonic = monotonic

    def wall(self) -> float:
        return self._wall

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Move both clocks forward."""
        self._wall += seconds
        self._monotonic += seconds
