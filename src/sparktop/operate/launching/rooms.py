"""Each node's memory as a launch finds it, for the budget: what goes, what stays, what the boot left. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparktop.diagnose.live.ranks import is_alive
from sparktop.diagnose.live.window import GIB
from sparktop.model.fleet import FleetState, NodeView
from sparktop.operate.launching.makeroom import Going
from sparktop.operate.target import held_bytes
from sparktop.recipe.room import Room

LEAST_BYTES = GIB // 2
"""Less is no co-tenant that anything would be decided by."""


def rooms(nodes: Sequence[str], picture: FleetState, found: Sequence[Going]) -> tuple[Room, ...]:
    """One for each node, in their order; a node without figures has a room of no size."""
    return tuple(_room(node, picture.node(node), found) for node in nodes)


def _room(node: str, view: NodeView | None, found: Sequence[Going]) -> Room:
    if view is None or view.sample is None:
        return Room(node=node, total_bytes=0, available_bytes=0)
    memory = view.sample.memory
    going = tuple((one.name, one.held_on(node)) for one in found if any(part.node == node for part in one.parts))
    gone = {part.engine.key for one in found for part in one.parts if part.node == node}
    names = {part.engine.name for one in found for part in one.parts if part.node == node}
    stays = tuple(_stays(view, gone, names))
    living = {engine.name for engine in view.engines if is_alive(engine)}
    return Room(
        node=node,
        total_bytes=memory.total_bytes,
        available_bytes=memory.available_bytes,
        going=going,
        stays=stays,
        stoppable=tuple(name for name, _ in stays if name in living),
        has_desktop=view.facts.is_graphical if view.facts is not None else None,
        baseline_bytes=view.baseline.after_boot_available_bytes if view.baseline is not None else None,
    )


def _stays(view: NodeView, gone: set[str], names: set[str]) -> Iterator[tuple[str, int]]:
    """Engines by what they hold, then further GPU processes."""
    for engine in view.engines:
        held = held_bytes(engine, view) or 0
        if is_alive(engine) and engine.key not in gone and held >= LEAST_BYTES:
            yield engine.name, held
    for holder in view.ledger.holders if view.ledger is not None else ():
        if holder.kind == "gpu" and holder.label not in names and holder.held_bytes >= LEAST_BYTES:
            yield holder.label, holder.held_bytes
