"""`sparktop unit`, `expose`, `forward`: an engine's systemd unit, its proxy's site, a local port that leads to it."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from sparktop.engines.ranks import is_alive
from sparktop.errors import UsageError
from sparktop.headless.invocation import (
    Invocation,
    carry_out,
    check_links,
    connected,
    no_engine,
    print_files,
    tell_interrupted,
    watched,
)
from sparktop.headless.launch import Launch, launch
from sparktop.headless.look import MakeWatch
from sparktop.headless.terminal import say
from sparktop.model.fleet import FleetState
from sparktop.model.recipe import Order
from sparktop.model.request import Request
from sparktop.operate.actions import action
from sparktop.operate.acts.checks import exposed_here
from sparktop.operate.run.operating import Operating
from sparktop.operate.serve.proxy import REMOVE
from sparktop.operate.serve.proxy_config import Proxy, Site, key_text, site_text
from sparktop.operate.serve.unit import PRINT
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.targets import target_choices

SECRET = "YOUR-KEY"  # noqa: S105 - it stands for one


class Verb(StrEnum):
    """What becomes of the unit."""

    PRINT = "print"
    INSTALL = "install"
    REMOVE = "remove"


async def unit(call: Invocation, name: str, order: Order | None, verb: Verb, *, is_own: bool) -> int:
    """Print the unit, or plan, ask and run; the exit code: 0 printed or done, 1 refused or failed, 130 interrupted.

    Args:
        name: a recipe's or a container's.
        order: of a recipe; None: the name is a container's.
        is_own: a unit of the user's own manager.
    """
    if order is not None and verb is Verb.PRINT:
        return await launch(call, Launch(order=order, export="systemd-user" if is_own else "systemd"))
    async with watched(call) as (look, operating):
        check_links(look.state)
        request = await _request(name, order, verb, look.state, operating)
        if is_own and verb is not Verb.REMOVE:
            request = replace(request, options={**request.options, "user": "yes"})
        if verb is not Verb.PRINT:
            await tell_interrupted(operating, look.state)
        answer = await operating.plan(request)
        if verb is Verb.PRINT:
            return print_files(answer, answer.files if isinstance(answer, Plan) else {})
        return await carry_out(call, operating, answer)


async def _request(name: str, order: Order | None, verb: Verb, fleet: FleetState, operating: Operating) -> Request:
    """The request for what is on the nodes now.

    Raises:
        UsageError: there is no such engine.
    """
    nodes = tuple(view.name for view in fleet.nodes)
    if order is not None:
        answer = await operating.plan(Request(action="launch", nodes=nodes, order=order))
        runs = answer.prospect.runs if isinstance(answer, Refusal) and answer.prospect is not None else ()
        if not runs:
            hosts = " ".join(nodes)
            raise UsageError(
                f"{name} doesn't run on {' and '.join(nodes)}: systemd is given an engine that has served",
                hint=f"sparktop launch {name} {hosts}; then this again. A container that was changed since: its name",
            )
        name = runs[0][1]
    if verb is Verb.REMOVE:  # its engine may be gone
        return Request(action="remove-unit", nodes=nodes, target=name)
    chosen = action("install-unit")
    assert chosen is not None  # one of ACTIONS
    choices = [one.request for one in target_choices(chosen, fleet)]
    matching = next((request for request in choices if request.target == name), None)
    if matching is None:
        message = f"there is no engine and no recipe {name!r} on {' and '.join(nodes)}"
        names = [request.target for request in choices]
        raise no_engine(fleet, message, name, names, hint="sparktop recipes list names the recipes")
    return replace(matching, options={PRINT: "yes"} if verb is Verb.PRINT else {})


def print_site(site: Site, proxy: Proxy) -> int:
    """Print the configuration, and below it the file of its key."""
    folder = f"/etc/{proxy}/sparktop"
    print(site_text(site, proxy, folder), end="")
    say(f"\nand {folder}/{site.name}.key, mode 0600, with your key:")
    say(key_text(site, proxy, SECRET).rstrip())
    return 0


async def expose(call: Invocation, request: Request) -> int:
    """Plan, ask and run, or print the file; the exit code: 0 printed or done, 1 refused or failed, 130 interrupted."""
    async with watched(call) as (look, operating):
        check_links(look.state)
        if request.options.get(PRINT) == "yes":
            answer = await operating.plan(request)
            return print_files(answer, answer.files if isinstance(answer, Plan) else {})
        await tell_interrupted(operating, look.state)
        code = await carry_out(call, operating, await operating.plan(request))
        if code == 0 and not call.is_dry and request.options.get(REMOVE) != "yes":
            seen = await exposed_here(request.options["name"], int(request.options.get("listen") or 80), request.secret)
            say(f"from this machine: {seen.detail}")
            if not seen.ok:
                say("  that is its name's or its network's, if the check on its own host passed: DNS, a firewall")
        return code


async def forward(make: MakeWatch, engine: str, port: int, *, timeout_s: float) -> int:
    """Print the local address of the engine (empty: the only one), and pass on until interrupted."""
    async with connected(make, timeout_s) as look:
        check_links(look.state)
        (node,) = look.names
        name = _engine(engine, look.state)
        made = await look.watch.forward(node, name, port)
        print(f"http://127.0.0.1:{made.port}", flush=True)
        say(f"leads to {name} on {node}, over SSH; Ctrl-C ends it")
        await look.say_links()
    return 0


def _engine(name: str, fleet: FleetState) -> str:
    """The name of the engine that is meant.

    Raises:
        UsageError: none or several match.
    """
    view = fleet.nodes[0]
    serving = [one.name for one in view.engines if is_alive(one) and one.endpoint is not None]
    if name in serving or (not name and len(serving) == 1):
        return name or serving[0]
    if not name and serving:
        raise UsageError(f"which engine of {view.name}?", hint=f"there is {', '.join(serving)}")
    what = f"no engine {name!r} serves" if name else "no engine serves"
    raise no_engine(fleet, f"{what} on {view.name}", name, serving)
