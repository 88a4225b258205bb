"""One engine's log across connections: its lines, where they come from, and what it has said of the engine so far."""

from __future__ import annotations

import time

from sparktop.diagnose.enginelog import EngineLogState, advance_all
from sparktop.model.engine import EngineKind
from sparktop.model.telemetry import LogLine
from sparktop.observe.lines import LineRing

CAPACITY = 50_000


class Feed:
    """The lines of one engine's log; implements `observe.watch.LogFeed`."""

    def __init__(self, title: str, kind: EngineKind) -> None:
        self.title = title
        self.status = "not followed yet"
        self.ring = LineRing(CAPACITY)
        self.said = EngineLogState()
        self._kind = kind

    def accept(self, lines: tuple[LogLine, ...]) -> None:
        """Append lines and read them."""
        self.ring.extend(lines)
        self.said = advance_all(self.said, lines, self._kind)

    def forget(self) -> None:
        """What the log said was of a run that is over; the lines stay."""
        self.said = EngineLogState()

    def note(self, text: str, wall_s: float) -> None:
        """Put a line of our own between the engine's: what happened to the following, and when."""
        stamp = time.strftime("%H:%M:%S", time.localtime(wall_s))
        self.ring.extend([LogLine(text=f"── {stamp} {text} ──")])
