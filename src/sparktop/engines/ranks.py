"""Which engines of a picture are ranks of one server: its head on one node, its workers on others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparktop.cmdline.engine_command import command_of, joins_ray
from sparktop.model.engine import Engine, EngineState
from sparktop.model.fleet import FleetState, NodeView

_WORKERS = ("VLLM::Worker", "ray::", "sglang::")
"""Process titles of worker ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRank:
    """An engine with the node that it runs on."""

    node: NodeView
    engine: Engine


def spans_nodes(engine: Engine) -> bool:
    """Whether its command says that it spans nodes; a Spark has one GPU, so a parallel size of 2 means two nodes."""
    command = command_of(engine)
    if any(command.count(name) > 1 for name in ("nnodes", "tensor-parallel-size", "pipeline-parallel-size")):
        return True
    is_worker = bool(engine.argv) and engine.argv[0].startswith(_WORKERS)
    return command.value("distributed-executor-backend") == "ray" or is_worker or joins_ray(engine.argv)


def is_alive(engine: Engine) -> bool:
    """Whether its processes are running."""
    return engine.state is not EngineState.EXITED


def teams(fleet: FleetState) -> tuple[tuple[EngineRank, ...], ...]:
    """Every running engine once, with its other ranks; the rank that has metrics comes first."""
    ranks = [
        EngineRank(node=node, engine=engine) for node in fleet.nodes for engine in node.engines if is_alive(engine)
    ]
    ranks.sort(key=lambda rank: (rank.engine.metrics is None, rank.engine.endpoint is None))
    assigned: set[int] = set()
    all_teams: list[tuple[EngineRank, ...]] = []
    for rank in ranks:
        if id(rank.engine) in assigned:
            continue
        team = (rank, *(other for other in other_ranks(rank, fleet) if id(other.engine) not in assigned))
        assigned |= {id(member.engine) for member in team}
        all_teams.append(team)
    return tuple(all_teams)


def names_in_order(team: Sequence[EngineRank], fleet: FleetState) -> tuple[str, ...]:
    """The team's nodes in the fleet's order, so that a finding keeps its key."""
    names = {rank.node.name for rank in team}
    return tuple(node.name for node in fleet.nodes if node.name in names)


def other_ranks(rank: EngineRank, fleet: FleetState) -> tuple[EngineRank, ...]:
    """The engine's ranks on the other nodes, running or exited; empty for an engine of one node.

    An engine with metrics of its own is another server: only rank 0 serves (docs/facts/engines.md section 3.1).
    """
    if not (spans_nodes(rank.engine) or rank.engine.endpoint is None):
        return ()
    others: list[EngineRank] = []
    for node in fleet.nodes:
        if node is rank.node:
            continue
        candidates = [
            EngineRank(node=node, engine=engine)
            for engine in node.engines
            if engine.kind is rank.engine.kind
            and (spans_nodes(engine) or engine.endpoint is None)
            and (engine.metrics is None or rank.engine.metrics is None)
        ]
        # An exited rank counts only where none runs.
        alive = [candidate for candidate in candidates if is_alive(candidate.engine)]
        others += (alive or candidates)[:1]
    return tuple(others)
