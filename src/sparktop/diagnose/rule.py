"""Rule: the card of any rule. LiveRule: a rule over the fleet state, with its timing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, TypedDict, Unpack

from sparktop.checks.judgement import Check
from sparktop.dataclass import dataclass
from sparktop.knowledge.card import card
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState
from sparktop.model.state import State


class RuleKind(StrEnum):
    """What a rule looks at."""

    LIVE = "live"
    """The fleet state with its histories."""
    LOG = "log"
    """Lines of an engine's log, a daemon's log, or any text."""
    KERNEL = "kernel"
    """Lines of the kernel log."""
    LINT = "lint"
    """A launch configuration, in a file or running."""
    DOCUMENT = "document"
    """A whole command output: docker inspect, docker ps, nvidia-smi, an API answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule's card, as shown by `sparktop rules list` and the generated pages."""

    id: str
    """"area.name", lower-case with dashes: "gpu.spin-deadlock"."""
    kind: RuleKind
    title: str
    severity: Severity
    """The worst severity of its findings."""
    scope: str
    """Where it applies: engines, versions, machines, number of nodes."""
    sources: tuple[str, ...]
    """Where its knowledge comes from: "field report 003", "vllm-project/vllm#46097"."""
    user: bool = False
    """True for the operator's own rules."""


SEVERITY = {State.NOTE: Severity.INFO, State.WARNING: Severity.WARNING, State.FAILED: Severity.CRITICAL}
"""How a rule shows what a check found."""


LiveCheck = Callable[[FleetState], Iterable[Finding]]
"""Pure: equal fleet states give equal findings; time is the fleet state's (`monotonic_s`, `wall_s`, samples' clocks).

It claims what is true now; holding, resolving and ordering is done in `diagnosis`. Where `hold_s` isn't enough (a spin
first suspected, later confirmed), the check itself looks back in the histories.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRule:
    """A rule over the fleet state."""

    id: str
    """Its card's, in `knowledge`."""
    check: LiveCheck
    kind: RuleKind = RuleKind.LIVE
    hold_s: float = 0.0
    """How long it must claim a finding without a break before it fires; until then it is pending and not shown."""
    clear_s: float = 5.0
    """How long the claim must be gone before the finding is resolved; after a silence of its node, counted from the
    first sample again."""
    by_samples: bool = False
    """It judges by the samples alone, so that the first one after a silence settles it."""
    follows: tuple[str, ...] = ()
    """Rules that cause this one while they fire on one of the same nodes; the first that does is named as the cause."""

    @property
    def card(self) -> Rule:
        return rule_of(self.id, self.kind)


def rule_of(card_id: str, kind: RuleKind) -> Rule:
    """The rule that a card describes."""
    own = card(card_id)
    return Rule(id=own.id, kind=kind, title=own.title, severity=own.severity, scope=own.scope, sources=own.sources)


class Timing(TypedDict, total=False):
    """How a live rule is evaluated: fields of LiveRule."""

    kind: RuleKind
    hold_s: float
    clear_s: float
    by_samples: bool
    follows: tuple[str, ...]


def live_rule(rule_id: str, **timing: Unpack[Timing]) -> Callable[[LiveCheck], LiveRule]:
    """Make a check the live rule of this card and timing; `diagnose.catalogue` lists it."""
    return lambda check: LiveRule(id=rule_id, check=check, **timing)


def check_rule(check: Check[Any], **timing: Unpack[Timing]) -> Callable[[LiveCheck], LiveRule]:
    """Make a view of a judged check the live rule of that check's card."""
    return live_rule(check.id, **timing)
