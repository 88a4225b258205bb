"""What a stop that is under way is at: it was asked to end, and is killed after its grace. Pure.

The node says nothing until the stop is over, so this is told from the plan and the time alone.
"""

from __future__ import annotations

from sparktop.model.plan import Act, DockerCall, Remote, Signal, StepRun, StepState


def grace_s(act: Act) -> float | None:
    """Seconds between being asked to end and being killed; None for what stops nothing, or says no such time."""
    for operation in act.operations if isinstance(act, Remote) else ():
        if isinstance(operation, DockerCall) and operation.path.endswith("/stop"):
            given = operation.query.get("t", "")
            return float(given) if given.isdecimal() and int(given) else None
        if isinstance(operation, Signal) and operation.signal == "TERM" and operation.ends_within_s:
            return operation.ends_within_s
    return None


def waiting(one: StepRun, now_wall_s: float) -> tuple[float, float] | None:
    """(seconds since it was asked, seconds of its grace) while a step stops something; None else."""
    grace = grace_s(one.step.act)
    if grace is None or one.state is not StepState.RUNNING or one.began_wall_s is None:
        return None
    return max(0.0, now_wall_s - one.began_wall_s), grace


def was_killed(one: StepRun) -> bool:
    """Whether it took its whole grace: it did not end of itself."""
    grace = grace_s(one.step.act)
    if grace is None or one.state is not StepState.DONE or one.began_wall_s is None or one.ended_wall_s is None:
        return False
    return one.ended_wall_s - one.began_wall_s >= grace
