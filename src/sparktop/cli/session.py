"""A Watch together with its operations: both run and end together, the operations before their connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from sparktop import faults
from sparktop.model.event import Severity
from sparktop.model.fleet import Notice
from sparktop.observe.watch import ForwardingWatch, OnFault, Watch
from sparktop.transport.threads import in_thread

if TYPE_CHECKING:
    from sparktop.model.fleet import FleetState
    from sparktop.operate.operations import Operations
    from sparktop.operate.runner.connections import RunnerConnections
    from sparktop.transport.base import Transport

LEAVING_S = 5.0
"""Seconds to wait for the operations to close; what hangs longer ends with the process."""


class LazyOperations:
    """Operations, and the runners' connections, that are built once they are wanted: importing them takes the time
    that the first figures would wait; implements `observe.watch.Connections`."""

    def __init__(self, build: Callable[[], tuple[RunnerConnections, Operations]]) -> None:
        """`build` imports and builds them; may be called in a thread."""
        self._build = build
        self._built: tuple[RunnerConnections, Operations] | None = None
        self._open: dict[str, tuple[Transport, OnFault]] = {}

    def built(self) -> Operations:
        """The operations, built now if they are not; called on the event loop, where there is one."""
        return self._take(self._built if self._built is not None else self._build())

    async def in_background(self) -> Operations:
        """The operations, built in a thread if they are not."""
        return self._take(self._built if self._built is not None else await in_thread(self._build))

    def _take(self, built: tuple[RunnerConnections, Operations]) -> Operations:
        if self._built is None:
            self._built = built
            for node, (transport, fault) in self._open.items():
                built[0].opened(node, transport, fault)
        return self._built[1]

    def opened(self, node: str, transport: Transport, fault: OnFault) -> None:
        """See Connections; told to the runners' connections once there are any."""
        self._open[node] = transport, fault
        if self._built is not None:
            self._built[0].opened(node, transport, fault)

    def closed(self, node: str) -> None:
        """See Connections."""
        self._open.pop(node, None)
        if self._built is not None:
            self._built[0].closed(node)

    def see(self, picture: FleetState) -> None:
        """Give the operations a new picture."""
        if self._built is not None:
            self._built[1].see(picture)

    async def aclose(self) -> None:
        """Leave the operations, then their connections."""
        if self._built is not None:
            lines, operations = self._built
            await operations.aclose()
            await lines.aclose()


class Session(ForwardingWatch):
    """A Watch that closes its operations and their connections when it is cancelled."""

    def __init__(self, watch: Watch, late: LazyOperations) -> None:
        super().__init__(watch)
        self.late = late

    async def run(self) -> None:
        watching = asyncio.ensure_future(self._watch.run())
        try:
            await asyncio.wait((watching,))
            watching.result()
        finally:
            try:
                async with asyncio.timeout(LEAVING_S):
                    await self.late.aclose()
            except TimeoutError:
                pass  # what hangs ends with the process
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


def publish_after(
    publish: Callable[[FleetState], None], see: Callable[[FleetState], None]
) -> Callable[[FleetState], None]:
    """A publish function that gives each fleet state first to `see`, then to `publish`."""

    def published(state: FleetState) -> None:
        try:
            see(state)
        except Exception as error:  # noqa: BLE001 - the picture is shown all the same
            fault = Notice(severity=Severity.WARNING, text=faults.report("the operations", error))
            state = replace(state, notices=(*state.notices, fault))
        publish(state)

    return published
