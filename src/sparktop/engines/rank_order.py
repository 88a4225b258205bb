"""Which engines are ranks of one server, and in which order they stop and start. Pure.

A Spark has one GPU, so a server of two GPUs has a rank on each of two nodes. One stopped alone leaves the other
waiting in a collective forever (docs/facts/engines.md sections 2.3, 6.5: on two nodes always stop and start both).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from sparktop.cmdline.engine_command import command_of
from sparktop.engines.ranks import EngineRank, head_first, is_alive, is_bare_worker, node_count, other_ranks, rank_of
from sparktop.model.engine import Engine, EngineKind
from sparktop.model.fleet import FleetState


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
    if first is None:
        return ()
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
            engine = replace(engine, argv=head.argv)
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
    return starts or is_worker or command_of(engine).value("--distributed-executor-backend") == "ray"
