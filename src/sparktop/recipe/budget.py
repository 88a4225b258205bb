"""Whether a launch fits, and what would make it fit: the one place that planner and console ask. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sparktop.model.prospect import Budget, OnDisk
from sparktop.model.recipe import Order
from sparktop.recipe.demand import Case
from sparktop.recipe.judging import judge
from sparktop.recipe.levers import levers, told
from sparktop.recipe.modelfacts import ModelFacts
from sparktop.recipe.room import Room
from sparktop.recipe.settings import read


def budget(
    order: Order,
    rooms: Sequence[Room],
    facts: ModelFacts | None,
    *,
    values: Mapping[str, str],
    on_disk: Sequence[OnDisk] = (),
    beside: Sequence[ModelFacts] = (),
) -> Budget:
    """The budget of this launch on these nodes, the head first.

    Args:
        facts: of the model; None where neither its files nor the hub could be looked at.
        values: every parameter as it would be used.
        on_disk: what `alternatives` found: offered where it would change the verdict.
        beside: facts of further models that it loads on every node, such as a draft.
    """
    case = Case(
        settings=read(order, values),
        need=order.recipe.need,
        rooms=tuple(rooms),
        facts=facts,
        beside=tuple(beside),
    )
    verdict = judge(case)
    found = levers(case, verdict, order, on_disk)
    return replace(verdict, sentence=told(verdict, found), levers=tuple(typed for typed, _ in found))
