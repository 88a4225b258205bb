"""Which engines of a picture are ranks of one server, and in which order they stop and start.

A Spark has one GPU, so a server of two GPUs has a rank on each of two nodes. One stopped alone leaves the other
waiting in a collective forever (docs/facts/engines.md sections 2.3, 6.5: on two nodes always stop and start both).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from sparktop.dataclass import dataclass
from sparktop.engines import labels
from sparktop.model.engine import Engine, EngineKind, EngineState
from sparktop.model.fleet import FleetState, NodeView

_WORKERS = ("VLLM::Worker", "ray::", "sglang::")
"""Process titles of worker ranks."""
_ADDRESS_FLAGS = ("--master-addr", "--dist-init-addr", "--nccl-init-addr")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRank:
    """An engine on the node that it runs on, and whether it is its server's head."""

    node: NodeView
    engine: Engine
    is_head: bool = True
    """It serves the requests; a worker serves no HTTP."""


def rank_of(engine: Engine, node: NodeView) -> EngineRank:
    """The engine as head or worker."""
    return EngineRank(node=node, engine=engine, is_head=not is_worker(engine))


def spans_nodes(engine: Engine) -> bool:
    """Whether its command says that it spans nodes; a Spark has one GPU, so a parallel size of 2 means two nodes."""
    command = engine.command
    if any(command.count(name) > 1 for name in ("nnodes", "tensor-parallel-size", "pipeline-parallel-size")):
        return True
    is_worker = bool(engine.argv) and engine.argv[0].startswith(_WORKERS)
    return command.value("distributed-executor-backend") == "ray" or is_worker or command.joins_ray


def is_alive(engine: Engine) -> bool:
    """Whether its processes are running."""
    return engine.state is not EngineState.EXITED


@lru_cache(maxsize=2)
def teams(fleet: FleetState) -> tuple[tuple[EngineRank, ...], ...]:
    """Every running engine once, with its other ranks, head first."""
    ranks = [rank_of(engine, node) for node in fleet.nodes for engine in node.engines if is_alive(engine)]
    assigned: set[int] = set()
    all_teams: list[tuple[EngineRank, ...]] = []
    for rank in head_first(ranks):
        if id(rank.engine) in assigned:
            continue
        team = (rank, *(other for other in other_ranks(rank, fleet) if id(other.engine) not in assigned))
        assigned |= {id(member.engine) for member in team}
        all_teams.append(head_first(team))
    return tuple(all_teams)


def head_first(ranks: Iterable[EngineRank]) -> tuple[EngineRank, ...]:
    """Those that serve first; the others by their number, where they have one."""
    return tuple(
        sorted(
            ranks,
            key=lambda rank: (
                not rank.is_head,
                rank.engine.metrics is None,
                rank.engine.endpoint is None,
                int(number) if (number := _number(rank.engine) or "").isdecimal() else 0,
            ),
        )
    )


def names_in_order(team: Sequence[EngineRank], fleet: FleetState) -> tuple[str, ...]:
    """The team's nodes in the fleet's order, so that a finding keeps its key."""
    names = {rank.node.name for rank in team}
    return tuple(node.name for node in fleet.nodes if node.name in names)


def other_ranks(rank: EngineRank, fleet: FleetState, *, where_they_meet: bool = False) -> tuple[EngineRank, ...]:
    """The server's ranks on the other nodes, running or exited; empty for an engine of one node.

    Ranks of one server are of one kind, on different nodes, span nodes by their commands (or are workers by the
    engines' process titles), and differ in the number of their rank, not in the model.

    Args:
        where_they_meet: they don't differ either in the address at which they meet. A plan asks for it, so that it
            doesn't stop another server's; a rule must do without, to find an address that is wrong.
    """
    if not is_rank_of_several(rank.engine, rank.node):
        return ()
    width = 0 if is_bare_worker(rank.engine) else node_count(rank.engine, rank.node)
    candidates = [(engine, node) for node in fleet.nodes for engine in node.engines if is_rank_of_several(engine, node)]
    # Of two servers each takes those that meet where it does; an exited rank counts only where none runs.
    candidates.sort(key=lambda one: (_meet_elsewhere(one[0], rank.engine), not is_alive(one[0])))
    team = [rank]
    for engine, node in candidates:
        if (
            len(team) != width
            and all(node.name != member.node.name and _may_be_same_server(engine, member.engine) for member in team)
            and not (where_they_meet and any(_meet_elsewhere(engine, member.engine) for member in team))
        ):
            team.append(rank_of(engine, node))
    return tuple(team[1:])


def is_rank_of_several(engine: Engine, node: NodeView) -> bool:
    """Whether its server has ranks on other nodes, too: not where the node has as many GPUs as it is wide."""
    return spans_nodes(engine) and node_count(engine, node) > 1


def node_count(engine: Engine, view: NodeView | None) -> int:
    """The number of nodes that it runs on, by its command."""
    command = engine.command
    nodes = command.count("nnodes")
    if nodes > 1:
        return nodes
    if is_bare_worker(engine):
        return 2
    size = command.count("tensor-parallel-size") * command.count("pipeline-parallel-size")
    gpus = len(view.gpu.gpus) if view is not None and view.gpu and view.gpu.gpus else 1
    return -(-size // gpus)


def is_bare_worker(engine: Engine) -> bool:
    """Whether it is a worker whose command line has no settings; they are in its head's."""
    argv = engine.argv
    return bool(argv and not argv[0].startswith("/") and "::" in argv[0]) or engine.command.joins_ray


def is_worker(engine: Engine) -> bool:
    """Whether it is a worker rank, which serves no HTTP; a container of ours has its rank in a label, also when it has
    exited."""
    if label := _label(engine):
        return label != "0"
    number = engine.command.value("node-rank")
    headless = engine.command.has("headless")
    if number is None and engine.endpoint is None:
        return headless or not engine.command.is_known  # an exited server listens nowhere, too
    return headless or number not in (None, "", "0")


def _label(engine: Engine) -> str | None:
    """The number of the rank that our launch has given its container."""
    return (engine.container.labels or {}).get(labels.RANK) if engine.container else None


def _number(engine: Engine) -> str | None:
    return _label(engine) or engine.command.value("node-rank")


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
    number, other_number = map(_number, (one, other))
    return number is None or other_number is None or number != other_number


def _meet_elsewhere(one: Engine, other: Engine) -> bool:
    """Whether the commands of two ranks name different addresses at which they meet."""
    address, other_address = (engine.command.value(*_ADDRESS_FLAGS) for engine in (one, other))
    return bool(address and other_address and address != other_address)


# --- the ranks of one engine, and their order


def find(name: str, node: str, picture: FleetState) -> EngineRank | None:
    """The engine of that name (or key, or container) on the node, a running one first; on any node for an empty
    `node`."""
    candidates = [
        rank_of(engine, view)
        for view in picture.nodes
        if node in ("", view.name)
        for engine in view.engines
        if name in _names(engine)
    ]
    return min(candidates, key=lambda rank: not is_alive(rank.engine), default=None)


def ranks(name: str, node: str, picture: FleetState) -> tuple[EngineRank, ...]:
    """The engine and its other ranks, head first; empty where there is no such engine."""
    first = find(name, node, picture)
    return team_of(first, picture) if first is not None else ()


def team_of(first: EngineRank, picture: FleetState) -> tuple[EngineRank, ...]:
    """The engine's ranks, this one among them, head first."""
    team = head_first((first, *other_ranks(first, picture, where_they_meet=True)))
    return tuple(_as_head_tells([replace(rank, is_head=index == 0) for index, rank in enumerate(team)]))


def missing(team: Sequence[EngineRank]) -> int:
    """How many of the server's ranks are not in the picture that these are from."""
    width = max((node_count(rank.engine, rank.node) for rank in team), default=1)
    return max(0, width - len(team))


def stop_order(team: Sequence[EngineRank]) -> tuple[EngineRank, ...]:
    """Head first, so that no new request arrives, and none waits for a worker that is gone."""
    return tuple(sorted(team, key=lambda rank: not rank.is_head))


def start_order(team: Sequence[EngineRank]) -> tuple[EngineRank, ...]:
    """With Ray the head first, as a worker's `ray start --address` needs it up. Else the workers first, as eugr's
    launch-cluster.sh does it: they wait at the master address for rank 0 (docs/facts/engines.md section 5.1); SGLang
    takes any order."""
    return tuple(sorted(team, key=lambda rank: rank.is_head != is_ray(team)))


def is_ray(team: Sequence[EngineRank]) -> bool:
    """Whether Ray joins the ranks."""
    return any(_has_ray(rank.engine) for rank in team)


def _names(engine: Engine) -> tuple[str, ...]:
    container = engine.container
    return (engine.name, engine.key, *((container.name, container.container_id) if container else ()))


def _as_head_tells(team: Sequence[EngineRank]) -> Iterator[EngineRank]:
    """The ranks with what only the head tells of them: the version of their image, as a worker serves no HTTP; in place
    of a Ray worker's own command the head's, by which it uses its node."""
    head = team[0].engine
    for rank in team:
        engine = rank.engine
        if engine is not head and head.argv and is_ray(team) and is_bare_worker(engine):
            engine = replace(engine, argv=head.argv, command=head.command)
        if engine.version is None and head.version and _image(engine) is not None and _image(engine) == _image(head):
            engine = replace(engine, version=head.version)
        yield rank if engine is rank.engine else replace(rank, engine=engine)


def _image(engine: Engine) -> str | None:
    return engine.container.image if engine.container is not None else None


def _has_ray(engine: Engine) -> bool:
    if engine.kind is not EngineKind.VLLM:
        return False
    container_argv = engine.container.argv if engine.container else ()
    words = (*engine.argv, *container_argv)
    starts = any("ray start" in word for word in words) or any(
        program.rpartition("/")[2] == "ray" and verb == "start" for program, verb in pairwise(words)
    )
    is_worker = bool(engine.argv) and engine.argv[0].startswith("ray::")
    return starts or is_worker or engine.command.value("--distributed-executor-backend") == "ray"
