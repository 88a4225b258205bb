"""A trial by its seed: which action is hurt by which fault, where and when."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

ACTIONS = ("safe-restart", "relaunch", "stop-engine", "break-restart-loop", "launch", "way-back")
FAULTS = (
    "kill-console", "kill-runner", "kill-step", "kill-session", "freeze-console", "freeze-runner", "freeze-step",
    "freeze-session", "freeze-dockerd", "dockerd-term", "dockerd-kill", "engine-killed", "container-removed",
    "second-console", "ctrl-c", "ctrl-c-twice", "hang-up", "term", "link-down", "disk-full-here", "disk-full-there",
)  # fmt: skip
LONG_FAULTS = ("link-down-long",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One of them."""

    seed: int
    action: str
    fault: str
    nodes: int
    share: float
    """Of the plan's steps that have been begun before: 0 to 1."""
    delay_s: float
    """After the beginning of that step."""
    for_s: float
    """How long what is frozen stays so."""
    victim: int
    """On which node, by number."""

    @property
    def hurts_step(self) -> bool:
        """It is a step's own process on the node that is hurt."""
        return self.fault.endswith("-step")

    @property
    def words(self) -> str:
        """What plays it again."""
        long = " --long" if self.fault in LONG_FAULTS else ""
        return f"--seed {self.seed} --action {self.action} --fault {self.fault} --nodes {self.nodes}{long}"


def drawn(seed: int, *, actions: tuple[str, ...], faults: tuple[str, ...], nodes: tuple[int, ...]) -> Trial:
    """The trial of this seed. So many seeds on end as there are combinations play each of them once; the moment
    depends on the seed alone."""
    combinations = list(itertools.product(actions, faults, nodes))
    random.Random(0).shuffle(combinations)
    action, fault, count = combinations[seed % len(combinations)]
    chance = random.Random(seed)
    share, delay_s, for_s = chance.random(), chance.random() ** 2 * 1.5, 3.0 + 5.0 * chance.random()
    return Trial(
        seed=seed,
        action=action,
        fault=fault,
        nodes=count,
        share=share,
        delay_s=delay_s,
        for_s=for_s,
        victim=chance.randrange(2) % count,
    )
