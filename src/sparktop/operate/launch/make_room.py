"""Engines that a launch stops to make room, with the operator's consent, and how they are restarted. Pure.

An engine of two nodes is stopped with all its ranks: a rank that is left alone would wait for the other.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sparktop.dataclass import dataclass
from sparktop.engines.memory_target import held_bytes
from sparktop.engines.rank_order import find, missing, ranks, start_order, stop_order
from sparktop.engines.ranks import EngineRank, is_alive
from sparktop.model.fleet import FleetState
from sparktop.model.request import Request
from sparktop.model.survey import Ask, Survey
from sparktop.operate.plan.running_rank import RunningRank, inspect_ranks, neighbours, requests_lost
from sparktop.operate.plan.running_rank import asks as rank_asks
from sparktop.operate.plan.running_starter import existing
from sparktop.operate.plan.sequence import way_back
from sparktop.operate.plan.stop_steps import down_steps, typed_stop
from sparktop.operate.refused import Refused
from sparktop.operate.step.plan import Step
from sparktop.text.sentences import listed
from sparktop.text.units import gib


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineToStop:
    """A running engine that the launch stops."""

    ranks: tuple[RunningRank, ...]
    """Its running ranks, head first."""
    team: tuple[EngineRank, ...]
    missing_ranks: int = 0
    """Ranks that sparktop can't see, as half of a pair: it is stopped, and never restarted alone."""

    @property
    def name(self) -> str:
        return self.ranks[0].name

    @property
    def comes_back(self) -> bool:
        """Whether sparktop can restart it as it was."""
        return not self.missing_ranks and all(rank.is_startable for rank in self.ranks)

    def held_bytes_on(self, node: str) -> int:
        """Memory on that node that is free once it has stopped, bytes."""
        return sum(held_bytes(rank.engine, rank.view) or 0 for rank in self.ranks if rank.node == node)


def asks(request: Request, picture: FleetState) -> tuple[Ask, ...]:
    """Questions about the engines to stop."""
    return tuple(dict.fromkeys(ask for team in _teams(request, picture) if team for ask in rank_asks(team)))


def engines_to_stop(request: Request, picture: FleetState, survey: Survey) -> tuple[EngineToStop, ...]:
    """The engines that the order stops; or why one of them can't be stopped."""
    stops = request.order.stops if request.order is not None else ()
    engines: list[EngineToStop] = []
    for (node, name), team in zip(stops, _teams(request, picture), strict=True):
        if not team:
            raise _unknown(node, name, picture)
        ranks = inspect_ranks(team, survey)
        running_ranks = tuple(replace(rank, mark=f"-{len(engines) + 1}@{rank.node}") for rank in ranks if rank.ran)
        if running_ranks and not any(set(_keys(running_ranks)) & set(_keys(engine.ranks)) for engine in engines):
            engines.append(EngineToStop(ranks=running_ranks, team=team, missing_ranks=missing(team)))
    return tuple(engines)


def every_name(engines: Sequence[EngineToStop]) -> tuple[tuple[str, str], ...]:
    """(node, name) of every rank to stop, by its engine's name and by its container's."""
    rows = [(rank.node, name) for engine in engines for rank in engine.ranks for name in (rank.engine.name, rank.name)]
    return tuple(dict.fromkeys(rows))


def stop_steps(engines: Sequence[EngineToStop], grace_s: float, survey: Survey) -> Iterator[Step]:
    """Steps that stop the engines, one after the other, each with all its ranks."""
    for engine in engines:
        order = _ordered(stop_order(engine.team), engine)
        yield from down_steps(order, grace_s, is_coming_back=True, survey=survey)


def restart_steps(engines: Sequence[EngineToStop]) -> Iterator[Step]:
    """Rollback steps that restart the engines that can be restarted."""
    for engine in engines:
        if engine.comes_back:
            nodes = tuple(rank.node for rank in engine.ranks)
            up = [existing(rank) for rank in _ordered(start_order(engine.team), engine)]
            yield from (replace(step, needs_nodes=nodes) for step in way_back((), up, 0.0))


def warnings(engines: Sequence[EngineToStop]) -> Iterator[str]:
    """What stopping them costs."""
    for engine in engines:
        where = listed(rank.node for rank in engine.ranks)
        total_bytes = sum(held_bytes(rank.engine, rank.view) or 0 for rank in engine.ranks)
        holds = f", which holds {gib(total_bytes)}" if total_bytes else ""
        stays = "stays stopped once the launch serves" if engine.comes_back else "can't be started again from here"
        yield f"{engine.name} on {where}{holds}, is stopped to free memory, and {stays}."
        if requests := sum(rank.requests for rank in engine.ranks):
            yield requests_lost(requests, engine.name)
        for rank in engine.ranks:
            yield from neighbours(rank)
        if not engine.comes_back:
            yield f"{engine.name} does not come back if the launch fails: {_why_not(engine)}."


def by_hand(engines: Sequence[EngineToStop], grace_s: float) -> Iterator[str]:
    """The same as shell commands."""
    for engine in engines:
        for rank in _ordered(stop_order(engine.team), engine):
            yield from typed_stop(rank, grace_s)


# --- parts


def _teams(request: Request, picture: FleetState) -> tuple[tuple[EngineRank, ...], ...]:
    stops = request.order.stops if request.order is not None else ()
    out = []
    for node, name in stops:
        rank = find(name, node, picture)
        out.append(ranks(rank.engine.key, rank.node.name, picture) if rank is not None else ())
    return tuple(out)


def _ordered(order: Sequence[EngineRank], engine: EngineToStop) -> list[RunningRank]:
    return [rank for team_rank in order for rank in engine.ranks if rank.node == team_rank.node.name]


def _keys(ranks: Sequence[RunningRank]) -> tuple[tuple[str, str], ...]:
    return tuple((rank.node, rank.engine.key) for rank in ranks)


def _unknown(node: str, name: str, picture: FleetState) -> Refused:
    view = picture.node(node)
    if view is not None and view.engines_gap:
        return Refused(f"{view.engines_gap}: whether {name} is there is not known", ("try again in a few seconds",))
    running = [engine.name for engine in view.engines if is_alive(engine)] if view is not None else []
    return Refused(
        f"there is no engine {name} on {node} to stop",
        tuple(f"--stop {shlex.quote(running_name)}" for running_name in running)
        or (f"no engine runs on {node}: leave --stop out",),
    )


def _why_not(engine: EngineToStop) -> str:
    if engine.missing_ranks:
        return (
            f"it runs over {len(engine.team) + engine.missing_ranks} nodes, and {engine.missing_ranks} of its ranks "
            "can't be seen here"
        )
    rank = next(rank for rank in engine.ranks if not rank.is_startable)
    if rank.origin.is_in_sleeping_container:
        return f"{rank.origin.launcher} put it into its container, and starts it"
    if rank.container is None:
        return "it runs in no container and no service"
    return "it was started with --rm, and Docker removes it when it stops"
