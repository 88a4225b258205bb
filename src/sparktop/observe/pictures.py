"""One picture of the fleet after another, with the findings of the live rules and the notices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sparktop import faults
from sparktop.clock import Clock
from sparktop.diagnose.diagnosis import Diagnosis
from sparktop.diagnose.events import events_between
from sparktop.diagnose.notices import notices, with_likely_hints
from sparktop.diagnose.rule import LiveRule
from sparktop.model.event import Event
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState, Forward, Intervention, Notice
from sparktop.observe.contained import Contained
from sparktop.observe.node_state import NodeState

EVENTS_KEPT = 1000
URGENT_DELAY_S = 0.006
"""Delay after a sample: the GPU reading of the same tick comes some milliseconds later and joins the picture."""
COALESCE_S = 0.25
"""Delay after any other change, to combine changes: at most about five pictures a second per node."""
UNSEEN_S = 1.0
"""Delay after such a change where nobody looks at the pictures: it joins that of the next sample."""


def delay_s(*, urgent: bool, seen: bool = True) -> float:
    """How long after a change the picture is made that shows it; `seen`: by a person, at once."""
    if urgent:
        return URGENT_DELAY_S
    return COALESCE_S if seen else UNSEEN_S


class Pictures:
    """Makes the pictures of some nodes; a fault in one's data costs the others nothing."""

    def __init__(
        self,
        books: Sequence[NodeState],
        *,
        clock: Clock,
        contained: Contained,
        rules: Sequence[LiveRule],
        remarks: Callable[[], tuple[Notice, ...]] = tuple,
        interventions: Callable[[], tuple[Intervention, ...]] = tuple,
    ) -> None:
        """See Monitor for the rest."""
        self._books = tuple(books)
        self._clock = clock
        self._contained = contained
        self._remarks = remarks
        self._interventions = interventions
        self._findings: tuple[Finding, ...] = ()
        self._events: tuple[Event, ...] = ()
        self._before = FleetState()
        self._diagnosis = Diagnosis(rules, faulted=faults.report)

    def make(self, *, forwards: tuple[Forward, ...] = ()) -> FleetState:
        """The picture of this moment."""
        views = tuple(book.view() for book in self._books)
        own = self._contained
        nothing: tuple[Notice, ...] = ()
        unread: tuple[Intervention, ...] = ()
        none: tuple[Event, ...] = ()
        interventions = own.outcome("", "the audit", self._interventions, unread)
        nodes = with_likely_hints(views, interventions)
        observed = own.outcome("", "the notices", lambda: notices(nodes, interventions), nothing)
        picture = FleetState(
            nodes=nodes,
            wall_s=self._clock.wall(),
            monotonic_s=self._clock.monotonic(),
            notices=observed,
            findings=self._findings,
            interventions=interventions,
            forwards=forwards,
        )
        self._findings = own.outcome("", "the rules", lambda: self._diagnosis.update(picture), self._findings)
        picture = replace(picture, findings=self._findings)
        news = own.outcome("", "what happened", lambda: tuple(events_between(self._before, picture)), none)
        self._before = picture
        if news:
            self._events = (*self._events, *news)[-EVENTS_KEPT:]
        return replace(
            picture,
            events=self._events,
            news=news,
            rules_watching=self._diagnosis.watching,
            notices=(*observed, *self._remarks(), *own.notices()),
        )
