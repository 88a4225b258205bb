"""What is stopped to make room for a launch, because the operator agreed to it, and how it comes back. Pure.

An engine of two nodes goes with all its ranks, wherever they are: one that is stopped alone leaves the other waiting.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sparktop.diagnose.live.ranks import is_alive
from sparktop.diagnose.live.window import gib
from sparktop.model.fleet import FleetState
from sparktop.model.plan import Refusal, Request, Step
from sparktop.operate.bringback import bring_back
from sparktop.operate.downsteps import down_steps
from sparktop.operate.origin import Kind
from sparktop.operate.pair import Rank, find, missing, ranks, start_order, stop_order
from sparktop.operate.part import Part, neighbours, parts, requests_lost
from sparktop.operate.part import asks as part_asks
from sparktop.operate.restartwords import equivalent
from sparktop.operate.startsteps import MEMORY_LIMIT_S, Start, floor_of, load_s
from sparktop.operate.survey import Ask, Survey
from sparktop.operate.target import held_bytes, memory_target


@dataclass(frozen=True, slots=True, kw_only=True)
class Going:
    """One engine that is stopped."""

    parts: tuple[Part, ...]
    """Its ranks that run, head first."""
    team: tuple[Rank, ...]
    lacking: int = 0
    """Ranks of it that are not seen here: half of a pair, which is stopped, and never started again alone."""

    @property
    def name(self) -> str:
        return self.parts[0].name

    @property
    def comes_back(self) -> bool:
        """Whether anything here can start it again as it was."""
        return not self.lacking and all(_is_startable(part) for part in self.parts)

    def held_on(self, node: str) -> int:
        """What comes back there when it has gone, bytes."""
        return sum(held_bytes(part.engine, part.view) or 0 for part in self.parts if part.node == node)


def asks(request: Request, picture: FleetState) -> tuple[Ask, ...]:
    """What is to be known of what goes."""
    return tuple(dict.fromkeys(ask for team in _teams(request, picture) if team for ask in part_asks(team, picture)))


def goings(request: Request, picture: FleetState, survey: Survey) -> tuple[Going, ...] | Refusal:
    """All that is stopped; or why one of them can't be."""
    stops = request.order.stops if request.order is not None else ()
    found: list[Going] = []
    for (node, name), team in zip(stops, _teams(request, picture), strict=True):
        if not team:
            return _unknown(request, node, name, picture)
        made = parts(request, team, picture, survey)
        if isinstance(made, Refusal):
            return made
        running = tuple(replace(part, mark=f"-{len(found) + 1}@{part.node}") for part in made if part.runs)
        if running and not any(set(_keys(running)) & set(_keys(one.parts)) for one in found):
            found.append(Going(parts=running, team=team, lacking=missing(team, picture)))
    return tuple(found)


def by_every_name(found: Sequence[Going]) -> tuple[tuple[str, str], ...]:
    """(node, name) of every rank that goes, by its engine's name and its container's."""
    rows = [(part.node, name) for one in found for part in one.parts for name in (part.engine.name, part.name)]
    return tuple(dict.fromkeys(rows))


def down(found: Sequence[Going], grace_s: float, survey: Survey) -> Iterator[Step]:
    """One engine after the other, each with all its ranks."""
    for one in found:
        order = [part for rank in stop_order(one.team) for part in one.parts if part.node == rank.node]
        yield from down_steps(order, grace_s, is_coming_back=True, survey=survey)


def back(found: Sequence[Going]) -> Iterator[Step]:
    """What can be started again is, as it was."""
    for one in found:
        if one.comes_back:
            nodes = tuple(part.node for part in one.parts)
            yield from (replace(step, needs_nodes=nodes) for step in bring_back(_starts(one), MEMORY_LIMIT_S))


def warnings(found: Sequence[Going]) -> Iterator[str]:
    """What is lost by it."""
    for one in found:
        where = " and ".join(part.node for part in one.parts)
        held = sum(held_bytes(part.engine, part.view) or 0 for part in one.parts)
        holds = f", which holds {gib(held)}" if held else ""
        stays = "stays stopped when the launch has served" if one.comes_back else "is not started again from here"
        yield f"{one.name} on {where}{holds}, is stopped to make room, and {stays}."
        if requests := sum(part.requests for part in one.parts):
            yield requests_lost(requests, one.name)
        for part in one.parts:
            yield from neighbours(part)
        if not one.comes_back:
            yield f"{one.name} is not there again if the launch fails: {_why_not(one)}."


def by_hand(found: Sequence[Going], grace_s: float) -> Iterator[str]:
    """The same as commands."""
    for one in found:
        order = [part for rank in stop_order(one.team) for part in one.parts if part.node == rank.node]
        yield from equivalent(order, (), (), grace_s)


# --- parts


def _teams(request: Request, picture: FleetState) -> tuple[tuple[Rank, ...], ...]:
    stops = request.order.stops if request.order is not None else ()
    out = []
    for node, name in stops:
        rank = find(name, node, picture)
        out.append(ranks(rank.engine.key, rank.node, picture) if rank is not None else ())
    return tuple(out)


def _keys(found: Sequence[Part]) -> tuple[tuple[str, str], ...]:
    return tuple((part.node, part.engine.key) for part in found)


def _unknown(request: Request, node: str, name: str, picture: FleetState) -> Refusal:
    view = picture.node(node)
    there = [engine.name for engine in view.engines if is_alive(engine)] if view is not None else []
    return Refusal(
        request=request,
        reason=f"there is no engine {name} on {node} to stop",
        remedies=tuple(f"--stop {shlex.quote(one)}" for one in there)
        or (f"no engine runs on {node}: leave --stop out",),
    )


def _is_startable(part: Part) -> bool:
    if part.origin.kind is Kind.UNIT:
        return True
    return part.box is not None and not part.box.auto_remove and part.origin.kind is not Kind.LAUNCHER


def _why_not(one: Going) -> str:
    if one.lacking:
        return f"it runs over {len(one.team) + one.lacking} nodes, and {one.lacking} of its ranks can't be seen here"
    part = next(part for part in one.parts if not _is_startable(part))
    if part.origin.kind is Kind.LAUNCHER:
        return f"{part.origin.launcher} has put it into its container, and starts it"
    if part.box is None:
        return "it runs in no container and no service"
    return "it was started with --rm, and Docker removes it when it stops"


def _starts(one: Going) -> tuple[Start, ...]:
    """What each rank needs to start again, in the order of starting."""
    found = []
    for rank in start_order(one.team):
        for part in one.parts:
            target = memory_target(part.engine, part.view) if part.node == rank.node else None
            if target is not None:
                found.append(Start(part=part, target=target, floor_bytes=floor_of(part), load_s=load_s(part.engine)))
    return tuple(found)
