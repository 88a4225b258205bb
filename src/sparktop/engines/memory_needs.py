"""Memory needs of an engine: what it takes on top of its share, the host's reserve, and the floor while it loads.

Facts: docs/facts/engines.md 4.1, 4.4, C2. No flag names the overhead on top of the share. vLLM's profile counts CUDA
graphs into its share from 0.21 on; before, and in SGLang, they come on top, as its processes always do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparktop.engines import images
from sparktop.engines.images import release_of
from sparktop.engines.ranks import EngineRank, other_ranks, rank_of
from sparktop.model.engine import Engine, EngineCommand, EngineKind, EngineState
from sparktop.model.fleet import FleetState, NodeView
from sparktop.text.units import GIB

RESERVE_DESKTOP_BYTES = 20 * GIB
RESERVE_HEADLESS_BYTES = 12 * GIB
HOST_BYTES = 4 * GIB
"""Left to the host in any case; the guard's default floor."""
MOST = 0.87
"""Above this share the first requests have been seen to take the host's memory (C2)."""
NEVER_ABOVE = 0.90
"""Above this share a machine whose GPU shares its memory runs out sooner or later (C2)."""
MOST_LONG = 0.82
"""vLLM on two nodes with a long context: Xid 43 above it (MEM-03)."""
LONG_TOKENS = 131072
MOST_PAIR_SGLANG = 0.84
"""SGLang on two nodes: at 0.85 the node with less memory swapped (MEM-08)."""


def reserve_bytes(has_desktop: bool | None, own_gib: float | None = None) -> tuple[int, str]:
    """(the least to leave to the host, the reason for it).

    Args:
        has_desktop: None where unknown, which counts as with a desktop.
        own_gib: the recipe's own figure, which wins.
    """
    if own_gib is not None and own_gib >= 0:
        return int(min(own_gib, 9999.0) * GIB), "the recipe's reserve"
    if has_desktop is False:
        return RESERVE_HEADLESS_BYTES, "no desktop runs"
    return RESERVE_DESKTOP_BYTES, "a desktop runs" if has_desktop else "whether a desktop runs isn't known"


def most_share(kind: EngineKind, nodes: int, context_tokens: int | None) -> float:
    """The highest comfortable share of memory; above it a launch is tight at best."""
    if nodes > 1 and kind is EngineKind.SGLANG:
        return MOST_PAIR_SGLANG
    if nodes > 1 and context_tokens is not None and context_tokens >= LONG_TOKENS:
        return MOST_LONG
    return MOST


GRAPHS_BYTES = 3 * GIB
"""CUDA graphs and the rest of capturing them; an estimate, as no report has it alone."""
PROCESSES_BYTES = 3 * GIB
"""Context, the processes' own memory, NCCL's buffers; an estimate."""
GRAPHS_COUNTED_SINCE = (0, 21)
_NO_GRAPHS = re.compile(r"cudagraph_mode\W+none|cuda-graph-backend-decode\W+disabled", re.IGNORECASE)


def overhead_bytes(*, has_graphs: bool, counts_graphs: bool) -> int:
    """Overhead on one node on top of the share. `counts_graphs`: the share includes the graphs."""
    return PROCESSES_BYTES + (GRAPHS_BYTES if has_graphs and not counts_graphs else 0)


def overhead_of(engine: Engine) -> int:
    """Overhead of an existing engine, by its command and version (the image's, where it gives none)."""
    tag = images.version_of(engine.container.image, engine.kind) if engine.container is not None else None
    version = release_of(engine.version) or release_of(tag)
    is_off = engine.command.has("--enforce-eager", "--disable-cuda-graph") or turns_graphs_off(" ".join(engine.argv))
    return overhead_bytes(has_graphs=not is_off, counts_graphs=counts_graphs(engine.kind, version))


def counts_graphs(kind: EngineKind, version: tuple[int, ...] | None) -> bool:
    """Whether the engine's share includes its graphs; False where the version is unknown."""
    return kind is EngineKind.VLLM and version is not None and version >= GRAPHS_COUNTED_SINCE


def turns_graphs_off(text: str) -> bool:
    """Whether a command, or a value in it, turns CUDA graphs off by a mode."""
    return _NO_GRAPHS.search(text) is not None


def words_for(size_bytes: int) -> str:
    """What an overhead of this size is for."""
    return "graphs and processes" if size_bytes > PROCESSES_BYTES else "its processes"


OVERHEAD_BYTES = overhead_bytes(has_graphs=True, counts_graphs=False)
"""The most that a loading engine takes on top of its share: with a lower figure a normal load would read as a fall."""
LOAD_AT_MOST_S = 3600.0
SETTLES_S = 20.0
"""A log or an endpoint says "ready" up to so long before or after the last large allocation."""
_LOADING = (EngineState.STARTING, EngineState.LOADING, EngineState.CAPTURING)


def is_loading(engine: Engine) -> bool:
    """Whether its memory is still going to grow."""
    return engine.state in _LOADING and (engine.uptime_s or 0.0) < LOAD_AT_MOST_S


def may_load(engine: Engine) -> bool:
    """Whether it loads, or nothing tells its state in its first hour: a worker rank, say, whose head alone logs."""
    return is_loading(engine) or (engine.state is EngineState.UNKNOWN and (engine.uptime_s or 0.0) < LOAD_AT_MOST_S)


def loading(node: NodeView, fleet: FleetState) -> tuple[Engine, ...]:
    """The engines that are loading on the node.

    A worker that reports nothing of itself (under Ray only the head logs) is represented by its head, whose command
    also gives the share.
    """
    loading_engines = (
        next((rank.engine for rank in reporters if is_loading(rank.engine)), None)
        for _, reporters in _reporters(node, fleet)
    )
    return tuple(engine for engine in loading_engines if engine is not None)


def settling(node: NodeView, fleet: FleetState) -> tuple[tuple[Engine, Engine], ...]:
    """(engine on the node, the rank that reports for it and gives its share) of engines that have just become ready.

    By its log, and before its first request: its last allocation may still be in the window over which a fall is
    measured.
    """
    reported = (
        (engine, next((rank.engine for rank in reporters if _is_settling(rank)), None))
        for engine, reporters in _reporters(node, fleet)
    )
    return tuple((engine, reporter) for engine, reporter in reported if reporter is not None)


def _is_settling(rank: EngineRank) -> bool:
    engine, sample = rank.engine, rank.node.sample
    moved_s = engine.log.moved_wall_s if engine.log else None
    if engine.state is not EngineState.READY or moved_s is None or sample is None:
        return False
    metrics = engine.metrics
    is_idle = metrics is None or not (metrics.running or metrics.waiting or metrics.generation_tokens)
    return is_idle and abs(sample.wall_s - moved_s) <= SETTLES_S  # both by that node's clock


def _reporters(node: NodeView, fleet: FleetState) -> Iterator[tuple[Engine, tuple[EngineRank, ...]]]:
    """(engine on the node, the ranks that can report its progress): itself, and for a silent worker the other ranks."""
    for engine in node.engines:
        own = rank_of(engine, node)
        silent = engine.state is EngineState.UNKNOWN and engine.endpoint is None
        yield engine, (own, *(other_ranks(own, fleet) if silent else ()))


def most_bytes(engine: Engine, total_bytes: int) -> int:
    """The most that it takes of so much memory by its command, graphs and processes included."""
    return int(share(engine) * total_bytes) + OVERHEAD_BYTES


def share(engine: Engine) -> float:
    """The share of all memory that its command sets, else its version's default; all where it takes no share."""
    stated = stated_share(engine.command)
    return default_share(engine.kind, engine.version) if stated is None else min(1.0, max(0.0, stated))


def stated_share(command: EngineCommand) -> float | None:
    """The share of memory that a command sets; None where it sets none, or no figure."""
    flag = command.kind.traits.share_flag
    try:
        return float(command.value(flag) or "") if flag else None
    except ValueError:
        return None


def default_share(kind: EngineKind, version: str | None) -> float:
    """The share of an engine that sets none, by its version; all where it takes no share."""
    release, defaults = release_of(version), kind.traits.share_defaults.items()
    return [1.0, *(share for since, share in defaults if release is None or release >= (release_of(since) or ()))][-1]


def floor_bytes(node: NodeView, fleet: FleetState) -> int | None:
    """What should stay available when the current loads are done; None while nothing loads.

    0 where the shares together leave nothing: then the load itself starves the host.
    """
    engines = loading(node, fleet)
    if not engines or node.sample is None:
        return None
    total = node.sample.memory.total_bytes
    shares_bytes = sum(share(engine) * total for engine in engines)
    return max(0, int(total - shares_bytes - OVERHEAD_BYTES * len(engines)))
