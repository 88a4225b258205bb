"""What the guards did, in the audit: an entry whenever a probe says something new of its guard.

A guard acts by itself, also while nobody watches; whoever sees it first writes it down, once on this machine.
"""

from __future__ import annotations

from typing import Any

from sparktop.model.fleet import FleetState
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.operate.audit import Audit, AuditError, entries
from sparktop.probe.remote import mask_text

_GIB = 1024**3
LOOK_BACK_BYTES = 1 << 20


class GuardLog:
    """Of one session."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._last: dict[str, GuardState | None] = {}

    def see(self, picture: FleetState) -> None:
        """Compare with what was seen last; cheap where nothing is new."""
        for view in picture.nodes:
            old = self._last.get(view.name)
            if view.guard is old or view.guard == old:
                continue
            self._last[view.name] = view.guard
            if view.guard is not None:
                self._keep(view.name, view.guard)
            elif old is not None and old.phase is GuardPhase.ARMED:
                self._keep_gone(view.name, old)

    def _keep(self, node: str, guard: GuardState) -> None:
        entry: dict[str, Any] = {
            "node": node,
            "phase": str(guard.phase),
            "container_id": guard.container_id,
            "container": guard.container_name,
            "floor_gib": round(guard.floor_bytes / _GIB, 2),
            "since_wall_s": guard.since_wall_s,
        }
        if guard.empty_within_s is not None:
            entry["empty_within_s"] = guard.empty_within_s
        if guard.stay_s:
            entry["stay_s"] = guard.stay_s
        if guard.available_bytes is not None:
            entry["available_gib"] = round(guard.available_bytes / _GIB, 2)
        if guard.answered_s is not None:
            entry["answered_s"] = guard.answered_s
        if guard.detail:
            entry["detail"] = mask_text(guard.detail)
        self._note(entry)

    def _keep_gone(self, node: str, old: GuardState) -> None:
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
        try:
            if not self._is_known(entry):
                self._audit.note("guard", entry)
        except AuditError:
            pass  # the guard is armed on the node; the run that armed it tells that the audit can't be written

    def _is_known(self, entry: dict[str, Any]) -> bool:
        """Whether an earlier session wrote the same: a guard that fired is told to every console that comes."""
        if entry.get("since_wall_s") is None:
            return False
        same = ("node", "phase", "container_id", "since_wall_s", "answered_s")
        found, _ = entries(self._audit.path, limit_bytes=LOOK_BACK_BYTES)
        return any(one["kind"] == "guard" and all(one.get(k) == entry.get(k) for k in same) for one in found)
