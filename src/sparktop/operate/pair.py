"""Which engines on which nodes are ranks of one server, and in which order they stop and start. Pure.

A Spark has one GPU, so a server of two GPUs has a rank on each of two nodes; one that is stopped alone leaves the other
waiting in a collective for ever (facts/engines.md sections 2.3, 6.5: on two nodes always stop and start both).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from sparktop.diagnose.enginecommand import joins_ray
from sparktop.diagnose.live import pair as live
from sparktop.diagnose.live import ranks as living
from sparktop.diagnose.live.ranks import flag, is_alive, spans_nodes
from sparktop.model.engine import Engine, EngineKind
from sparktop.model.fleet import FleetState, NodeView
from sparktop.recipe import labels

_MEETING = ("--master-addr", "--dist-init-addr", "--nccl-init-addr")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One engine on one node, with its part in the server."""

    node: str
    engine: Engine
    is_head: bool = True
    """It serves the requests; a further rank serves no HTTP."""


def find(name: str, node: str, picture: FleetState) -> Rank | None:
    """The engine of that name (or key, or container) on the node, a living one before one that ended; any node's for
    an empty `node`."""
    found = [
        Rank(node=view.name, engine=engine, is_head=not _is_worker(engine, view))
        for view in picture.nodes
        if node in ("", view.name)
        for engine in view.engines
        if name in _names(engine)
    ]
    return min(found, key=lambda rank: not is_alive(rank.engine), default=None)


def ranks(name: str, node: str, picture: FleetState) -> tuple[Rank, ...]:
    """The engine and its other ranks, head first; empty where there is no such engine.

    Ranks of one server are of one kind, on different nodes, span nodes by their commands (or are workers by the titles
    engines give them), and contradict one another neither in the model nor in the address at which they meet.
    """
    asked = find(name, node, picture)
    if asked is None:
        return ()
    view = picture.node(asked.node)
    assert view is not None
    if not _is_one_of_several(asked.engine, view):
        return (Rank(node=asked.node, engine=asked.engine),)
    team = [asked]
    for other in picture.nodes:
        if other is view:
            continue
        fitting = [
            engine
            for engine in other.engines
            if _is_one_of_several(engine, other) and all(_may_be_one(engine, rank.engine) for rank in team)
        ]
        fitting.sort(key=lambda engine: not is_alive(engine))
        if fitting:
            team.append(Rank(node=other.name, engine=fitting[0], is_head=not _is_worker(fitting[0], other)))
    team.sort(key=lambda rank: (not rank.is_head, rank.engine.endpoint is None))
    ordered = [Rank(node=rank.node, engine=rank.engine, is_head=index == 0) for index, rank in enumerate(team)]
    return tuple(_as_its_head_says(ordered))


def missing(team: Sequence[Rank], picture: FleetState) -> int:
    """How many of its ranks are on no node of this picture, or were not found there."""
    wanted = max((_width(rank.engine, picture.node(rank.node)) for rank in team), default=1)
    return max(0, wanted - len(team))


def stop_order(team: Sequence[Rank]) -> tuple[Rank, ...]:
    """Head first: from then on no request comes in, and none waits for a worker that is gone."""
    return tuple(sorted(team, key=lambda rank: not rank.is_head))


def start_order(team: Sequence[Rank]) -> tuple[Rank, ...]:
    """Ray: the head first, a worker's `ray start --address` needs it up. Else the workers first, as eugr's
    launch-cluster.sh does it: they wait at the meeting address for rank 0 (facts/engines.md section 5.1); SGLang takes
    any order."""
    return tuple(sorted(team, key=lambda rank: rank.is_head != is_ray(team)))


def is_ray(team: Sequence[Rank]) -> bool:
    """Whether Ray holds the ranks together."""
    return any(_has_ray(rank.engine) for rank in team)


def _is_worker(engine: Engine, view: NodeView) -> bool:
    """What we launched says which rank it is, also when it has ended."""
    said = (engine.container.labels or {}).get(labels.RANK) if engine.container else None
    return said != "0" if said else live.is_worker(living.Rank(node=view, engine=engine))


def _names(engine: Engine) -> tuple[str, ...]:
    box = engine.container
    return (engine.name, engine.key, *((box.name, box.container_id) if box else ()))


def _is_one_of_several(engine: Engine, view: NodeView) -> bool:
    return (
        spans_nodes(engine) and not live.fits_here(living.Rank(node=view, engine=engine)) and _width(engine, view) > 1
    )


def _width(engine: Engine, view: NodeView | None) -> int:
    """On how many nodes it runs, by its own words."""
    nodes = _number(engine, "--nnodes")
    if nodes > 1:
        return nodes
    if _is_told_by_its_head(engine):
        return 2
    size = _number(engine, "--tensor-parallel-size", "-tp", "--tp", "--tp-size")
    size *= _number(engine, "--pipeline-parallel-size", "-pp", "--pp-size")
    gpus = len(view.gpu.gpus) if view is not None and view.gpu and view.gpu.gpus else 1
    return -(-size // gpus)


def _is_told_by_its_head(engine: Engine) -> bool:
    """A worker whose server is elsewhere: its own command line, or its container's, says no more than that."""
    argv = engine.argv
    return bool(argv and not argv[0].startswith("/") and "::" in argv[0]) or joins_ray(argv)


def _as_its_head_says(team: Sequence[Rank]) -> Iterator[Rank]:
    """A worker under Ray takes of its node what the head's command says: that counts as its own."""
    head = team[0].engine
    for rank in team:
        is_told = rank.engine is not head and head.argv and is_ray(team) and _is_told_by_its_head(rank.engine)
        yield replace(rank, engine=replace(rank.engine, argv=head.argv)) if is_told else rank


def _number(engine: Engine, *names: str) -> int:
    text = flag(engine.argv, *names)
    return int(text) if text is not None and text.isdecimal() and 0 < int(text) < 1000 else 1


def _may_be_one(one: Engine, other: Engine) -> bool:
    if one.kind is not other.kind:
        return False
    if one.model is not None and other.model is not None and one.model != other.model:
        return False
    if one.metrics is not None and other.metrics is not None:
        return False  # only rank 0 serves (facts/engines.md section 3.1)
    launches = {(engine.container.labels or {}).get(labels.LAUNCH) for engine in (one, other) if engine.container}
    if len(launches - {None}) > 1:
        return False
    here, there = flag(one.argv, *_MEETING), flag(other.argv, *_MEETING)
    if here and there and here != there:
        return False
    mine, its = flag(one.argv, "--node-rank"), flag(other.argv, "--node-rank")
    return mine is None or its is None or mine != its


def _has_ray(engine: Engine) -> bool:
    if engine.kind is not EngineKind.VLLM:
        return False
    box = engine.container.argv if engine.container else ()
    words = (*engine.argv, *box)
    starts = any("ray start" in word for word in words) or any(
        one.rpartition("/")[2] == "ray" and two == "start" for one, two in pairwise(words)
    )
    is_worker = bool(engine.argv) and engine.argv[0].startswith("ray::")
    return starts or is_worker or flag(engine.argv, "--distributed-executor-backend") == "ray"
