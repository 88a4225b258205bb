"""A planner asked as `Operations` asks it: a Refused that it raises is its answer, and ends its questions."""

from __future__ import annotations

from typing import Any

from sparktop.model.fleet import FleetState
from sparktop.model.request import Request
from sparktop.model.survey import Ask, Survey
from sparktop.operate.refused import Refused
from sparktop.operate.step.plan import Plan, Refusal


def asks_of(planner: Any, request: Request, picture: FleetState, survey: Survey) -> tuple[Ask, ...]:
    """The planner's questions; none where it refuses."""
    try:
        return tuple(planner.asks(request, picture, survey))
    except Refused:
        return ()


def plan_of(planner: Any, request: Request, picture: FleetState, survey: Survey) -> Plan | Refusal:
    """The same plan or refusal, however often it is asked for."""
    results = []
    for _ in range(2):
        try:
            results.append(planner.plan(request, picture, survey))
        except Refused as refused:
            results.append(refused.refusal(request))
    assert results[0] == results[1], "the same picture, another plan"
    result: Plan | Refusal = results[0]
    return result
