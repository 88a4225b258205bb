"""Guards: the standing orders to the probes, and the audit of what guards did.

`StandingOrders` sits between the executor and the probes (`RunContext.tell`): it keeps every order it passes on, and
repeats it to a new probe until the guard has acted, is off, or another console has taken it over. `GuardAuditLog`
writes down what guards did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from sparktop.dataclass import dataclass
from sparktop.masking import mask_text
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.operate.audit_file import Audit, AuditError, entries
from sparktop.operate.step.run_context import Tell
from sparktop.text.units import GIB

NOTES_AT_MOST = 200
"""Of one node in one session: its guard may say of itself what it likes, five times a second."""
AGAIN_S = 3.0
"""Seconds between two sendings of one order."""


@dataclass(slots=True)
class _StandingOrder:
    """An order in force on one node."""

    words: Mapping[str, Any]
    told_s: float
    before: GuardState | None
    """The guard's state before the order: no answer to it."""


class StandingOrders:
    """The guard orders of one session, repeated to every new probe."""

    def __init__(self, tell: Tell, *, monotonic: Callable[[], float]) -> None:
        self._tell = tell
        self._monotonic = monotonic
        self._orders: dict[str, _StandingOrder] = {}
        self._picture = FleetState()

    @property
    def wanted(self) -> tuple[str, ...]:
        """The nodes with an order in force."""
        return tuple(self._orders)

    def tell(self, node: str, words: Mapping[str, object]) -> bool:
        """Pass words on to a node's probe; keep a guard order until it is fulfilled or void."""
        order = words.get("guard")
        if isinstance(order, Mapping):
            view = self._picture.node(node)
            if order.get("id"):
                before = view.guard if view is not None else None
                self._orders[node] = _StandingOrder(words=order, told_s=self._monotonic(), before=before)
            else:
                self._orders.pop(node, None)
        return self._tell(node, words)

    def saw(self, picture: FleetState) -> None:
        """Take in a picture, and repeat the orders that a new probe needs."""
        self._picture = picture
        for view in picture.nodes:
            if view.name in self._orders:
                self._renew(view, self._orders[view.name])

    def _renew(self, view: NodeView, order: _StandingOrder) -> None:
        state = view.guard
        if state is not None and state is not order.before:
            order.before = None
            if state.phase is GuardPhase.DISARMED or state.has_acted:
                del self._orders[view.name]
                return
            if state.phase is GuardPhase.FAILED or state.until_wall_s is None:
                return  # armed, or the probe is working on it
        now_s = self._monotonic()
        if view.link.state is LinkState.LIVE and now_s - order.told_s >= AGAIN_S:
            order.told_s = now_s
            # With its token: a probe that has the order already only reports its state. "again": it was armed while
            # memory was sufficient, so a new probe arms it however low memory is now.
            self._tell(view.name, {"guard": {**order.words, "again": True}})


LOOK_BACK_BYTES = 1 << 20


class GuardAuditLog:
    """Audits each change of the nodes' guards."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._last_states: dict[str, GuardState | None] = {}
        self._notes: Counter[str] = Counter()
        """By node."""

    def see(self, picture: FleetState) -> None:
        """Audit what is new since the last picture; cheap where nothing is."""
        for view in picture.nodes:
            old = self._last_states.get(view.name)
            if view.guard is old or view.guard == old:
                continue
            self._last_states[view.name] = view.guard
            if view.guard is not None:
                self._audit_state(view.name, view.guard)
            elif old is not None and old.phase is GuardPhase.ARMED:
                self._audit_gone(view.name, old)

    def _audit_state(self, node: str, guard: GuardState) -> None:
        entry: dict[str, Any] = {
            "node": node,
            "phase": str(guard.phase),
            "container_id": guard.container_id,
            "container": guard.container_name,
            "floor_gib": round(guard.floor_bytes / GIB, 2),
            "since_wall_s": guard.since_wall_s,
        }
        if guard.empty_within_s is not None:
            entry["empty_within_s"] = guard.empty_within_s
        if guard.stay_s:
            entry["stay_s"] = guard.stay_s
        if guard.available_bytes is not None:
            entry["available_gib"] = round(guard.available_bytes / GIB, 2)
        if guard.answered_s is not None:
            entry["answered_s"] = guard.answered_s
        if guard.detail:
            entry["detail"] = mask_text(guard.detail)
        self._note(entry)

    def _audit_gone(self, node: str, old: GuardState) -> None:
        self._note(
            {
                "node": node,
                "phase": str(GuardPhase.DISARMED),
                "container_id": old.container_id,
                "container": old.container_name,
                "detail": "the probe has none any more",
            }
        )

    def _note(self, entry: dict[str, Any]) -> None:
        self._notes[entry["node"]] += 1
        if self._notes[entry["node"]] > NOTES_AT_MOST:
            return
        if self._notes[entry["node"]] == NOTES_AT_MOST:
            entry = {**entry, "detail": "its guard changes all the time: this session writes no more entries about it"}
        try:
            if not self._is_known(entry):
                self._audit.note("guard", entry)
        except AuditError:
            pass  # the guard stays armed; the run that armed it reports that the audit can't be written

    def _is_known(self, entry: dict[str, Any]) -> bool:
        """Whether an earlier session wrote the same: every new console hears of a guard that fired."""
        if entry.get("since_wall_s") is None:
            return False
        identity = ("node", "phase", "container_id", "since_wall_s", "answered_s")
        audit_entries, _ = entries(self._audit.path, limit_bytes=LOOK_BACK_BYTES)
        return any(
            other["kind"] == "guard" and all(other.get(key) == entry.get(key) for key in identity)
            for other in audit_entries
        )
