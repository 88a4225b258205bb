"""What every relaunch has in common, whoever started the engine: its sizes, its order, and what both launches need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from sparktop.model.plan import Refusal, Request
from sparktop.operate.changing import Changing
from sparktop.operate.flags import Changed
from sparktop.operate.pair import start_order, stop_order
from sparktop.operate.startsteps import Start, floor_of, load_s
from sparktop.operate.target import gib_option, memory_target
from sparktop.operate.urgency import grace_of

_Rank = TypeVar("_Rank")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The options of a relaunch that are figures."""

    grace_s: float
    target_bytes: int | None
    """The operator's own; None: computed from the engine."""


def sizes(request: Request, found: Sequence[Changing]) -> Sizes | Refusal:
    """As they are set, or which of them can't be meant."""
    try:
        return Sizes(
            grace_s=grace_of(request, [one.part for one in found]),
            target_bytes=gib_option(request.options.get("target_gib", "")),
        )
    except ValueError as error:
        return Refusal(request=request, reason=str(error), remedies=("sparktop act --list explains each option",))


def nothing_new(request: Request, name: str) -> Refusal:
    """What is asked for is there already."""
    return Refusal(
        request=request,
        reason=f"{name} runs with all of this already: there is nothing to change",
        remedies=("to start it again as it is: safe-restart",),
    )


def in_order(found: Sequence[Changing], made: Sequence[_Rank]) -> tuple[list[_Rank], list[_Rank]]:
    """What was made of each of `found`, as the ranks are stopped, and as they are started."""
    by_node = {one.part.node: rank for one, rank in zip(found, made, strict=True)}
    team = tuple(one.part.rank for one in found)
    return [by_node[rank.node] for rank in stop_order(team)], [by_node[rank.node] for rank in start_order(team)]


def starts(one: Changing, flags: Sequence[Changed], wanted_bytes: int | None) -> tuple[Start, Start]:
    """What the changed engine needs to start, and what it needs as it was, for the way back."""
    told = tuple(word for flag in flags if flag.after is not None for word in (flag.name, flag.after))
    engine = one.part.engine
    target = memory_target(
        replace(engine, argv=(*engine.argv[:1], *told, *engine.argv[1:])), one.part.view, wanted_bytes=wanted_bytes
    )
    before = memory_target(engine, one.part.view)
    assert target is not None  # parts() has a sample of every node
    assert before is not None
    start = Start(part=one.part, target=target, floor_bytes=floor_of(one.part), load_s=load_s(engine))
    return start, replace(start, target=before)
