"""Plans of steps: what sparktop would do.

A pure planner makes a plan from a picture of the fleet and a survey of the nodes; it is shown as it is, and carried out
by the one executor. Bodies and contents may hold secrets: they are excluded from every `repr`, and shown only through
`operate.secrets.masking`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING

from sparktop.dataclass import dataclass
from sparktop.model.recipe import RecipeSource
from sparktop.model.request import Request, Risk
from sparktop.operate.step.act import Act

if TYPE_CHECKING:
    from sparktop.model.prospect import Prospect


class OnFailure(StrEnum):
    """What the run does when a step fails."""

    STOP = "stop"
    """No further steps start; the rollback is offered."""
    ROLL_BACK = "roll back"
    """The rollback starts at once."""
    GO_ON = "go on"
    """The failure is reported, and the run continues."""
    FAIL_AT_END = "fail at the end"
    """The run continues, and has failed in the end: what the plan promises is not all so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step on one node, as the review and the run show it."""

    id: str
    """Unique in its plan: "stop", "swap", "memory"; on two nodes "stop@spark2"."""
    title: str
    """ "Stop vllm-qwen36, 60 s grace"."""
    node: str
    act: Act = field(repr=False)
    limit_s: float = 60.0
    likely_s: float | None = None
    """About how long it takes, from what was measured here or elsewhere; None: not known (`plan.likely`)."""
    verifies: str = ""
    """What must be true afterwards, in words."""
    undoes: tuple[str, ...] = ()
    """Ids of earlier steps on its node that it reverts: once it is done, neither has to be undone."""
    on_failure: OnFailure = OnFailure.STOP
    stops: str = ""
    """Name of the engine that it stops."""
    leaves: str = ""
    """In a rollback: name of the container that it sets aside, for its log."""
    needs_nodes: tuple[str, ...] = ()
    """In a rollback: other nodes that it depends on, as one rank of a pair does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One setting that a plan changes; secrets masked."""

    what: str
    """ "environment", "flag", "option", "image", "file", "address", "rule", "line", "mode"."""
    name: str
    before: str | None
    after: str | None
    node: str = ""
    """The node it is on, where a plan doesn't make the same one on all of its nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A complete plan, before any of it is carried out."""

    request: Request
    title: str
    """ "Safe restart of vllm-qwen36 on spark1"."""
    risk: Risk
    steps: tuple[Step, ...]
    rollback: tuple[Step, ...] = ()
    """The steps of the rollback; started automatically after a step with ROLL_BACK, else offered."""
    is_rollback: bool = False
    """Its steps lead back from another plan."""
    is_all_or_nothing: bool = False
    """If the operator aborts, the rollback starts at once: a partial result is worse than none."""
    effect: str = ""
    """What to expect, in one or two sentences."""
    outcome: str = ""
    """The result of success: "serves Qwen/Qwen3-0.6B at http://spark1:8000/v1"; empty: as before."""
    outcome_command: str = ""
    """A command line that shows the result; secrets named, never written."""
    warnings: tuple[str, ...] = ()
    """What is lost, and what the plan won't fix."""
    expected_failure: str = ""
    """Why it is expected to fail now, also the first of `warnings`; empty: nothing says so."""
    differences: tuple[Difference, ...] = ()
    equivalent: tuple[str, ...] = ()
    """The same as command lines to paste; secrets masked."""
    typed: str = ""
    """What must be typed to confirm; empty: a button is enough."""
    seen_monotonic_s: float = 0.0
    """FleetState.monotonic_s of the picture it was made from."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Exact values that must never be shown or written."""
    prospect: Prospect | None = None  # of a launch: whether it fits, its gates, what is on disk
    files: Mapping[str, str] = field(default_factory=dict)
    """Path -> text of each file that it writes and anybody may read; on several nodes the node's name comes first."""

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(step.node for step in self.steps))

    @property
    def new_sources(self) -> tuple[RecipeSource, ...]:
        """Sources of recipes that the operator agrees to by running the plan; their names are what must be typed."""
        order = self.request.order
        return order.recipe.new_sources if order is not None and self.typed == order.recipe.consent else ()


def risk_of(steps: Sequence[Step]) -> Risk:
    """Disruptive where a step stops something that may be running, else safe."""
    return Risk.DISRUPTIVE if any(step.stops or step.act.stops for step in steps) else Risk.SAFE


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a request was refused, and what would make it possible."""

    request: Request
    reason: str
    remedies: tuple[str, ...] = ()
    """The next steps; commands as they would be typed."""
    prospect: Prospect | None = None  # of a launch: the picture of why
    is_verdict: bool = False
    """It doesn't fit: the reason is the budget's own sentence."""
