"""Processes that hold memory or the GPU, as a table and as the facts of one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from sparktop.dataclass import dataclass
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.telemetry import GpuProcess, Process
from sparktop.text.lines import UNCUT, Line
from sparktop.text.table import Column, fitted, table_row
from sparktop.text.units import duration, size


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRow:
    """One process of one node."""

    node: str
    pid: int
    name: str
    user: str
    """The login user's name, "root", or a user id; empty where it is not known."""
    engine: str
    """The engine that it belongs to; empty for none."""
    process: Process | None
    """None where only NVML lists it."""
    gpu: GpuProcess | None
    """None where it holds no GPU memory, or NVML doesn't tell."""
    age_s: float | None

    @property
    def held_bytes(self) -> int:
        """What its end would release, roughly: GPU memory, and resident memory without the shared part."""
        own = max(0, self.process.resident_bytes - self.process.shared_bytes) if self.process is not None else 0
        return own + ((self.gpu.used_bytes or 0) if self.gpu is not None else 0)


def rows(fleet: FleetState, by: ProcessColumn | None = None) -> tuple[ProcessRow, ...]:
    """The processes of all nodes, the largest in this column of SORTS first; without one, the largest holder."""
    every = [row for view in fleet.nodes for row in _node_rows(view)]
    return tuple(sorted(every, key=lambda row: (-_sort_figure(row, by), row.node, row.pid)))


def _sort_figure(row: ProcessRow, by: ProcessColumn | None) -> float:
    process = row.process
    match by:
        case ProcessColumn.GPU:
            return (row.gpu.used_bytes or 0) if row.gpu is not None else 0
        case ProcessColumn.RESIDENT:
            return process.resident_bytes if process is not None else 0
        case ProcessColumn.SWAP:
            return process.swapped_bytes or 0 if process is not None else 0
        case ProcessColumn.AGE:
            return row.age_s or 0.0
        case _:
            return row.held_bytes


def searched_text(row: ProcessRow) -> str:
    """What a filter of the table looks at: node, pid, user, name, engine and command line."""
    argv = row.process.argv if row.process is not None else ()
    return " ".join((row.node, str(row.pid), row.user, row.name, row.engine, *argv))


def _node_rows(view: NodeView) -> list[ProcessRow]:
    table = {process.pid: process for process in (view.processes.processes if view.processes else ())}
    on_gpu = {user.pid: user for user in view.gpu_processes}
    engine_of = {pid: engine.name for engine in view.engines for pid in engine.pids}
    return [
        ProcessRow(
            node=view.name,
            pid=pid,
            name=_name(table.get(pid), on_gpu.get(pid)),
            user=_user(table.get(pid), view),
            engine=engine_of.get(pid, ""),
            process=table.get(pid),
            gpu=on_gpu.get(pid),
            age_s=_age_s(table.get(pid), view),
        )
        for pid in table.keys() | on_gpu.keys()
    ]


def _name(process: Process | None, gpu: GpuProcess | None) -> str:
    """The kernel's name of it, or NVML's where that goes on after the kernel's 15 characters or is the only one."""
    command = process.command if process is not None else ""
    program = gpu.name.rpartition("/")[2] if gpu is not None else ""
    return program if program.startswith(command) else command


def _user(process: Process | None, view: NodeView) -> str:
    if process is None or process.user_id is None:
        return ""
    if view.facts is not None and view.facts.user_id == process.user_id and view.facts.user:
        return view.facts.user
    return "root" if process.user_id == 0 else str(process.user_id)


def _age_s(process: Process | None, view: NodeView) -> float | None:
    if process is None or view.sample is None:
        return None
    return max(0.0, view.sample.boot_s - process.started_boot_s)


class ProcessColumn(StrEnum):
    """The columns of the processes' table, by their titles."""

    NODE = "NODE"
    PID = "PID"
    USER = "USER"
    S = "S"
    GPU = "GPU"
    RESIDENT = "RESIDENT"
    SWAP = "SWAP"
    AGE = "AGE"
    PROCESS = "PROCESS"


_COLUMNS = (
    Column(ProcessColumn.NODE, 9, turn=1),
    Column(ProcessColumn.PID, 8, is_right=True),
    Column(ProcessColumn.USER, 9, turn=4),
    Column(ProcessColumn.S, 2),
    Column(ProcessColumn.GPU, 10, is_right=True),
    Column(ProcessColumn.RESIDENT, 10, is_right=True),
    Column(ProcessColumn.SWAP, 10, turn=5, is_right=True),
    Column(ProcessColumn.AGE, 9, turn=3, is_right=True),
    Column(ProcessColumn.PROCESS, 4, grows=((2, 25), (6, UNCUT))),
)
SORTS = (None, ProcessColumn.GPU, ProcessColumn.RESIDENT, ProcessColumn.SWAP, ProcessColumn.AGE)
"""What the table may be sorted by; None: what a process's end would release."""


def columns(width: int, *, nodes: int) -> tuple[Column, ...]:
    """The columns that fit, the process in what is left; the node's is shown where there is more than one."""
    return fitted([one for one in _COLUMNS if nodes > 1 or one.key is not ProcessColumn.NODE], width, gap=" ")


def row_line(row: ProcessRow, columns: Sequence[Column]) -> Line:
    """One process; a figure that is not known is blank, for most processes hold no GPU memory and no swap."""
    process = row.process
    swapped = size(process.swapped_bytes) if process is not None and process.swapped_bytes else ""
    is_stuck = process is not None and process.state == "D"
    values = {
        ProcessColumn.NODE: Line.of((row.node, "quiet")),
        ProcessColumn.PID: Line.of((str(row.pid), "value")),
        ProcessColumn.USER: Line.of((row.user, "quiet")),
        ProcessColumn.S: Line.of((process.state if process is not None else "", "warning" if is_stuck else "quiet")),
        ProcessColumn.GPU: Line.of((size(row.gpu.used_bytes) if row.gpu is not None else "", "value")),
        ProcessColumn.RESIDENT: Line.of(size(process.resident_bytes) if process is not None else ""),
        ProcessColumn.SWAP: Line.of((swapped, "warning")),
        ProcessColumn.AGE: Line.of((duration(row.age_s) if row.age_s is not None else "", "quiet")),
        ProcessColumn.PROCESS: Line.of(row.name, *([(f"  {row.engine}", "title")] if row.engine else [])),
    }
    return table_row(columns, values, " ")


def facts(row: ProcessRow) -> tuple[tuple[str, str], ...]:
    """What is known of one process, by name."""
    process = row.process
    pairs = [("node", row.node), ("pid", str(row.pid)), ("user", row.user), ("engine", row.engine)]
    if row.gpu is not None:
        kind = "graphics" if row.gpu.kind == "G" else "compute"
        pairs.append(("GPU memory", f"{size(row.gpu.used_bytes)}, {kind}"))
    if process is not None:
        pairs += [
            ("resident", f"{size(process.resident_bytes)}, {size(process.shared_bytes)} shared"),
            ("swapped", size(process.swapped_bytes) if process.swapped_bytes else ""),
            ("state", f"{process.state}{f', waits in {process.wait_channel}' if process.wait_channel else ''}"),
            ("parent", str(process.parent_pid)),
            ("container", (process.container_id or "")[:12]),
            ("cgroup", process.cgroup),
        ]
    if row.age_s is not None:
        pairs.append(("age", duration(row.age_s)))
    return tuple((name, text) for name, text in pairs if text)


def summary(fleet: FleetState) -> str:
    """How many processes there are in all, and how many ended ones nobody collected: "412 in all · 3 zombies"."""
    tables = [view.processes for view in fleet.nodes if view.processes is not None]
    if not tables:
        return "not read yet"
    zombies = sum(table.zombie_count for table in tables)
    total = f"{sum(table.total_count for table in tables):,} in all"
    return f"{total} · {zombies} zombies" if zombies else total
