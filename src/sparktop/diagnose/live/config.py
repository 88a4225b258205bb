"""What runs now against what is known of its flags and variables: lint, live.

Only lints that can be certain of a running engine speak, and never as critical: it runs. What is merely worth knowing
is left to `sparktop lint`; what one would be warned of before a start (a share of memory that is too large) is
information while memory is in fact available.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from sparktop.diagnose.lint.memoryrules import LINTS as MEMORY
from sparktop.diagnose.lint.rules import check as lint
from sparktop.diagnose.lint.running import Running, running, spec_of
from sparktop.diagnose.lint.userrules import LintRule
from sparktop.diagnose.live.literal import change_of
from sparktop.diagnose.live.ranks import Rank, is_alive, names_in_order, teams
from sparktop.diagnose.rule import LiveRule, Rule, RuleKind
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Remedy
from sparktop.model.fleet import FleetState, NodeView

TIGHT_BYTES = 12 << 30
"""Less available than this, and the share of memory an engine was given is a warning."""
_CARD = Rule(
    id="config.running",
    kind=RuleKind.LIVE,
    title="A running engine's flags, variables or container are known to go wrong (rules config.*)",
    severity=Severity.WARNING,
    scope="vLLM and SGLang engines whose command line can be read",
    sources=("sparktop lint",),
)
SETTLED_BY_LOG = {"config.nvfp4-moe-backend": frozenset(("vllm.fp4-marlin-notice",))}
"""What a rank's log says it chose counts more than what its flags leave open (facts/engines.md 1E)."""
LEFT_TO_CLUSTER = frozenset(("config.host-network", "config.ray-memory-monitor"))
"""Where both nodes are watched, rules on the pair say the same and more."""
_OF_MEMORY = frozenset(each.card.id for each in MEMORY)


def live_rule(own: Sequence[LintRule] = ()) -> LiveRule:
    """Lint of what runs as one rule over the picture, with the operator's own lints."""

    @lru_cache(maxsize=64)
    def found(engine: Running) -> tuple[Finding, ...]:
        """Asked several times a second, answered anew only when a command, an environment or a container changed."""
        spec = spec_of(engine)
        # What a probe sends is masked at its source.
        return () if spec is None else lint((spec,), mask=str, own=own, is_live=True)

    return LiveRule(card=_CARD, check=partial(_check, found), clear_s=5.0)


def _check(found: Callable[[Running], tuple[Finding, ...]], fleet: FleetState) -> Iterable[Finding]:
    """What lint finds in the running engines; the ranks of one engine are one."""
    for team in teams(fleet):
        names = names_in_order(team, fleet)
        told: dict[tuple[str, str, str], Finding] = {}
        is_tight = any(_is_tight(rank.node) for rank in team)
        for rank in team:
            if not is_alive(rank.engine):
                continue
            engine = running(rank.engine, rank.node.name, nodes=len(names), desktop=_desktop(rank.node))
            for finding in found(engine):
                of_the_pair = len(names) > 1 and finding.rule in LEFT_TO_CLUSTER
                if finding.severity is Severity.INFO or of_the_pair or _is_settled(finding, team):
                    continue
                key = (finding.rule, finding.subject, finding.title)
                before = told.get(key)
                evidence = (*before.evidence, *finding.evidence) if before else finding.evidence
                told[key] = replace(finding, evidence=evidence)
        for finding in told.values():
            yield _placed(finding, team[0], names, is_tight=is_tight)


def _placed(finding: Finding, rank: Rank, names: tuple[str, ...], *, is_tight: bool) -> Finding:
    return replace(
        finding,
        remedies=tuple(map(_doable, finding.remedies)),
        severity=Severity.INFO if finding.rule in _OF_MEMORY and not is_tight else Severity.WARNING,
        nodes=names,
        subject=" ".join(filter(None, (rank.engine.name, finding.subject))),
    )


def _doable(remedy: Remedy) -> Remedy:
    """With a relaunch, where its steps say literally what to change."""
    change = None if remedy.action else change_of(remedy.steps)
    return remedy if change is None else replace(remedy, action="relaunch", change=change)


def _is_settled(finding: Finding, team: Sequence[Rank]) -> bool:
    told = SETTLED_BY_LOG.get(finding.rule, frozenset())
    return any(one.rule in told for rank in team if rank.engine.log for one in rank.engine.log.findings)


def _is_tight(node: NodeView) -> bool:
    available = node.sample.memory.available_bytes if node.sample and node.sample.memory else None
    return available is not None and available < TIGHT_BYTES


def _desktop(node: NodeView) -> bool | None:
    if node.desktop is not None:
        return node.desktop.compositor is not None
    return node.facts.is_graphical if node.facts else None


RULES: tuple[LiveRule, ...] = (live_rule(),)
"""Reads launch configurations, on paper or running, and says what in them will not do what it says."""
