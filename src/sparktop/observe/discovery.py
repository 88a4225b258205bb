"""Which engines a node has: by process and cgroup first, then by the containers that hold none (yet, or any more).

Pure: the process table, the GPU's processes, Docker's containers and the engines known so far go in, engines come out.
An engine may be `docker exec`ed into a container whose first process sleeps, so a container's command says nothing
about what runs in it (facts/engines.md section 6.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from sparktop.diagnose.enginecommand import EngineCommand, joins_ray, kind_of_image, of_container, version_of_image
from sparktop.diagnose.exits import exit_detail
from sparktop.model.engine import Container, Containers, Endpoint, EndpointState, Engine, EngineKind, EngineState
from sparktop.model.telemetry import NO_GAPS, GapReason, GpuReading, ProcessTable
from sparktop.observe.enginegroups import Group, groups_of, keyed
from sparktop.recipe import labels

EXITED_KEPT = 3
EXITED_FOR_S = 24 * 3600.0
REMOVED_FOR_S = 600.0
"""Of a launch of ours whose container was removed, as a way back does: so long its memory is asked for."""
_OVER = ("exited", "dead")
_ALIVE = ("running", "paused", "restarting", "removing")
_ASIDE = re.compile(r"(.+)-(?:before|next|failed)-\d{8}T\d{6}")
"""As operate.swap names them."""
_STILL_RUNS = "its process ended and the container still runs: see its log, or start it again there"
_REMOVED = "its container was removed"
_ANY_ADDRESS = ("", "0.0.0.0", "::", "localhost", "::1")  # noqa: S104 - compared, never bound


def discover(
    processes: ProcessTable | None,
    gpu: GpuReading | None,
    containers: Containers,
    previous: tuple[Engine, ...] = (),
    *,
    node_wall_s: float,
) -> tuple[Engine, ...]:
    """The engines of a node now: live ones, oldest first, then those that ended lately, newest first.

    What was learned of an engine (state, figures, endpoint) is carried over while its processes stay the same.

    Args:
        previous: what the last call gave, with what has been learned since.
        node_wall_s: the node's clock, to which Docker's times belong.
    """
    boxes = {container.container_id: container for container in containers.containers}
    known = {engine.key: engine for engine in previous}
    live: dict[str, Engine] = {}
    if processes is not None:
        for key, group in keyed(groups_of(processes.processes, gpu)):
            box = boxes.get(group.root.container_id or "") or _remembered(known.get(key), containers)
            if box is not None and box.status in _OVER and containers.available:
                continue  # Docker knows of the end sooner than the process table
            live[key] = _running(key, group, box, processes, gpu, containers, known.get(key))
    else:
        live |= {key: engine for key, engine in known.items() if engine.pids}
    taken = {engine.container.container_id for engine in live.values() if engine.container}
    for box in boxes.values():
        if box.container_id not in taken and box.status in _ALIVE:
            engine = _without_process(box, known.get(box.container_id[:12]), processes is None, node_wall_s)
            if engine is not None:
                live[engine.key] = engine
    ended = _ended(known, live, boxes, containers, node_wall_s)
    return (*sorted(live.values(), key=lambda engine: (engine.started_boot_s or 0.0, engine.key)), *ended)


def _running(
    key: str,
    group: Group,
    box: Container | None,
    table: ProcessTable,
    gpu: GpuReading | None,
    containers: Containers,
    before: Engine | None,
) -> Engine:
    command = group.command or (of_container(box.argv) if box else None)
    if command is not None and command.kind is not group.kind:
        command = None
    in_container = group.root.container_id is not None
    gaps: dict[str, GapReason] = {}
    if in_container and box is None:
        gaps["container"] = _container_gap(containers)
    if command is None or command.model is None:
        gaps["model"] = GapReason.NOT_FOUND
    endpoint = _endpoint(command, box) if command and not command.is_worker and (group.command or box) else None
    if endpoint is None:
        gaps["endpoint"] = GapReason.NOT_FOUND  # a worker's node: the server answers on the other one
    gpu_bytes = _gpu_bytes(group.pids, gpu)
    environment: tuple[str, ...] = ()
    if box is not None and of_container(box.argv) is not None:
        environment = box.environment
    else:  # `docker exec` may have added to the container's; the process's own is root's to read
        gaps["environment"] = GapReason.NO_PERMISSION
    if gpu_bytes is None:
        gaps["gpu_bytes"] = GapReason.NOT_SUPPORTED if gpu else GapReason.NOT_YET
    port = f":{command.port}" if command else ""
    name = box.name if box else f"{group.kind}{port}"
    if box is not None and ":" in key:
        name = f"{box.name}{port}"
    same = before is not None and bool(set(before.pids) & group.pids) and before.state is not EngineState.EXITED
    old = before if same else None
    if old is not None and old.endpoint is not None and endpoint is not None and _same_place(old.endpoint, endpoint):
        endpoint = old.endpoint
    return Engine(
        key=key,
        kind=group.kind,
        name=name,
        state=old.state if old else EngineState.STARTING,
        progress=old.progress if old else None,
        model=(command.model if command else None) or (old.model if old else None),
        version=(old.version if old else None) or (version_of_image(box.image) if box else None),
        pids=tuple(sorted(group.pids)),
        argv=group.root.argv or (box.argv if box else ()),
        container=box,
        endpoint=endpoint,
        metrics=old.metrics if old else None,
        rates=old.rates if old else None,
        started_boot_s=group.root.started_boot_s,
        uptime_s=max(0.0, table.boot_s - group.root.started_boot_s),
        gpu_bytes=gpu_bytes,
        environment=environment,
        gaps=gaps or NO_GAPS,
    )


def _without_process(box: Container, before: Engine | None, unscanned: bool, node_wall_s: float) -> Engine | None:
    """A container whose command will start an engine and hasn't yet (`pip install ... && vllm serve`); or one of ours
    whose head will put a rank there by Ray. What was put there and has ended isn't put there again in this run."""
    command = of_container(box.argv)
    if command is None and not _waits_for_its_head(box, before):
        return None
    restarts = "" if box.status != "restarting" else "its container restarts again and again: see its log"
    return Engine(
        key=box.container_id[:12],
        kind=command.kind if command else EngineKind.VLLM,
        name=box.name,
        state=EngineState.UNKNOWN if unscanned else EngineState.STARTING,
        model=command.model if command else None,
        version=(before.version if before else None) or version_of_image(box.image),
        argv=box.argv,
        container=box,
        endpoint=None if command is None or command.is_worker else _endpoint(command, box),
        uptime_s=max(0.0, node_wall_s - box.started_wall_s) if box.started_wall_s else None,
        exit_detail=restarts,
        environment=box.environment,
        gaps={"pids": GapReason.NOT_YET if unscanned else GapReason.NOT_FOUND},
    )


def _joins_ours(box: Container) -> bool:
    """Whether it is the further rank of a launch of ours over Ray, which vLLM alone knows."""
    return bool(labels.recipe_of(box.labels)) and joins_ray(box.argv)


def _waits_for_its_head(box: Container, before: Engine | None) -> bool:
    if not _joins_ours(box):
        return False
    was = before.container if before is not None else None
    is_same_run = was is not None and was.started_wall_s == box.started_wall_s
    return before is None or not is_same_run or not (before.pids or before.state is EngineState.EXITED)


def _ended(
    known: Mapping[str, Engine],
    live: Mapping[str, Engine],
    boxes: Mapping[str, Container],
    containers: Containers,
    node_wall_s: float,
) -> tuple[Engine, ...]:
    ended: dict[str, Engine] = {}
    aside = _set_aside(live, boxes)
    for box in boxes.values():
        key = box.container_id[:12]
        if key in aside:
            continue
        was = known.get(key)
        command = of_container(box.argv)
        sleeps = bool(box.argv) and command is None and any(part.rpartition("/")[2] == "sleep" for part in box.argv[:2])
        kind = was.kind if was else command.kind if command else None if sleeps else kind_of_image(box.image)
        kind = kind or (EngineKind.VLLM if _joins_ours(box) else None)
        if kind is None or key in live or box.status not in _OVER:
            continue
        ended[key] = Engine(
            key=key,
            kind=kind,
            name=box.name,
            state=EngineState.EXITED,
            model=(command.model if command else None) or (was.model if was else None),
            version=(was.version if was else None) or version_of_image(box.image),
            argv=box.argv,
            container=box,
            exit_detail=exit_detail(box),
            exited_wall_s=box.finished_wall_s,
            environment=box.environment if command else (),
        )
    for key, was in known.items():
        if key in live or key in ended or key in aside:
            continue
        if was.state is EngineState.EXITED:
            gone = was.container is not None and containers.available and was.container.container_id not in boxes
            ended[key] = _removed(was) if gone else was
        else:
            ended[key] = _vanished(was, boxes, containers, node_wall_s)
    recent = [one for one in ended.values() if node_wall_s - (one.exited_wall_s or 0.0) <= _kept_s(one)]
    return tuple(sorted(recent, key=lambda engine: -(engine.exited_wall_s or 0.0))[:EXITED_KEPT])


def _kept_s(engine: Engine) -> float:
    box = engine.container
    is_ours = box is not None and box.is_gone and bool(labels.recipe_of(box.labels))
    return REMOVED_FOR_S if is_ours else EXITED_FOR_S


def _removed(was: Engine) -> Engine:
    """An engine that had ended, and now its container is gone too."""
    if was.container is None or was.container.is_gone:
        return was
    said = "" if was.exit_detail == _STILL_RUNS else was.exit_detail
    return replace(
        was,
        container=replace(was.container, is_gone=True),
        exit_detail=f"{said}; {_REMOVED}" if said else _REMOVED,
    )


def _set_aside(live: Mapping[str, Engine], boxes: Mapping[str, Container]) -> frozenset[str]:
    """Keys of ended containers in whose place another runs.

    A relaunch of ours keeps them for the way back; how they ended was its own doing, and no news of the engine.
    """
    names = {engine.container.name for engine in live.values() if engine.container}
    return frozenset(
        box.container_id[:12]
        for box in boxes.values()
        if box.status in (*_OVER, "created") and (found := _ASIDE.fullmatch(box.name)) and found[1] in names
    )


def _vanished(was: Engine, boxes: Mapping[str, Container], containers: Containers, node_wall_s: float) -> Engine:
    box = boxes.get(was.container.container_id) if was.container else None
    last = box or was.container
    if box is not None:
        detail = _STILL_RUNS
    elif was.container is not None and containers.available:
        detail, last = _REMOVED, replace(was.container, is_gone=True)
    else:
        detail = "its process ended"
    return replace(
        was,
        state=EngineState.EXITED,
        progress=None,
        pids=(),
        metrics=None,
        rates=None,
        gpu_bytes=None,
        uptime_s=None,
        container=last,
        exit_detail=detail,
        exited_wall_s=node_wall_s,
    )


def _remembered(before: Engine | None, containers: Containers) -> Container | None:
    """The container as it was last seen, while Docker can't be asked."""
    return before.container if before is not None and not containers.available else None


def _container_gap(containers: Containers) -> GapReason:
    if containers.available:
        return GapReason.NOT_YET
    return GapReason.NO_PERMISSION if "permission" in containers.detail else GapReason.FAILED


def _endpoint(command: EngineCommand, box: Container | None) -> Endpoint:
    """Where the node itself reaches the server."""
    host, port = "127.0.0.1", command.port
    if box is None or box.network_mode in ("", "host"):
        if command.host not in (None, *_ANY_ADDRESS):
            host = command.host or host
    elif box.published_ports and port in box.published_ports:
        port = box.published_ports[port]
    elif box.addresses:
        host = box.addresses[0]
    if command.metrics_off:
        return Endpoint(host=host, port=port, state=EndpointState.NO_METRICS, detail=command.metrics_off)
    return Endpoint(host=host, port=port)


def _same_place(old: Endpoint, new: Endpoint) -> bool:
    return new.state is EndpointState.NOT_ASKED and (old.host, old.port) == (new.host, new.port)


def _gpu_bytes(pids: Iterable[int], gpu: GpuReading | None) -> int | None:
    if gpu is None or all(card.processes is None for card in gpu.gpus):
        return None
    wanted = set(pids)
    used = [process.used_bytes for card in gpu.gpus for process in card.processes or () if process.pid in wanted]
    if used and all(size is None for size in used):
        return None
    return sum(size for size in used if size is not None)
