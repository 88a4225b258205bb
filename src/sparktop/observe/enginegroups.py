"""Which processes are one engine: the server, its workers, and what else of its container holds GPU memory. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sparktop.diagnose.enginecommand import EngineCommand, of_process
from sparktop.model.engine import EngineKind
from sparktop.model.telemetry import GpuReading, Process

_WORKERS: Mapping[str, EngineKind] = {
    "VLLM::": EngineKind.VLLM,
    "sglang::": EngineKind.SGLANG,
    "ray::RayWorker": EngineKind.VLLM,
}
"""How engines title their processes (setproctitle); comm holds the first 15 characters."""


@dataclass(slots=True, kw_only=True)
class Group:
    """The processes of one engine while they are being found."""

    kind: EngineKind
    root: Process
    command: EngineCommand | None = None
    pids: set[int] = field(default_factory=set)


def groups_of(table: Sequence[Process], gpu: GpuReading | None) -> list[Group]:
    """Servers by their command lines, and to each what belongs to it: by the chain of parents, else by container."""
    by_pid = {process.pid: process for process in table if process.state != "Z"}
    commands = {pid: command for pid, process in by_pid.items() if (command := of_process(process.argv)) is not None}
    groups: list[Group] = []
    by_root: dict[int, Group] = {}
    for pid in sorted(commands, key=lambda pid: (by_pid[pid].started_boot_s, pid)):
        process, command = by_pid[pid], commands[pid]
        above = next((by_root[up] for up in _ancestors(process, by_pid) if up in by_root), None)
        group = above or _same_server(groups, process, command)
        if group is None or group.kind is not command.kind:
            group = Group(kind=command.kind, root=process, command=command)
            groups.append(group)
        group.pids.add(pid)
        by_root[pid] = group
    using_gpu = {process.pid for card in gpu.gpus for process in card.processes or ()} if gpu else set()
    rest = [process for pid, process in by_pid.items() if pid not in by_root]
    for process in sorted(
        rest, key=lambda process: (_worker_kind(process) is None, process.started_boot_s, process.pid)
    ):
        kind = _worker_kind(process)
        if kind is None and process.pid not in using_gpu:
            continue
        above = next((by_root[up] for up in _ancestors(process, by_pid) if up in by_root), None)
        group = above or _same_container(groups, process, kind)
        if group is None and kind is not None:  # a further node's workers, whose server is elsewhere
            group = Group(kind=kind, root=process)
            groups.append(group)
        if group is not None:
            group.pids.add(process.pid)
            by_root[process.pid] = group
    return groups


def _ancestors(process: Process, by_pid: Mapping[int, Process]) -> Iterable[int]:
    seen = {process.pid}
    while (parent := by_pid.get(process.parent_pid)) is not None and parent.pid not in seen:
        seen.add(parent.pid)
        yield parent.pid
        process = parent


def _worker_kind(process: Process) -> EngineKind | None:
    title = process.argv[0] if process.argv else ""
    return next(
        (kind for mark, kind in _WORKERS.items() if process.command.startswith(mark) or title.startswith(mark)), None
    )


def _same_server(groups: Iterable[Group], process: Process, command: EngineCommand) -> Group | None:
    """The same server seen twice where a process between them is not in the table (`uv run`, a wrapper)."""
    if process.container_id is None:
        return None
    for group in groups:
        same = group.root.container_id == process.container_id and group.command is not None
        if same and group.command is not None and group.command.port == command.port:
            return group
    return None


def _same_container(groups: Sequence[Group], process: Process, kind: EngineKind | None) -> Group | None:
    if process.container_id is None:
        return None
    there = [group for group in groups if group.root.container_id == process.container_id]
    fitting = [group for group in there if kind is None or group.kind is kind]
    return fitting[0] if fitting and (kind is not None or len(fitting) == 1) else None


def keyed(groups: Iterable[Group]) -> list[tuple[str, Group]]:
    """Keys that stay: the container's id for its first engine, id and port for a further one, else the pid."""
    out: dict[str, Group] = {}
    for group in sorted(groups, key=lambda group: (group.root.started_boot_s, group.root.pid)):
        key = group.root.container_id[:12] if group.root.container_id else f"pid:{group.root.pid}"
        if key in out:
            key = f"{key}:{group.command.port if group.command else group.root.pid}"
        out.setdefault(key, group)
    return list(out.items())
