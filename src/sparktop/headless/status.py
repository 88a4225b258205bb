"""`sparktop status`: prints one snapshot of the fleet, or a stream of them, as plain text or JSON."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TextIO

from sparktop.cmdline.engine_command import started_by
from sparktop.diagnose.findings import as_data as finding_data
from sparktop.documents.snapshot import snapshot_lines
from sparktop.headless.findings import exit_code as finding_code
from sparktop.headless.terminal import draw, say, width_of
from sparktop.model.engine import EndpointState, EngineState
from sparktop.model.event import Severity
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.model.telemetry import CollectorState
from sparktop.observe.watch import Publish, Watch
from sparktop.probe.remote.parsers import COMPOSITORS

JSON_VERSION = 1


def as_data(state: FleetState) -> dict[str, Any]:
    """The fleet state as JSON-ready data, with the model's field names; times are seconds since the epoch."""
    return {
        "version": JSON_VERSION,
        "wall_s": state.wall_s,
        "findings": [finding_data(finding) for finding in state.findings],
        "rules_watching": state.rules_watching,
        "nodes": [_node_data(node, state) for node in state.nodes],
        "notices": [_plain(notice) for notice in state.notices],
    }


def _node_data(node: NodeView, state: FleetState) -> dict[str, Any]:
    sample = _plain(node.sample) if node.sample else {}
    memory = sample.pop("memory", None)
    if memory is not None and node.sample is not None:
        node_memory = node.sample.memory
        memory |= {
            "used_bytes": node_memory.used_bytes,
            "page_cache_bytes": node_memory.page_cache_bytes,
            "swap_used_bytes": node_memory.swap_used_bytes,
        }
    gpus = _plain(node.gpu.gpus) if node.gpu else None
    return {
        "name": node.name,
        "link": str(node.link.state),
        "link_reason": node.link.reason,
        "link_hint": node.link.hint or None,
        "reach": str(node.link.reach),
        "age_s": node.age_s(state.monotonic_s),
        "memory": memory,
        "trend": _plain(node.trend),
        "ledger": _plain(node.ledger),
        "cpu_busy_percent": node.cpu_busy_percent,
        "probe_cpu_percent": node.probe_cpu_percent,
        "sample": sample or None,
        "gpus": gpus,
        "bandwidth": _plain(node.bandwidth),
        "guard": _plain(node.guard),
        "engines": _plain(node.engines),
        "containers": {"available": node.containers.available, "detail": node.containers.detail},
        "kernel_source": node.kernel_source or None,
        "kernel_events": _plain(node.kernel_events),
        "collectors": _plain(node.collectors),
        "facts": _plain(node.facts),
    }


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return sorted(value) if isinstance(value, frozenset) else value


SETTLE_S = 3.0
"""Seconds that a snapshot waits after the first sample for what comes later: GPU, containers, engines."""


HELD_S = 1.2
"""Seconds that it watches after that: a kernel line counts once it is a second old."""


MakeWatch = Callable[[Publish], Watch]


async def status(
    make: MakeWatch, *, as_json: bool, watch: bool, timeout_s: float, interval_s: float, out: TextIO | None = None
) -> int:
    """Print one snapshot, or with `watch` the newest once per interval, none twice, until interrupted; the exit code.

    Raises what ends the watch.
    """
    out = out or sys.stdout
    fresh = asyncio.Event()
    observation = make(lambda _: fresh.set())
    running = asyncio.create_task(observation.run())
    try:
        await settled(observation, fresh, timeout_s)
        while True:
            fresh.clear()
            state = observation.state
            if as_json:
                print(json.dumps(as_data(state), indent=None if watch else 2, ensure_ascii=False), file=out, flush=True)
            else:
                draw(snapshot_lines(state, width_of(out), is_one_look=not watch), out)
            if not watch:
                return exit_code(state)
            await asyncio.sleep(interval_s)
            await next_picture(fresh, running)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def next_picture(fresh: asyncio.Event, running: asyncio.Task[None]) -> None:
    """Wait for a picture after `fresh` was cleared, or raise what ended the watch."""
    coming = asyncio.ensure_future(fresh.wait())
    try:
        await asyncio.wait((coming, running), return_when=asyncio.FIRST_COMPLETED)
    finally:
        coming.cancel()
    if running.done():
        running.result()


async def say_links(watch: Watch, fresh: asyncio.Event, running: asyncio.Task[None]) -> None:
    """Say on standard error when the state of a node's link changes, until the watch ends."""
    said = {node.name: node.link.state for node in watch.state.nodes}
    while not running.done():
        fresh.clear()
        await next_picture(fresh, running)
        for node in watch.state.nodes:
            state, reason = node.link.state, node.link.reason
            if state is not said[node.name]:
                said[node.name] = state
                say(f"{node.name}: {state}{f', {reason}' if reason not in ('', state) else ''}")


async def settled(
    observation: Watch,
    fresh: asyncio.Event,
    timeout_s: float,
    *,
    settle_s: float = SETTLE_S,
    held_s: float = HELD_S,
) -> None:
    """Wait until every node has answered in full or refused, or until the time is over.

    `fresh` is set with each new fleet state; `settle_s` limits the wait after the first samples, and `held_s` is the
    time to watch after that.
    """
    if not await wait_until(lambda: all(_answered(node) for node in observation.state.nodes), fresh, timeout_s):
        return
    await wait_until(lambda: all(_complete(node) for node in observation.state.nodes), fresh, settle_s)
    if all(node.sample is None for node in observation.state.nodes):
        return
    complete_s = observation.state.monotonic_s
    await wait_until(lambda: observation.state.monotonic_s - complete_s >= held_s, fresh, 2 * held_s)


async def wait_until(condition: Callable[[], bool], fresh: asyncio.Event, timeout_s: float) -> bool:
    """Wait for a condition, asked again with each new fleet state; False when the time is over."""
    try:
        async with asyncio.timeout(timeout_s):
            while not condition():
                fresh.clear()
                await fresh.wait()
    except TimeoutError:
        return False
    return True


def _answered(node: NodeView) -> bool:
    # Lost before it was ever live: two attempts failed, so another one would too.
    return node.sample is not None or node.link.state in (LinkState.REFUSED, LinkState.LOST)


def _complete(node: NodeView) -> bool:
    if node.link.state is not LinkState.LIVE:
        return node.link.state is not LinkState.STALE  # a machine that is only slow answers again
    return is_known(node) and _has_engine_logs(node) and not node.awaits_previous_boot


def is_known(node: NodeView) -> bool:
    """Whether the GPU, the Docker Engine and the search for engines have answered, or said why not."""
    nvml = node.collectors.get("nvml")
    gpu_known = node.gpu is not None or (nvml is not None and nvml.state is not CollectorState.OK)
    return gpu_known and node.containers.is_asked and node.has_looked_for_engines


def has_looked_at_desktop(node: NodeView) -> bool:
    """Whether the desktop that its processes show was looked at; the probe does so once it has seen one."""
    processes = node.processes.processes if node.processes is not None else ()
    return node.desktop is not None or not any(process.command in COMPOSITORS for process in processes)


def has_asked_who_works(node: NodeView) -> bool:
    """Whether the GPU and every engine that runs were asked for their figures once, and NVML, if late, has answered."""
    nvml = node.collectors.get("nvml")
    is_late = node.gpu is None and nvml is not None and nvml.state is CollectorState.STUCK
    endpoints = [engine.endpoint for engine in node.engines if engine.state is not EngineState.EXITED]
    return not is_late and all(one is None or one.state is not EndpointState.NOT_ASKED for one in endpoints)


def _has_engine_logs(node: NodeView) -> bool:
    """Whether all engines in running containers are known and have logged a line."""
    engine_containers = [
        container for container in node.containers.containers if container.status == "running" and started_by(container)
    ]
    engines = {engine.container.container_id: engine for engine in node.engines if engine.container}
    return all(
        (engine := engines.get(container.container_id)) is not None
        and engine.log is not None
        and engine.log.last_line_wall_s is not None
        for container in engine_containers
    )


def exit_code(state: FleetState, level: Severity = Severity.WARNING) -> int:
    """3 when a node has no live link, else 1 when a finding at this level or above fires or containers are not known,
    else 0."""
    if not all(node.link.state is LinkState.LIVE for node in state.nodes):
        return 3
    return finding_code(state.findings, level) or int(any(node.containers.unknown for node in state.nodes))
