"""Engines that a launch stops to make room, with the operator's consent, and how they are restarted. Pure.

An engine of two nodes is stopped with all its ranks: a rank that is left alone would wait for the other.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sparktop.dataclass import dataclass
from sparktop.engines.memory_target import held_bytes
from sparktop.engines.ranks import EngineRank, is_alive, missing, ranks
from sparktop.model.fleet import FleetState
from sparktop.model.recipe import Order
from sparktop.model.survey import Survey
from sparktop.operate.plan.running_rank import RunningRank, in_order, inspect_ranks, look_up, neighbours, requests_lost
from sparktop.operate.plan.running_start import existing
from sparktop.operate.plan.sequence import rollback
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


def chosen(order: Order, picture: FleetState, survey: Survey) -> tuple[EngineToStop, ...]:
    """The engines that the order stops; or why one of them can't be stopped."""
    engines: list[EngineToStop] = []
    teams = [ranks(name, node, picture) for node, name in order.stops]
    for team in teams:
        look_up(team, survey)
    for (node, name), team in zip(order.stops, teams, strict=True):
        if not team:
            raise _unknown(node, name, picture)
        found = inspect_ranks(team, survey)
        running_ranks = tuple(replace(rank, mark=f"-{len(engines) + 1}@{rank.node}") for rank in found if rank.ran)
        if running_ranks and not any(set(_keys(running_ranks)) & set(_keys(engine.ranks)) for engine in engines):
            engines.append(EngineToStop(ranks=running_ranks, team=team, missing_ranks=missing(team)))
    return tuple(engines)


def every_name(engines: Sequence[EngineToStop]) -> tuple[tuple[str, str], ...]:
    """(node, name) of every rank to stop, by its engine's name and by its container's."""
    rows = [(rank.node, name) for engine in engines for rank in engine.ranks for name in (rank.engine.name, rank.name)]
    return tuple(dict.fromkeys(rows))


def stop_steps(engines: Sequence[EngineToStop], grace_s: float) -> Iterator[Step]:
    """Steps that stop the engines, one after the other, each with all its ranks."""
    for engine in engines:
        down, _ = in_order(engine.ranks, engine.ranks)
        yield from down_steps(down, grace_s, is_coming_back=True)


def restart_steps(engines: Sequence[EngineToStop]) -> Iterator[Step]:
    """Rollback steps that restart the engines that can be restarted."""
    for engine in engines:
        if engine.comes_back:
            nodes = tuple(rank.node for rank in engine.ranks)
            _, up = in_order(engine.ranks, [existing(rank).phases for rank in engine.ranks])
            yield from (replace(step, needs_nodes=nodes) for step in rollback((), up))


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
        down, _ = in_order(engine.ranks, engine.ranks)
        yield from (line for rank in down for line in typed_stop(rank, grace_s))


# --- parts


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
