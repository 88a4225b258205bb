"""Watching and acting as one thing that runs and ends together: what acts is left before its connections go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sparktop.observe.watch import LogFeed, Watch

if TYPE_CHECKING:
    from sparktop.model.fleet import FleetState
    from sparktop.observe.lines import LineRing
    from sparktop.operate.lines import Lines
    from sparktop.operate.operations import Operations

LEAVING_S = 5.0
"""Longer than it takes; what hangs then is ended with the process."""


class Session:
    """A Watch that ends what acts through its connections when it is cancelled."""

    def __init__(self, watch: Watch, operations: Operations, lines: Lines) -> None:
        self._watch = watch
        self._lines = lines
        self.operations = operations

    @property
    def state(self) -> FleetState:
        return self._watch.state

    @property
    def interval_s(self) -> float:
        return self._watch.interval_s

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
                pass  # nothing more can be done for it
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

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


def seen_by(publish: Callable[[FleetState], None], see: Callable[[FleetState], None]) -> Callable[[FleetState], None]:
    """Publishes a picture that what acts has seen first."""

    def published(state: FleetState) -> None:
        see(state)
        publish(state)

    return published
