"""Check of Ray: its memory monitor, which takes a full GPU for a full machine."""

from __future__ import annotations

from dataclasses import replace

from sparktop.checks.judgement import Judgement, check, passed, unknown, warning
from sparktop.dataclass import dataclass

MONITOR = "RAY_memory_monitor_refresh_ms"
"""The variable that switches it off where `ray start` runs: 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RayFacts:
    """How an engine's Ray is started on one node."""

    uses_ray: bool
    setting: str | None = None
    """The variable's value; None: not set, as far as is seen."""
    is_readable: bool = True
    """False: the environment is not seen, or the value is only filled in at the start."""
    knows_environment: bool = True
    """False: another place may set it."""


@check("cluster.ray-monitor", lint="config.ray-memory-monitor")
def judge_memory_monitor(facts: RayFacts) -> Judgement:
    """Whether Ray's memory monitor is off."""
    if not facts.uses_ray or facts.setting == "0":
        return passed()
    if not facts.is_readable:
        return unknown("its environment is not seen")
    return replace(warning(), is_certain=facts.knows_environment)
