"""The one place that all received of a node passes: it is kept on the tape where there is one, and taken."""

from __future__ import annotations

from typing import Protocol

from sparktop.observe.engines.engine_book import EngineBook
from sparktop.observe.node_state import NodeState
from sparktop.observe.received import Received


class Tape(Protocol):
    """Keeps what was received."""

    def keep(self, received: Received, at_s: float) -> None:
        """Keep it; `at_s` on the monotonic clock. Never raises."""

    @property
    def problem(self) -> str:
        """Why nothing is kept now; empty where it is."""

    def close(self) -> None:
        """Nothing more comes."""


class Intake:
    """What one node's supervisor and followers hand over; implements `observe.received.Books`."""

    def __init__(self, state: NodeState, engines: EngineBook, tape: Tape | None = None) -> None:
        self.state = state
        self.engines = engines
        self.tape = tape

    def take(self, received: Received) -> bool:
        """Keep it and take it; what `Received.into` says."""
        if self.tape is not None:
            self.tape.keep(received, self.state.clock.monotonic())
        return received.into(self)
