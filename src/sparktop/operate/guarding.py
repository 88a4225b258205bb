"""Keeps guards armed that were ordered: a probe that was replaced knows nothing of its predecessor's guard.

It stands between the executor and the probes (`Means.tell`): what it passes on it remembers, and fed with each picture
it says it again to a new probe, until the guard has acted, is off, or another console has taken it over. What guards
did is `guardlog`'s to write down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.operate.means import Tell

AGAIN_S = 3.0
"""Between two tellings of one order."""


@dataclass(slots=True)
class _Wanted:
    """One node's order that stands."""

    words: Mapping[str, Any]
    told_s: float
    before: GuardState | None
    """What the probe said last before the order: no answer to it."""


class Guarding:
    """The orders of one session."""

    def __init__(self, tell: Tell, *, monotonic: Callable[[], float]) -> None:
        self._tell = tell
        self._monotonic = monotonic
        self._wanted: dict[str, _Wanted] = {}
        self._picture = FleetState()

    @property
    def wanted(self) -> tuple[str, ...]:
        """The nodes on which a guard is to be armed."""
        return tuple(self._wanted)

    def tell(self, node: str, words: Mapping[str, object]) -> bool:
        """Words for a node's probe, passed on; an order for its guard is kept until it has come true or is void."""
        order = words.get("guard")
        if isinstance(order, Mapping):
            view = self._picture.node(node)
            if order.get("id"):
                before = view.guard if view is not None else None
                self._wanted[node] = _Wanted(words=order, told_s=self._monotonic(), before=before)
            else:
                self._wanted.pop(node, None)
        return self._tell(node, words)

    def saw(self, picture: FleetState) -> None:
        """Take in a picture, and say again what a new probe has to know."""
        self._picture = picture
        for view in picture.nodes:
            if view.name in self._wanted:
                self._see_to(view, self._wanted[view.name])

    def _see_to(self, view: NodeView, wanted: _Wanted) -> None:
        state = view.guard
        if state is not None and state is not wanted.before:
            wanted.before = None
            if state.phase is GuardPhase.DISARMED or state.has_acted:
                del self._wanted[view.name]
                return
            if state.phase is GuardPhase.FAILED or state.until_wall_s is None:
                return  # armed, or the probe is at it
        now_s = self._monotonic()
        if view.link.state is LinkState.LIVE and now_s - wanted.told_s >= AGAIN_S:
            wanted.told_s = now_s
            # With its token, so that a probe that has it already only says how it stands; it was armed when memory
            # was well, so a new probe arms it however low memory is by now.
            self._tell(view.name, {"guard": {**wanted.words, "again": True}})
