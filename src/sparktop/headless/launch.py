"""`sparktop launch`: plans a recipe's launch, shows the plan, asks, and runs it; or exports it as files.

Standard output carries the data: the plan and the result, or with `--export` only the files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from sparktop import sanitise
from sparktop.clock import Clock, SystemClock
from sparktop.dataclass import dataclass
from sparktop.engines.rank_order import find
from sparktop.engines.ranks import is_alive
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
from sparktop.headless.plan_data import refusal_data
from sparktop.headless.terminal import drawn, say, width_of
from sparktop.model.fleet import FleetState
from sparktop.model.recipe import Order
from sparktop.model.request import Request
from sparktop.operate.launch.launches_here import running_recipe
from sparktop.operate.refused import Refused
from sparktop.operate.run.operating import Operating
from sparktop.operate.runner.api import AskSecret
from sparktop.operate.step.plan import Refusal
from sparktop.recipe.read.adopt import Adopted
from sparktop.recipe.read.shelf import names as recipe_names

OrderOf = Callable[[Adopted], tuple[Order, Sequence[str]]]
"""(the order of a recipe made of a running container, notes to print), with the operator's values and secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A launch and its options, as given on the command line."""

    order: Order | None
    """None: of a running container, by `order_of`."""
    container: str = ""
    """Its name, where it is launched as it runs."""
    order_of: OrderOf | None = None
    stops: tuple[str, ...] = ()
    """Engines to stop: NAME (on every node that has it) or NAME@NODE."""
    options: Mapping[str, str] = field(default_factory=dict)
    export: str = ""
    """ "run", "compose" or "systemd": only print the files; empty: launch."""
    notes: Sequence[str] = ()
    """Notes to print first."""


async def launch(
    make: MakeSession, command: Launch, *, output: OutputOptions, secret: AskSecret, clock: Clock | None = None
) -> int:
    """Plan the launch, ask, run it; the exit code: 0 served or printed, 1 refused or failed, 130 interrupted."""
    async with watched(make, output) as (watch, operating, _):
        check_links(watch.state)
        await tell_interrupted(operating, watch.state)
        nodes = tuple(view.name for view in watch.state.nodes)
        order, notes, stopped = command.order, command.notes, command.stops
        if order is None:
            assert command.order_of is not None  # goes with it
            order, notes = command.order_of(await adopted_container(operating, command.container, watch.state))
            notes = (f"{command.container} is a container: made into a recipe and launched", *notes)
            stopped = (command.container, *stopped)  # a container is launched in its own place
        for note in notes:
            say(f"sparktop: {note}")
        order = replace(order, stops=_stops(stopped, watch.state))
        request = Request(action="launch", nodes=nodes, order=order, options=command.options)
        answer = await operating.plan(request)
        if command.export and isinstance(answer, Refusal) and answer.prospect is not None and answer.prospect.runs:
            # The recipe already runs: export it as if it replaced itself.
            stops = tuple(dict.fromkeys((*order.stops, *answer.prospect.runs)))
            answer = await operating.plan(replace(request, order=replace(order, stops=stops)))
        if isinstance(answer, Refusal):
            if command.export:
                say(drawn(refusal_page(answer)(width_of(sys.stderr)), sys.stderr))
            else:
                put(output, refusal_page(answer), {"refusal": refusal_data(answer)})
            return 1
        if command.export:
            files = answer.prospect.files.get(command.export, {}) if answer.prospect is not None else {}
            print(exported(files), end="")
            return 0
        return await carry_out(operating, answer, output, secret, clock or SystemClock())


async def adopted_container(operating: Operating, name: str, fleet: FleetState) -> Adopted:
    """The recipe of the container of this name, on any of the nodes.

    Raises:
        UsageError: there is no engine of that name, or no recipe can be made of its container.
    """
    rank = find(name, "", fleet)
    if rank is None:
        check_engines_known(fleet)
        names = [engine.name for view in fleet.nodes for engine in view.engines if engine.container is not None]
        where = " and ".join(view.name for view in fleet.nodes)
        text = f"{sanitise.line(name)} is no recipe, no file here, and no container with an engine on {where}"
        raise UsageError(text, hint=nearest(name, [*names, *recipe_names()]))
    try:
        adopted = await running_recipe(rank, operating.ask)
    except Refused as refused:
        raise UsageError(refused.reason, hint="\n  ".join(refused.remedies) or None) from refused
    if adopted.reading.recipe is None:
        raise UsageError("\n  ".join(map(str, adopted.reading.errors)))
    return adopted


def exported(files: Mapping[str, str]) -> str:
    """The files as one text: a single one as it is, several each with its name above."""
    if len(files) < 2:
        return "".join(files.values())
    return "\n".join(f"# --- {name}\n{text}" for name, text in files.items())


def _stops(names: Sequence[str], fleet: FleetState) -> tuple[tuple[str, str], ...]:
    """(node, engine) of each engine named, on every node that has it.

    Raises:
        UsageError: there is no engine of that name.
    """
    stops: list[tuple[str, str]] = []
    for name in names:
        engine, _, node = name.rpartition("@")
        matching = _running(name, "", fleet) or (_running(engine, node, fleet) if engine and node else [])
        if not matching:
            check_engines_known(fleet)
            running = [other.name for view in fleet.nodes for other in view.engines if is_alive(other)]
            raise UsageError(
                f"there is no engine {name!r} to stop",
                hint=nearest(name, running) or "no engine runs: leave --stop out",
            )
        stops += matching
    return tuple(dict.fromkeys(stops))


def _running(name: str, node: str, fleet: FleetState) -> list[tuple[str, str]]:
    """(node, name) of each running engine of that name; on every node for an empty `node`."""
    nodes = [view.name for view in fleet.nodes if node in ("", view.name)]
    ranks = [find(name, node_name, fleet) for node_name in nodes]
    return [(rank.node.name, name) for rank in ranks if rank is not None and is_alive(rank.engine)]
