"""Planning again and again while a launch is being chosen: after a moment of quiet, one at a time, the newest wins."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sparktop.clock import Clock
from sparktop.diagnose.live.ranks import is_alive
from sparktop.model.fleet import FleetState
from sparktop.model.plan import Plan, Refusal, Request

QUIET_S = 0.35
"""So long nothing more has to be chosen before the nodes are asked."""
MOVED_BYTES = 2 * 1024**3
"""So much more or less memory available is worth another look."""
Answering = Callable[[Request], Awaitable[Plan | Refusal]]


class LivePlanning:
    """The newest request, and the answer to the one that was planned last."""

    def __init__(self, plan: Answering, told: Callable[[], None], clock: Clock, *, quiet_s: float = QUIET_S) -> None:
        """`told` is called when an answer has come, or another is being looked for."""
        self._plan = plan
        self._told = told
        self._clock = clock
        self._quiet_s = quiet_s
        self._news = asyncio.Event()
        self.request: Request | None = None
        self.answer: Plan | Refusal | None = None
        self.answered: Request | None = None
        self._answered_s = 0.0

    @property
    def is_looking(self) -> bool:
        """Whether what is shown isn't the answer to what is wanted."""
        return self.request is not self.answered

    @property
    def age_s(self) -> float:
        """How old the answer is."""
        return self._clock.monotonic() - self._answered_s

    def want(self, request: Request) -> None:
        """From now on this one; what is being planned for another is let go."""
        self.request = request
        self._news.set()
        self._told()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._news.wait()
            if self.answer is not None:
                await self._quiet()
            self._news.clear()
            request = self.request
            assert request is not None
            planning = asyncio.ensure_future(self._plan(request))
            newer = asyncio.ensure_future(self._news.wait())
            try:
                await asyncio.wait((planning, newer), return_when=asyncio.FIRST_COMPLETED)
                if planning.done() and request is self.request:
                    self.answer, self.answered = planning.result(), request
                    self._answered_s = self._clock.monotonic()
                    self._told()
            finally:
                planning.cancel()
                newer.cancel()

    async def _quiet(self) -> None:
        """Until nothing new has come for a moment."""
        while self._news.is_set():
            self._news.clear()
            try:
                async with asyncio.timeout(self._quiet_s):
                    await self._news.wait()
            except TimeoutError:
                return


Seen = tuple[object, float]
"""Of a node: link and engines, and bytes available."""


def seen(fleet: FleetState) -> dict[str, Seen]:
    """What a plan of each node depends on."""
    return {
        view.name: (
            (view.link.state, tuple((one.name, is_alive(one)) for one in view.engines)),
            float(view.sample.memory.available_bytes) if view.sample is not None else 0.0,
        )
        for view in fleet.nodes
    }


def has_moved(before: Seen | None, now: Seen) -> bool:
    """Whether it is worth another look: engines came or went, or memory did."""
    return before is None or before[0] != now[0] or abs(before[1] - now[1]) > MOVED_BYTES
