"""The plan that leads back from an ended run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sparktop.model.request import Risk
from sparktop.operate.run.run_text import brief
from sparktop.operate.step.placeholders import saved_for
from sparktop.operate.step.plan import Plan, Step
from sparktop.operate.step.run import Run


def rollback(run: Run) -> Plan | None:
    """The run's rollback with the ids that it saved; None where nothing is to be rolled back."""
    if not run.can_go_back or not run.state.is_over or not run.plan.rollback:
        return None
    plan = run.plan
    filled_steps = [_filled(step, saved_for(step.node, run.saved)) for step in plan.rollback]
    steps = tuple(step for step in filled_steps if step is not None)
    stops_any = any(step.act.stops for step in steps)
    return replace(
        plan,
        request=replace(plan.request, finding=None),
        title=f"Rollback: {plan.title}",
        risk=Risk.SAFE if plan.risk is Risk.SAFE and not stops_any else Risk.DISRUPTIVE,
        steps=steps,
        rollback=(),
        is_rollback=True,
        effect="Restores the state from before the run.",
        outcome="",  # what was to be there then, and what a launch would find, is no more of this
        outcome_command="",
        prospect=None,
        warnings=(
            f"Rolls back: {brief(run) or plan.title}",
            *((f"Log and settings from before it are in {run.evidence_path}.",) if run.evidence_path else ()),
        ),
        differences=tuple(
            replace(difference, before=difference.after, after=difference.before) for difference in plan.differences
        ),
        equivalent=(),
        typed="",
    )


def _filled(step: Step, saved: Mapping[str, str]) -> Step | None:
    """The step with the ids that the run saved; None where its container was never created."""
    act = step.act.filled(saved)
    return None if act is None else replace(step, act=act)
