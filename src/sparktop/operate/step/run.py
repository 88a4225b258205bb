"""Runs: how a plan goes while it is carried out, and how it ended.

Apart from the plan's own module, which a console needs only once somebody acts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from sparktop.dataclass import dataclass
from sparktop.operate.step.step_result import Cause, Figures, StepState

if TYPE_CHECKING:
    from sparktop.operate.step.plan import Plan, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRun:
    """The state of one step in a run."""

    step: Step
    state: StepState = StepState.WAITING
    detail: str = ""
    """Its progress or result: "available 96.4 of 108 GiB, there in 0:20"; sanitised and masked."""
    brief: str | None = None
    """`detail` where there is less room; None: all of it."""
    ratio: float | None = None
    """Progress from 0 to 1, where known."""
    began_wall_s: float | None = None
    ended_wall_s: float | None = None
    figures: Figures = field(default_factory=dict)
    """What it measured; texts masked."""
    cause: Cause | None = None
    """Of a failed step that started an engine, waited for it or asked it; None where its log names no known problem."""

    def number(self, figure: str) -> float | None:
        """A figure that it measured; None where it didn't, or measured a word."""
        value = self.figures.get(figure)
        return None if value is None or isinstance(value, str) else float(value)


class RunState(StrEnum):
    RUNNING = "running"
    LINK_LOST = "link lost"
    """A step is running on a node without a connection; its result is fetched after the reconnect."""
    ABORTING = "aborting"
    """The operator has aborted; the running step is completed or undone first."""
    ROLLING_BACK = "rolling back"
    DONE = "done"
    NO_HELP = "did not help"
    """All steps succeeded, and the finding is still there."""
    FAILED = "failed"
    ROLLED_BACK = "rolled back"
    ABORTED = "aborted"
    INTERRUPTED = "cut off"
    """Its console was killed during the run; reported later, from the audit."""
    REFUSED = "refused"
    """The gate refused the run; nothing was done."""

    @property
    def is_over(self) -> bool:
        return self not in (RunState.RUNNING, RunState.LINK_LOST, RunState.ABORTING, RunState.ROLLING_BACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A plan being carried out, or its result."""

    id: str
    """Unique, sorts by time: "20261121T031211-4f2a9c"."""
    plan: Plan
    state: RunState = RunState.RUNNING
    steps: tuple[StepRun, ...] = ()
    """The steps of the plan, then those of the rollback that were started."""
    message: str = ""
    """The result in sentences: what was done, and what was not."""
    brief: str | None = None
    """`message` beside the plan's title, its time and the steps; None: all of it."""
    hint: str = ""
    """What to do next."""
    brief_hint: str | None = None
    """`hint` beside the key of the way back; None: all of it."""
    remains: str = ""
    """Of a run that was cut off: what is still as it left it."""
    can_go_back: bool = False  # the way back is there to be taken
    asked: Mapping[str, Any] = field(default_factory=dict)
    """Of a run that was cut off: what a launch or relaunch was asked for (`operate.audit.request_codec`)."""
    evidence_path: str = ""
    before: Mapping[str, Figures] = field(default_factory=dict)
    """By node: "available_gib", "free_gib", "cache_gib" ..."""
    after: Mapping[str, Figures] = field(default_factory=dict)
    saved: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By node: ids that its steps saved, for later steps and the rollback (`step.placeholders`)."""

    @property
    def cause(self) -> Cause | None:
        """Why the engine didn't start, by its log; None for a run that is done, and where it isn't known."""
        causes = (step_run.cause for step_run in self.steps if step_run.state is StepState.FAILED)
        return None if self.state is RunState.DONE else next(filter(None, causes), None)

    def typed(self, step: Step, *, undoes: bool = False) -> str:
        """What does one of its steps by hand, or `undoes` it, with the ids that it saved; "" where nothing is typed."""
        from sparktop.operate.step.placeholders import saved_for

        act = step.act.filled(saved_for(step.node, self.saved))
        return "; ".join(() if act is None else act.undoing() if undoes else act.commands())
