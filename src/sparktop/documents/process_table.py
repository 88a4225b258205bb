"""Processes that hold memory or the GPU, as a table and as the facts of one. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
    def gpu_bytes(self) -> int:
        """0 where that isn't known."""
        return (self.gpu.used_bytes or 0) if self.gpu is not None else 0

    @property
    def resident_bytes(self) -> int:
        return self.process.resident_bytes if self.process is not None else 0

    @property
    def swapped_bytes(self) -> int:
        """0 where that isn't known."""
        return (self.process.swapped_bytes or 0) if self.process is not None else 0

    @property
    def held_bytes(self) -> int:
        """What its end would release, roughly: GPU memory, and resident memory without the shared part."""
        shared_bytes = self.process.shared_bytes if self.process is not None else 0
        return self.gpu_bytes + max(0, self.resident_bytes - shared_bytes)


def rows(fleet: FleetState, by: str | None = None) -> tuple[ProcessRow, ...]:
    """The processes of all nodes, the largest in this column of SORTS first; without one, the largest holder."""
    figure = next((one.figure for one in _COLUMNS if one.title == by and one.figure), lambda row: row.held_bytes)
    every = [row for view in fleet.nodes for row in _node_rows(view)]
    return tuple(sorted(every, key=lambda row: (-figure(row), row.node, row.pid)))


def searched_text(row: ProcessRow) -> str:
    """What a filter of the table looks at: node, pid, user, name, engine and command line."""
    argv = row.process.argv if row.process is not None else ()
    return " ".join((row.node, str(row.pid), row.user, row.name, row.engine, *argv))


def _node_rows(view: NodeView) -> Iterator[ProcessRow]:
    table = {process.pid: process for process in (view.processes.processes if view.processes else ())}
    on_gpu = {user.pid: user for user in view.gpu_processes}
    engine_of = {pid: engine.name for engine in view.engines for pid in engine.pids}
    for pid in table.keys() | on_gpu.keys():
        process, gpu = table.get(pid), on_gpu.get(pid)
        yield ProcessRow(
            node=view.name,
            pid=pid,
            name=_name(process, gpu),
            user=_user(process, view),
            engine=engine_of.get(pid, ""),
            process=process,
            gpu=gpu,
            age_s=max(0.0, view.sample.boot_s - process.started_boot_s) if process and view.sample else None,
        )


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


def _state_cell(row: ProcessRow) -> Line:
    state = row.process.state if row.process is not None else ""
    return Line.of((state, "warning" if state == "D" else "quiet"))


def _gpu_cell(row: ProcessRow) -> Line:
    return Line.of((size(row.gpu.used_bytes) if row.gpu is not None else "", "value"))


def _resident_cell(row: ProcessRow) -> Line:
    return Line.of(size(row.resident_bytes) if row.process is not None else "")


def _swap_cell(row: ProcessRow) -> Line:
    return Line.of((size(row.swapped_bytes) if row.swapped_bytes else "", "warning"))


def _age_cell(row: ProcessRow) -> Line:
    return Line.of((duration(row.age_s) if row.age_s is not None else "", "quiet"))


def _process_cell(row: ProcessRow) -> Line:
    return Line.of(row.name, *([(f"  {row.engine}", "title")] if row.engine else []))


_COLUMNS: tuple[Column[ProcessRow], ...] = (
    Column("NODE", 9, lambda row: Line.of((row.node, "quiet")), turn=1),
    Column("PID", 8, lambda row: Line.of((str(row.pid), "value")), is_right=True),
    Column("USER", 9, lambda row: Line.of((row.user, "quiet")), turn=4),
    Column("S", 2, _state_cell),
    Column("GPU", 10, _gpu_cell, is_right=True, figure=lambda row: row.gpu_bytes),
    Column("RESIDENT", 10, _resident_cell, is_right=True, figure=lambda row: row.resident_bytes),
    Column("SWAP", 10, _swap_cell, turn=5, is_right=True, figure=lambda row: row.swapped_bytes),
    Column("AGE", 9, _age_cell, turn=3, is_right=True, figure=lambda row: row.age_s or 0.0),
    Column("PROCESS", 4, _process_cell, grows=((2, 25), (6, UNCUT))),
)
"""A figure that is not known is blank, for most processes hold no GPU memory and no swap."""
SORTS = (None, *(column.title for column in _COLUMNS if column.figure))
"""What the table may be sorted by; None: what a process's end would release."""


def columns(width: int, *, nodes: int) -> tuple[Column[ProcessRow], ...]:
    """The columns that fit, the process in what is left; the node's is shown where there is more than one."""
    return fitted([one for one in _COLUMNS if nodes > 1 or one.title != "NODE"], width, gap=" ")


def row_line(row: ProcessRow, columns: Sequence[Column[ProcessRow]]) -> Line:
    """One process."""
    return table_row(columns, row, " ")


def facts(row: ProcessRow) -> tuple[tuple[str, str], ...]:
    """What is known of one process, by name."""
    process = row.process
    pairs = [("node", row.node), ("pid", str(row.pid)), ("user", row.user), ("engine", row.engine)]
    if row.gpu is not None:
        kind = "graphics" if row.gpu.kind == "G" else "compute"
        pairs.append(("GPU memory", f"{size(row.gpu.used_bytes)}, {kind}"))
    if process is not None:
        waits = f", waits in {process.wait_channel}" if process.wait_channel else ""
        pairs += [
            ("resident", f"{size(process.resident_bytes)}, {size(process.shared_bytes)} shared"),
            ("swapped", size(process.swapped_bytes) if process.swapped_bytes else ""),
            ("state", f"{process.state}{waits}"),
            ("parent", str(process.parent_pid)),
            ("container", (process.container_id or "")[:12]),
            ("cgroup", process.cgroup),
        ]
    pairs.append(("age", duration(row.age_s) if row.age_s is not None else ""))
    return tuple((name, text) for name, text in pairs if text)


def summary(fleet: FleetState) -> str:
    """How many processes there are in all, and how many ended ones nobody collected: "412 in all · 3 zombies"."""
    tables = [view.processes for view in fleet.nodes if view.processes is not None]
    if not tables:
        return "not read yet"
    zombies = sum(table.zombie_count for table in tables)
    total = f"{sum(table.total_count for table in tables):,} in all"
    return f"{total} · {zombies} zombies" if zombies else total
