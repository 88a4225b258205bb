"""What a rule has found: a claim with its evidence, how sure it is, and what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

from sparktop.model.change import Change
from sparktop.model.event import Severity

_WORD = re.compile(r"[\w.%/:=-]*\w")


class Confidence(StrEnum):
    """How sure a rule is; a suspicion says what would settle it."""

    SUSPECTED = "suspected"
    CONFIRMED = "confirmed"


class Phase(StrEnum):
    """Where a live finding is: its signals must last before it fires, and be gone before it is resolved."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One thing that was seen: a line with its place, or a value with its time."""

    source: str
    """Where: "stdin", a file's name, "spark1 kernel log", "vllm-qwen36 @ spark1", "spark1 nvml"."""
    text: str
    """The line as it stood (sanitised), or the value in words: "SM 96 % at 15 W for 41 s"."""
    line: int | None = None
    """Line number in its source, from 1."""
    wall_s: float | None = None
    """When, where it is known; the node's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One way out. A finding's remedies are ranked: what helps surest and costs least comes first."""

    title: str
    steps: tuple[str, ...] = ()
    """What to do, in order; commands as they would be typed."""
    cost: str = ""
    """What it costs or loses: "the running requests; 4 min to load"."""
    action: str | None = None
    """The action that does it for the operator ("drop-caches", "safe-restart", "relaunch" ...), where there is one."""
    change: Change | None = field(default=None, hash=False)
    """What a "relaunch" changes, where it can be said literally; a value "auto" is computed for the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A failure named. In explain, lint and status JSON it has the shape of design.md."""

    rule: str
    """"area.name", as `sparktop rules list` has it."""
    severity: Severity
    confidence: Confidence = Confidence.CONFIRMED
    title: str
    """One sentence: what is wrong."""
    explanation: str = ""
    """What a colleague who has seen it before would say: what happens, why, on what grounds."""
    distinction: tuple[str, ...] = ()
    """Why it is this and not its look-alikes, one sentence each."""
    settles: str = ""
    """While suspected: what would settle it."""
    evidence: tuple[Evidence, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    references: tuple[str, ...] = ()
    scope: str = ""
    """Of a lint: for which engines, versions and machines it holds."""
    nodes: tuple[str, ...] = ()
    """Empty for text that belongs to no node."""
    subject: str = ""
    """What on the node, where a rule can fire more than once there: an engine's name, a process, a flag."""
    brief: str = ""
    """The figures that carry it, in one line: "96 % SM at 15 W, 0 tok/s, 3 requests held"."""
    caused_by: str | None = None
    """The rule this follows from."""
    phase: Phase = Phase.FIRING
    since_wall_s: float | None = None
    """Since when its signals hold, operator's clock."""
    resolved_wall_s: float | None = None
    is_unseen: bool = False
    """True while its node doesn't answer: it was so when last seen."""

    @property
    def key(self) -> tuple[str, tuple[str, ...], str]:
        """What makes it the same finding from one picture to the next."""
        return (self.rule, self.nodes, self.subject)

    @property
    def figures(self) -> str:
        """Its brief as it stands beside its title: empty where the title says all of it."""
        return "" if set(_WORD.findall(self.brief)) <= set(_WORD.findall(self.title)) else self.brief

    @property
    def names_its_nodes(self) -> bool:
        """Whether its title tells where it is."""
        return bool(self.nodes) and all(name in self.title for name in self.nodes)
