"""A scenario being played: which showing it is, which second of it, and what has been done to its nodes."""

from __future__ import annotations

import asyncio

from sparktop.clock import Clock
from sparktop.sim.acts import Act
from sparktop.sim.reaction import reacted
from sparktop.sim.script import Fault, NodeScript, Repeat, Scenario
from sparktop.sim.spark import Spark


class Play:
    """The clock of all nodes of a scenario, and the one place that holds what they have become."""

    def __init__(self, scenario: Scenario, *, clock: Clock, speed: float = 1.0) -> None:
        self.scenario = scenario
        self.clock = clock
        self.speed = speed
        self._began_s = clock.monotonic()
        self._began_wall_s = clock.wall()
        self._held_showing: int | None = None
        """Once something is done in a showing there is no other."""
        self._sparks: dict[str, tuple[NodeScript, int, Spark]] = {}

    def now(self) -> tuple[int, float]:
        """(showing, second of it): only a scenario that restarts has more than one showing."""
        t = max(0.0, (self.clock.monotonic() - self._began_s) * self.speed)
        if self._held_showing is not None:
            return self._held_showing, t - self._held_showing * self.scenario.length_s
        if self.scenario.repeat is Repeat.RESTART:
            showing, t = divmod(t, self.scenario.length_s)
            return int(showing), t
        return 0, t

    def moment(self, name: str) -> tuple[Spark, float]:
        """A node as it is, and the second of its present boot's time; another Spark when it has changed."""
        showing, t = self.now()
        script = next(node for node in self.scenario.nodes if node.name == name).at(t)
        known = self._sparks.get(name)
        if known is None or known[0] is not script or known[1] != showing or known[2].scenario is not self.scenario:
            began_wall_s = self._began_wall_s + showing * self.scenario.length_s + script.began_s
            spark = Spark(self.scenario, script, showing=showing, began_wall_s=began_wall_s)
            known = self._sparks[name] = (script, showing, spark)
        return known[2], t - script.began_s

    def react(self, name: str, act: Act) -> None:
        """Something is done to a node now: from here on everybody sees what follows from it."""
        showing, t = self.now()
        restarted = self.scenario.repeat is Repeat.RESTART
        self.scenario = reacted(self.scenario, name, t, act)
        if restarted:
            self._held_showing = showing

    def fault(self, name: str) -> Fault | None:
        """What is wrong with a node's line now."""
        spark, t = self.moment(name)
        looped = t % self.scenario.length_s if self.scenario.repeat is Repeat.LOOP else t
        return next(
            (one for one in spark.script.faults if one.start_s <= (t if one.once else looped) < one.end_s), None
        )  # fmt: skip

    async def rest(self, seconds: float) -> None:
        """Wait so many seconds of the scenario."""
        await asyncio.sleep(max(0.002, seconds / self.speed))
