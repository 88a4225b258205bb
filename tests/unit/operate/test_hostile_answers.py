"""Whatever a node's Docker and programs answer to a planner, it plans or refuses, and its words are text."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import relaunch_support as relaunches
from tests import restart_support as restarts
from tests.plain_text import unclean
from tests.planner_support import asks_of, plan_of

from sparktop.model.change import Change
from sparktop.model.fleet import FleetState
from sparktop.model.survey import Answer, Question, Survey
from sparktop.operate.restart import loop, restart, stop
from sparktop.operate.step.plan import Plan, Refusal

ODD = st.sampled_from([
    *(None, True, False, 0, 7, -1, 2**63, 1.5, 1e30, "", "x", "0", "\x1b[2J\u202e\n", "a" * 3000, "../../x", "--flag"),
    *([], [None], [[]], ["\x1b"], {}, {"a": []}, {"\x1b[2J": {"\x1b": 1}}, [{"Name": [1]}] * 3),
])  # fmt: skip
PICTURES = [
    restarts.made.picture(restarts.spark(engines=(restarts.made.engine(),))),
    restarts.two(),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in an answer, its own included."""
    if isinstance(value, dict):
        return [path, *(place for key, inner in value.items() for place in places(inner, (*path, key)))]
    if isinstance(value, list):
        return [path, *(place for index, inner in enumerate(value) for place in places(inner, (*path, index)))]
    return [path]


def spoilt(value: Any, data: st.DataObject) -> Any:
    """The answer with up to three other values in it."""
    whole = copy.deepcopy(value)
    for _ in range(data.draw(st.integers(1, 3))):
        path, odd = data.draw(st.sampled_from(places(whole))), data.draw(ODD)
        if not path:
            return copy.deepcopy(odd)
        inner = whole
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = copy.deepcopy(odd)
    return whole


def hold(result: Plan | Refusal) -> None:
    if isinstance(result, Refusal):
        assert unclean((result.reason, result.remedies)) == []
        return
    steps = (*result.steps, *result.rollback)
    words = [(step.title, step.verifies, *step.act.undoing(), *step.act.commands()) for step in steps]
    assert unclean((result.title, result.effect, result.warnings, result.equivalent, words)) == []


@pytest.mark.parametrize(
    ("planner", "action"), [(restart, "safe-restart"), (stop, "stop-engine"), (loop, "break-restart-loop")]
)
@given(data=st.data())
def test_restart_stop_and_loop(planner: Any, action: str, data: st.DataObject) -> None:
    picture: FleetState = data.draw(st.sampled_from(PICTURES))
    engine = picture.nodes[0].engines[0].name
    request = restarts.request(action, engine, *(node.name for node in picture.nodes))
    survey = Survey()
    for _ in range(4):
        questions = asks_of(planner, request, picture, survey)
        new = tuple(ask for ask in questions if ask not in survey.answers)
        if not new:
            break
        answers = dict(restarts.survey(picture, new).answers)
        victim = data.draw(st.sampled_from(new))
        answers[victim] = Answer(value=spoilt(answers[victim].value, data), problem=answers[victim].problem)
        survey = Survey(answers={**survey.answers, **answers})
    hold(plan_of(planner, request, picture, survey))


@given(data=st.data())
def test_relaunch(data: st.DataObject) -> None:
    picture: FleetState = data.draw(st.sampled_from(PICTURES))
    request = relaunches.asked(
        Change(flags={"--max-model-len": "4096"}, environment={"NCCL_DEBUG": "INFO"}),
        *(node.name for node in picture.nodes),
        target=picture.nodes[0].engines[0].name,
    )

    lies: dict[Question, Answer | None] = {}

    def own(ask: Question) -> Answer | None:
        if ask not in lies:
            (answer,) = relaunches.answered(picture, (ask,)).answers.values()
            lie = Answer(value=spoilt(answer.value, data), problem=answer.problem)
            lies[ask] = lie if data.draw(st.booleans()) else None
        return lies[ask]

    hold(relaunches.planned(request, picture, own))
