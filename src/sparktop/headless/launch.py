"""`sparktop launch`: a recipe planned, shown whole, asked about, and run; or written out as files to keep.

Standard output carries data: the plan and how it went, or with `--export` the files and nothing else. A refusal prints
the picture of why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sparktop.clock import Clock, SystemClock
from sparktop.diagnose.live.ranks import is_alive
from sparktop.errors import UsageError
from sparktop.headless.act import MakeBoth, Manner, carry_out, check_links, nearest, put, tell_cut_off, watched
from sparktop.headless.narration import say
from sparktop.headless.plans import refusal_data, refusal_text
from sparktop.model.fleet import FleetState
from sparktop.model.plan import Refusal, Request
from sparktop.model.recipe import Order
from sparktop.operate.line import AskSecret
from sparktop.operate.pair import find


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What the command line asks for."""

    order: Order
    stops: tuple[str, ...] = ()
    """Engines that may be stopped, by name, or NAME@NODE: on which nodes they are is seen there."""
    options: Mapping[str, str] = field(default_factory=dict)
    export: str = ""
    """ "run", "compose" or "systemd": nothing is run, the files are printed."""
    notes: Sequence[str] = ()
    """What is to be known beforehand."""


async def launch(
    make: MakeBoth, wanted: Launch, *, manner: Manner, secret: AskSecret, clock: Clock | None = None
) -> int:
    """Plan it, ask, run it; the exit code: 0 served or printed, 1 refused or failed, 130 interrupted."""
    for note in wanted.notes:
        say(f"sparktop: {note}")
    async with watched(make, manner) as (watch, operating, _):
        check_links(watch.state)
        await tell_cut_off(operating, watch.state)
        nodes = tuple(view.name for view in watch.state.nodes)
        order = replace(wanted.order, stops=_stops(wanted.stops, watch.state))
        request = Request(action="launch", nodes=nodes, order=order, options=wanted.options)
        answer = await operating.plan(request)
        if wanted.export and isinstance(answer, Refusal) and answer.prospect is not None and answer.prospect.runs:
            # What runs is what is to be written down: as it would be launched in its own place.
            stops = tuple(dict.fromkeys((*order.stops, *answer.prospect.runs)))
            answer = await operating.plan(replace(request, order=replace(order, stops=stops)))
        if isinstance(answer, Refusal):
            if wanted.export:
                say("\n".join(refusal_text(answer)))
            else:
                put(manner, refusal_text(answer), {"refusal": refusal_data(answer)})
            return 1
        if wanted.export:
            found = answer.prospect.files.get(wanted.export, {}) if answer.prospect is not None else {}
            print(exported(found), end="")
            return 0
        return await carry_out(operating, answer, manner, secret, clock or SystemClock())


def exported(files: Mapping[str, str]) -> str:
    """One file as it is; of several each with its name above it."""
    if len(files) < 2:
        return "".join(files.values())
    return "\n".join(f"# --- {name}\n{text}" for name, text in files.items())


def _stops(names: Sequence[str], fleet: FleetState) -> tuple[tuple[str, str], ...]:
    """(node, engine) of those that are named, on every node that has one.

    Raises:
        UsageError: there is none of that name.
    """
    found: list[tuple[str, str]] = []
    for name in names:
        engine, _, node = name.rpartition("@")
        own = _alive(name, "", fleet) or (_alive(engine, node, fleet) if engine and node else [])
        if not own:
            there = [one.name for view in fleet.nodes for one in view.engines if is_alive(one)]
            raise UsageError(
                f"there is no engine {name!r} to stop", hint=nearest(name, there) or "no engine runs: leave --stop out"
            )
        found += own
    return tuple(dict.fromkeys(found))


def _alive(name: str, node: str, fleet: FleetState) -> list[tuple[str, str]]:
    """(node, name) of each that runs under the name, on every node for an empty `node`."""
    asked = [view.name for view in fleet.nodes if node in ("", view.name)]
    ranks = [find(name, one, fleet) for one in asked]
    return [(rank.node, name) for rank in ranks if rank is not None and is_alive(rank.engine)]
