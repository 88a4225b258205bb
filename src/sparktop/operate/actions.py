"""Every action: its name, text, risk and options, and the module that plans it. actions.toml lists them.

A planner is a module with two pure functions: `questions(request, picture, survey)` returns its questions to the nodes
(it is called again with the answers until it has no more), `plan(request, picture, survey)` returns a Plan. Either may
raise Refused.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from sparktop.dataclass import dataclass
from sparktop.model.fleet import FleetState
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Question, Survey
from sparktop.operate.step.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option of an action: `--set NAME=VALUE` on the command line."""

    name: str
    description: str
    default: str = ""
    choices: tuple[str, ...] = ()
    is_required: bool = False
    meanings: tuple[str, ...] = ()
    """What each choice does, in their order, where the description doesn't say it."""

    @property
    def text(self) -> str:
        """The description, and what each choice does."""
        parts = (f"{choice}: {meaning}" for choice, meaning in zip(self.choices, self.meanings, strict=False))
        return "; ".join(filter(None, (self.description, *parts)))


REQUESTS_AT_RISK = "interrupts any running requests"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One action that sparktop offers."""

    name: str
    title: str
    description: str
    """One sentence: what it does."""
    risk: Risk
    """The highest risk a plan of it can have; the plan states its own."""
    at_risk: str = REQUESTS_AT_RISK
    """What a disruptive plan of it does to others."""
    target: str
    """What it is applied to: "engine", "process", "node" or "nodes"; "recipe" or "command" where it takes more than a
    target, and has a command of its own."""

    @property
    def phrase(self) -> str:
        """Its title inside a sentence: "kill a GPU process"."""
        return self.title[0].lower() + self.title[1:]

    @property
    def is_own_command(self) -> bool:
        """Whether it is planned by a command of its own, not by `sparktop act`."""
        return self.has_own_command or self.target in ("recipe", "command")

    planner: str
    """The planner's module, within `sparktop.operate`."""
    options: tuple[Option, ...] = ()
    has_own_command: bool = False
    """On the command line it takes more than a target; in the console, options are enough."""
    only_looks: bool = False
    """It changes nothing on a Spark: no remedy, and offered in a read-only console too."""
    least_nodes: int = 1
    """Of how many Sparks at least it is done."""
    needs_running: bool = False
    """Its engine must run."""
    only_measures: bool = False
    """It loads a Spark, or asks its engine, and changes nothing there."""


class Planner(Protocol):
    """The functions of a planner's module."""

    questions: Callable[[Request, FleetState, Survey], tuple[Question, ...]]
    plan: Callable[[Request, FleetState, Survey], Plan]


def _action(name: str, row: Mapping[str, Any]) -> Action:
    options = tuple(Option(name=option, **_fields(keys)) for option, keys in row.get("options", {}).items())
    return Action(**{**_fields(row), "name": name, "risk": Risk(row["risk"]), "options": options})


def _fields(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}


ACTIONS: tuple[Action, ...] = tuple(
    _action(name, row)
    for name, row in tomllib.loads(Path(__file__).with_name("actions.toml").read_text("utf-8")).items()
)


RESUME = "resume"
RESTORE = "restore"
RUN_COMMANDS = {
    RESUME: "Show what an interrupted run has left, and plan the same action again.",
    RESTORE: "Show what an interrupted run has left, and plan its rollback.",
}
"""What `sparktop act` takes in place of an action: commands about a run that was cut off."""
HALF_AUDITED = ("launch", "relaunch")
"""Actions whose request is more than options: the audit keeps it where it holds no secret (`audit.request_codec`)."""


def action(name: str) -> Action | None:
    """The action of that name, None where there is none."""
    return next((candidate for candidate in ACTIONS if candidate.name == name), None)


def planner_of(chosen: Action) -> Planner:
    """The action's planner, imported on first use."""
    planner: Planner = import_module(f"sparktop.operate.{chosen.planner}")
    return planner
