"""Play a scenario: the clock, the current showing and second, and the nodes as changed by acts."""

from __future__ import annotations

import asyncio

from sparktop.clock import Clock
from sparktop.sim.reaction.acts import Act, with_act
from sparktop.sim.scenario.script import Fault, NodeScript, Repeat, Scenario
from sparktop.sim.spark.spark import Spark


class Play:
    """The clock of a scenario and its nodes' current scripts."""

    def __init__(self, scenario: Scenario, *, clock: Clock, speed: float = 1.0) -> None:
        self.scenario = scenario
        self.clock = clock
        self.speed = speed
        self._began_s = clock.monotonic()
        self._began_wall_s = clock.wall()
        self._fixed_showing: int | None = None
        """Once something is done in a showing there is no other."""
        self._sparks: dict[str, tuple[NodeScript, int, Spark]] = {}

    def now(self) -> tuple[int, float]:
        """(showing, second of it): only a scenario that restarts has more than one showing."""
        t = max(0.0, (self.clock.monotonic() - self._began_s) * self.speed)
        if self._fixed_showing is not None:
            return self._fixed_showing, t - self._fixed_showing * self.scenario.length_s
        if self.scenario.repeat is Repeat.RESTART:
            showing, t = divmod(t, self.scenario.length_s)
            return int(showing), t
        return 0, t

    def moment(self, name: str) -> tuple[Spark, float]:
        """A node's Spark, and the second of its current boot; a new Spark object when the node has changed."""
        showing, t = self.now()
        script = next(node for node in self.scenario.nodes if node.name == name).at(t)
        cached = self._sparks.get(name)
        if cached is None or cached[0] is not script or cached[1] != showing or cached[2].scenario is not self.scenario:
            began_wall_s = self._began_wall_s + showing * self.scenario.length_s + script.began_s
            spark = Spark(self.scenario, script, showing=showing, began_wall_s=began_wall_s)
            cached = self._sparks[name] = (script, showing, spark)
        return cached[2], t - script.began_s

    def react(self, name: str, act: Act) -> None:
        """Do something to a node now."""
        showing, t = self.now()
        restarted = self.scenario.repeat is Repeat.RESTART
        self.scenario = with_act(self.scenario, name, t, act)
        if restarted:
            self._fixed_showing = showing

    def fault(self, name: str) -> Fault | None:
        """The fault of a node's connection now."""
        spark, t = self.moment(name)
        looped = t % self.scenario.length_s if self.scenario.repeat is Repeat.LOOP else t
        return next(
            (fault for fault in spark.script.faults if fault.start_s <= (t if fault.once else looped) < fault.end_s),
            None,
        )

    async def rest(self, seconds: float) -> None:
        """Wait so many seconds of the scenario."""
        await asyncio.sleep(max(0.002, seconds / self.speed))
