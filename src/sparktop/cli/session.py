"""A Watch together with its operations: both run and end together, the operations before their connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from sparktop import faults
from sparktop.model.event import Severity
from sparktop.model.fleet import Notice
from sparktop.observe.watch import ForwardingWatch, Watch

if TYPE_CHECKING:
    from sparktop.model.fleet import FleetState
    from sparktop.operate.operations import Operations
    from sparktop.operate.runner.connections import Lines

LEAVING_S = 5.0
"""Seconds to wait for the operations to close; what hangs longer ends with the process."""


class Session(ForwardingWatch):
    """A Watch that closes its operations and their connections when it is cancelled."""

    def __init__(self, watch: Watch, operations: Operations, lines: Lines) -> None:
        super().__init__(watch)
        self._lines = lines
        self.operations = operations

    async def run(self) -> None:
        watching = asyncio.ensure_future(self._watch.run())
        try:
            await asyncio.wait((watching,))
            watching.result()
        finally:
            try:
                async with asyncio.timeout(LEAVING_S):
                    await self.operations.aclose()
                    await self._lines.aclose()
            except TimeoutError:
                pass  # what hangs ends with the process
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


def seen_by(publish: Callable[[FleetState], None], see: Callable[[FleetState], None]) -> Callable[[FleetState], None]:
    """A publish function that gives each fleet state first to `see`, then to `publish`."""

    def published(state: FleetState) -> None:
        try:
            see(state)
        except Exception as error:  # noqa: BLE001 - the picture is shown all the same
            fault = Notice(severity=Severity.WARNING, text=faults.named("the operations", error))
            state = replace(state, notices=(*state.notices, fault))
        publish(state)

    return published
