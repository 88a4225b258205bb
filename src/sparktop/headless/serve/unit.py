"""`sparktop unit`: prints the systemd unit of a recipe or a running container, installs it, or removes it."""

from __future__ import annotations

import sys
from dataclasses import replace
from enum import StrEnum

from sparktop.clock import Clock, SystemClock
from sparktop.dataclass import dataclass
from sparktop.errors import UsageError
from sparktop.headless.act import (
    MakeSession,
    OutputOptions,
    carry_out,
    check_engines_known,
    check_links,
    nearest,
    put,
    refusal_page,
    tell_interrupted,
    watched,
)
from sparktop.headless.launch import Launch, exported
from sparktop.headless.launch import launch as carry_out_launch
from sparktop.headless.plan_data import refusal_data
from sparktop.headless.terminal import drawn, say, width_of
from sparktop.model.fleet import FleetState
from sparktop.model.recipe import Order
from sparktop.model.request import Request
from sparktop.operate.actions import action
from sparktop.operate.run.operating import Operating
from sparktop.operate.runner.api import AskSecret
from sparktop.operate.serve.unit import PRINT
from sparktop.operate.step.plan import Refusal
from sparktop.operate.targets import target_choices


class Verb(StrEnum):
    """What becomes of the unit."""

    PRINT = "print"
    INSTALL = "install"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitCommand:
    """A unit, as asked for on the command line."""

    name: str
    """A recipe's or a container's."""
    order: Order | None = None
    """Of a recipe; None: the name is a container's."""
    verb: Verb = Verb.PRINT
    is_own: bool = False
    """A unit of the user's own manager."""


async def unit(
    make: MakeSession, command: UnitCommand, *, output: OutputOptions, secret: AskSecret, clock: Clock | None = None
) -> int:
    """Print the unit, or plan, ask and run; the exit code: 0 printed or done, 1 refused or failed, 130 interrupted."""
    if command.order is not None and command.verb is Verb.PRINT:
        kind = "systemd-user" if command.is_own else "systemd"
        return await carry_out_launch(make, Launch(order=command.order, export=kind), output=output, secret=secret)
    async with watched(make, output) as (watch, operating, _):
        check_links(watch.state)
        request = await _request(command, watch.state, operating)
        if command.verb is not Verb.PRINT:
            await tell_interrupted(operating, watch.state)
        answer = await operating.plan(request)
        if isinstance(answer, Refusal) and command.verb is Verb.PRINT:
            say(drawn(refusal_page(answer)(width_of(sys.stderr)), sys.stderr))
            return 1
        if isinstance(answer, Refusal):
            put(output, refusal_page(answer), {"refusal": refusal_data(answer)})
            return 1
        if command.verb is Verb.PRINT:
            print(exported(answer.files), end="")
            return 0
        return await carry_out(operating, answer, output, secret, clock or SystemClock())


async def _request(command: UnitCommand, fleet: FleetState, operating: Operating) -> Request:
    """The request for what is on the nodes now.

    Raises:
        UsageError: there is no such engine.
    """
    nodes = tuple(view.name for view in fleet.nodes)
    options = {"user": "yes"} if command.is_own else {}
    name = command.name
    if command.order is not None:
        answer = await operating.plan(Request(action="launch", nodes=nodes, order=command.order))
        runs = answer.prospect.runs if isinstance(answer, Refusal) and answer.prospect is not None else ()
        if not runs:
            hosts = " ".join(nodes)
            raise UsageError(
                f"{name} doesn't run on {' and '.join(nodes)}: systemd is given an engine that has served",
                hint=f"sparktop launch {name} {hosts}; then this again. A container that was changed since: its name",
            )
        name = runs[0][1]
    if command.verb is Verb.REMOVE:  # its engine may be gone
        return Request(action="remove-unit", nodes=nodes, target=name)
    chosen = action("install-unit")
    assert chosen is not None  # one of ACTIONS
    choices = [one.request for one in target_choices(chosen, fleet)]
    matching = next((request for request in choices if request.target == name), None)
    if matching is None:
        check_engines_known(fleet)
        raise UsageError(
            f"there is no engine and no recipe {name!r} on {' and '.join(nodes)}",
            hint=nearest(name, [request.target for request in choices]) or "sparktop recipes list names the recipes",
        )
    if command.verb is Verb.PRINT:
        options[PRINT] = "yes"
    return replace(matching, options=options)
