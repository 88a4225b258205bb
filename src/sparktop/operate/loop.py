"""Break a restart loop: keep the log, switch off who starts it again, stop it, see it stay down; the planner. Pure.

Docker's own pause between two starts is at most a minute and back to 0.1 s after a run of 10 s; systemd's is the
service's RestartSec (facts/engines.md sections 6.5, 6.6; field report 004). Neither waits for memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sparktop.diagnose.exits import exit_detail
from sparktop.model.event import Severity
from sparktop.model.fleet import FleetState
from sparktop.model.operation import Command, Expect
from sparktop.model.plan import Plan, Refusal, Remote, Request, Risk, Step
from sparktop.operate import containersteps as steps_of
from sparktop.operate import loopedunit, unitsteps
from sparktop.operate.downsteps import down_steps
from sparktop.operate.enginechoice import the_team
from sparktop.operate.inspected import Inspected
from sparktop.operate.machine import evidence_step, resolved_step
from sparktop.operate.origin import Kind
from sparktop.operate.pair import start_order, stop_order
from sparktop.operate.part import Part, parts
from sparktop.operate.part import asks as part_asks
from sparktop.operate.privilege import root_argvs, sudo_note
from sparktop.operate.stop import root_obstacle
from sparktop.operate.survey import Ask, Survey

GRACE_S = 20.0
"""It fails by itself again and again: there is nothing for a longer one to save."""
STILL_S = 15.0


def asks(request: Request, picture: FleetState, survey: Survey) -> tuple[Ask, ...]:
    if loopedunit.named(request, picture) is not None:
        return loopedunit.asks(request)
    team = the_team(request, picture)
    return () if isinstance(team, Refusal) else tuple(part_asks(team, picture))


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan | Refusal:
    """Evidence, policy off, stop, kill, gone, and a look whether it stays down."""
    if (unit := loopedunit.named(request, picture)) is not None:
        return loopedunit.plan(request, unit, picture, survey)
    team = the_team(request, picture)
    if isinstance(team, Refusal):
        return team
    found = parts(request, team, picture, survey)
    if isinstance(found, Refusal):
        return found
    for part in found:
        if part.origin.kind is Kind.PROCESS and part.box is None:
            where = f"{part.name} on {part.node} runs in no container and no service"
            return Refusal(
                request=request,
                reason=f"{where}: what starts it again isn't known",
                remedies=("look for who does: a shell's loop, cron, a supervisor of your own",),
            )
    if not any(part.runs or (part.box is not None and part.box.restarts) for part in found):
        return Refusal(
            request=request,
            reason=f"{found[0].name} doesn't run, and nothing starts it again",
            remedies=("read why it ended: its log is still there (l)",),
        )
    order = {part.node: part for part in found}
    down = [order[rank.node] for rank in stop_order(team)]
    up = [order[rank.node] for rank in start_order(team)]
    steps = [
        evidence_step([part.node for part in found], [part.engine.name for part in found]),
        *down_steps(down, GRACE_S),
        *(still(part.box, part.mark) for part in found if part.box is not None and not part.box.auto_remove),
        *resolved_step(request, found[0].node),
    ]
    obstacle = root_obstacle(request, found, steps, survey)
    if obstacle is not None:
        return obstacle
    return Plan(
        request=request,
        title=f"Break the restart loop of {found[0].name} on {' and '.join(part.node for part in found)}",
        risk=Risk.DISRUPTIVE,
        steps=tuple(steps),
        way_back=tuple(_way_back(up)),
        effect=_effect(found),
        warnings=tuple(_warnings(found, steps, survey)),
        equivalent=tuple(_equivalent(down)),
        seen_monotonic_s=picture.monotonic_s,
    )


def still(box: Inspected, mark: str) -> Step:
    """It is down, its policy is off, and some time later both are still so: Docker has not started it again."""
    down = Expect(
        path=f"{box.path}/json",
        equals={
            "Id": box.container_id,
            "State.Running": False,
            "State.Restarting": False,
            "HostConfig.RestartPolicy.Name": "no",
        },
        otherwise=f"{box.name} runs again, or its restart policy is on again: somebody else starts it",
    )
    return Step(
        id=f"still{mark}",
        title=f"See {box.name} stay down for {STILL_S:.0f} s",
        node=box.node,
        act=Remote(
            operations=(
                replace(down, within_s=10.0),
                Command(argv=("sleep", f"{STILL_S:.0f}"), limit_s=STILL_S + 15.0),
                down,
            )
        ),
        limit_s=STILL_S + 60.0,
        verifies="its count of restarts stands still",
    )


def last_words(part: Part) -> str:
    """How its last run ended, as far as it is known: the first line of error, what that is, the exit code."""
    log, box = part.engine.log, part.engine.container
    said = []
    worst = [one.title for one in (log.findings if log else ()) if one.severity is Severity.CRITICAL]
    if worst:
        said.append(worst[0])
    if log is not None and log.failure:
        said.append(f'its log: "{log.failure[:200]}"')
    if box is not None and box.exit_code:
        said.append(exit_detail(box))
    return "; ".join(said)


def _effect(found: Sequence[Part]) -> str:
    head = found[0]
    told = [words for part in found if (words := last_words(part))]
    why = f" What ended its last run: {told[0]}." if told else " Why it ends stands in its log, which is kept."
    box = head.engine.container
    times = f" after {box.restart_count} restarts" if box is not None and box.restart_count else ""
    return (
        f"{head.name} is stopped{times} and stays down, and nothing starts it again.{why} "
        "When that is mended, safe-restart starts it."
    )


def _warnings(found: Sequence[Part], steps: Sequence[Step], survey: Survey) -> Iterator[str]:
    for part in found:
        if part.box is not None and part.box.restarts:
            word = steps_of.policy_word(part.box)
            yield f"The restart policy of {part.box.name} stays off: docker update --restart={word} {part.box.name}"
        if part.origin.kind is Kind.UNIT:
            yield loopedunit.afterwards(part.origin.unit, is_own=part.origin.is_own)
        if note := sudo_note(survey.privileges(part.node), root_argvs(steps, part.node), part.node):
            yield note


def _way_back(up: Sequence[Part]) -> Iterator[Step]:
    for part in up:
        box = part.box
        if part.origin.kind is Kind.UNIT:
            yield replace(unitsteps.start(part), id=f"back-start{part.mark}")
        elif box is not None and not box.auto_remove:
            if part.runs:
                yield replace(steps_of.start_again(box, part.mark), id=f"back-start{part.mark}")
            if box.restarts:
                yield replace(steps_of.policy_back(box, part.mark), id=f"back-policy{part.mark}")


def _equivalent(down: Sequence[Part]) -> Iterator[str]:
    for part in down:
        if part.origin.kind is Kind.UNIT:
            yield f"on {part.node}: {unitsteps.typed(part, 'stop')}"
        elif part.box is not None:
            yield f"on {part.node}: docker update --restart=no {part.box.name}"
            yield f"on {part.node}: docker stop -t {GRACE_S:.0f} {part.box.name}"
