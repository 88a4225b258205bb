"""One process: known again by when it started, and ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparktop.dataclass import dataclass
from sparktop.model.engine import Engine
from sparktop.model.fleet import NodeView
from sparktop.model.operation import Privilege, Signal
from sparktop.model.survey import FileText, Survey
from sparktop.model.telemetry import Process
from sparktop.operate.acts.remote import Remote
from sparktop.operate.step.plan import Step
from sparktop.probe.remote.parsers import parse_process_stat

STARTED_TICKS_PER_S = 100
"""USER_HZ: the unit of /proc on every Linux that a Spark runs."""
SAME_START_S = 2.0
"""Tolerance between the start of a process in the picture and in /proc."""
KILL_S = 10.0
_PIDS_AT_MOST = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStat:
    """/proc/PID/stat, as far as it tells one process from another."""

    pid: int
    command: str
    state: str
    parent_pid: int
    started_ticks: int

    @property
    def started_boot_s(self) -> float:
        return self.started_ticks / STARTED_TICKS_PER_S

    @property
    def has_ended(self) -> bool:
        """Whether only its parent's note of its end is missing."""
        return self.state in "ZX"

    def is_same(self, seen: Process) -> bool:
        """Whether it is the process that the picture shows under its pid."""
        return abs(seen.started_boot_s - self.started_boot_s) <= SAME_START_S


def root_pid(engine: Engine) -> int:
    """The server's process, of an engine that runs in no container."""
    return int(engine.key.removeprefix("pid:").partition(":")[0])


def stat_question(node: str, pid: int) -> FileText:
    return FileText(node=node, path=f"/proc/{pid}/stat")


def stat_of(survey: Survey, question: FileText) -> ProcessStat | None:
    """The process's stat, or None where the process is gone or can't be read."""
    text = survey.text(question)
    return parse_stat(text) if text is not None else None


def parse_stat(text: str) -> ProcessStat | None:
    """The stat in a text of /proc; None where it isn't one."""
    pid, _, _ = text.partition("(")
    fields = parse_process_stat(text.encode("utf-8", "replace"))
    if fields is None or not pid.strip().isdecimal():
        return None
    command, state, parent_pid, started_ticks, _ = fields
    return ProcessStat(
        pid=int(pid), command=command, state=state[:1], parent_pid=parent_pid, started_ticks=started_ticks
    )


def still_there(engine: Engine, node: NodeView, survey: Survey) -> tuple[ProcessStat, ...]:
    """The engine's processes that still are the ones seen: the server first, then its children."""
    stats = (stat_of(survey, question) for question in stat_questions(engine, node))
    seen = {process.pid: process for process in (node.processes.processes if node.processes else ())}
    rows = [row for row in stats if row and not row.has_ended and row.pid in seen and row.is_same(seen[row.pid])]
    pids = {row.pid for row in rows}
    return tuple(sorted(rows, key=lambda row: (row.parent_pid in pids, row.started_ticks, row.pid)))


def stat_questions(engine: Engine, node: NodeView) -> Iterator[FileText]:
    """What tells whether the engine's processes still are the ones seen."""
    return (stat_question(node.name, pid) for pid in engine.pids[:_PIDS_AT_MOST])


def end_step(
    step_id: str, node: str, name: str, processes: Sequence[ProcessStat], privilege: Privilege, grace_s: float
) -> Step:
    """SIGTERM to the first process, whose end takes the others along; SIGKILL to what is left after the grace."""
    first, *others = processes
    term = _signal(first, "TERM", privilege, grace_s)
    rest = " to what is left" if others else ""
    kills = tuple(_signal(process, "KILL", privilege, KILL_S) for process in processes)
    return Step(
        id=step_id,
        title=f"Send SIGTERM to {name} (pid {first.pid}), SIGKILL{rest} after {grace_s:.0f} s",
        node=node,
        act=Remote(operations=(term, *kills)),
        limit_s=grace_s + KILL_S * len(kills) + 60.0,
        verifies="none of its processes is left" if others else f"pid {first.pid} is gone",
    )


def _signal(process: ProcessStat, signal: str, privilege: Privilege, ends_within_s: float) -> Signal:
    """A signal to this very process; one that survives SIGKILL fails the step."""
    return Signal(
        pid=process.pid,
        started_ticks=process.started_ticks,
        signal=signal,
        privilege=privilege,
        ends_within_s=ends_within_s,
        must_end=signal == "KILL",
    )
