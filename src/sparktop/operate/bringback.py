"""The way back to what was stopped: its memory, its start, its answer, its guard, its restart policy. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sparktop.model.plan import Step
from sparktop.operate import containersteps as steps_of
from sparktop.operate import unitsteps
from sparktop.operate.origin import Kind
from sparktop.operate.startsteps import Start, guard_back, memory, ready


def bring_back(order: Sequence[Start], limit_s: float) -> Iterator[Step]:
    """To how it was: running, with its policy. Memory first, except where nothing was stopped; and the policy only
    when it answers, for with it an engine that fails would fail for ever."""
    for one in order:
        if one.part.box is not None:
            yield replace(memory(one, limit_s, one.part.box.container_id), id=f"back-memory{one.part.mark}")
    boxes = [(one, one.part.box) for one in order if one.part.origin.kind is not Kind.UNIT and one.part.box is not None]
    for one, box in boxes:
        if one.part.runs:
            yield replace(steps_of.start_again(box, one.part.mark), id=f"back-start{one.part.mark}")
    for one in order:
        if one.part.origin.kind is Kind.UNIT:
            yield replace(unitsteps.start(one.part), id=f"back-start{one.part.mark}")
    for one in sorted(order, key=lambda one: not one.part.rank.is_head):
        if one.part.runs:
            yield replace(ready(one, any_run=True), id=f"back-ready{one.part.mark}")
    for one in order:
        if one.part.box is not None:
            yield replace(guard_back(one), id=f"back-guard{one.part.mark}")
    for one, box in boxes:
        if box.restarts:
            yield replace(steps_of.policy_back(box, one.part.mark), id=f"back-policy{one.part.mark}")
