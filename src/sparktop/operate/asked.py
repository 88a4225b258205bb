"""What a step is told as in a few words; of a stop under way, when it will be killed. Pure.

Of a stop its node says nothing until it is over, so this is told from the plan and the time alone.
"""

from __future__ import annotations

import re

from sparktop.model.operation import DockerCall, Signal
from sparktop.model.plan import Act, CollectEvidence, Remote, StepRun, StepState

_SECONDS = re.compile(r"\d+(\.\d+)? s")
_MISSING = re.compile(r"(\d+ things? missing): .*")
_FOLDER = re.compile(r"^.*?/(?=[^/;]+(?:;|$))")


def stops(act: Act) -> bool:
    """Whether it has something end that may run."""
    return isinstance(act, Remote) and any(
        isinstance(one, Signal) or (isinstance(one, DockerCall) and one.path.endswith(("/stop", "/kill")))
        for one in act.operations
    )


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


def short_detail(one: StepRun) -> str:
    """Its detail without what stands beside it already, or is better read elsewhere."""
    if was_killed(one):
        return "it did not end of itself in that time, and was killed"
    if one.state is StepState.DONE and _SECONDS.fullmatch(one.detail):
        return ""  # the time at the right says it
    if isinstance(one.step.act, CollectEvidence) and one.state is StepState.DONE:
        return _MISSING.sub(r"\1, see README.txt in it", _FOLDER.sub("", one.detail))
    return one.detail
