"""The nodes that a command looks at: their Watch runs until the command has seen enough, or was interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from sparktop.cmdline.engine_command import started_by
from sparktop.dataclass import dataclass
from sparktop.headless.terminal import say
from sparktop.model.engine import EndpointState, EngineState
from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.model.telemetry import CollectorState
from sparktop.observe.watch import Publish, Watch
from sparktop.probe.remote.parsers import COMPOSITORS

SETTLE_S = 3.0
"""Seconds that a snapshot waits after the first sample for what comes later: GPU, containers, engines."""
HELD_S = 1.2
"""Seconds that it watches after that: a kernel line counts once it is a second old."""
MakeWatch = Callable[[Publish], Watch]


@dataclass(frozen=True, slots=True)
class Look:
    """A Watch that runs."""

    watch: Watch
    fresh: asyncio.Event
    """Set by each new picture."""
    running: asyncio.Task[None]

    @property
    def state(self) -> FleetState:
        """The newest picture."""
        return self.watch.state

    @property
    def names(self) -> tuple[str, ...]:
        """Of the nodes."""
        return tuple(view.name for view in self.state.nodes)

    async def until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Wait for a condition, asked again with each picture; False when the time is over."""
        try:
            async with asyncio.timeout(limit_s):
                while not condition():
                    self.fresh.clear()
                    await self.fresh.wait()
        except TimeoutError:
            return False
        return True

    async def every(self, condition: Callable[[NodeView], bool], limit_s: float) -> bool:
        """Wait until it holds for every node; False when the time is over."""
        return await self.until(lambda: all(map(condition, self.state.nodes)), limit_s)

    async def settle(self, limit_s: float, *, settle_s: float = SETTLE_S, held_s: float = HELD_S) -> None:
        """Wait until every node has answered in full or refused, or until the time is over.

        `settle_s` limits the wait after the first samples, and `held_s` is the time to watch after that.
        """
        if not await self.every(_answered, limit_s):
            return
        await self.every(_complete, settle_s)
        if all(node.sample is None for node in self.state.nodes):
            return
        complete_s = self.state.monotonic_s
        await self.until(lambda: self.state.monotonic_s - complete_s >= held_s, 2 * held_s)

    async def next(self) -> None:
        """Wait for a picture after `fresh` was cleared, or raise what ended the Watch."""
        coming = asyncio.ensure_future(self.fresh.wait())
        try:
            await asyncio.wait((coming, self.running), return_when=asyncio.FIRST_COMPLETED)
        finally:
            coming.cancel()
        if self.running.done():
            self.running.result()

    async def say_links(self) -> None:
        """Say on standard error when the state of a node's link changes, until the Watch ends."""
        said = {node.name: node.link.state for node in self.state.nodes}
        while not self.running.done():
            self.fresh.clear()
            await self.next()
            for node in self.state.nodes:
                state, reason = node.link.state, node.link.reason
                if state is not said[node.name]:
                    said[node.name] = state
                    say(f"{node.name}: {state}{f', {reason}' if reason not in ('', state) else ''}")


@asynccontextmanager
async def looking(make: MakeWatch) -> AsyncIterator[Look]:
    """Run a Watch."""
    fresh = asyncio.Event()
    watch = make(lambda _: fresh.set())
    running = asyncio.create_task(watch.run())
    try:
        yield Look(watch, fresh, running)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def _answered(node: NodeView) -> bool:
    # Lost before it was ever live: two attempts failed, so another one would too.
    return node.sample is not None or node.link.state in (LinkState.REFUSED, LinkState.LOST)


def _complete(node: NodeView) -> bool:
    if node.link.state is not LinkState.LIVE:
        return node.link.state is not LinkState.STALE  # a machine that is only slow answers again
    return is_known(node) and _has_engine_logs(node) and not node.awaits_previous_boot


def is_known(node: NodeView) -> bool:
    """Whether the GPU, the Docker Engine and the search for engines have answered, or said why not."""
    return is_gpu_known(node) and node.containers.is_asked and node.has_looked_for_engines


def is_gpu_known(node: NodeView) -> bool:
    """Whether the GPU has answered, or NVML has said why not."""
    nvml = node.collectors.get("nvml")
    return node.gpu is not None or (nvml is not None and nvml.state is not CollectorState.OK)


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
