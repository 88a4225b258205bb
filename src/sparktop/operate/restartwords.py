"""What a safe restart says of itself before it is begun: effect, warnings, the same as commands. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparktop.diagnose.live.window import gib, span
from sparktop.model.engine import EngineState
from sparktop.model.plan import Request, Step
from sparktop.operate import containersteps as steps_of
from sparktop.operate import launched, sharedfiles, unitsteps
from sparktop.operate.inspected import Inspected
from sparktop.operate.origin import Kind
from sparktop.operate.part import Part, neighbours, requests_lost
from sparktop.operate.privilege import root_argvs, sudo_note
from sparktop.operate.startsteps import Start, drop_step, guard_note, may
from sparktop.operate.survey import Survey
from sparktop.operate.target import Target


def effect(starts: Sequence[Start], grace_s: float) -> str:
    head = starts[0]
    took = f" Its last load took {span(head.load_s)}." if head.load_s is not None else ""
    targets = "; ".join(f"{one.part.node}: {_waited(one.target)}" for one in starts)
    return (
        f"{head.part.name} is down from the stop (at most {grace_s:.0f} s) until it has loaded again.{took} "
        f"Started only when there is memory for it: {targets}. Where that doesn't come back, nothing is started."
    )


def _waited(target: Target) -> str:
    return f"{gib(target.target_bytes)} available ({target.sentence})"


def warnings(request: Request, starts: Sequence[Start], steps: Sequence[Step], survey: Survey) -> Iterator[str]:
    head = starts[0].part
    if head.requests:
        yield requests_lost(head.requests, head.name)
    elif head.runs and head.engine.state in (EngineState.LOADING, EngineState.CAPTURING, EngineState.STARTING):
        yield f"{head.name} is {head.engine.state.value}: what it has loaded so far is lost."
    for one in starts:
        yield from one.target.warnings
        yield from _part_warnings(one, survey)
        note = sudo_note(survey.privileges(one.part.node), root_argvs(steps, one.part.node), one.part.node)
        if note:
            yield note
    if any(one.part.box is not None and one.part.box.restarts for one in starts):
        yield "The restart policy is off until the end; a run that ends early leaves it off, and offers the way back."
    if request.options.get("smoke", "yes") != "no" and head.engine.endpoint is None and head.runs:
        yield f"No endpoint of {head.name} is known yet: the request goes where it will be found to listen."


def _part_warnings(one: Start, survey: Survey) -> Iterator[str]:
    part = one.part
    yield from neighbours(part)
    yield from guard_note(part)
    if part.origin.kind is Kind.UNIT:
        yield (
            f"{part.origin.unit} runs it on {part.node}: the service is stopped and started. A container that it makes "
            "anew has no id before, so the guard is armed over it only when it has loaded."
        )
    step = sharedfiles.step(part.engine, part.view, survey, part.mark)
    if step is not None and not may(step, part.node, survey):
        yield f"Files in /dev/shm of {part.node} stay: removing them needs root there."
    drop = drop_step(one)
    if drop is not None and not may(drop, part.node, survey):
        yield f"Caches of {part.node} are not dropped, should free memory fall short: that needs root there."


def equivalent(down: Sequence[Part], up: Sequence[Part], starts: Sequence[Start], grace_s: float) -> Iterator[str]:
    for part in down:
        if part.origin.kind is Kind.UNIT:
            yield f"on {part.node}: {unitsteps.typed(part, 'stop')}"
        elif part.box is not None:
            yield from (f"on {part.node}: {line}" for line in _docker_down(part.box, grace_s))
    for one in starts:
        need = one.target.target_bytes // 1024
        yield f"on {one.part.node}: grep MemAvailable /proc/meminfo   # until it is {need} kB"
    for part in up:
        if part.origin.kind is Kind.UNIT:
            yield f"on {part.node}: {unitsteps.typed(part, 'start')}"
        elif part.box is not None:
            yield f"on {part.node}: docker start {part.box.name}"
            if part.box.restarts:
                yield f"on {part.node}: docker update --restart={steps_of.policy_word(part.box)} {part.box.name}"
    yield from launched.again([one.part for one in starts])


def _docker_down(box: Inspected, grace_s: float) -> Iterator[str]:
    if box.restarts:
        yield f"docker update --restart=no {box.name}"
    yield f"docker stop -t {grace_s:.0f} {box.name}"
