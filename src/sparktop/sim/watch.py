"""A watch over simulated Sparks: their servers live exactly as long as the watch runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack

from sparktop.clock import SystemClock
from sparktop.model.fleet import FleetState
from sparktop.observe.lines import LineRing
from sparktop.observe.watch import LogFeed, Watch
from sparktop.sim.scenario import Scenario
from sparktop.sim.server import simulated
from sparktop.transport.base import Connector
from sparktop.transport.ssh import SshConnector


async def simulated_watch(
    scenario: Scenario, make: Callable[[Sequence[Connector]], Watch], *, speed: float = 1.0
) -> Watch:
    """Start the scenario's Sparks, and a watch on them over real SSH."""
    stack = AsyncExitStack()
    nodes = await stack.enter_async_context(simulated(scenario, clock=SystemClock(), speed=speed))
    connectors = [
        SshConnector.direct(
            name=node.name,
            host=node.host,
            port=node.port,
            username=node.username,
            client_key=node.client_key,
            pinned_host_key=node.host_key,
        )
        for node in nodes
    ]
    return _SimulatedWatch(make(connectors), stack)


class _SimulatedWatch:
    """A watch that takes its Sparks down when it ends."""

    def __init__(self, watch: Watch, sparks: AsyncExitStack) -> None:
        self._watch = watch
        self._sparks = sparks

    @property
    def state(self) -> FleetState:
        return self._watch.state

    @property
    def interval_s(self) -> float:
        return self._watch.interval_s

    async def run(self) -> None:
        async with self._sparks:
            await self._watch.run()

    def log(self, node: str, engine_key: str) -> LogFeed | None:
        return self._watch.log(node, engine_key)

    def kernel_lines(self, node: str) -> LineRing:
        return self._watch.kernel_lines(node)

    def set_interval(self, seconds: float) -> None:
        self._watch.set_interval(seconds)

    def retry_now(self, node: str) -> None:
        self._watch.retry_now(node)

    def tell(self, node: str, words: Mapping[str, object]) -> bool:
        return self._watch.tell(node, words)
