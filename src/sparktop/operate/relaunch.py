"""Relaunch with a change: finds the engine with all its ranks, and has it started anew by whoever started it. Pure.

A plain container is made once more with the change (`swap`), also one of `sparktop launch` (`launched`). One that
another tool made is that tool's to make anew: a container made beside it would be undone, or started twice, by the next
`docker compose up` or restart of the service (facts/engines.md sections 6.1, 6.4, 6.6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol

from sparktop.model.fleet import FleetState
from sparktop.model.plan import Plan, Refusal, Request
from sparktop.operate import byhand, launched, launcher, launchlint, swap
from sparktop.operate.changing import Changing, changing
from sparktop.operate.changing import asks as changing_asks
from sparktop.operate.starter import StarterKind
from sparktop.operate.survey import Ask, Survey

_WAYS: Mapping[StarterKind, str] = {
    StarterKind.COMPOSE: "composed",
    StarterKind.UNIT: "unit",
    StarterKind.SPARKRUN: "launcher",
    StarterKind.EUGR: "launcher",
    StarterKind.RUN_CLUSTER: "launcher",
    StarterKind.EXEC: "launcher",
    StarterKind.PROCESS: "launcher",
}
"""Modules with `asks` and `plan`; a way that has none yet is told to be gone by hand."""


class Way(Protocol):
    """How an engine of one kind of starter is started anew."""

    def asks(
        self, request: Request, found: tuple[Changing, ...], picture: FleetState, survey: Survey
    ) -> tuple[Ask, ...]: ...

    def plan(
        self, request: Request, found: tuple[Changing, ...], picture: FleetState, survey: Survey
    ) -> Plan | Refusal: ...


def asks(request: Request, picture: FleetState, survey: Survey) -> tuple[Ask, ...]:
    wanted = changing_asks(request, picture, survey)
    if any(ask not in survey.answers for ask in wanted):
        return wanted
    found = changing(request, picture, survey)
    way = None if isinstance(found, Refusal) else _way(found)
    if isinstance(found, Refusal) or way is None:
        return wanted
    return tuple(dict.fromkeys((*wanted, *way.asks(request, found, picture, survey))))


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan | Refusal:
    """The plan of the way that fits, or why there is none."""
    found = changing(request, picture, survey)
    if isinstance(found, Refusal):
        return found
    refused = launcher.elsewhere(request, found) or launched.refusal(request, found)
    if refused is not None:
        return refused
    if len({one.starter.kind for one in found}) > 1:
        put_there = tuple(one for one in found if one.starter.is_launched)
        if put_there:  # its launcher started the other ranks too
            return launcher.plan(request, put_there, picture, survey)
        told = ", ".join(f"{one.part.node}: {one.starter.kind.value}" for one in found)
        return Refusal(
            request=request,
            reason=f"the ranks of {found[0].part.name} were started in different ways ({told})",
            remedies=tuple(line for one in found for line in byhand.lines(one)),
        )
    way = _way(found)
    if way is None:
        return byhand.refusal(request, found)
    made = way.plan(request, found, picture, survey)
    if isinstance(made, Refusal):
        return made
    return replace(made, warnings=(*made.warnings, *launchlint.warnings(found)))


def _way(found: tuple[Changing, ...]) -> Way | None:
    name = _WAYS.get(found[0].starter.kind)
    if name is None:
        return swap
    path = f"sparktop.operate.{name}"
    if find_spec(path) is None:
        return None
    way: Way = import_module(path)
    return way
