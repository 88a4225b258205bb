"""Stop an engine, all its ranks, and see its memory come back; the planner. Pure.

The restart policy stays as it is: Docker leaves a container that was stopped by hand alone, until the daemon starts
anew (facts/engines.md section 6.5), and that is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sparktop.diagnose.live.window import GIB, gib
from sparktop.model.fleet import FleetState
from sparktop.model.plan import AwaitMemory, OnFailure, Plan, Refusal, Request, Risk, Step
from sparktop.operate import containersteps as steps_of
from sparktop.operate import launched, unitsteps
from sparktop.operate.downsteps import down_steps, processes
from sparktop.operate.enginechoice import the_team
from sparktop.operate.machine import evidence_step, resolved_step
from sparktop.operate.origin import Kind
from sparktop.operate.pair import missing, start_order, stop_order
from sparktop.operate.part import Part, neighbours, parts, requests_lost
from sparktop.operate.part import asks as part_asks
from sparktop.operate.privilege import root_argvs, root_refusal, sudo_note
from sparktop.operate.survey import Ask, Survey
from sparktop.operate.target import SLACK_BYTES, held_bytes, reachable_bytes
from sparktop.operate.urgency import grace_of, is_urgent

MEMORY_S = 300.0
_URGENT_WORDS = (
    "Memory is running out, so it is stopped first, with {grace:.0f} s grace, and evidence is collected afterwards."
)
BACK_SHARE = 0.9
"""Of what it held: the rest is others' taking and giving meanwhile."""


def asks(request: Request, picture: FleetState, survey: Survey) -> tuple[Ask, ...]:
    team = the_team(request, picture)
    return () if isinstance(team, Refusal) else tuple(part_asks(team, picture))


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan | Refusal:
    """Evidence, stop with grace, kill, gone, memory; whoever started it."""
    team = the_team(request, picture)
    if isinstance(team, Refusal):
        return team
    found = parts(request, team, picture, survey)
    if isinstance(found, Refusal):
        return found
    try:
        grace_s = grace_of(request, found)
    except ValueError as error:
        return Refusal(request=request, reason=str(error), remedies=("sparktop act --list explains each option",))
    if not any(_is_there(part, survey) for part in found):
        where = " and ".join(part.node for part in found)
        return Refusal(request=request, reason=f"{found[0].name} on {where} does not run", remedies=_then(found))
    order = {part.node: part for part in found}
    down = [order[rank.node] for rank in stop_order(team)]
    up = [order[rank.node] for rank in start_order(team)]
    evidence = evidence_step([part.node for part in found], [part.engine.name for part in found])
    urgent = is_urgent(request, found)
    steps = [
        *(() if urgent else (evidence,)),
        *down_steps(down, grace_s, with_policy=False, survey=survey),
        *((evidence,) if urgent else ()),
        *(step for part in found if (step := memory_back(part)) is not None),
        *resolved_step(request, found[0].node),
    ]
    obstacle = root_obstacle(request, found, steps, survey)
    if obstacle is not None:
        return obstacle
    return Plan(
        request=request,
        title=f"Stop {found[0].name} on {' and '.join(part.node for part in found)}",
        risk=Risk.DISRUPTIVE,
        steps=tuple(steps),
        way_back=tuple(_way_back(up)),
        effect=_effect(found, grace_s),
        warnings=(
            *((_URGENT_WORDS.format(grace=grace_s),) if urgent else ()),
            *dict.fromkeys(_warnings(found, steps, survey, missing(team, picture))),
        ),
        equivalent=tuple(_equivalent(down, grace_s, survey)),
        seen_monotonic_s=picture.monotonic_s,
    )


def memory_back(part: Part) -> Step | None:
    """See most of what it held come back; where it doesn't, the ladder is told, and the run goes on."""
    held = held_bytes(part.engine, part.view)
    sample = part.view.sample
    if not held or held < GIB or sample is None:
        return None
    target = sample.memory.available_bytes + int(BACK_SHARE * held)
    reachable = reachable_bytes(part.engine, part.view)
    if reachable is not None:
        target = min(target, max(sample.memory.available_bytes, reachable - SLACK_BYTES))
    return Step(
        id=f"memory{part.mark}",
        title=f"See {gib(target)} available on {part.node} again",
        node=part.node,
        act=AwaitMemory(target_bytes=target),
        limit_s=MEMORY_S,
        verifies=f"most of the {gib(held)} it held is back",
        on_failure=OnFailure.GO_ON,
    )


def root_obstacle(request: Request, found: Sequence[Part], steps: Sequence[Step], survey: Survey) -> Refusal | None:
    """Why the steps that need root can't be done on one of the nodes."""
    for part in found:
        obstacle = root_refusal(survey.privileges(part.node), root_argvs(steps, part.node), part.node)
        if obstacle is not None:
            return obstacle.refusal(request)
    return None


def _is_there(part: Part, survey: Survey) -> bool:
    """Whether there is anything to stop."""
    if part.origin.kind is Kind.PROCESS and part.box is None:
        return bool(processes(part, survey))
    return part.runs


def _then(found: Sequence[Part]) -> tuple[str, ...]:
    docker = (f"to start it: docker start {part.box.name}" for part in found if part.box is not None)
    return (*docker, *launched.again(found))


def _way_back(up: Sequence[Part]) -> Iterator[Step]:
    for part in up:
        if part.origin.kind is Kind.UNIT:
            yield replace(unitsteps.start(part), id=f"back-start{part.mark}")
        elif part.origin.kind is Kind.CONTAINER and part.box is not None and not part.box.auto_remove and part.runs:
            yield replace(steps_of.start_again(part.box, part.mark), id=f"back-start{part.mark}")


def _effect(found: Sequence[Part], grace_s: float) -> str:
    held = [
        f"{gib(size)} on {part.node}"
        for part in found
        if (size := held_bytes(part.engine, part.view)) is not None and size >= GIB
    ]
    back = f" It holds {', '.join(held)}: that is watched until it is back." if held else ""
    return f"{found[0].name} is asked to end and, after {grace_s:.0f} s, made to.{back}"


def _warnings(found: Sequence[Part], steps: Sequence[Step], survey: Survey, lacking: int) -> Iterator[str]:
    head = found[0]
    if head.requests:
        yield requests_lost(head.requests, head.name)
    if lacking:
        yield (
            f"It runs over {len(found) + lacking} nodes, and {lacking} of its ranks can't be seen here: what is left "
            "there waits for this one, and is to be stopped there."
        )
    for part in found:
        box = part.box
        yield from neighbours(part)
        if box is not None and box.auto_remove:
            yield (
                f"{box.name} on {part.node} was started with --rm: Docker removes it when it ends, with what was "
                "changed inside. It can be launched again, not started again."
            )
        elif box is not None and box.policy == "always":
            yield f"The restart policy of {box.name} is always: it comes again when Docker or {part.node} starts anew."
        if part.origin.kind is Kind.LAUNCHER:
            yield (
                f"{part.name} on {part.node} is the container that {part.origin.launcher} put the engine into: all of "
                "it is stopped, and the launcher starts it again."
            )
        if part.origin.kind is Kind.PROCESS and part.box is None:
            yield f"{part.name} on {part.node} runs in no container and no service: nothing here can start it again."
        commands = root_argvs(steps, part.node)
        if note := sudo_note(survey.privileges(part.node), commands, part.node, with_lines=part.box is not None):
            yield note


def _equivalent(down: Sequence[Part], grace_s: float, survey: Survey) -> Iterator[str]:
    for part in down:
        if part.origin.kind is Kind.UNIT:
            yield f"on {part.node}: {unitsteps.typed(part, 'stop')}"
        elif part.box is not None:
            yield f"on {part.node}: docker stop -t {grace_s:.0f} {part.box.name}"
        elif rows := processes(part, survey):
            yield f"on {part.node}: kill {rows[0].pid}; after {grace_s:.0f} s: kill -9 {rows[0].pid}"
