"""Which engines are ranks of one server, and in which order they stop and start. Pure.

A Spark has one GPU, so a server of two GPUs has a rank on each of two nodes. One stopped alone leaves the other
waiting in a collective forever (docs/facts/engines.md sections 2.3, 6.5: on two nodes always stop and start both).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from sparktop.cmdline.engine_command import command_of, joins_ray
from sparktop.engines import labels, pair
from sparktop.engines.ranks import is_alive, spans_nodes
from sparktop.model.engine import Engine, EngineKind
from sparktop.model.fleet import FleetState, NodeView

_ADDRESS_FLAGS = ("--master-addr", "--dist-init-addr", "--nccl-init-addr")


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamRank:
    """One engine on one node, and whether it is the server's head."""

    node: str
    engine: Engine
    is_head: bool = True
    """It serves the requests; a worker serves no HTTP."""


def find(name: str, node: str, picture: FleetState) -> TeamRank | None:
    """The engine of that name (or key, or container) on the node, a running one first; on any node for an empty
    `node`."""
    candidates = [
        _rank_of(engine, view)
        for view in picture.nodes
        if node in ("", view.name)
        for engine in view.engines
        if name in _names(engine)
    ]
    return min(candidates, key=lambda rank: not is_alive(rank.engine), default=None)


def ranks(name: str, node: str, picture: FleetState) -> tuple[TeamRank, ...]:
    """The engine and its other ranks, head first; empty where there is no such engine.

    Ranks of one server are of one kind, on different nodes, span nodes by their commands (or are workers by the
    engines' process titles), and differ neither in the model nor in the address at which they meet.
    """
    first = find(name, node, picture)
    if first is None:
        return ()
    view = picture.node(first.node)
    assert view is not None
    if not _is_rank_of_several(first.engine, view):
        return (TeamRank(node=first.node, engine=first.engine),)
    team = [first]
    for other_view in picture.nodes:
        candidates = (
            engine
            for engine in (other_view.engines if other_view is not view else ())
            if _is_rank_of_several(engine, other_view)
            and all(_may_be_same_server(engine, rank.engine) for rank in team)
        )
        other = min(candidates, key=lambda engine: not is_alive(engine), default=None)
        if other is not None:
            team.append(_rank_of(other, other_view))
    team.sort(key=lambda rank: (not rank.is_head, rank.engine.endpoint is None))
    ordered = [replace(rank, is_head=index == 0) for index, rank in enumerate(team)]
    return tuple(_with_head_commands(ordered))


def missing(team: Sequence[TeamRank], picture: FleetState) -> int:
    """How many of the server's ranks are not in this picture."""
    width = max((_node_count(rank.engine, picture.node(rank.node)) for rank in team), default=1)
    return max(0, width - len(team))


def stop_order(team: Sequence[TeamRank]) -> tuple[TeamRank, ...]:
    """Head first, so that no new request arrives, and none waits for a worker that is gone."""
    return tuple(sorted(team, key=lambda rank: not rank.is_head))


def start_order(team: Sequence[TeamRank]) -> tuple[TeamRank, ...]:
    """With Ray the head first, as a worker's `ray start --address` needs it up. Else the workers first, as eugr's
    launch-cluster.sh does it: they wait at the master address for rank 0 (docs/facts/engines.md section 5.1); SGLang
    takes any order."""
    return tuple(sorted(team, key=lambda rank: rank.is_head != is_ray(team)))


def is_ray(team: Sequence[TeamRank]) -> bool:
    """Whether Ray joins the ranks."""
    return any(_has_ray(rank.engine) for rank in team)


def _rank_of(engine: Engine, view: NodeView) -> TeamRank:
    """The engine as head or worker; a container of ours has its rank in a label, also when it has exited."""
    rank_label = (engine.container.labels or {}).get(labels.RANK) if engine.container else None
    is_worker = rank_label != "0" if rank_label else pair.is_worker(engine)
    return TeamRank(node=view.name, engine=engine, is_head=not is_worker)


def _names(engine: Engine) -> tuple[str, ...]:
    container = engine.container
    return (engine.name, engine.key, *((container.name, container.container_id) if container else ()))


def _is_rank_of_several(engine: Engine, view: NodeView) -> bool:
    return spans_nodes(engine) and not pair.fits_on(engine, view) and _node_count(engine, view) > 1


def _node_count(engine: Engine, view: NodeView | None) -> int:
    """The number of nodes that it runs on, by its command."""
    command = command_of(engine)
    nodes = command.count("nnodes")
    if nodes > 1:
        return nodes
    if _is_bare_worker(engine):
        return 2
    size = command.count("tensor-parallel-size") * command.count("pipeline-parallel-size")
    gpus = len(view.gpu.gpus) if view is not None and view.gpu and view.gpu.gpus else 1
    return -(-size // gpus)


def _is_bare_worker(engine: Engine) -> bool:
    """Whether it is a worker whose command line has no settings; they are in its head's."""
    argv = engine.argv
    return bool(argv and not argv[0].startswith("/") and "::" in argv[0]) or joins_ray(argv)


def _with_head_commands(team: Sequence[TeamRank]) -> Iterator[TeamRank]:
    """The ranks, with the head's command in place of a Ray worker's own: it uses its node as the head's says."""
    head = team[0].engine
    for rank in team:
        takes_from_head = rank.engine is not head and head.argv and is_ray(team) and _is_bare_worker(rank.engine)
        yield replace(rank, engine=replace(rank.engine, argv=head.argv)) if takes_from_head else rank


def _may_be_same_server(one: Engine, other: Engine) -> bool:
    if one.kind is not other.kind:
        return False
    if one.model is not None and other.model is not None and one.model != other.model:
        return False
    if one.metrics is not None and other.metrics is not None:
        return False  # only rank 0 serves (docs/facts/engines.md section 3.1)
    launches = {(engine.container.labels or {}).get(labels.LAUNCH) for engine in (one, other) if engine.container}
    if len(launches - {None}) > 1:
        return False
    commands = command_of(one), command_of(other)
    address, other_address = (command.value(*_ADDRESS_FLAGS) for command in commands)
    if address and other_address and address != other_address:
        return False
    number, other_number = (command.value("node-rank") for command in commands)
    return number is None or other_number is None or number != other_number


def _has_ray(engine: Engine) -> bool:
    if engine.kind is not EngineKind.VLLM:
        return False
    container_argv = engine.container.argv if engine.container else ()
    words = (*engine.argv, *container_argv)
    starts = any("ray start" in word for word in words) or any(
        program.rpartition("/")[2] == "ray" and verb == "start" for program, verb in pairwise(words)
    )
    is_worker = bool(engine.argv) and engine.argv[0].startswith("ray::")
    return starts or is_worker or command_of(engine).value("--distributed-executor-backend") == "ray"
