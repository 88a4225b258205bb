"""A planner asked as `Operations` asks it: a Refused that it raises is its answer, and ends its questions."""

from __future__ import annotations

from typing import Any

from sparktop.model.fleet import FleetState
from sparktop.model.request import Request
from sparktop.model.survey import Question, Survey
from sparktop.operate.refused import Refused
from sparktop.operate.step.plan import Plan, Refusal


def asks_of(planner: Any, request: Request, picture: FleetState, survey: Survey) -> tuple[Question, ...]:
    """The planner's questions; none where it refuses."""
    try:
        return tuple(planner.questions(request, picture, survey))
    except Refused:
        return ()


def plan_of(planner: Any, request: Request, picture: FleetState, survey: Survey) -> Plan | Refusal:
    """Its plan or refusal; the same, when it is asked again (tried once for each action and kind of answer)."""
    result = _answer(planner, request, picture, survey)
    if (kind := (request.action, type(result))) not in _ASKED_AGAIN:
        _ASKED_AGAIN.add(kind)
        assert _answer(planner, request, picture, survey) == result, "the same picture, another plan"
    return result


_ASKED_AGAIN: set[tuple[str, type]] = set()


def _answer(planner: Any, request: Request, picture: FleetState, survey: Survey) -> Plan | Refusal:
    try:
        plan: Plan | Refusal = planner.plan(request, picture, survey)
    except Refused as refused:
        return refused.refusal(request)
    return plan
