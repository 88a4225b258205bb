"""A scenario being played: which showing it is, and which second of it."""

from __future__ import annotations

import asyncio

from sparktop.clock import Clock
from sparktop.sim.script import Fault, NodeScript, Repeat, Scenario
from sparktop.sim.spark import Spark


class Play:
    """The clock of all nodes of a scenario."""

    def __init__(self, scenario: Scenario, *, clock: Clock, speed: float = 1.0) -> None:
        self.scenario = scenario
        self.clock = clock
        self.speed = speed
        self._began_s = clock.monotonic()
        self._began_wall_s = clock.wall()

    def now(self) -> tuple[int, float]:
        """(showing, second of it): only a scenario that restarts has more than one showing."""
        t = max(0.0, (self.clock.monotonic() - self._began_s) * self.speed)
        if self.scenario.repeat is Repeat.RESTART:
            showing, t = divmod(t, self.scenario.length_s)
            return int(showing), t
        return 0, t

    def spark(self, script: NodeScript, showing: int) -> Spark:
        """A node of one showing."""
        began_wall_s = self._began_wall_s + showing * self.scenario.length_s
        return Spark(self.scenario, script, showing=showing, began_wall_s=began_wall_s)

    def fault(self, script: NodeScript) -> Fault | None:
        """What is wrong with a node's line now."""
        _, t = self.now()
        if self.scenario.repeat is Repeat.LOOP:
            t %= self.scenario.length_s
        return next((fault for fault in script.faults if fault.start_s <= t < fault.end_s), None)

    async def rest(self, seconds: float) -> None:
        """Wait so many seconds of the scenario."""
        await asyncio.sleep(max(0.002, seconds / self.speed))
