"""How far available memory may fall while an engine loads: what its own command reserves, and no further.

On a Spark `--gpu-memory-utilization` and `--mem-fraction-static` are shares of all memory, so a load that takes 80 GiB
in a minute is as it should be (facts/engines.md sections 1A, 4.4).
"""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.diagnose.live.beside import beside_bytes
from sparktop.diagnose.live.graphs import version_of
from sparktop.diagnose.live.ranks import Rank, flag, other_ranks
from sparktop.model.engine import Engine, EngineKind, EngineState
from sparktop.model.fleet import FleetState, NodeView

GIB = 1024**3
OVERHEAD_BYTES = beside_bytes(has_graphs=True, counts_graphs=False)
"""The most that a loading engine takes beside its share: with less, a load as it should be would read as a fall."""
LOAD_AT_MOST_S = 3600.0
SETTLES_S = 20.0
"""A log or an endpoint says "ready" up to so long before or after the last big allocation."""
_LOADING = (EngineState.STARTING, EngineState.LOADING, EngineState.CAPTURING)


def is_loading(engine: Engine) -> bool:
    """Whether its memory is still to grow by what it was told to take."""
    return engine.state in _LOADING and (engine.uptime_s or 0.0) < LOAD_AT_MOST_S


def loading(node: NodeView, fleet: FleetState) -> tuple[Engine, ...]:
    """The engines whose load is under way on the node.

    Of a further rank that says nothing of itself (under Ray all that is said is in the head's log) it is its head's,
    whose command also tells the share.
    """
    said = (next((one.engine for one in who if is_loading(one.engine)), None) for _, who in _told_by(node, fleet))
    return tuple(one for one in said if one is not None)


def settling(node: NodeView, fleet: FleetState) -> tuple[tuple[Engine, Engine], ...]:
    """(what runs on the node, who says so and names its share) of the engines that have only just become ready.

    By the log of it, and nothing has been asked of it: its last allocation may still be in the window that a fall is
    measured by.
    """
    said = (
        (engine, next((one.engine for one in who if _is_settling(one)), None)) for engine, who in _told_by(node, fleet)
    )
    return tuple((engine, one) for engine, one in said if one is not None)


def _is_settling(rank: Rank) -> bool:
    engine, sample = rank.engine, rank.node.sample
    moved_s = engine.log.moved_wall_s if engine.log else None
    if engine.state is not EngineState.READY or moved_s is None or sample is None:
        return False
    told = engine.metrics
    is_idle = told is None or not (told.running or told.waiting or told.generation_tokens)
    return is_idle and abs(sample.wall_s - moved_s) <= SETTLES_S  # both of that node's clock


def _told_by(node: NodeView, fleet: FleetState) -> Iterator[tuple[Engine, tuple[Rank, ...]]]:
    """(engine, who can tell how far it is) of the node: itself, and of a rank that says nothing its others."""
    for engine in node.engines:
        own = Rank(node=node, engine=engine)
        silent = engine.state is EngineState.UNKNOWN and engine.endpoint is None
        yield engine, (own, *(other_ranks(own, fleet) if silent else ()))


def most_bytes(engine: Engine, total_bytes: int) -> int:
    """The most that it takes of so much memory by its own command, graphs and processes included."""
    return int(share(engine) * total_bytes) + OVERHEAD_BYTES


def share(engine: Engine) -> float:
    """The share of all memory its command lets it take; the version's default where it names none."""
    sglang = engine.kind is EngineKind.SGLANG
    told = flag(engine.argv, "--mem-fraction-static" if sglang else "--gpu-memory-utilization")
    try:
        return min(1.0, max(0.0, float(told))) if told is not None else _default(engine)
    except ValueError:
        return _default(engine)


def _default(engine: Engine) -> float:
    if engine.kind is EngineKind.SGLANG:
        return 0.88
    version = version_of(engine.version)
    return 0.92 if version is None or version >= (0, 22, 1) else 0.90


def floor_bytes(node: NodeView, fleet: FleetState) -> int | None:
    """What should be left of available memory when the loads under way are through; None while none is.

    0 where the shares together leave nothing: then the load itself is what starves the host.
    """
    engines = loading(node, fleet)
    if not engines or node.sample is None:
        return None
    total = node.sample.memory.total_bytes
    taken = sum(share(engine) * total for engine in engines)
    return max(0, int(total - taken - OVERHEAD_BYTES * len(engines)))
