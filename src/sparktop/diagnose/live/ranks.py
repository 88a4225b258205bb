"""Which engines of a picture are ranks of one: a server on one node and its worker on the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparktop.diagnose.enginecommand import joins_ray
from sparktop.model.engine import Engine, EngineState
from sparktop.model.fleet import FleetState, NodeView

_WORKERS = ("VLLM::Worker", "ray::", "sglang::")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """An engine where it runs."""

    node: NodeView
    engine: Engine


def flag(argv: Sequence[str], *names: str) -> str | None:
    """A flag's value in a command line; dashes and underscores are one, `--flag=value` too."""
    wanted = {name.replace("_", "-") for name in names}
    for index, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") in wanted:
            if equals:
                return value
            return argv[index + 1] if index + 1 < len(argv) else ""
    return None


def has_flag(argv: Sequence[str], *names: str) -> bool:
    """Whether a flag stands in a command line, with or without a value."""
    return flag(argv, *names) is not None


def spans_nodes(engine: Engine) -> bool:
    """Whether its command says that it is one of several nodes'; a Spark has one GPU, so parallel 2 means two nodes."""
    sizes = (
        flag(engine.argv, "--nnodes"),
        flag(engine.argv, "--tensor-parallel-size", "-tp", "--tp", "--tp-size"),
        flag(engine.argv, "--pipeline-parallel-size", "-pp", "--pp-size"),
    )
    if any(size is not None and size.isdecimal() and int(size) > 1 for size in sizes):
        return True
    backend = flag(engine.argv, "--distributed-executor-backend")
    return backend == "ray" or bool(engine.argv and engine.argv[0].startswith(_WORKERS)) or joins_ray(engine.argv)


def is_alive(engine: Engine) -> bool:
    """Whether its processes are there."""
    return engine.state is not EngineState.EXITED


def teams(fleet: FleetState) -> tuple[tuple[Rank, ...], ...]:
    """Every living engine once: alone, or with its other ranks; the rank that gives figures comes first."""
    ranks = [Rank(node=node, engine=engine) for node in fleet.nodes for engine in node.engines if is_alive(engine)]
    ranks.sort(key=lambda rank: (rank.engine.metrics is None, rank.engine.endpoint is None))
    taken: set[int] = set()
    found: list[tuple[Rank, ...]] = []
    for rank in ranks:
        if id(rank.engine) in taken:
            continue
        team = (rank, *(other for other in other_ranks(rank, fleet) if id(other.engine) not in taken))
        taken |= {id(each.engine) for each in team}
        found.append(team)
    return tuple(found)


def names_in_order(team: Sequence[Rank], fleet: FleetState) -> tuple[str, ...]:
    """The team's nodes as the fleet has them, so that a finding keeps its key."""
    names = {rank.node.name for rank in team}
    return tuple(node.name for node in fleet.nodes if node.name in names)


def other_ranks(rank: Rank, fleet: FleetState) -> tuple[Rank, ...]:
    """The same engine on the other nodes, dead or alive; empty for an engine of one node.

    An engine that gives figures of its own there is another one: only rank 0 serves (facts/engines.md section 3.1).
    """
    if not (spans_nodes(rank.engine) or rank.engine.endpoint is None):
        return ()
    found: list[Rank] = []
    for node in fleet.nodes:
        if node is rank.node:
            continue
        fitting = [
            Rank(node=node, engine=engine)
            for engine in node.engines
            if engine.kind is rank.engine.kind
            and (spans_nodes(engine) or engine.endpoint is None)
            and (engine.metrics is None or rank.engine.metrics is None)
        ]
        # A rank that ended is told of only where none lives.
        alive = [one for one in fitting if is_alive(one.engine)]
        found += (alive or fitting)[:1]
    return tuple(found)
