"""Letting the login user linger: what is run, where it is refused, and how it is undone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.pictures_support import idle_node, picture
from tests.plan_golden import compare_plan
from tests.unit.operate.machine.machine_support import FREE, ids, operations, planned, refused, warned

from sparktop.model.fleet import NodeView
from sparktop.model.request import Request
from sparktop.model.survey import Privileges
from sparktop.operate.machine import linger
from sparktop.operate.step.plan import Plan


def node(name: str = "spark1", **facts: Any) -> NodeView:
    view = idle_node(name)
    assert view.facts is not None
    return replace(view, facts=replace(view.facts, **{"user": "spark", "is_lingering": False, **facts}))


def ask(*nodes: str) -> Request:
    return Request(action="enable-linger", nodes=nodes or ("spark1",))


def test_both_nodes_and_back() -> None:
    plan = planned(linger, ask("spark1", "spark2"), picture(node(), node("spark2")), privileges=FREE)
    compare_plan("enable-linger", plan)
    assert ids(plan) == ["enable-linger@spark1", "enable-linger@spark2"]
    command, seen = operations(plan, "enable-linger@spark1")
    assert command.argv == ("/usr/bin/loginctl", "enable-linger", "spark")
    assert command.done_when == seen, "what is done already is not done again"
    assert isinstance(plan, Plan)
    assert [one.undoes for one in plan.rollback] == [("enable-linger@spark1",), ("enable-linger@spark2",)]


def test_only_where_the_user_does_not_linger_yet() -> None:
    plan = planned(linger, ask("spark1", "spark2"), picture(node(is_lingering=True), node("spark2")), privileges=FREE)
    assert ids(plan) == ["enable-linger@spark2"]


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        pytest.param({"is_lingering": True}, "lingers already", id="lingers"),
        pytest.param({"user_id": 0}, "lingers already", id="root keeps its objects"),
        pytest.param({"is_lingering": None, "gaps": {"is_lingering": "not found"}}, "not found", id="no logind"),
        pytest.param({"user": "-o evil"}, "which user", id="no name of a user"),
    ],
)
def test_refused(facts: dict[str, Any], reason: str) -> None:
    assert reason in refused(planned(linger, ask(), picture(node(**facts)), privileges=FREE))


def test_root_by_password_or_not_at_all() -> None:
    assert "spark's password" in warned(planned(linger, ask(), picture(node())))
    none = Privileges(user="spark", sudo="missing")
    assert "needs root" in refused(planned(linger, ask(), picture(node()), privileges=none))
