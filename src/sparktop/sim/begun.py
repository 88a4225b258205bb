"""What a runner on a simulated Spark works at: the machine under it, and a step that was begun."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from sparktop.sim import acts
from sparktop.sim.spark import Spark


class Machine(Protocol):
    """What a runner is on."""

    def moment(self) -> tuple[Spark, float]:
        """The node as it is, and the second of its boot's time."""

    async def rest(self, seconds: float) -> None:
        """Wait so many seconds of the scenario."""

    def react(self, act: acts.Act) -> None:
        """Do something to the node."""


@dataclass(slots=True)
class Step:
    """A step that was begun, with what there is of its journal."""

    boot_id: str
    results: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] | None = None
    told: list[Callable[[dict[str, Any]], None]] = field(default_factory=list)
    """Who hears of progress, results and the end."""
    progress: dict[str, Any] | None = None
    """Of a fetch: how far it is."""
    is_ending: bool = False
    """A fetch was asked to end."""
    holds_node: bool = True

    def outcome(self, boot_id: str) -> dict[str, Any]:
        """As the protocol has it."""
        whole: dict[str, Any] = {"kind": "outcome", "results": self.results, "problem": "", "undone": None, "saved": {}}
        if self.end is not None:
            return {**whole, **self.end}
        if boot_id != self.boot_id:
            return {**whole, "state": "gone", "problem": "the node was rebooted in the middle of it"}
        progress = {"progress": self.progress} if self.progress is not None else {}
        return {**whole, **progress, "state": "running"}
