"""Everything that ends an engine, rank by rank in each state: by Docker, its service, or process by process. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparktop.model.operation import Privilege, Signal
from sparktop.model.plan import Remote, Step
from sparktop.model.telemetry import Process
from sparktop.operate import containersteps as steps_of
from sparktop.operate import unitsteps
from sparktop.operate.machine import ProcessStat, stat_ask, stat_of
from sparktop.operate.origin import Kind
from sparktop.operate.part import PIDS_AT_MOST, Part
from sparktop.operate.survey import Survey

KILL_S = 10.0
SAME_START_S = 2.0
"""Between the picture's start of a process and what /proc says of it now."""


def down_steps(
    order: Sequence[Part],
    grace_s: float,
    *,
    with_policy: bool = True,
    is_coming_back: bool = False,
    survey: Survey | None = None,
) -> Iterator[Step]:
    """Policy off, stop, kill, gone: each for all ranks before the next.

    Args:
        with_policy: False leaves the restart policies as they are.
        is_coming_back: what can't be stopped gets its policy back.
        survey: for processes in no container and no service, to tell them from others of their pids.
    """
    for part in order:
        if with_policy and part.box is not None and part.box.restarts:
            yield steps_of.policy_off(part.box, part.mark)
    for part in order:
        if part.origin.kind is Kind.UNIT:
            yield unitsteps.stop(part, grace_s)
        elif part.box is not None:
            if part.runs:
                yield steps_of.stop(part.box, part.mark, grace_s, policy_back_if_not=is_coming_back)
                yield steps_of.kill(part.box, part.mark)
        elif survey is not None and (end := _end(part, grace_s, survey)) is not None:
            yield end
    for part in order:
        box = part.box
        yield steps_of.gone(
            part.engine, part.node, part.mark, box.container_id if box else "", box.pid if box else None
        )


def processes(part: Part, survey: Survey) -> tuple[ProcessStat, ...]:
    """Those of the engine that are still themselves: the server first, then what it started."""
    table = {process.pid: process for process in (part.view.processes.processes if part.view.processes else ())}
    found = [stat_of(survey, stat_ask(part.node, pid)) for pid in part.engine.pids[:PIDS_AT_MOST]]
    rows = [row for row in found if row is not None and row.state not in "ZX" and _is_same(row, table.get(row.pid))]
    pids = {row.pid for row in rows}
    return tuple(sorted(rows, key=lambda row: (row.parent_pid in pids, row.started_ticks, row.pid)))


def privilege_of(part: Part) -> Privilege:
    """Whether its processes are all the user's own."""
    table = {process.pid: process for process in (part.view.processes.processes if part.view.processes else ())}
    own = part.view.facts.user_id if part.view.facts else None
    mine = own is not None and all(pid in table and table[pid].user_id == own for pid in part.engine.pids)
    return Privilege.USER if mine else Privilege.ROOT


def _is_same(row: ProcessStat, seen: Process | None) -> bool:
    return seen is not None and abs(seen.started_boot_s - row.started_boot_s) <= SAME_START_S


def _end(part: Part, grace_s: float, survey: Survey) -> Step | None:
    """TERM to the server, which ends its workers; KILL to what is left of them all."""
    rows = processes(part, survey)
    if not rows:
        return None
    privilege = privilege_of(part)
    term = Signal(
        pid=rows[0].pid,
        started_ticks=rows[0].started_ticks,
        signal="TERM",
        privilege=privilege,
        ends_within_s=grace_s,
    )
    kills = tuple(
        Signal(
            pid=row.pid,
            started_ticks=row.started_ticks,
            signal="KILL",
            privilege=privilege,
            ends_within_s=KILL_S,
            must_end=True,
        )
        for row in rows
    )
    return Step(
        id=f"stop{part.mark}",
        title=f"End {part.name} (pid {rows[0].pid}): TERM, after {grace_s:.0f} s KILL to what is left",
        node=part.node,
        act=Remote(operations=(term, *kills)),
        limit_s=grace_s + KILL_S * len(kills) + 60.0,
        verifies="none of its processes is left",
    )
