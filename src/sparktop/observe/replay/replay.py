"""Recordings played again: the same state, rules and pictures, by the time of the tape.

One tape is one node's; those of several are played together, in the order of their times.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence

from sparktop.clock import Clock, ManualClock
from sparktop.diagnose.logs.rule import LogRule, shipped
from sparktop.diagnose.rule import LiveRule
from sparktop.model.fleet import FleetState, Intervention
from sparktop.observe.contained import Contained
from sparktop.observe.engines.engine_book import EngineBook
from sparktop.observe.intake import Intake
from sparktop.observe.log_ring import LineRing
from sparktop.observe.node_state import NodeState
from sparktop.observe.pictures import Pictures, delay_s
from sparktop.observe.received import Logged
from sparktop.observe.replay.recorder import unpacked
from sparktop.observe.watch import LogFeed
from sparktop.record.tape import Entry

NEVER_S = float("inf")


class Replay:
    """Some nodes as their tapes tell of them, up to a moment."""

    def __init__(
        self,
        tapes: Mapping[str, Iterator[Entry]],
        *,
        begin_s: float,
        rules: Sequence[LiveRule],
        log_rules: Callable[[], Sequence[LogRule]] = shipped,
    ) -> None:
        """`tapes`: by node, from `begin_s` on."""
        self._is_seen = True
        self._clock = ManualClock(wall=begin_s, monotonic=begin_s)
        contained = Contained(self._clock)
        self._intakes: dict[str, Intake] = {}
        for name in tapes:
            state = NodeState(name, clock=self._clock, changed=self._changed, contained=contained)
            self._intakes[name] = Intake(state, EngineBook(state, rules=log_rules))
        self._pictures = Pictures(
            [intake.state for intake in self._intakes.values()],
            clock=self._clock,
            contained=contained,
            rules=rules,
            interventions=self._interventions,
        )
        self._due_s = NEVER_S
        self._entries = heapq.merge(*(_named(name, tape) for name, tape in tapes.items()), key=lambda row: row[0])
        self._head = next(self._entries, None)
        self.state = self._pictures.make()

    @property
    def clock(self) -> Clock:
        """The tape's clock."""
        return self._clock

    def play(self, until_s: float = NEVER_S, *, seen: bool = True) -> Iterator[FleetState]:
        """The pictures up to a moment, when a console that watched made them; may be left, and called again.

        Args:
            seen: by a person; else few but those of samples, which takes a third of the time.
        """
        self._is_seen = seen
        while self._head is not None and self._head[0] <= until_s:
            if self._head[0] > self._due_s:
                yield self._picture()
                continue
            self._take(*self._head[1:])
            self._head = next(self._entries, None)
        if self._due_s <= until_s and self._due_s < NEVER_S:
            yield self._picture()
        if until_s < NEVER_S:
            self._advance(until_s)  # what is silent grows old

    @property
    def has_ended(self) -> bool:
        """Whether all has been played."""
        return self._head is None

    def log(self, node: str, engine_key: str) -> LogFeed | None:
        """The feed of an engine's log."""
        return self._intakes[node].engines.feed(engine_key) if node in self._intakes else None

    def kernel_lines(self, node: str) -> LineRing:
        """The node's kernel log."""
        return self._intakes[node].state.kernel_lines

    def _take(self, name: str, entry: Entry) -> None:
        self._advance(entry.at_s)
        received, intake = unpacked(entry), self._intakes[name]
        if received is None:
            return
        is_read = intake.take(received)
        while isinstance(received, Logged) and not is_read:
            is_read = intake.engines.logged(received.key, ())

    def _interventions(self) -> tuple[Intervention, ...]:
        return tuple(one for intake in self._intakes.values() for one in intake.state.interventions)

    def _picture(self) -> FleetState:
        self._advance(self._due_s)
        self._due_s = NEVER_S
        self.state = self._pictures.make()
        return self.state

    def _advance(self, at_s: float) -> None:
        self._clock.advance(max(0.0, at_s - self._clock.wall()))

    def _changed(self, urgent: bool) -> None:
        self._due_s = min(self._due_s, self._clock.wall() + delay_s(urgent=urgent, seen=self._is_seen))


def _named(name: str, tape: Iterator[Entry]) -> Iterator[tuple[float, str, Entry]]:
    return ((entry.at_s, name, entry) for entry in tape)
