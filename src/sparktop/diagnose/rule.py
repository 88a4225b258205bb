"""Rule: the card of any rule. LiveRule: a rule over the fleet state, with its timing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any

from sparktop.checks.judgement import Check, Judgement, State
from sparktop.dataclass import dataclass
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Remedy
from sparktop.model.fleet import FleetState


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


def remedies_of(judgement: Judgement) -> tuple[Remedy, ...]:
    return (judgement.remedy,) if judgement.remedy is not None else ()


LiveCheck = Callable[[FleetState], Iterable[Finding]]
"""Pure: equal fleet states give equal findings; time is the fleet state's (`monotonic_s`, `wall_s`, samples' clocks).

It claims what is true now; holding, resolving and ordering is done in `diagnosis`. Where `hold_s` isn't enough (a spin
first suspected, later confirmed), the check itself looks back in the histories.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRule:
    """A rule over the fleet state."""

    card: Rule
    check: LiveCheck
    hold_s: float = 0.0
    """How long it must claim a finding without a break before it fires; until then it is pending and not shown."""
    clear_s: float = 5.0
    """How long the claim must be gone before the finding is resolved; after a silence of its node, counted from the
    first sample again."""
    by_samples: bool = False
    """It judges by the samples alone, so that the first one after a silence settles it."""
    follows: tuple[str, ...] = ()
    """Rules that cause this one while they fire on one of the same nodes; the first that does is named as the cause."""


def live_rule(
    rule_id: str,
    title: str,
    severity: Severity,
    *,
    scope: str,
    sources: tuple[str, ...],
    kind: RuleKind = RuleKind.LIVE,
    hold_s: float = 0.0,
    clear_s: float = 5.0,
    by_samples: bool = False,
    follows: tuple[str, ...] = (),
) -> Callable[[LiveCheck], LiveRule]:
    """Make a check the live rule of this card and timing; `diagnose.catalogue` lists it."""
    card = Rule(id=rule_id, kind=kind, title=title, severity=severity, scope=scope, sources=sources)
    return lambda check: LiveRule(
        card=card, check=check, hold_s=hold_s, clear_s=clear_s, by_samples=by_samples, follows=follows
    )


def check_rule(
    check: Check[Any],
    severity: Severity,
    *,
    hold_s: float = 0.0,
    follows: tuple[str, ...] = (),
) -> Callable[[LiveCheck], LiveRule]:
    """Make a view of a judged check the live rule of that check's id, title, scope and sources."""
    return live_rule(
        check.id, check.title, severity, scope=check.scope, sources=check.sources, hold_s=hold_s, follows=follows,
    )  # fmt: skip
