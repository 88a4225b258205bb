"""Plan for breaking a restart loop, of an engine or of a systemd service."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sparktop.diagnose.container_exit import exit_detail
from sparktop.model.engine import EngineState
from sparktop.model.fleet import FleetState
from sparktop.model.operation import Command, Expect
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Survey
from sparktop.model.telemetry import Unit
from sparktop.operate.acts.remote import Remote
from sparktop.operate.container import lifecycle
from sparktop.operate.plan.common_steps import evidence_step, questions_of, resolved_step
from sparktop.operate.plan.origin import SERVICE_NAME, OriginKind
from sparktop.operate.plan.running_rank import (
    RunningRank,
    in_order,
    inspect_ranks,
    requested_ranks,
)
from sparktop.operate.plan.running_start import policy_again, start_again
from sparktop.operate.plan.sequence import Phases, Steps, rollback, sequence
from sparktop.operate.plan.service import Service
from sparktop.operate.plan.stop_steps import down_steps, typed_stop
from sparktop.operate.refused import Refused
from sparktop.operate.secrets.sudo import require_root_for, sudo_notes
from sparktop.operate.step.plan import Plan, Step
from sparktop.text.sentences import listed

_NEEDED = re.compile(r"(?:docker|containerd|ssh|sshd|systemd-.*|dbus|NetworkManager|user@.*)\.service")


def looping_service(request: Request, picture: FleetState) -> tuple[Service, Unit] | None:
    """The service that the request names, as systemd has it there; None where it may not be stopped."""
    unit_name = request.target.strip()
    for view in filter(None, map(picture.node, request.nodes)):
        for unit in view.facts.units if view.facts else ():
            if (
                unit_name
                and unit.name == unit_name
                and SERVICE_NAME.fullmatch(unit.name)
                and not _NEEDED.fullmatch(unit.name)
            ):
                return Service(view=view, unit=unit.name), unit
    return None


def plan_service(request: Request, service: Service, unit: Unit, survey: Survey) -> Plan:
    """Collect evidence, then `systemctl stop`, which no Restart= undoes.

    Raises:
        Refused: systemd doesn't start it again and again.
    """
    node = service.node
    if unit.active in ("inactive", "failed"):
        raise Refused(
            f"{unit.name} doesn't run, and nothing starts it again",
            (f"read why it ended: {_journal(service)}",),
        )
    if request.finding is None and not _unit_loops(service, unit):
        raise Refused(
            f"{unit.name} doesn't loop: nothing has started it again since it was started",
            (f"to stop it: on {node}: {service.typed('stop')}",),
        )
    looping = (Phases(start_old=(replace(service.start(), id="back-start"),)),)
    steps = (
        *sequence(looping, before=(evidence_step((node,)),), stop=(service.stop(GRACE_S),)),
        *resolved_step(request, node),
    )
    require_root_for(steps, survey)
    times = f", started {unit.restarts} times so far," if unit.restarts else ""
    code = f" Its last run ended with status {unit.exit_status}." if unit.exit_status else ""
    return Plan(
        request=request,
        title=f"Break the restart loop of {unit.name} on {node}",
        risk=Risk.DISRUPTIVE,
        steps=steps,
        rollback=tuple(rollback((), looping)),
        effect=f"{unit.name}{times} is stopped and stays stopped.{code} Its journal says why it ends.",
        warnings=(next_steps(service), *sudo_notes(steps, survey.privileges(node), node)),
    )


def next_steps(service: Service) -> str:
    """What to do once the cause is fixed."""
    return (
        f"If it is enabled, it starts again at the next boot. Read why it ends: {_journal(service)}. When "
        f"that is fixed: {service.typed('reset-failed')}; {service.typed('start')}"
    )


def _journal(service: Service) -> str:
    return f"journalctl {'--user ' if service.is_own else ''}-u {shlex.quote(service.unit)} -n 400"


GRACE_S = 20.0
"""Short: it keeps failing, so there is nothing to save."""


STILL_S = 15.0
"""How long the container has to stay down before the loop counts as broken, seconds."""


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """Collect evidence, turn the restart policy off, stop, kill, and check that it stays down."""
    if (named := looping_service(request, picture)) is not None:
        return plan_service(request, *named, survey)
    team = requested_ranks(request, picture)
    ranks = inspect_ranks(team, survey)
    for rank in ranks:
        if rank.origin.kind is OriginKind.PROCESS and rank.container is None:
            where = f"{rank.name} on {rank.node} runs in no container and no service"
            raise Refused(
                f"{where}: what starts it again isn't known",
                ("look for what does: a shell loop, cron, a supervisor of your own",),
            )
    if not any(rank.runs or (rank.container is not None and rank.container.restarts) for rank in ranks):
        raise Refused(
            f"{ranks[0].name} doesn't run, and nothing starts it again",
            ("read why it ended: its log is still there (l)",),
        )
    if request.finding is None and not any(_loops(rank) for rank in ranks):
        raise Refused(
            f"{ranks[0].name} doesn't loop: nothing has started it again since it was started",
            (f"to stop it: sparktop act stop-engine {' '.join(request.nodes)} --engine {shlex.quote(ranks[0].name)}",),
        )
    ranks = tuple(_between_restarts(rank) for rank in ranks)
    down, up = in_order(ranks, ranks)
    steps = (
        *sequence(
            [_phases(rank) for rank in ranks],
            before=(evidence_step([rank.node for rank in ranks], [rank.engine.name for rank in ranks]),),
            stop=down_steps(down, GRACE_S),
        ),
        *resolved_step(request, ranks[0].node),
    )
    require_root_for(steps, survey)
    return Plan(
        request=request,
        title=f"Break the restart loop of {ranks[0].name} on {listed(rank.node for rank in ranks)}",
        risk=Risk.DISRUPTIVE,
        steps=steps,
        rollback=tuple(rollback((), [_phases(rank) for rank in up])),
        effect=_effect(ranks),
        warnings=tuple(_warnings(ranks, steps)),
        equivalent=tuple(line for rank in down for line in typed_stop(rank, GRACE_S)),
    )


questions = questions_of(plan)
SETTLED_S = 600.0
"""An engine that has served, or a service that has run, for so long has ended its loop."""


def _loops(rank: RunningRank) -> bool:
    """Whether Docker or systemd has started it again, and it doesn't serve since."""
    engine, container = rank.engine, rank.container
    serves = engine.state in (EngineState.READY, EngineState.SERVING) and (engine.uptime_s or 0.0) >= SETTLED_S
    units = rank.view.facts.units if rank.view.facts is not None else ()
    unit = next((unit for unit in units if unit.name and unit.name == rank.origin.unit), None)
    if container is not None and container.loops:
        return True
    return not serves and bool((container.restart_count if container is not None else 0) or (unit and unit.restarts))


def _unit_loops(service: Service, unit: Unit) -> bool:
    """Whether systemd has started it again, and its process hasn't run for long since."""
    table = service.view.processes
    if unit.active == "active" and table is not None:
        process = next((process for process in table.processes if process.pid == unit.main_pid), None)
        if process is not None and table.boot_s - process.started_boot_s >= SETTLED_S:
            return False
    return bool(unit.restarts) or unit.sub == "auto-restart"


def _between_restarts(rank: RunningRank) -> RunningRank:
    """The rank, with a container that Docker has restarted before taken for one whose start time changes.

    A looping container is seen "running" as often as "restarting": its steps are bound to the container, not to a run
    of it that is over before the first step.
    """
    container = rank.container
    if container is None or not container.restarts or not container.restart_count:
        return rank
    return replace(rank, container=replace(container, loops=True))


def _phases(rank: RunningRank) -> Phases:
    """A rank that is stopped, and seen to stay down; its way back lets it loop as it did."""
    return Phases(ready=_stays_down(rank), start_old=start_again(rank), settle_old=policy_again(rank))


def _stays_down(rank: RunningRank) -> Steps:
    """See that the container is down with its restart policy off, and that both still hold STILL_S later."""
    container = rank.container
    if container is None or container.auto_remove:
        return ()
    down = Expect(
        path=f"{container.path}/json",
        equals={
            "Id": container.container_id,
            "State.Running": False,
            "State.Restarting": False,
            "HostConfig.RestartPolicy.Name": "no",
        },
        otherwise=f"{container.name} runs again, or its restart policy is on again: something else starts it",
    )
    pause = Command(argv=("sleep", f"{STILL_S:.0f}"), limit_s=STILL_S + 15.0)
    return (
        Step(
            id=f"still{rank.mark}",
            title=f"Check that {container.name} stays stopped for {STILL_S:.0f} s",
            node=container.node,
            act=Remote(operations=(replace(down, within_s=10.0), pause, down)),
            limit_s=STILL_S + 60.0,
            verifies="its restart count stays the same",
        ),
    )


def exit_reasons(rank: RunningRank) -> str:
    """How the last run ended: the first critical log finding, the log's failure, the exit code."""
    log, container = rank.engine.log, rank.engine.container
    reasons = []
    if log is not None and (worst := log.critical_finding) is not None:
        reasons.append(worst.title)
    if log is not None and log.failure:
        reasons.append(f'its log: "{log.failure[:200]}"')
    if container is not None and container.exit_code:
        reasons.append(exit_detail(container))
    return "; ".join(reasons)


def _effect(ranks: Sequence[RunningRank]) -> str:
    head = ranks[0]
    endings = [words for rank in ranks if (words := exit_reasons(rank))]
    why = f" What ended its last run: {endings[0]}." if endings else " Its log says why it ends; the log is kept."
    container = head.engine.container
    times = f" after {container.restart_count} restarts" if container is not None and container.restart_count else ""
    return (
        f"{head.name} is stopped{times} and stays stopped: nothing starts it again.{why} "
        "When that is fixed, safe-restart starts it."
    )


def _warnings(ranks: Sequence[RunningRank], steps: Sequence[Step]) -> Iterator[str]:
    for rank in ranks:
        if rank.container is not None and rank.container.restarts:
            command = lifecycle.policy_command(rank.container.name, rank.container.policy_body)
            yield f"The restart policy of {rank.container.name} stays off: {command}"
        if rank.service is not None:
            yield next_steps(rank.service)
        yield from sudo_notes(steps, rank.privileges, rank.node)
