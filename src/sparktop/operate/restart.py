"""Safe restart: stop, see the memory come back, start, and prove it with one request; the planner. Pure.

Its order is that of facts/engines.md section 6.5 with the ladder of C5: policy off, stop with grace, kill, processes
gone, memory back, stale shared memory, caches, guard, start, ready, first request, guard off, policy back. Two ranks go
through each state together. `docker restart` has none of these waits, and that is what field report 004 died of.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from sparktop.model.fleet import FleetState
from sparktop.model.plan import Plan, Refusal, Request, Risk, Step
from sparktop.operate import containersteps as steps_of
from sparktop.operate import restartwords as words
from sparktop.operate import sharedfiles, unitsteps
from sparktop.operate.bringback import bring_back
from sparktop.operate.downsteps import down_steps
from sparktop.operate.enginechoice import alone_refusal, the_team
from sparktop.operate.inspected import Inspected
from sparktop.operate.machine import evidence_step, resolved_step
from sparktop.operate.origin import Kind
from sparktop.operate.pair import start_order, stop_order
from sparktop.operate.part import Part, launcher_refusal, parts
from sparktop.operate.part import asks as part_asks
from sparktop.operate.privilege import root_refusal
from sparktop.operate.startsteps import (
    MEMORY_LIMIT_S,
    Start,
    drop_step,
    floor_of,
    guard_back,
    guard_on,
    load_s,
    may,
    memory,
    ready,
    smoke,
)
from sparktop.operate.survey import Ask, Survey
from sparktop.operate.target import gib_option, memory_target
from sparktop.operate.urgency import grace_of

MEMORY_LONGEST_S = 3600.0


def asks(request: Request, picture: FleetState, survey: Survey) -> tuple[Ask, ...]:
    team = the_team(request, picture)
    return () if isinstance(team, Refusal) else tuple(part_asks(team, picture))


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan | Refusal:
    """The steps in their order, or why this engine can't be restarted from here."""
    team = the_team(request, picture)
    if isinstance(team, Refusal):
        return team
    refused = alone_refusal(request, team, picture)
    if refused is not None:
        return refused
    found = parts(request, team, picture, survey)
    if isinstance(found, Refusal):
        return found
    for part in found:
        if (refused := launcher_refusal(request, part) or _unstartable(request, part)) is not None:
            return refused
    try:
        wanted = gib_option(request.options.get("target_gib", ""))
        grace_s = grace_of(request, found)
        limit_s = _limit_option(request.options.get("memory_limit_s", ""))
    except ValueError as error:
        return Refusal(request=request, reason=str(error), remedies=("sparktop act --list explains each option",))
    starts = tuple(_start(part, wanted) for part in found)
    order = {part.node: index for index, part in enumerate(found)}
    down = [found[order[rank.node]] for rank in stop_order(team)]
    up = [starts[order[rank.node]] for rank in start_order(team)]
    steps = [
        evidence_step([part.node for part in found], [part.engine.name for part in found]),
        *down_steps(down, grace_s, is_coming_back=True),
        *(memory(one, limit_s) for one in starts),
        *_room(starts, survey),
        *_up(up, starts),
        *_proof(request, starts),
        *(guard_back(one) for one in starts if one.part.box is not None),
        *(steps_of.policy_back(box, mark) for box, mark in _kept_up(found)),
        *resolved_step(request, found[0].node),
    ]
    obstacle = _obstacle(request, found, steps, survey)
    if obstacle is not None:
        return obstacle
    head = starts[0]
    where = " and ".join(part.node for part in found)
    return Plan(
        request=request,
        title=f"Safe restart of {head.part.name} on {where}",
        risk=Risk.DISRUPTIVE,
        steps=tuple(steps),
        way_back=tuple(bring_back(up, limit_s)),
        effect=words.effect(starts, grace_s),
        warnings=tuple(dict.fromkeys(words.warnings(request, starts, steps, survey))),
        equivalent=tuple(words.equivalent(down, [one.part for one in up], starts, grace_s)),
        seen_monotonic_s=picture.monotonic_s,
        secrets=tuple(dict.fromkeys(part.box.api_key for part in found if part.box and part.box.api_key)),
    )


# --- what can't be


def _unstartable(request: Request, part: Part) -> Refusal | None:
    box = part.box
    if box is not None and box.auto_remove and part.origin.kind is not Kind.UNIT:
        return Refusal(
            request=request,
            reason=f"{part.name} on {part.node} was started with --rm: Docker removes it when it stops, and there "
            "would be nothing to start again",
            remedies=(
                "relaunch it: that makes a new container from what this one is",
                f"sparktop act relaunch {shlex.quote(part.node)} --engine {shlex.quote(part.name)}",
            ),
        )
    if box is not None and box.status in ("paused", "removing", "dead"):
        return Refusal(
            request=request,
            reason=f"{part.name} on {part.node} is {box.status}",
            remedies=(f"docker unpause {box.name}",) if box.status == "paused" else ("look again in a minute",),
        )
    if part.origin.kind is Kind.PROCESS:
        running = " ".join(part.engine.argv)
        return Refusal(
            request=request,
            reason=f"{part.name} on {part.node} runs in no container and no service: it can be stopped from here, and "
            "nothing here knows how to start it as it was",
            remedies=(
                f"stop it: sparktop act stop-engine {shlex.quote(part.node)} --engine {shlex.quote(part.name)}",
                *((f"then start it where it was started: {running[:400]}",) if running else ()),
                "or let a service start it: sparktop unit renders one",
            ),
        )
    return None


def _obstacle(request: Request, found: Sequence[Part], steps: Sequence[Step], survey: Survey) -> Refusal | None:
    """Root is needed for services only; what else would want it goes without, and is told."""
    for part in found:
        if part.origin.kind is Kind.UNIT and not part.origin.is_own:
            commands = [unitsteps.argv(part, "stop"), unitsteps.argv(part, "start")]
            obstacle = root_refusal(survey.privileges(part.node), commands, part.node)
            if obstacle is not None:
                return obstacle.refusal(request)
    return None


def _limit_option(text: str) -> float:
    if not text:
        return MEMORY_LIMIT_S
    if not text.isdecimal() or not 10 <= int(text) <= MEMORY_LONGEST_S:
        raise ValueError(f"seconds between 10 and {MEMORY_LONGEST_S:.0f} are wanted for memory_limit_s")
    return float(text)


# --- the steps


def _start(part: Part, wanted: int | None) -> Start:
    target = memory_target(part.engine, part.view, wanted_bytes=wanted)
    assert target is not None  # parts() has a sample of every node
    return Start(part=part, target=target, floor_bytes=floor_of(part), load_s=load_s(part.engine))


def _room(starts: Sequence[Start], survey: Survey) -> Iterator[Step]:
    """What may still be in the way of the next start: files in /dev/shm, and page cache where free memory counts."""
    for one in starts:
        step = sharedfiles.step(one.part.engine, one.part.view, survey, one.part.mark)
        if step is not None and may(step, one.part.node, survey):
            yield step
    for one in starts:
        step = drop_step(one)
        if step is not None and may(step, one.part.node, survey):
            yield step


def _up(order: Sequence[Start], starts: Sequence[Start]) -> Iterator[Step]:
    for one in order:
        yield from guard_on(one)
        if one.part.origin.kind is Kind.UNIT:
            yield unitsteps.start(one.part)
        elif one.part.box is not None:
            yield steps_of.start(one.part.box, one.part.mark)
    for one in starts:
        yield ready(one)


def _proof(request: Request, starts: Sequence[Start]) -> Iterator[Step]:
    if request.options.get("smoke", "yes") == "no":
        return
    for one in starts:
        yield from guard_on(one, serving=True)
    yield smoke(starts[0])


def _kept_up(found: Sequence[Part]) -> Iterator[tuple[Inspected, str]]:
    """The containers that Docker brings back by itself, with the mark of their steps."""
    yield from ((part.box, part.mark) for part in found if part.box is not None and part.box.restarts)
