"""Plan for stopping an engine on all its nodes, and watching its memory come back.

The restart policy stays: Docker leaves a container that was stopped by hand alone until the daemon restarts
(docs/facts/engines.md section 6.5), and the review says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparktop.engines.memory_target import SLACK_BYTES, held_bytes, reachable_bytes
from sparktop.engines.ranks import missing
from sparktop.model.fleet import FleetState
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Survey
from sparktop.operate.acts.memory import AwaitMemory
from sparktop.operate.container import lifecycle
from sparktop.operate.plan.common_steps import evidence_step, questions_of, resolved_step
from sparktop.operate.plan.origin import OriginKind
from sparktop.operate.plan.running_rank import (
    RunningRank,
    in_order,
    inspect_ranks,
    neighbours,
    requested_ranks,
    requests_lost,
)
from sparktop.operate.plan.running_start import start_again
from sparktop.operate.plan.sequence import Phases, Steps, rollback, sequence
from sparktop.operate.plan.stop_steps import down_steps, grace_of, is_urgent, typed_stop
from sparktop.operate.refused import Refused, refused_options
from sparktop.operate.relaunch import sparktop_launch
from sparktop.operate.secrets.sudo import require_root_for, sudo_notes
from sparktop.operate.step.plan import OnFailure, Plan, Step
from sparktop.text.sentences import listed
from sparktop.text.units import GIB, gib

MEMORY_S = 300.0
"""How long to wait for its memory."""
_URGENT_WORDS = (
    "Memory is running out: sparktop stops the engine first ({grace:.0f} s grace) and collects evidence afterwards."
)
COMES_AGAIN = {"always": "", "on-failure": ", unless it ends with exit code 0"}
"""Restart policies by which a stopped container comes with the daemon, and when not; unless-stopped remembers the
stop. Tried on Docker 20.10: to on-failure a stop by signal is a failure."""
BACK_SHARE = 0.9
"""Share of its memory to wait for: other processes take and free some meanwhile."""


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """Collect evidence, stop with grace, kill, and watch its memory come back; whatever started it."""
    team = requested_ranks(request, picture)
    ranks = inspect_ranks(team, survey)
    with refused_options():
        grace_s = grace_of(request, ranks, picture)
    if not any(_is_stoppable(rank) for rank in ranks):
        where = listed(rank.node for rank in ranks)
        raise Refused(f"{ranks[0].name} on {where} does not run", _start_commands(ranks))
    down, up = in_order(ranks, ranks)
    evidence = evidence_step([rank.node for rank in ranks], [rank.engine.name for rank in ranks])
    urgent = is_urgent(request, ranks, picture)
    stop = down_steps(down, grace_s, with_policy=False)
    steps = (
        *sequence(
            [_phases(rank) for rank in ranks],
            before=() if urgent else (evidence,),
            stop=(*stop, evidence) if urgent else stop,
        ),
        *resolved_step(request, ranks[0].node),
    )
    require_root_for(steps, survey)
    return Plan(
        request=request,
        title=f"Stop {ranks[0].name} on {listed(rank.node for rank in ranks)}",
        risk=Risk.DISRUPTIVE,
        steps=steps,
        rollback=tuple(rollback((), [_phases(rank) for rank in up])),
        effect=_effect(ranks, grace_s),
        warnings=(
            *((_URGENT_WORDS.format(grace=grace_s),) if urgent else ()),
            *dict.fromkeys(_warnings(ranks, steps, missing(team))),
        ),
        equivalent=tuple(line for rank in down for line in typed_stop(rank, grace_s, with_policy=False)),
    )


questions = questions_of(plan)


def _phases(rank: RunningRank) -> Phases:
    """A rank that is stopped, and seen to stay so at the end, with its restart policy; and whose memory comes back."""
    container = rank.container
    stays: Steps = ()
    if container is not None and not container.auto_remove and not rank.origin.is_service:
        stays = (lifecycle.stays_stopped(container, rank.mark),)
    return Phases(
        memory=tuple(_await_memory(rank)), ready=stays, start_old=start_again(rank) if rank.is_startable else ()
    )


def _await_memory(rank: RunningRank) -> Iterator[Step]:
    """Wait until most of its memory is available; the run goes on where it isn't."""
    engine_bytes = held_bytes(rank.engine, rank.view)
    sample = rank.view.sample
    if not engine_bytes or engine_bytes < GIB or sample is None:
        return
    target = sample.memory.available_bytes + int(BACK_SHARE * engine_bytes)
    reachable = reachable_bytes(rank.engine, rank.view)
    if reachable is not None:
        target = min(target, max(sample.memory.available_bytes, reachable - SLACK_BYTES))
    yield Step(
        id=f"memory{rank.mark}",
        title=f"Wait for {gib(target)} available on {rank.node}",
        node=rank.node,
        act=AwaitMemory(target_bytes=target),
        limit_s=MEMORY_S,
        verifies=f"most of its {gib(engine_bytes)} are free again",
        on_failure=OnFailure.GO_ON,
    )


def _is_stoppable(rank: RunningRank) -> bool:
    """Whether anything runs that can be stopped."""
    if rank.origin.kind is OriginKind.PROCESS and rank.container is None:
        return bool(rank.processes)
    return rank.runs


def _start_commands(ranks: Sequence[RunningRank]) -> tuple[str, ...]:
    docker = (f"to start it: docker start {rank.container.name}" for rank in ranks if rank.container is not None)
    return (*docker, *sparktop_launch.again(ranks))


def _effect(ranks: Sequence[RunningRank], grace_s: float) -> str:
    sizes = [
        f"{gib(size)} on {rank.node}"
        for rank in ranks
        if (size := held_bytes(rank.engine, rank.view)) is not None and size >= GIB
    ]
    memory_text = f" Then waits until the memory it holds is free: {', '.join(sizes)}." if sizes else ""
    return f"Stops {ranks[0].name} (SIGTERM, SIGKILL after {grace_s:.0f} s).{memory_text}"


def _warnings(ranks: Sequence[RunningRank], steps: Sequence[Step], missing_ranks: int) -> Iterator[str]:
    head = ranks[0]
    if head.requests:
        yield requests_lost(head.requests, head.name)
    if missing_ranks:
        yield (
            f"It runs over {len(ranks) + missing_ranks} nodes, and {missing_ranks} of its ranks can't be seen here: "
            "those "
            "wait for this one: stop them there."
        )
    for rank in ranks:
        container = rank.container
        yield from neighbours(rank)
        if container is not None and container.auto_remove:
            yield (
                f"{container.name} on {rank.node} was started with --rm: Docker removes it when it stops, with "
                "everything changed inside. You can launch it again, but not start it again."
            )
        elif container is not None and container.policy_now in COMES_AGAIN:
            yield (
                f"The restart policy of {container.name} is {container.policy_now}: it starts again when Docker "
                f"or {rank.node} restarts{COMES_AGAIN[container.policy_now]}."
            )
        if rank.origin.is_in_sleeping_container:
            yield (
                f"{rank.name} on {rank.node} is the container that {rank.origin.launcher} put the engine into. "
                "The whole container is stopped; the launcher starts it again."
            )
        if rank.origin.kind is OriginKind.PROCESS and rank.container is None:
            yield f"{rank.name} on {rank.node} runs in no container and no service: nothing here can start it again."
        yield from sudo_notes(steps, rank.privileges, rank.node, with_lines=rank.container is not None)
