"""Plans a launch anew while the operator changes it: after a pause, one plan at a time, and the newest request wins."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sparktop.clock import Clock
from sparktop.engines.ranks import is_alive
from sparktop.model.fleet import FleetState
from sparktop.model.request import Request
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.text.units import GIB

QUIET_S = 0.35
"""Seconds without a change before the nodes are asked."""
MOVED_BYTES = 2 * GIB
"""A change of available memory that makes a plan outdated."""
Planner = Callable[[Request], Awaitable[Plan | Refusal]]


class LivePlanning:
    """Holds the newest request, and the plan or refusal for the request planned last."""

    def __init__(self, plan: Planner, on_change: Callable[[], None], clock: Clock, *, quiet_s: float = QUIET_S) -> None:
        """`on_change` is called when an answer has come, or a new request replaces it."""
        self._plan = plan
        self._on_change = on_change
        self._clock = clock
        self._quiet_s = quiet_s
        self._new_request = asyncio.Event()
        self.request: Request | None = None
        self.answer: Plan | Refusal | None = None
        self.answered_request: Request | None = None
        self._answered_s = 0.0

    @property
    def is_planning(self) -> bool:
        """True while the shown plan is not for the newest request."""
        return self.request is not self.answered_request

    @property
    def age_s(self) -> float:
        """Age of the answer in seconds."""
        return self._clock.monotonic() - self._answered_s

    def want(self, request: Request) -> None:
        """Plan this request; one being planned is dropped."""
        self.request = request
        self._new_request.set()
        self._on_change()

    async def run(self) -> None:
        """Plan each newest request, until cancelled."""
        while True:
            await self._new_request.wait()
            if self.answer is not None:
                await self._wait_for_pause()
            self._new_request.clear()
            request = self.request
            assert request is not None
            planning = asyncio.ensure_future(self._plan(request))
            newer = asyncio.ensure_future(self._new_request.wait())
            try:
                await asyncio.wait((planning, newer), return_when=asyncio.FIRST_COMPLETED)
                if planning.done() and request is self.request:
                    self.answer, self.answered_request = planning.result(), request
                    self._answered_s = self._clock.monotonic()
                    self._on_change()
            finally:
                planning.cancel()
                newer.cancel()

    async def _wait_for_pause(self) -> None:
        """Wait until no new request has come for `quiet_s`."""
        while self._new_request.is_set():
            self._new_request.clear()
            try:
                async with asyncio.timeout(self._quiet_s):
                    await self._new_request.wait()
            except TimeoutError:
                return


NodeBasis = tuple[object, float]
"""What a plan depends on, of one node: (its link and engines, bytes available)."""


def node_bases(fleet: FleetState) -> dict[str, NodeBasis]:
    """Node name -> what a plan depends on."""
    return {
        view.name: (
            (view.link.state, tuple((engine.name, is_alive(engine)) for engine in view.engines)),
            float(view.sample.memory.available_bytes) if view.sample is not None else 0.0,
        )
        for view in fleet.nodes
    }


def has_moved(planned: NodeBasis | None, current: NodeBasis) -> bool:
    """Whether a plan is outdated: the link or an engine changed, or much memory was taken or freed."""
    return planned is None or planned[0] != current[0] or abs(planned[1] - current[1]) > MOVED_BYTES
