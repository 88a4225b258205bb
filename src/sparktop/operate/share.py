"""An engine's share of memory, computed for the machine it runs on, where a remedy leaves the figure to it. Pure.

No constant serves (facts/engines.md 1E, C2): the largest share that leaves the host its reserve is
(available with the engine stopped - reserve - what it takes beside its share) / total, the least of all its nodes,
rounded down to 0.01; as recipe/demand.py computes a launch's. SGLang's is of what is available before it loads, on the
poorest rank.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from sparktop.diagnose.live.beside import beside_of
from sparktop.diagnose.live.expectation import share
from sparktop.diagnose.live.ranks import flag
from sparktop.diagnose.live.window import gib
from sparktop.model.change import AUTO
from sparktop.model.engine import EngineKind
from sparktop.model.fleet import NodeView
from sparktop.operate.flags import CannotEdit
from sparktop.operate.pair import Rank
from sparktop.operate.target import reachable_bytes
from sparktop.recipe.reserve import MOST, most_share, reserve_bytes

SHARES = ("--gpu-memory-utilization", "--mem-fraction-static")
LEAST = 0.10
STEP = 0.05
_STEPS = re.compile(r"[-+]0?\.\d{1,3}")


def literal_flags(
    flags: Mapping[str, str | None], team: Sequence[tuple[Rank, NodeView]]
) -> tuple[dict[str, str | None], tuple[str, ...]]:
    """The flags with figures in place of AUTO, of "-0.05" and "+0.05", and where they come from, in sentences.

    Raises:
        CannotEdit: a figure that can't be computed; says why.
    """
    out: dict[str, str | None] = {}
    notes: list[str] = []
    for name, value in flags.items():
        dashed = name.replace("_", "-")
        if value == AUTO and dashed in SHARES:
            figure, note = largest_share(team)
            out[name] = f"{figure:.2f}"
            notes.append(f"{name} {figure:.2f}: {note}")
        elif value is not None and _STEPS.fullmatch(value):
            out[name] = _moved(name, dashed, float(value), team)
        else:
            out[name] = value
    return out, tuple(notes)


def largest_share(team: Sequence[tuple[Rank, NodeView]]) -> tuple[float, str]:
    """(the share that all its nodes can give, where it comes from).

    Raises:
        CannotEdit: a node's memory isn't known, or leaves too little.
    """
    reach = [_reach(rank, view) for rank, view in team]
    kind = team[0][0].engine.kind
    found = []
    for (rank, view), (most, total) in zip(team, reach, strict=True):
        reserve, who = reserve_bytes(view.facts.is_graphical if view.facts is not None else None)
        beside = beside_of(rank.engine)
        left = f"{gib(reserve)} are left to the host ({who})"
        left += f" and {gib(beside)} to what it takes beside its share"
        base = min(one for one, _ in reach) if kind is EngineKind.SGLANG else total
        figure = math.floor((most - reserve - beside) / base * 100 + 1e-9) / 100 if base > 0 else 0.0
        found.append((figure, f"{gib(most)} can be available on {view.name} without it, {left}, of {gib(base)}"))
    figure, note = min(found)
    ceiling = most_share(kind, len(team), None)
    if figure > ceiling:
        figure, note = ceiling, f"{note}; never more than {ceiling}"
    now = min(share(rank.engine) for rank, _ in team)
    if figure >= now:
        figure, note = now - STEP, f"{STEP} less than now; memory would allow {figure:.2f} ({note})"
    if figure < LEAST:
        raise CannotEdit(f"no share of memory is left for it: {note}")
    return round(figure, 2), note


def _reach(rank: Rank, view: NodeView) -> tuple[int, int]:
    """(the most that can be available without it, all), bytes."""
    if view.sample is None:
        raise CannotEdit(f"what memory {view.name} has isn't known at the moment")
    memory = view.sample.memory
    return reachable_bytes(rank.engine, view) or memory.available_bytes, memory.total_bytes


def _moved(name: str, dashed: str, change: float, team: Sequence[tuple[Rank, NodeView]]) -> str:
    """So much off what stands there or onto it; of a share that isn't given, off or onto its version's default."""
    said = flag(team[0][0].engine.argv, name)
    try:
        now = float(said) if said is not None else share(team[0][0].engine) if dashed in SHARES else None
    except ValueError:
        now = None
    if now is None:
        verb = f"take {-change:g} off" if change < 0 else f"add {change:g} to"
        raise CannotEdit(f"there is no figure of {name} to {verb}")
    figure = round(now + change, 3)
    if figure <= 0:
        raise CannotEdit(f"{name} is {now:g}: {-change:g} less would leave nothing")
    if change > 0 and dashed in SHARES and figure > MOST:
        raise CannotEdit(
            f"{name} is {now:g}: {change:g} more would be over {MOST}, which leaves first requests no room"
        )
    return f"{figure:.2f}" if round(figure, 2) == figure else f"{figure:g}"
