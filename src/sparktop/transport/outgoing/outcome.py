"""How sending one message ended."""

from __future__ import annotations

from sparktop.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Delivered where `problem` is empty."""

    problem: str = ""
    """What went wrong; no secret is in it."""
    answer: str = ""
    """What the receiver said: "200 OK"."""
    is_refused: bool = False
    """The receiver won't take this message, however often it is sent."""
    wait_s: float = 0.0
    """How long the receiver wants to be left alone."""
