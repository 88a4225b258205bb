"""The figures of a node before and after a run, for the run's end and the audit. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sparktop.model.fleet import FleetState, LinkState, NodeView

_GIB = 1024**3


def figures(picture: FleetState, nodes: Iterable[str]) -> dict[str, Mapping[str, float | str]]:
    """By node: "available_gib", "free_gib", "cache_gib", "swap_used_gib", and "engine NAME" with its state; the link
    where it isn't live, because the figures are then past."""
    return {name: _of(view) for name in nodes if (view := picture.node(name)) is not None}


def _of(view: NodeView) -> Mapping[str, float | str]:
    told: dict[str, float | str] = {}
    if view.link.state is not LinkState.LIVE:
        told["link"] = str(view.link.state)
    if view.sample is not None:
        memory = view.sample.memory
        told["available_gib"] = round(memory.available_bytes / _GIB, 2)
        told["free_gib"] = round(memory.free_bytes / _GIB, 2)
        told["cache_gib"] = round(memory.page_cache_bytes / _GIB, 2)
        told["swap_used_gib"] = round(memory.swap_used_bytes / _GIB, 2)
    for engine in view.engines:
        told[f"engine {engine.name}"] = str(engine.state)
    return told


def is_newer(picture: FleetState, nodes: Iterable[str], than_s: float) -> bool:
    """Whether every one of the nodes that is live has been sampled after that moment (operator's monotonic clock)."""
    views = [view for name in nodes if (view := picture.node(name)) is not None]
    return all(
        view.sample_at_s is not None and view.sample_at_s >= than_s
        for view in views
        if view.link.state is LinkState.LIVE
    )
