"""Steps that stop an engine: its service, its container, or its processes; each with a grace period."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sparktop.model.finding import Phase
from sparktop.model.fleet import FleetState
from sparktop.model.request import Request
from sparktop.operate.container import lifecycle
from sparktop.operate.container.lifecycle import grace_option
from sparktop.operate.plan.process import end_step
from sparktop.operate.plan.running_rank import RunningRank
from sparktop.operate.step.plan import Step

URGENT_GRACE_S = 2.0
_URGENT_RULES = ("memory.falling", "memory.first-request-spike")


def is_urgent(request: Request, team: Sequence[RunningRank], picture: FleetState) -> bool:
    """Whether memory is running out, by the request's finding or by one that fires on a node of the team."""
    if request.finding is not None and request.finding.rule in _URGENT_RULES:
        return True
    nodes = {rank.node for rank in team}
    return any(
        finding.rule in _URGENT_RULES and finding.phase is Phase.FIRING and nodes & {*finding.nodes}
        for finding in picture.findings
    )


def grace_of(request: Request, team: Sequence[RunningRank], picture: FleetState) -> float:
    """Seconds between SIGTERM and SIGKILL: the operator's setting, else short where memory is running out, else what
    the engine needs.

    Raises:
        ValueError: the setting is not a valid number; the text says so.
    """
    text = request.options.get("grace_s", "")
    if not text and is_urgent(request, team, picture):
        return URGENT_GRACE_S
    return grace_option(text) if text or not team else max(rank.engine.kind.traits.stop_s for rank in team)


def typed_stop(rank: RunningRank, grace_s: float, *, with_policy: bool = True) -> Iterator[str]:
    """What stops the rank, by hand; `with_policy` as for `down_steps`."""
    container, where = rank.container, f"on {rank.node}: "
    if rank.service is not None:
        yield where + rank.service.typed("stop")
    elif container is not None:
        if with_policy and container.restarts:
            yield where + lifecycle.policy_command(container.name, lifecycle.NO_POLICY)
        if rank.runs:
            yield f"{where}docker stop -t {grace_s:.0f} {container.name}"
    elif rank.processes:
        pid = rank.processes[0].pid
        yield f"{where}kill {pid}; after {grace_s:.0f} s: kill -9 {pid}"


def down_steps(
    order: Sequence[RunningRank],
    grace_s: float,
    *,
    with_policy: bool = True,
    is_coming_back: bool = False,
) -> Iterator[Step]:
    """Policy off, stop, kill, processes gone: each for all ranks before the next.

    Args:
        with_policy: False leaves the restart policies as they are.
        is_coming_back: a container that can't be stopped gets its policy back.
    """
    for rank in order:
        if with_policy and rank.container is not None and rank.container.restarts:
            yield lifecycle.policy_off(rank.container, rank.mark)
    for rank in order:
        if rank.service is not None:
            yield rank.service.stop(grace_s)
        elif rank.container is not None:
            container = rank.container
            if not with_policy and container.restarts and rank is not order[0]:
                # It ends with the rank before it, and Docker may start it anew until its own stop.
                container = replace(container, loops=True)
            if rank.runs:
                yield lifecycle.stop(container, rank.mark, grace_s, policy_back_if_not=is_coming_back)
                yield lifecycle.kill(container, rank.mark)
        elif rank.processes:
            step = end_step(f"stop{rank.mark}", rank.node, rank.name, rank.processes, rank.privilege, grace_s)
            yield replace(step, stops=rank.name)
    for rank in order:
        box = rank.container
        yield lifecycle.gone(
            rank.engine, rank.node, rank.mark, box.container_id if box else "", box.pid if box else None
        )
