"""The guard of a simulated Spark's probe: the probe's own judgement, over the scenario's memory.

It goes with its conversation, also when it was told to stay: the Sparks of a showing live as long as their console.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparktop.probe.remote_decide import decide, look_after_s, parse_order, reason
from sparktop.sim.acts import Act, KillContainer
from sparktop.sim.reaction import KILLED_S
from sparktop.sim.spark import Spark

NEVER = float("inf")


class Guard:
    """One conversation's; `due_s` is when it wants to look next, in seconds of the boot's time."""

    def __init__(self, react: Callable[[Act], None] | None) -> None:
        self._react = react
        self._order: dict[str, Any] = {}
        self._readings: list[tuple[float, int]] = []
        self._fired_s: float | None = None
        self._fired_kb: int | None = None
        self._why = ""
        self.due_s = NEVER
        self.message: dict[str, Any] | None = None
        """What is to be told; the talk takes it away."""
        self._last: dict[str, Any] = {}

    @property
    def is_armed(self) -> bool:
        return self.due_s < NEVER and self._fired_s is None

    def take(self, words: Any, spark: Spark, t: float) -> None:
        """An order of the console's."""
        try:
            order = parse_order(words)
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            self._say(spark, t, "failed", f"the order wasn't understood: {error}")
            return
        if order["token"] and order["token"] == self._order.get("token"):
            self.message = self._last
            return
        self._order, self._readings, self._fired_s, self._fired_kb = order, [], None, None
        self._last, self.due_s = {}, NEVER
        if not order["id"]:
            self._say(spark, t, "disarmed", "by order")
            return
        name = self._name(spark, t)
        if name is None:
            self._say(spark, t, "disarmed", "there is no such container")
        elif name != order["name"]:
            self._say(spark, t, "disarmed", f"that container is called {name} now")
        elif not order["again"] and self._available_kb(spark, t) * 1024 < order["floor"]:
            left = self._available_kb(spark, t) / 1024**2
            self._say(spark, t, "disarmed", f"only {left:.1f} GiB are available, which is below that floor already")
        else:
            self.due_s = t
            detail = "" if self._is_running(spark, t) else "the container isn't running at the moment"
            self._say(spark, t, "armed", detail)

    def look(self, spark: Spark, t: float) -> None:
        """Act where it is time to, once; what comes of it is told."""
        if self._fired_s is not None:
            self.due_s = NEVER
            self._say(spark, t, "fired", self._why, answered_s=round(t - self._fired_s, 3))
            return
        if self._name(spark, t) != self._order["name"]:
            self.due_s = NEVER
            self._say(spark, t, "disarmed", "that container is no more")
            return
        self._readings = [*self._readings[-40:], (t, self._available_kb(spark, t))]
        floor_kb = self._order["floor"] // 1024
        why = decide(self._readings, floor_kb, self._order["within"])
        if not why:
            self.due_s = t + look_after_s(self._readings, floor_kb)
            return
        self._fired_kb, self._why = self._readings[-1][1], reason(why, self._readings, floor_kb)
        if self._react is None or not self._is_running(spark, t):
            self.due_s = NEVER
            self._say(spark, t, "failed", f"Docker answered 409: container {self._order['id']} is not running")
            return
        self._fired_s, self.due_s = t, t + KILLED_S
        self._react(KillContainer(name=self._order["name"]))
        self._say(spark, t, "fired", self._why)

    def _say(self, spark: Spark, t: float, phase: str, detail: str, *, answered_s: float | None = None) -> None:
        order = self._order
        self.message = self._last = {
            "kind": "guard",
            "phase": phase,
            "id": order.get("id", ""),
            "name": order.get("name", ""),
            "floor": order.get("floor", 0),
            "within": order.get("within"),
            "stay": order.get("stay", 0.0),
            "since": self._last["since"] if self._last.get("phase") == phase else round(spark.wall_s(t), 3),
            "available": None if self._fired_kb is None else self._fired_kb * 1024,
            "answered": answered_s,
            "until": None,
            "detail": detail,
        }

    def _available_kb(self, spark: Spark, t: float) -> int:
        return int(spark.memory(t).available * 1024**2)

    def _name(self, spark: Spark, t: float) -> str | None:
        found = (live for live in spark.containers(t) if live.container_id == self._order["id"])
        return next((live.script.name for live in found), None)

    def _is_running(self, spark: Spark, t: float) -> bool:
        return any(live.running for live in spark.containers(t) if live.container_id == self._order["id"])
