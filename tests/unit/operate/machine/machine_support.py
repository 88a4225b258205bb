"""Answers of a Spark to what the planners of the machine's own actions ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.planner_support import asks_of, plan_of

from sparktop.model.fleet import FleetState
from sparktop.model.request import Request
from sparktop.model.survey import (
    ROUNDS_AT_MOST,
    Answer,
    FileText,
    OperatorKeys,
    Output,
    Privileges,
    PrivilegesQuestion,
    PublicKey,
    Question,
    Survey,
)
from sparktop.operate.actions import Planner
from sparktop.operate.acts.remote import Remote
from sparktop.operate.step.plan import Plan, Refusal, Step

SPARK = Privileges(user="spark", sudo="password", docker="open")
FREE = Privileges(user="spark", sudo="free", docker="open")
SYSCTL = ("/usr/sbin/sysctl", "-w", "vm.drop_caches=3")

SESSIONS = "   2 1000 spark seat0 tty2\n  c1  120 gdm   seat0 tty1\n  57 1000 spark       pts/0\n"


def session(number: str, user: str, uid: int, kind: str, session_class: str = "user") -> str:
    return (
        f"Id={number}\nUser={uid}\nName={user}\nSeat=seat0\nRemote=no\nType={kind}\n"
        f"Class={session_class}\nState=active\n"
    )


def stat(pid: int, command: str, *, state: str = "S", started_s: float, parent: int = 1) -> str:
    ticks = round(started_s * 100)
    return f"{pid} ({command}) {state} {parent} {' '.join(['7'] * 17)} {ticks} 0 0\n"


def planned(
    planner: Planner,
    request: Request,
    picture: FleetState,
    *,
    privileges: Mapping[str, Privileges | None] | Privileges | None = SPARK,
    files: Mapping[str, str] | None = None,
    outputs: Mapping[str, str | None] | None = None,
    keys: tuple[PublicKey, ...] = (),
) -> Plan | Refusal:
    """What is planned, after as many rounds of questions as it takes.

    Args:
        outputs: by how the command begins, or "NODE: command", the longest wins; None: it fails.
        keys: the operator's own.
    """
    survey = Survey()
    for _ in range(ROUNDS_AT_MOST):
        questions = asks_of(planner, request, picture, survey)
        if set(questions) <= set(survey.answers):
            return plan_of(planner, request, picture, survey)
        answers = {ask: _answer(ask, privileges, files or {}, outputs or {}, keys) for ask in questions}
        survey = Survey(answers={**survey.answers, **answers})
    raise AssertionError(f"it never stops asking: {asks_of(planner, request, picture, survey)}")


def _answer(
    ask: Question,
    privileges: Any,
    files: Mapping[str, str],
    outputs: Mapping[str, str | None],
    keys: tuple[PublicKey, ...],
) -> Answer:
    if isinstance(ask, OperatorKeys):
        return Answer(value=keys)
    if isinstance(ask, PrivilegesQuestion):
        value = privileges.get(ask.node) if isinstance(privileges, Mapping) else privileges
        return Answer(value=value, problem="" if value else "the node doesn't answer")
    if isinstance(ask, FileText):
        return Answer(value=files.get(ask.path))
    if isinstance(ask, Output):
        command = " ".join(ask.argv)
        said = (command, f"{ask.node}: {command}")
        starts = [start for start in outputs if any(text.startswith(start) for text in said)]
        text = outputs[max(starts, key=len)] if starts else None
        return Answer(value=text, problem="" if text is not None else "no such program", code=int(text is None))
    raise AssertionError(f"not foreseen: {ask}")


def ids(plan: Plan | Refusal) -> list[str]:
    assert isinstance(plan, Plan), plan
    assert len({step.id for step in plan.steps}) == len(plan.steps)
    return [step.id for step in plan.steps]


def step(plan: Plan | Refusal, step_id: str) -> Step:
    assert isinstance(plan, Plan), plan
    return next(one for one in (*plan.steps, *plan.rollback) if one.id == step_id)


def operations(plan: Plan | Refusal, step_id: str) -> tuple[Any, ...]:
    act = step(plan, step_id).act
    assert isinstance(act, Remote)
    return act.operations


def refused(plan: Plan | Refusal) -> str:
    assert isinstance(plan, Refusal), plan
    return plan.reason


def warned(plan: Plan | Refusal) -> str:
    assert isinstance(plan, Plan), plan
    return "\n".join(plan.warnings)
