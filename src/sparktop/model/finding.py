"""Findings of rules: a diagnosis with its evidence, its confidence, and remedies."""

from __future__ import annotations

import re
from dataclasses import field
from enum import StrEnum

from sparktop.dataclass import dataclass
from sparktop.model.change import Change
from sparktop.model.event import Severity

FindingKey = tuple[str, tuple[str, ...], str]
"""Identifies the same finding across pictures: (rule, nodes, subject)."""
_WORD = re.compile(r"[\w.%/:=-]*\w")


class Confidence(StrEnum):
    """How sure a rule is; a suspicion says what would confirm it."""

    SUSPECTED = "suspected"
    CONFIRMED = "confirmed"


class Phase(StrEnum):
    """The phase of a live finding: its signals must last before it fires, and be gone before it is resolved."""

    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class LogPlace:
    """A log on a node: an engine's, or the kernel's."""

    node: str
    engine: str = ""
    """Empty: the kernel log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One observation: a line with its place, or a value with its time."""

    source: str
    """"stdin", a file's name, "spark1 kernel log", "vllm-qwen36 @ spark1", "spark1 nvml"."""
    text: str
    """The line (sanitised), or the value in words: "SM 96 % at 15 W for 41 s"."""
    line: int | None = None
    """Line number in its source, from 1."""
    wall_s: float | None = None
    """When, where known; the node's clock."""
    log: LogPlace | None = None
    """The log that it is in, or that tells more of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One way to fix a finding. Remedies are ranked: the surest and cheapest first."""

    title: str
    steps: tuple[str, ...] = ()
    """What to do, in order; commands as they would be typed."""
    cost: str = ""
    """What it costs or loses: "the running requests; 4 min to load"."""
    action: str | None = None
    """The sparktop action that does this ("drop-caches", "safe-restart", "relaunch" ...), where there is one."""
    pid: int | None = None
    """The process of an "end-holder", where it is known."""
    options: tuple[tuple[str, str], ...] = ()
    """Options of the action, as `--set NAME=VALUE` gives them."""
    change: Change | None = field(default=None, hash=False)
    """The changes of a "relaunch", where they can be given literally; the value "auto" is computed for the machine."""
    also_fixes: tuple[FindingKey, ...] = ()
    """Keys of other findings that its change fixes."""
    engine: str = ""
    """The only engine that it is for ("vllm"); empty for any."""
    leaves: tuple[str, ...] = ()
    """Titles of findings of the same engine that it doesn't fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A diagnosed problem. The JSON of explain, lint and status has this shape: `diagnose.findings.as_data`."""

    rule: str
    """"area.name", as `sparktop rules list` has it."""
    severity: Severity
    confidence: Confidence = Confidence.CONFIRMED
    title: str
    """One sentence: the problem."""
    explanation: str = ""
    """What an experienced colleague would say: what happens, why, and on what evidence."""
    distinction: tuple[str, ...] = ()
    """Why it is this and not a similar problem, one sentence each."""
    settles: str = ""
    """While suspected: what would confirm it."""
    evidence: tuple[Evidence, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    references: tuple[str, ...] = ()
    scope: str = ""
    """For lint rules: the engines, versions and machines it applies to."""
    nodes: tuple[str, ...] = ()
    """Empty for a text that belongs to no node."""
    subject: str = ""
    """The object on the node, where a rule can fire more than once there: an engine's name, a process, a flag."""
    engine: str = ""
    """The engine's name, where `subject` is a setting of it; else an engine is the subject itself."""
    brief: str = ""
    """The decisive figures in one line: "96 % SM at 15 W, 0 tok/s, 3 requests held"."""
    caused_by: str | None = None
    """The rule of the finding that caused this one."""
    phase: Phase = Phase.FIRING
    since_wall_s: float | None = None
    """Since when its signals have held, operator's clock."""
    resolved_wall_s: float | None = None
    blocks_starts: bool = False
    """True where an engine on its nodes is to start only once this is mended: it is told before its equals."""
    is_unseen: bool = False
    """True while its node doesn't answer: the finding was there when last seen."""
    is_clearing: bool = False
    """True once its signals are gone, until they have been for long enough to call it resolved."""

    @property
    def key(self) -> FindingKey:
        """Identifies the same finding across pictures."""
        return (self.rule, self.nodes, self.subject)

    def is_alarm_since(self, wall_s: float) -> bool:
        """Whether it is critical, still there, and has begun since then."""
        began_s = self.since_wall_s
        return (
            self.severity is Severity.CRITICAL
            and self.phase is Phase.FIRING
            and began_s is not None
            and began_s >= wall_s
        )

    @property
    def needs_reboot(self) -> bool:
        """Whether a reboot is its first remedy."""
        return bool(self.remedies) and self.remedies[0].action == "reboot"

    @property
    def figures(self) -> str:
        """The brief to show beside the title; empty where the title has all its figures, or all its words."""
        words = _WORD.findall(self.brief)
        figures = [word for word in words if word[0].isdigit()]
        return "" if set(figures or words) <= set(_WORD.findall(self.title)) else self.brief

    @property
    def names_its_nodes(self) -> bool:
        """Whether its title names its nodes."""
        return bool(self.nodes) and all(name in self.title for name in self.nodes)


def is_of_other_nodes(key: FindingKey, other: FindingKey) -> bool:
    """Whether another finding's key is that of the same problem, on more or fewer of its nodes."""
    (rule, nodes, subject), (other_rule, other_nodes, other_subject) = key, other
    return (rule, subject) == (other_rule, other_subject) and not set(nodes).isdisjoint(other_nodes)
