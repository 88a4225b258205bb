"""How long steps are likely to take: as they last did here, else as their planner knows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparktop.dataclass import dataclass
from sparktop.operate.acts.readiness import AwaitReady
from sparktop.operate.step.plan import Plan, Step

LONGEST_S = 86_400.0
QUICK_LIMIT_S = 90.0
"""A step that gives up this early takes next to nothing beside the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Likely:
    """How long a plan is likely to take."""

    seconds: float
    is_whole: bool
    """Every step but quick ones is known; else it takes more than that."""


def likely(steps: Sequence[Step]) -> Likely | None:
    """The sum of what is known, loads that go on at one time counted once; None where nothing is."""
    known = [step for step in steps if step.likely_s is not None]
    loads = [step.likely_s or 0.0 for step in known if isinstance(step.act, AwaitReady)]
    others = [step.likely_s or 0.0 for step in known if not isinstance(step.act, AwaitReady)]
    is_whole = all(step.likely_s is not None or step.limit_s <= QUICK_LIMIT_S for step in steps)
    return Likely(seconds=sum(others) + max(loads, default=0.0), is_whole=is_whole) if known else None


def as_before(plan: Plan, audit_entries: Sequence[Mapping[str, Any]]) -> Plan:
    """The plan with the times that its steps took when the same was last done to the same target, for what was done."""
    same_runs = {
        entry.get("run")
        for entry in audit_entries
        if (entry.get("kind"), entry.get("action"), entry.get("target"))
        == ("intent", plan.request.action, plan.request.target)
    }
    took = {
        (entry.get("step"), entry.get("node")): seconds
        for entry in audit_entries
        if entry.get("kind") == "step" and entry.get("run") in same_runs and entry.get("state") == "done"
        and isinstance(seconds := entry.get("seconds"), int | float) and 0 <= seconds <= LONGEST_S
    }  # fmt: skip
    steps = tuple(replace(step, likely_s=took.get((step.id, step.node), step.likely_s)) for step in plan.steps)
    return plan if steps == plan.steps else replace(plan, steps=steps)
