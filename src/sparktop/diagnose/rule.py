"""What every rule says of itself, whatever it looks at; and what a live rule adds: a pure function over the picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState


class RuleKind(StrEnum):
    """What a rule looks at."""

    LIVE = "live"
    """The picture of one or two nodes, with its histories."""
    LOG = "log"
    """Lines of an engine's log, a daemon's, or any text."""
    KERNEL = "kernel"
    """Lines of the kernel log."""
    LINT = "lint"
    """A launch configuration, running or on paper."""
    DOCUMENT = "document"
    """A text that is a whole: docker inspect, docker ps, nvidia-smi, an API's answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule's card: what `sparktop rules list` and the generated page show."""

    id: str
    """"area.name", lower-case with dashes: "gpu.spin-deadlock"."""
    kind: RuleKind
    title: str
    severity: Severity
    """The worst it says."""
    scope: str
    """Where it holds: engines, versions, machines, number of nodes."""
    sources: tuple[str, ...]
    """Where its knowledge comes from: "field report 003", "vllm-project/vllm#46097"."""
    user: bool = False
    """True for a rule of the operator's own."""


Check = Callable[[FleetState], Iterable[Finding]]
"""Pure: the same picture gives the same findings; time is the picture's (`monotonic_s`, `wall_s`, samples' clocks).

It claims what is so now. Holding for a while, resolving and ordering is `diagnosis`'s work, where `hold_s` isn't enough
(a spin that is suspected first and confirmed later) the check looks back itself, in the picture's histories.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRule:
    """A rule over the picture."""

    card: Rule
    check: Check
    hold_s: float = 0.0
    """How long its claim must stand without a break before it fires; until then it is pending, and not shown."""
    clear_s: float = 5.0
    """How long the claim must be gone before it is resolved."""
    follows: tuple[str, ...] = ()
    """Rules that, while they fire on one of the same nodes, are this one's cause; the first that does is named."""
