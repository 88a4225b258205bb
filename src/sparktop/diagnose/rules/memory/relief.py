"""What relieves a node that is short of memory at once: the end of what holds it, and the guard."""

from __future__ import annotations

from sparktop.engines.ranks import is_alive
from sparktop.model.finding import Remedy
from sparktop.model.fleet import NodeView
from sparktop.model.guard import GuardPhase


def stop_engine(node: NodeView, *, cost: str) -> tuple[Remedy, ...]:
    """Stop the node's first engine; nothing where none runs."""
    engine = next(filter(is_alive, node.engines), None)
    if engine is None:
        return ()
    steps = (f"docker stop -t 2 {engine.name}",) if engine.container else ("kill it by its pid",)
    return (Remedy(title=f"Stop {engine.name} now", steps=steps, cost=cost, action="stop-engine"),)


def arm_guard(node: NodeView, title: str) -> tuple[Remedy, ...]:
    """Arm the guard; nothing where it is armed."""
    if node.guard is not None and node.guard.phase is GuardPhase.ARMED:
        return ()
    steps = ("the guard stops the engine before memory runs out",)
    return (Remedy(title=title, steps=steps, cost="nothing while memory is fine", action="guard"),)
