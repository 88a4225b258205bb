"""One engine's log across connections: its lines, where they come from, and what it has said of the engine so far."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sparktop.diagnose.enginelog import EngineLogState, advance_all
from sparktop.diagnose.logs.reader import Lexicon, LogReader
from sparktop.diagnose.logs.rules import LogRule
from sparktop.model.engine import EngineKind, LogFacts
from sparktop.model.telemetry import LogLine
from sparktop.observe.lines import LineRing
from sparktop.probe.remote import mask_text

CAPACITY = 50_000


class Feed:
    """The lines of one engine's log; implements `observe.watch.LogFeed`."""

    def __init__(self, title: str, kind: EngineKind, rules: Sequence[LogRule] | Lexicon = ()) -> None:
        """`rules` are what the lines are read for."""
        self.title = title
        self.status = "not followed yet"
        self.ring = LineRing(CAPACITY)
        self.said = EngineLogState()
        self._kind = kind
        self._reader = LogReader(rules, kind, mask=mask_text)
        self._last_line_wall_s: float | None = None

    def accept(self, lines: tuple[LogLine, ...], arrived_wall_s: float | None = None) -> None:
        """Append lines and read them.

        Args:
            arrived_wall_s: node time now, for lines that carry none.
        """
        number = self.ring.end
        self.ring.extend(lines)
        self.said = advance_all(self.said, lines, self._kind)
        for line in lines:
            number += 0 if line.replaces_last and number else 1
            self._reader.feed(line.text, line=number, wall_s=line.wall_s)
        if lines:
            self._last_line_wall_s = lines[-1].wall_s or arrived_wall_s or self._last_line_wall_s

    def facts(self) -> LogFacts:
        """What the log has said of the present run, for the rules."""
        said = self.said
        return LogFacts(
            phase=said.phase,
            progress=said.progress,
            moved_wall_s=said.moved_wall_s,
            last_line_wall_s=self._last_line_wall_s,
            failure=said.failure,
            is_stopping=said.stopping,
            findings=self._reader.findings(self.title),
        )

    def forget(self) -> None:
        """What the log said was of a run that is over; the lines stay."""
        self.said = EngineLogState()
        self._reader.reset()

    def note(self, text: str, wall_s: float) -> None:
        """Put a line of our own between the engine's: what happened to the following, and when."""
        stamp = time.strftime("%H:%M:%S", time.localtime(wall_s))
        self.ring.extend([LogLine(text=f"── {stamp} {text} ──")])
