"""The interface between a front end and the operating side; implemented by `operate.operations`, and by a test's
double."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sparktop.model.bringup import Changed
    from sparktop.model.fleet import FleetState
    from sparktop.model.request import Request
    from sparktop.model.survey import Answer, Question
    from sparktop.operate.audit.interrupted_runs import InterruptedRun
    from sparktop.operate.runner.api import AskSecret
    from sparktop.operate.step.plan import Plan, Refusal
    from sparktop.operate.step.run import Run

OnChange = Callable[["Run"], None]
"""Called on the event loop with each new state of a run."""
KeepMeasured = Callable[["Run", "FleetState"], str]
"""Keeps what an ended run has measured, by the picture from before it; returns why it couldn't, or "". Blocks."""


class Execution(Protocol):
    """A run in progress."""

    @property
    def run(self) -> Run:
        """Its newest state."""

    def abort(self) -> None:
        """Stop as soon as nothing is left halfway: a wait ends at once, a step on a node is completed or undone."""

    async def finished(self) -> Run:
        """Wait until the run is over; cancelling the waiter doesn't cancel the run."""


class Operating(Protocol):
    """Plans actions and runs them, through one gate."""

    @property
    def is_read_only(self) -> bool: ...

    async def plan(self, request: Request) -> Plan | Refusal:
        """Ask the nodes the planner's questions, and plan. Nothing is changed."""

    async def ask(self, questions: Sequence[Question]) -> Mapping[Question, Answer]:
        """Put read-only questions to the nodes; one that can't be answered gets an Answer with a problem."""

    def start(self, plan: Plan, *, secret: AskSecret, changed: OnChange) -> Execution:
        """Run a reviewed plan; where the gate refuses it, the run ends at once as REFUSED, with the reason."""

    async def interrupted_runs(self) -> tuple[InterruptedRun, ...]:
        """Runs of this machine whose console was killed halfway, oldest first."""

    async def changes(self, nodes: Collection[str]) -> tuple[Changed, ...]:
        """What ended runs of this machine changed on these nodes, oldest first."""

    def read(self, run_id: str) -> None:
        """Note that the operator has read how an interrupted run was left."""

    def rollback(self, run: Run) -> Plan | None:
        """The rollback of a run that failed or did not help, as a plan of its own to review."""
