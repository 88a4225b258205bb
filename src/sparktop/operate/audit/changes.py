"""What was changed on some nodes from this machine, by the audit. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sparktop import sanitise
from sparktop.model.bringup import Changed
from sparktop.operate.actions import action

_CHARS = 200


def changes_on(nodes: Collection[str], audit_entries: Sequence[Mapping[str, Any]]) -> tuple[Changed, ...]:
    """The ended runs that touched one of these nodes, oldest first, without those that only look or measure."""
    intents = {entry.get("run"): entry for entry in audit_entries if entry.get("kind") == "intent"}
    ends = [entry for entry in audit_entries if entry.get("kind") == "end" and entry.get("run") in intents]
    found = []
    for end in ends:
        intent = intents[end["run"]]
        listed = intent.get("nodes")
        touched = tuple(name for name in (listed if isinstance(listed, list) else ()) if name in nodes)
        chosen = action(str(intent.get("action", "")))
        if not touched or (chosen is not None and (chosen.only_looks or chosen.only_measures)):
            continue
        title, state = (sanitise.line(str(value), limit=_CHARS) for value in (intent.get("title"), end.get("state")))
        found.append(Changed(wall_s=float(end["wall_s"]), nodes=touched, title=title, result=state))
    return tuple(found)
