"""An engine that is known from its last run, started anew: as it is, from its container or its service; and what every
such start has in common with one that changes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sparktop.cmdline.engine_argv import is_pooling
from sparktop.dataclass import dataclass
from sparktop.engines.memory_target import Target, held_bytes, memory_target
from sparktop.model.fleet import FleetState
from sparktop.model.request import Request
from sparktop.operate.acts.readiness import AwaitReady
from sparktop.operate.acts.request import SmokeTest
from sparktop.operate.container import lifecycle, shared_memory
from sparktop.operate.plan import start_steps
from sparktop.operate.plan.common_steps import evidence_step, link_steps, resolved_step
from sparktop.operate.plan.running_rank import RunningRank, in_order
from sparktop.operate.plan.sequence import Phases, Steps, rollback, sequence
from sparktop.operate.plan.start_steps import MEMORY_LIMIT_S, READY_AT_LEAST_S, floor_of, load_s, may
from sparktop.operate.plan.stop_steps import down_steps, typed_stop
from sparktop.operate.step.plan import OnFailure, Step

_FOUND = "{ANEW}"
"""Placeholder for the id of a container that was made anew by another, looked up by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningStart:
    """A rank that runs or has run, and how it is started anew."""

    rank: RunningRank
    target: Target
    """Memory to wait for before it starts."""
    phases: Phases
    typed_start: tuple[str, ...] = ()
    """What starts it, by hand."""

    @property
    def node(self) -> str:
        return self.rank.node

    @property
    def name(self) -> str:
        return self.rank.name


def phases_anew(
    rank: RunningRank,
    target: Target,
    old_target: Target,
    *,
    new_name: str = "",
    new_id: str = "",
    old_id: str = "",
    old_runs: str = "",
    was_running: bool = True,
    any_run: bool = True,
    api_key: str = "",
    memory_limit_s: float = MEMORY_LIMIT_S,
    on_failure: OnFailure = OnFailure.ROLL_BACK,
) -> Phases:
    """What every start of a rank has, whatever starts it: memory, room, guard, proof, and the same for the old one.

    Args:
        target: memory to wait for before it starts.
        old_target: memory that the engine needs as it was.
        new_name: its container's name from now on; empty: as it was.
        new_id: id of the container that comes up; empty where it is known only when it runs, or there is none.
        old_id: id of the container that ran before, where the way back finds that one; empty where it's made anew.
        old_runs: the container, by id or name, that needs no memory on the way back where it runs still.
        was_running: the way back starts the old one.
        any_run: a run of the old one counts there that began before.
        on_failure: what the run does where it doesn't become ready.
    """
    node, mark, view, name = rank.node, rank.mark, rank.view, new_name or rank.name
    container, floor_bytes, last_load_s = rank.container, floor_of(rank), load_s(rank.engine)
    pools = is_pooling(rank.engine.argv, rank.engine.kind)
    act = AwaitReady(name=name, is_worker=not rank.is_head)
    request = SmokeTest(engine=name, floor_bytes=floor_bytes, api_key=api_key, is_pooling=pools)
    ready = start_steps.ready(node, mark, act, max(READY_AT_LEAST_S, 2 * (last_load_s or 0.0)), last_load_s)
    old_memory = start_steps.memory(node, mark, old_target.target_bytes, limit_s=memory_limit_s, unless_runs=old_runs)
    guards = tuple(
        start_steps.guard_over(node, mark, new_id or _FOUND, rank.name, floor_bytes, serving=serving)
        for serving in (False, True)
    )
    guard_request: Steps = ()
    if container is not None:
        guard_request = guards[1:] if new_id else (start_steps.find_new_container(container, mark), guards[1])
    guard_back = tuple(
        replace(step, id=step.id.replace("guard-back", "back-guard")) for step in _guard_again(rank, old_id, rank.name)
    )
    old_ready = replace(ready, id=f"back-ready{mark}", act=replace(act, any_run=any_run))
    disarmed = replace(start_steps.disarm(node, mark), id=f"back-unguard{mark}")
    room = tuple(_room_steps(rank, target))
    is_guarded = container is not None and start_steps.is_guarded(view, container.container_id)
    return Phases(
        is_head=rank.is_head,
        memory=(start_steps.memory(node, mark, target.target_bytes, limit_s=memory_limit_s),),
        room=tuple(step for step in room if may(step, rank.privileges)),
        left_out=tuple(step for step in room if not may(step, rank.privileges)),
        guard_load=(guards[0],) if new_id else (),
        ready=(replace(ready, on_failure=on_failure),),
        guard_request=guard_request,
        prove=(start_steps.smoke(node, request),),
        restore_guard=_guard_again(rank, new_id, name),
        # The old container isn't back yet where the operator's guard is over it.
        restore_guard_first=(disarmed,) if is_guarded else guard_back,
        old_memory=(replace(old_memory, id=f"back-memory{mark}"),) if was_running else (),
        old_ready=(old_ready,) if was_running else (),
        settle_old=guard_back if is_guarded else (),
    )


def anew(
    request: Request, starts: Sequence[RunningStart], picture: FleetState, grace_s: float
) -> tuple[Steps, Steps, tuple[str, ...]]:
    """An engine stopped on all its nodes and started anew, head first in `starts`: (the steps, their way back, the same
    by hand)."""
    ranks, nodes = [start.rank for start in starts], [start.node for start in starts]
    down, up = in_order(ranks, starts)
    up_phases = [start.phases for start in up]
    steps = sequence(
        [start.phases for start in starts],
        up=up_phases,
        before=(evidence_step(nodes, [rank.engine.name for rank in ranks]), *link_steps(nodes, picture)),
        stop=down_steps([start.rank for start in down], grace_s, is_coming_back=True),
        is_proven=request.options.get("smoke", "yes") != "no",
        then=resolved_step(request, nodes[0]),
    )
    back = rollback([start.phases for start in down], up_phases)
    stops = (line for start in down for line in typed_stop(start.rank, grace_s))
    up_again = (
        line
        for start in up
        for line in (start_steps.typed_memory(start.node, start.target.target_bytes), *start.typed_start)
    )
    return tuple(steps), tuple(back), (*stops, *up_again)


def _room_steps(rank: RunningRank, target: Target) -> Iterator[Step]:
    """Free /dev/shm and drop caches, where needed; whether permitted or not."""
    held = (held_bytes(rank.engine, rank.view) or 0) if rank.runs else 0
    drop = start_steps.drop_for(rank.view, rank.mark, need_bytes=target.asked_bytes, back_bytes=held)
    yield from filter(None, (shared_memory.step(rank.engine, rank.view, rank.shared, rank.mark), drop))


def _guard_again(rank: RunningRank, container_id: str, name: str) -> Steps:
    """The guard as it was; one that was over the rank's container, over the one that it has then, which is looked up
    where no id is known."""
    container, view, mark = rank.container, rank.view, rank.mark
    if container is None:
        return ()
    if not start_steps.is_guarded(view, container.container_id):
        return (start_steps.guard_as_it_was(view, mark),)
    found = replace(start_steps.find_new_container(container, mark), id=f"anew-guard{mark}")
    again = start_steps.guard_as_it_was(view, mark, over=(container_id or _FOUND, name))
    return (again,) if container_id else (found, again)


def existing(rank: RunningRank, *, wanted_bytes: int | None = None, limit_s: float = MEMORY_LIMIT_S) -> RunningStart:
    """The rank, started as it is: by its service, or its container.

    Args:
        wanted_bytes: memory to wait for as the operator has set it.
        limit_s: how long to wait for it.
    """
    target = memory_target(rank.engine, rank.view, wanted_bytes=wanted_bytes)
    assert target is not None  # inspect_ranks() has a sample of every node
    container = rank.container
    own_id = container.container_id if container is not None else ""
    kept_id = own_id if not rank.origin.is_service else ""
    phases = phases_anew(
        rank,
        target,
        target,
        new_id=kept_id,
        old_id=kept_id,
        old_runs=own_id,
        was_running=rank.ran,  # what was down before is left down
        api_key=container.api_key if container is not None else "",
        memory_limit_s=limit_s,
        on_failure=OnFailure.STOP,
    )
    on_ready: Steps = ()
    if container is not None and container.restarts:
        on_ready = (lifecycle.policy_back(container, rank.mark, OnFailure.FAIL_AT_END),)
    if rank.service is not None:
        start, typed = rank.service.start(), [rank.service.typed("start")]
    else:
        assert container is not None  # what is in neither can't be started
        start, typed = lifecycle.start(container, rank.mark), [f"docker start {container.name}"]
        typed += [lifecycle.policy_command(container.name, container.policy_body)] if container.restarts else ()
    phases = replace(
        phases,
        before_start=phases.guard_load,
        start=(start,),
        guard_load=(),
        on_ready=on_ready,
        # The plan's own guard is over the same container: it stays until that answers.
        restore_guard_first=(),
        old_memory=phases.old_memory if container is not None else (),
        start_old=start_again(rank),
        settle_old=(*(phases.settle_old or phases.restore_guard_first), *policy_again(rank)),
    )
    typed_start = tuple(f"on {rank.node}: {line}" for line in typed)
    return RunningStart(rank=rank, target=target, phases=phases, typed_start=typed_start)


def start_again(rank: RunningRank) -> Steps:
    """Rollback step: start it as it was; nothing where it didn't run, or is gone with its end (--rm)."""
    if rank.service is not None:
        step = rank.service.start()
    elif rank.container is not None and rank.ran and not rank.container.auto_remove:
        step = lifecycle.start_again(rank.container, rank.mark)
    else:
        return ()
    return (replace(step, id=f"back-start{rank.mark}"),)


def policy_again(rank: RunningRank) -> Steps:
    """Rollback step: the restart policy as it was; a service's container gets its own from the service."""
    if rank.container is None or not rank.container.restarts or rank.origin.is_service:
        return ()
    return (replace(lifecycle.policy_back(rank.container, rank.mark), id=f"back-policy{rank.mark}"),)
