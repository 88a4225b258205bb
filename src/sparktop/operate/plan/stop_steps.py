"""Steps that stop an engine: its service, its container, or its processes; each with a grace period."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sparktop.diagnose.rules.memory.starvation import fall_of, is_dangerous
from sparktop.model.fleet import FleetState
from sparktop.model.operation import Privilege
from sparktop.model.request import Request
from sparktop.model.survey import Survey
from sparktop.operate.container import lifecycle
from sparktop.operate.container.lifecycle import grace_option
from sparktop.operate.plan.process import ProcessStat, end_step, stat_ask, stat_of
from sparktop.operate.plan.running_rank import PIDS_AT_MOST, RunningRank
from sparktop.operate.plan.service import service_of
from sparktop.operate.step.plan import Step

URGENT_GRACE_S = 2.0
_URGENT_RULES = ("memory.falling", "memory.first-request-spike")


def is_urgent(request: Request, team: Sequence[RunningRank]) -> bool:
    """Whether memory is running out, by the request's finding or by the figures."""
    if request.finding is not None and request.finding.rule in _URGENT_RULES:
        return True
    picture = FleetState(nodes=tuple(rank.view for rank in team))
    falls = ((rank, fall_of(rank.view)) for rank in team)
    return any(fall is not None and is_dangerous(rank.view, fall, picture) for rank, fall in falls)


def grace_of(request: Request, team: Sequence[RunningRank]) -> float:
    """Seconds between SIGTERM and SIGKILL: the operator's setting, else short where memory is running out, else what
    the engine needs.

    Raises:
        ValueError: the setting is not a valid number; the text says so.
    """
    text = request.options.get("grace_s", "")
    if not text and is_urgent(request, team):
        return URGENT_GRACE_S
    return grace_option(text) if text or not team else max(rank.engine.kind.traits.stop_s for rank in team)


def typed_stop(rank: RunningRank, grace_s: float) -> Iterator[str]:
    """What stops the rank, by hand."""
    container, where = rank.container, f"on {rank.node}: "
    if rank.origin.is_service:
        yield where + service_of(rank).typed("stop")
    elif container is not None:
        if container.restarts:
            yield where + lifecycle.policy_command(container.name, lifecycle.NO_POLICY)
        if rank.runs:
            yield f"{where}docker stop -t {grace_s:.0f} {container.name}"


def down_steps(
    order: Sequence[RunningRank],
    grace_s: float,
    *,
    with_policy: bool = True,
    is_coming_back: bool = False,
    survey: Survey | None = None,
) -> Iterator[Step]:
    """Policy off, stop, kill, processes gone: each for all ranks before the next.

    Args:
        with_policy: False leaves the restart policies as they are.
        is_coming_back: a container that can't be stopped gets its policy back.
        survey: to identify processes in no container and no service.
    """
    for rank in order:
        if with_policy and rank.container is not None and rank.container.restarts:
            yield lifecycle.policy_off(rank.container, rank.mark)
    for rank in order:
        if rank.origin.is_service:
            yield service_of(rank).stop(grace_s)
        elif rank.container is not None:
            container = rank.container
            if not with_policy and container.restarts and rank is not order[0]:
                # It ends with the rank before it, and Docker may start it anew until its own stop.
                container = replace(container, loops=True)
            if rank.runs:
                yield lifecycle.stop(container, rank.mark, grace_s, policy_back_if_not=is_coming_back)
                yield lifecycle.kill(container, rank.mark)
        elif survey is not None and (rows := processes(rank, survey)):
            step = end_step(f"stop{rank.mark}", rank.node, rank.name, rows, privilege_of(rank), grace_s)
            yield replace(step, stops=rank.name)
    for rank in order:
        box = rank.container
        yield lifecycle.gone(
            rank.engine, rank.node, rank.mark, box.container_id if box else "", box.pid if box else None
        )


def processes(rank: RunningRank, survey: Survey) -> tuple[ProcessStat, ...]:
    """The engine's processes that still are the ones seen: the server first, then its children."""
    table = {process.pid: process for process in (rank.view.processes.processes if rank.view.processes else ())}
    stats = [stat_of(survey, stat_ask(rank.node, pid)) for pid in rank.engine.pids[:PIDS_AT_MOST]]
    rows = [
        row
        for row in stats
        if row is not None and not row.has_ended and (seen := table.get(row.pid)) is not None and row.is_same(seen)
    ]
    pids = {row.pid for row in rows}
    return tuple(sorted(rows, key=lambda row: (row.parent_pid in pids, row.started_ticks, row.pid)))


def privilege_of(rank: RunningRank) -> Privilege:
    """USER where all its processes are the user's own, else ROOT."""
    table = {process.pid: process for process in (rank.view.processes.processes if rank.view.processes else ())}
    own = rank.view.facts.user_id if rank.view.facts else None
    mine = own is not None and all(pid in table and table[pid].user_id == own for pid in rank.engine.pids)
    return Privilege.USER if mine else Privilege.ROOT
