"""What a front end may ask of the operating side; `operate.operations` is the real one, a test's stand-in the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sparktop.model.plan import Plan, Refusal, Request, Run
from sparktop.operate.cutoff import CutOff
from sparktop.operate.line import AskSecret

Changed = Callable[[Run], None]
"""Called on the event loop with each new state of a run."""


class Execution(Protocol):
    """A run under way."""

    @property
    def run(self) -> Run:
        """The newest state."""

    def abort(self) -> None:
        """Out as soon as nothing is left half-way: a wait ends at once, a step on a node is finished or undone."""

    async def finished(self) -> Run:
        """Wait until it is over; cancelling the waiter doesn't cancel the run."""


class Operating(Protocol):
    """Plans, and the one gate through which they are run."""

    @property
    def is_read_only(self) -> bool: ...

    @property
    def executions(self) -> tuple[Execution, ...]:
        """Those of this session, newest last."""

    async def plan(self, request: Request) -> Plan | Refusal:
        """Ask the nodes what the planner wants to know, and let it plan. Nothing is changed."""

    def start(self, plan: Plan, *, secret: AskSecret, changed: Changed) -> Execution:
        """Run a reviewed plan. A gate that lets nothing through ends it at once as REFUSED, with the reason."""

    async def cut_off(self) -> tuple[CutOff, ...]:
        """Runs of this machine whose console was killed in the middle, oldest first."""

    def read(self, run_id: str) -> None:
        """The operator has seen how one of those was left."""

    def way_back(self, run: Run) -> Plan | None:
        """The way back of a run that ended badly, or did not help, as a plan of its own to review."""
