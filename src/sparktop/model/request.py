"""Requests: what the operator asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING

from sparktop.dataclass import dataclass
from sparktop.model.change import Change
from sparktop.model.finding import Finding

if TYPE_CHECKING:
    from sparktop.model.recipe import Order


class Risk(StrEnum):
    """What a plan puts at risk: nothing, running requests, or the machine's state."""

    SAFE = "safe"
    DISRUPTIVE = "disruptive"
    DESTRUCTIVE = "destructive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request of the operator."""

    action: str
    """One of operate.actions.ACTIONS."""
    nodes: tuple[str, ...]
    target: str = ""
    """Name of an engine or container, or a pid; empty where the action is about the node."""
    change: Change = field(default_factory=Change)
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the action: "target_gib", "grace_s", "way", "floor_gib", "stay_minutes" ..., as text."""
    finding: Finding | None = None
    """The finding to fix: after the run it must be resolved."""
    also: tuple[Finding, ...] = ()
    """Other findings that its change fixes: they must be resolved too."""
    order: Order | None = None  # of a launch: the recipe and what is wanted of it
    secret: str = field(default="", repr=False)
    """A key that the action writes on a node; in no option, which the audit keeps."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings to fix, the one that was chosen first."""
        return () if self.finding is None else (self.finding, *self.also)
