"""Check: one question about a node, a container or a pair. Judgement: its answer, which each view words for itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Generic, TypeVar

from sparktop.dataclass import dataclass
from sparktop.knowledge.card import card
from sparktop.model.state import State

F = TypeVar("F")


class View(StrEnum):
    """Where a check is shown."""

    RULE = "rule"
    GATE = "gate"
    LINT = "lint"
    BRING_UP = "bring-up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A check's answer for one set of facts."""

    state: State
    case: str = ""
    """Which of the check's outcomes it is, by its own name; views choose their words by it."""
    subject: str = ""
    """The device, setting or interface that is at fault, where a check looks at several."""
    figures: Mapping[str, str | float] = field(default_factory=dict)
    unknown: str = ""
    """While unknown: why."""
    is_certain: bool = True
    """False: a suspicion."""

    @property
    def is_problem(self) -> bool:
        return self.state.is_problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Generic[F]):
    """One question, judged in one place."""

    id: str
    """"host.driver-branch": a live rule that shows it has the same id, and `knowledge` a card."""
    judge: Callable[[F], Judgement]
    """Pure: equal facts give equal judgements."""
    views: Mapping[View, str]
    """The name it has in each view: the rule's id, the gate's name, the lint's id, the id of the bring-up's card."""

    @property
    def sources(self) -> tuple[str, ...]:
        return card(self.id).sources

    def __call__(self, facts: F) -> Judgement:
        return self.judge(facts)


def check(
    check_id: str, *, is_rule: bool = True, gate: str = "", lint: str = "", bring_up: str = ""
) -> Callable[[Callable[[F], Judgement]], Check[F]]:
    """Make a judging function the check of this card; `checks.catalogue` lists it."""
    named = {View.RULE: check_id if is_rule else "", View.GATE: gate, View.LINT: lint, View.BRING_UP: bring_up}
    views = {view: name for view, name in named.items() if name}
    return lambda judge: Check(id=check_id, judge=judge, views=views)


def passed(case: str = "", **figures: str | float) -> Judgement:
    return Judgement(state=State.PASSED, case=case, figures=figures)


def note(case: str = "", **figures: str | float) -> Judgement:
    return Judgement(state=State.NOTE, case=case, figures=figures)


def warning(case: str = "", **figures: str | float) -> Judgement:
    return Judgement(state=State.WARNING, case=case, figures=figures)


def failed(case: str = "", **figures: str | float) -> Judgement:
    return Judgement(state=State.FAILED, case=case, figures=figures)


def unknown(why: str, case: str = "unread") -> Judgement:
    return Judgement(state=State.UNKNOWN, case=case, unknown=why)


SEVERITY_ORDER = (State.PASSED, State.NOTE, State.UNKNOWN, State.WARNING, State.FAILED)


def worst(*judgements: Judgement) -> Judgement:
    """The worst of several; of equals the first."""
    return max(judgements, key=lambda judgement: SEVERITY_ORDER.index(judgement.state))
