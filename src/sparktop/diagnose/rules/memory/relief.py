"""What relieves a node that is short of memory at once, as figures of a card: the end of its engine, and the guard."""

from __future__ import annotations

from sparktop.engines.ranks import is_alive
from sparktop.model.fleet import NodeView
from sparktop.model.guard import GuardPhase


def engine_to_stop(node: NodeView) -> dict[str, object]:
    """The node's first engine, and whether it has a container; nothing where none runs."""
    engine = next(filter(is_alive, node.engines), None)
    return {"engine": engine.name, "container": engine.container is not None} if engine else {}


def is_unguarded(node: NodeView) -> bool:
    """Whether no guard is armed there."""
    return node.guard is None or node.guard.phase is not GuardPhase.ARMED
