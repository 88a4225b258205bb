"""Discover the engines of a node from its processes, GPU processes and containers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from types import MappingProxyType

from sparktop.cmdline.engine_command import (
    command_of,
    is_exec,
    joins_ray,
    kind_of_image,
    of_process,
    started_by,
    version_of_image,
)
from sparktop.dataclass import dataclass
from sparktop.diagnose.container_exit import exit_detail
from sparktop.engines import labels
from sparktop.engines.metrics import paths_of
from sparktop.model.engine import (
    Container,
    Containers,
    Endpoint,
    EndpointState,
    Engine,
    EngineCommand,
    EngineKind,
    EngineState,
    Served,
)
from sparktop.model.telemetry import NO_GAPS, GapReason, GpuReading, Process, ProcessTable


@dataclass(slots=True, kw_only=True)
class EngineProcesses:
    """The processes of one engine, while they are being collected."""

    kind: EngineKind
    root: Process
    command: EngineCommand | None = None
    pids: set[int] = field(default_factory=set)


MAX_ENGINES = 64
"""Of one node: what a Spark says of its processes can't cost the loop more than this many."""
_MAX_PARENTS = 32
"""How far up a process's server is looked for."""


def groups_of(
    table: Sequence[Process], gpu: GpuReading | None, by_id: Mapping[str, Container] = MappingProxyType({})
) -> list[EngineProcesses]:
    """Servers by their command lines, each with its worker processes: by the chain of parents, else by container."""
    by_pid = {process.pid: process for process in table if process.state != "Z"}
    images = {container_id: container.image for container_id, container in by_id.items()}
    commands = {
        pid: command
        for pid, process in by_pid.items()
        if (command := of_process(process.argv, image=images.get(process.container_id or "", ""))) is not None
    }
    groups: list[EngineProcesses] = []
    by_root: dict[int, EngineProcesses] = {}
    for pid in sorted(commands, key=lambda pid: (by_pid[pid].started_boot_s, pid)):
        process, command = by_pid[pid], commands[pid]
        ancestor_group = next((by_root[up] for up in _ancestors(process, by_pid) if up in by_root), None)
        group = ancestor_group or _same_server(groups, process, command)
        if group is None or group.kind is not command.kind:
            if len(groups) > MAX_ENGINES:
                continue
            group = EngineProcesses(kind=command.kind, root=process, command=command)
            groups.append(group)
        group.pids.add(pid)
        by_root[pid] = group
    using_gpu = {process.pid for card in gpu.gpus for process in card.processes or ()} if gpu else set()
    others = [process for pid, process in by_pid.items() if pid not in by_root]
    for process in sorted(
        others, key=lambda process: (_worker_kind(process) is None, process.started_boot_s, process.pid)
    ):
        kind = _worker_kind(process)
        if kind is None and process.pid not in using_gpu:
            continue
        ancestor_group = next((by_root[up] for up in _ancestors(process, by_pid) if up in by_root), None)
        group = ancestor_group or _same_container(groups, process, kind)
        # A further node's workers, whose server is elsewhere.
        if group is None and kind is not None and len(groups) <= MAX_ENGINES:
            group = EngineProcesses(kind=kind, root=process)
            groups.append(group)
        if group is not None:
            group.pids.add(process.pid)
            by_root[process.pid] = group
    return groups


def _ancestors(process: Process, by_pid: Mapping[int, Process]) -> Iterable[int]:
    seen = {process.pid}
    while (parent := by_pid.get(process.parent_pid)) is not None and parent.pid not in seen:
        if len(seen) > _MAX_PARENTS:
            return
        seen.add(parent.pid)
        yield parent.pid
        process = parent


@cache
def _worker_titles() -> Sequence[tuple[EngineKind, tuple[str, ...]]]:
    """How engines title their processes (setproctitle); comm holds the first 15 characters."""
    return [(kind, kind.traits.titles) for kind in EngineKind if kind.traits.titles]


def _worker_kind(process: Process) -> EngineKind | None:
    title = process.argv[0] if process.argv else ""
    titles = _worker_titles()
    return next((kind for kind, marks in titles if process.command.startswith(marks) or title.startswith(marks)), None)


def _same_server(groups: Iterable[EngineProcesses], process: Process, command: EngineCommand) -> EngineProcesses | None:
    """The group this process belongs to although a process between them is missing from the table (`uv run`, a
    wrapper)."""
    if process.container_id is None:
        return None
    for group in groups:
        is_same_container = group.root.container_id == process.container_id and group.command is not None
        if is_same_container and group.command is not None and group.command.port == command.port:
            return group
    return None


def _same_container(
    groups: Sequence[EngineProcesses], process: Process, kind: EngineKind | None
) -> EngineProcesses | None:
    if process.container_id is None:
        return None
    in_container = [group for group in groups if group.root.container_id == process.container_id]
    matching = [group for group in in_container if kind is None or group.kind is kind]
    return matching[0] if matching and (kind is not None or len(matching) == 1) else None


def keys_of(groups: Iterable[EngineProcesses]) -> list[tuple[str, EngineProcesses]]:
    """Groups with stable keys: the container's id for its first engine, id and port for a further one, else the pid."""
    by_key: dict[str, EngineProcesses] = {}
    for group in sorted(groups, key=lambda group: (group.root.started_boot_s, group.root.pid)):
        key = group.root.container_id[:12] if group.root.container_id else f"pid:{group.root.pid}"
        if key in by_key:
            key = f"{key}:{group.command.port if group.command else group.root.pid}"
        by_key.setdefault(key, group)
    return list(by_key.items())


MAX_EXITED = 3
"""Of those that served, and as many of those that only failed to start: a restart loop doesn't push an engine that is
missed out of the list, and engines that served don't hide why a new one didn't start."""
EXITED_FOR_S = 24 * 3600.0
REMOVED_FOR_S = 600.0
"""How long an engine that sparktop launched stays listed after its container was removed, as a rollback does: so
long its memory is waited for."""
STARTS_FOR_S = 15.0
"""No engine serves sooner after its start: imports and CUDA alone take so long."""
_ENDED_STATUSES = ("exited", "dead")
_LIVE_STATUSES = ("running", "paused", "restarting", "removing")
_STILL_RUNS = "its process ended and the container still runs: see its log, or start it again there"
_REMOVED = "its container was removed"
_REMOVED_ITSELF = "its container was started with --rm: Docker removed it, with its exit code and log"
_ANY_ADDRESS = ("", "0.0.0.0", "::", "localhost", "::1")  # noqa: S104 - compared, never bound


def discover(
    processes: ProcessTable | None,
    gpu: GpuReading | None,
    containers: Containers,
    previous: tuple[Engine, ...] = (),
    *,
    node_wall_s: float,
) -> tuple[Engine, ...]:
    """The engines of a node now: live ones, oldest first, then recently ended ones, newest first.

    State, figures and endpoint of an engine are carried over while its processes stay the same.

    Args:
        previous: the result of the last call, with what has been observed since.
        node_wall_s: the node's wall clock, which Docker's timestamps use.
    """
    by_id = {container.container_id: container for container in containers.containers}
    previous_by_key = {engine.key: engine for engine in previous}
    live: dict[str, Engine] = {}
    if processes is not None:
        for key, group in keys_of(groups_of(processes.processes, gpu, by_id)):
            box = by_id.get(group.root.container_id or "")
            last_seen = previous_by_key.get(key)
            if box is None and last_seen is not None and not containers.available:
                box = last_seen.container  # as last seen, while the Docker Engine doesn't answer
            if box is not None and box.status in _ENDED_STATUSES and containers.available:
                continue  # Docker reports an exit sooner than the process table
            live[key] = _running_engine(key, group, box, processes, gpu, containers, last_seen)
    else:
        live |= {key: engine for key, engine in previous_by_key.items() if engine.pids}
    live_ids = {engine.container.container_id for engine in live.values() if engine.container}
    for box in by_id.values():
        if box.container_id not in live_ids and box.status in _LIVE_STATUSES:
            engine = _starting_engine(box, previous_by_key.get(box.container_id[:12]), processes is None, node_wall_s)
            if engine is not None:
                live[engine.key] = engine
    exited = _ended_engines(previous_by_key, live, by_id, containers, node_wall_s)
    running = sorted(live.values(), key=lambda engine: (engine.started_boot_s or 0.0, engine.key))
    return tuple(
        replace(engine, served=_served(previous_by_key.get(engine.key), node_wall_s)) for engine in (*running, *exited)
    )


def _served(previous: Engine | None, node_wall_s: float) -> Served | None:
    """When an engine was last seen to serve; its last known requests stay while its figures are missing."""
    if previous is None or previous.state not in (EngineState.READY, EngineState.SERVING):
        return previous.served if previous is not None else None
    metrics = previous.metrics
    if metrics is None or metrics.running is None:
        return Served(wall_s=node_wall_s, requests=previous.served.requests if previous.served else None)
    return Served(wall_s=node_wall_s, requests=int(metrics.running + (metrics.waiting or 0.0)))


def _running_engine(
    key: str,
    group: EngineProcesses,
    container: Container | None,
    process_table: ProcessTable,
    gpu: GpuReading | None,
    containers: Containers,
    previous: Engine | None,
) -> Engine:
    command = group.command or (started_by(container) if container else None)
    if container and group.command and group.kind.traits.variables:
        command = of_process(group.root.argv, container.environment, container.image)
    if command is not None and command.kind is not group.kind:
        command = None
    in_container = group.root.container_id is not None
    gaps: dict[str, GapReason] = {}
    if in_container and container is None:
        gaps["container"] = _container_gap(containers)
    if command is None or command.model is None:
        gaps["model"] = GapReason.NOT_FOUND
    endpoint = (
        _endpoint(command, container) if command and not command.is_worker and (group.command or container) else None
    )
    if endpoint is None:
        gaps["endpoint"] = GapReason.NOT_FOUND  # a worker's node: the server answers on the other one
    gpu_bytes = _gpu_bytes(group.pids, gpu)
    environment: tuple[str, ...] = ()
    if container is not None and started_by(container) is not None:
        environment = container.environment
    else:  # `docker exec` may have added to the container's; the process's own is root's to read
        gaps["environment"] = GapReason.NO_PERMISSION
    if gpu_bytes is None:
        gaps["gpu_bytes"] = GapReason.NOT_SUPPORTED if gpu else GapReason.NOT_YET
    port = f":{command.port}" if command else ""
    name = container.name if container else f"{group.kind}{port}"
    if container is not None and ":" in key:
        name = f"{container.name}{port}"
    is_same = (
        previous is not None and bool(set(previous.pids) & group.pids) and previous.state is not EngineState.EXITED
    )
    uptime_s = max(0.0, process_table.boot_s - group.root.started_boot_s)
    carried = previous if is_same else None
    if carried is not None:
        endpoint = _with_answers(endpoint, carried.endpoint)
    return Engine(
        key=key,
        kind=group.kind,
        name=name,
        state=carried.state if carried else _state_by_age(uptime_s),
        progress=carried.progress if carried else None,
        model=(command.model if command else None) or (carried.model if carried else None),
        version=(carried.version if carried else None) or (version_of_image(container.image) if container else None),
        pids=tuple(sorted(group.pids)),
        argv=group.root.argv or (container.argv if container else ()),
        command=command_of(group.kind, group.root.argv, environment, container),
        is_exec=is_exec(container, endpoint, tuple(group.pids)),
        container=container,
        endpoint=endpoint,
        metrics=carried.metrics if carried else None,
        rates=carried.rates if carried else None,
        started_boot_s=group.root.started_boot_s,
        uptime_s=uptime_s,
        gpu_bytes=gpu_bytes,
        environment=environment,
        gaps=gaps or NO_GAPS,
    )


def _state_by_age(uptime_s: float) -> EngineState:
    """The state of an engine before its endpoint and its log were read: an older one may have served for days."""
    return EngineState.STARTING if uptime_s < STARTS_FOR_S else EngineState.UNKNOWN


def _starting_engine(
    container: Container, previous: Engine | None, is_unscanned: bool, node_wall_s: float
) -> Engine | None:
    """An engine whose container runs but whose server process does not exist yet (`pip install ... && vllm serve`).

    Also a rank that waits for its head to start it by Ray. A rank that ran and ended in this run of the container
    doesn't count as starting.
    """
    command = started_by(container)
    if command is None and not _waits_for_head(container, previous):
        return None
    kind = command.kind if command else EngineKind.VLLM
    restarts = "" if container.status != "restarting" else "its container restarts again and again: see its log"
    return Engine(
        key=container.container_id[:12],
        kind=kind,
        name=container.name,
        state=EngineState.UNKNOWN if is_unscanned else EngineState.STARTING,
        model=command.model if command else None,
        version=(previous.version if previous else None) or version_of_image(container.image),
        argv=container.argv,
        command=command_of(kind, (), container.environment, container),
        container=container,
        endpoint=None if command is None or command.is_worker else _endpoint(command, container),
        uptime_s=max(0.0, node_wall_s - container.started_wall_s) if container.started_wall_s else None,
        exit_detail=restarts,
        environment=container.environment,
        gaps={"pids": GapReason.NOT_YET if is_unscanned else GapReason.NOT_FOUND},
    )


def _joins_sparktop_ray(container: Container) -> bool:
    """Whether this is a worker rank of a Ray launch by sparktop, which only vLLM has."""
    return bool(labels.recipe_of(container.labels)) and joins_ray(container.argv)


def _waits_for_head(container: Container, previous: Engine | None) -> bool:
    if not _joins_sparktop_ray(container):
        return False
    previous_container = previous.container if previous is not None else None
    is_same_run = previous_container is not None and previous_container.started_wall_s == container.started_wall_s
    return previous is None or not is_same_run or not (previous.pids or previous.state is EngineState.EXITED)


def _ended_engines(
    previous_by_key: Mapping[str, Engine],
    live: Mapping[str, Engine],
    by_id: Mapping[str, Container],
    containers: Containers,
    node_wall_s: float,
) -> tuple[Engine, ...]:
    exited: dict[str, Engine] = {}
    set_aside = _set_aside_keys(live, by_id)
    for container in by_id.values():
        key = container.container_id[:12]
        if key in set_aside:
            continue
        previous = previous_by_key.get(key)
        command = started_by(container)
        kind = previous.kind if previous else command.kind if command else None
        if kind is None and not any(word.rpartition("/")[2] == "sleep" for word in container.argv[:2]):
            kind = kind_of_image(container.image)
        kind = kind or (EngineKind.VLLM if _joins_sparktop_ray(container) else None)
        if kind is None or key in live or container.status not in _ENDED_STATUSES:
            continue
        exited[key] = Engine(
            key=key,
            kind=kind,
            name=container.name,
            state=EngineState.EXITED,
            model=(command.model if command else None) or (previous.model if previous else None),
            version=(previous.version if previous else None) or version_of_image(container.image),
            argv=container.argv,
            command=command_of(kind, (), container.environment if command else (), container),
            is_exec=is_exec(container, None, ()),
            container=container,
            exit_detail=exit_detail(container),
            exited_wall_s=container.finished_wall_s,
            environment=container.environment if command else (),
        )
    live_pids = {pid for engine in live.values() for pid in engine.pids}
    for key, previous in previous_by_key.items():
        if key in live or key in exited or key in set_aside or live_pids.intersection(previous.pids):
            continue
        if previous.container is None and "container" in previous.gaps and containers.available:
            continue  # seen before Docker listed its container, which is gone by now: nobody knows what it was
        if previous.state is EngineState.EXITED:
            is_removed = (
                previous.container is not None and containers.available and previous.container.container_id not in by_id
            )
            exited[key] = _with_container_removed(previous) if is_removed else previous
        else:
            exited[key] = _exited_engine(previous, by_id, containers, node_wall_s)
    recent = [
        exited_engine
        for exited_engine in exited.values()
        if node_wall_s - (exited_engine.exited_wall_s or 0.0) <= _listed_for_s(exited_engine)
    ]
    newest_first = sorted(recent, key=lambda engine: -(engine.exited_wall_s or 0.0))
    served = [engine for engine in newest_first if _has_served(previous_by_key.get(engine.key))]
    failed = [engine for engine in newest_first if engine not in served]
    kept = served[:MAX_EXITED] + failed[:MAX_EXITED]
    return tuple(engine for engine in newest_first if engine in kept)


def _has_served(previous: Engine | None) -> bool:
    if previous is None:
        return False
    is_up = previous.state in (EngineState.READY, EngineState.SERVING)
    return is_up or previous.served is not None or bool(previous.log and previous.log.has_served)


def _listed_for_s(engine: Engine) -> float:
    container = engine.container
    is_removed_launch = container is not None and container.is_gone and bool(labels.recipe_of(container.labels))
    return REMOVED_FOR_S if is_removed_launch else EXITED_FOR_S


def _with_container_removed(engine: Engine) -> Engine:
    """An exited engine whose container has been removed since."""
    if engine.container is None or engine.container.is_gone:
        return engine
    detail = "" if engine.exit_detail == _STILL_RUNS else engine.exit_detail
    return replace(
        engine,
        container=replace(engine.container, is_gone=True),
        exit_detail=f"{detail}; {_REMOVED}" if detail else _REMOVED,
    )


def _set_aside_keys(live: Mapping[str, Engine], by_id: Mapping[str, Container]) -> frozenset[str]:
    """Keys of ended containers that another container has replaced.

    A relaunch by sparktop keeps them for the rollback; it stopped them itself, so their exit is no news of the engine.
    """
    names = {engine.container.name for engine in live.values() if engine.container}
    return frozenset(
        container.container_id[:12]
        for container in by_id.values()
        if container.status in (*_ENDED_STATUSES, "created") and labels.name_set_aside(container.name) in names
    )


def _exited_engine(
    engine: Engine, by_id: Mapping[str, Container], containers: Containers, node_wall_s: float
) -> Engine:
    container = by_id.get(engine.container.container_id) if engine.container else None
    last_container = container or engine.container
    if container is not None:
        detail = _STILL_RUNS
    elif engine.container is not None and containers.available:
        detail = _REMOVED_ITSELF if engine.container.auto_remove else _REMOVED
        last_container = replace(engine.container, is_gone=True)
    else:
        detail = "its process ended"
    return replace(
        engine,
        state=EngineState.EXITED,
        progress=None,
        pids=(),
        metrics=None,
        rates=None,
        gpu_bytes=None,
        uptime_s=None,
        container=last_container,
        exit_detail=detail,
        exited_wall_s=node_wall_s,
    )


def _container_gap(containers: Containers) -> GapReason:
    if containers.available:
        return GapReason.NOT_YET
    return GapReason.NO_PERMISSION if containers.is_denied else GapReason.FAILED


def _endpoint(command: EngineCommand, container: Container | None) -> Endpoint:
    """The address at which the node itself reaches the server."""
    host, port = "127.0.0.1", command.port
    if container is None or container.network_mode in ("", "host"):
        if command.host not in (None, *_ANY_ADDRESS):
            host = command.host or host
    elif container.published_ports and port in container.published_ports:
        port = container.published_ports[port]
    elif container.addresses:
        host = container.addresses[0]
    if command.metrics_off and paths_of(command.kind) == (command.kind.traits.metrics_path,):
        return Endpoint(host=host, port=port, state=EndpointState.NO_METRICS, detail=command.metrics_off)
    return Endpoint(host=host, port=port)


def _with_answers(new: Endpoint | None, old: Endpoint | None) -> Endpoint | None:
    """The old endpoint with what it has answered, where the new one is to be asked at the same address."""
    if old is None or new is None or new.state is not EndpointState.NOT_ASKED:
        return new
    return old if (old.host, old.port) == (new.host, new.port) else new


def _gpu_bytes(pids: Iterable[int], gpu: GpuReading | None) -> int | None:
    if gpu is None or all(card.processes is None for card in gpu.gpus):
        return None
    pid_set = set(pids)
    used = [process.used_bytes for card in gpu.gpus for process in card.processes or () if process.pid in pid_set]
    if used and all(size is None for size in used):
        return None
    return sum(size for size in used if size is not None)
