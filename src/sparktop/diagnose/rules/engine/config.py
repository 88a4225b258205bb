"""Applies the launch lints to running engines.

For a running engine a lint shows words instead of file lines: "- --performance-mode throughput", "+ VLLM_X=1". If all
steps of a remedy are flags or variables of the engine itself, they become the change of a relaunch.

The lints are imported when there is an engine (`catalogue.read_ahead_for_engines`): they and what reads a command line
are a megabyte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from sparktop.diagnose.rule import LiveRule, live_rule
from sparktop.engines.ranks import EngineRank, is_alive, names_in_order, teams
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState, NodeView

if TYPE_CHECKING:
    from sparktop.diagnose.lint.user_rules import LintRule
    from sparktop.launchspec.spec import LaunchSpec

TIGHT_BYTES = 12 << 30
"""With less memory available, findings about the engine's memory share become warnings."""
SETTLED_BY_LOG = {"config.nvfp4-moe-backend": frozenset(("vllm.fp4-marlin-notice",))}
"""What a rank logged about its choice counts more than its flags (docs/facts/engines.md section 1E)."""
LEFT_TO_CLUSTER = frozenset(("config.host-network", "config.ray-memory-monitor", "config.nccl-ib-disabled"))
"""Rules that the pair rules cover better if both nodes are watched."""


MEMORY_RULES = frozenset(
    f"config.{name}"
    for name in (
        *("gpu-memory-utilization-high", "gpu-memory-utilization-absent"),
        *("mem-fraction-static-high", "mem-fraction-static-absent", "mem-fraction-static-pair"),
    )
)
"""Rules that are told only where memory is short."""


def running(own: Sequence[LintRule] = ()) -> LiveRule:
    """One live rule that applies the lints to running engines, with the operator's own lints."""

    @lru_cache(maxsize=64)
    def lint_findings(engine: LaunchSpec) -> tuple[Finding, ...]:
        """Cached: called several times a second, recomputed only if a command, environment or container changed."""
        from sparktop.diagnose.lint.catalogue import check as check_specs
        from sparktop.launchspec.read.running import spec_of

        spec = spec_of(engine)
        # the probe masks secrets at the source
        return () if spec is None else check_specs((spec,), mask=str, own=own, is_live=True)

    @live_rule("config.running")
    def rule(fleet: FleetState) -> Iterable[Finding]:
        """The lint findings in running engines, one for all ranks of an engine."""
        return _check(lint_findings, fleet)

    return rule


def _check(lint_findings: Callable[[LaunchSpec], tuple[Finding, ...]], fleet: FleetState) -> Iterable[Finding]:
    """The lint findings in running engines, one for all ranks of an engine."""
    for team in teams(fleet):
        from sparktop.launchspec.read.running import running_engine

        names = names_in_order(team, fleet)
        findings_by_key: dict[tuple[str, str, str], Finding] = {}
        samples = [rank.node.sample for rank in team if rank.node.sample]
        is_tight = any(sample.memory.available_bytes < TIGHT_BYTES for sample in samples)
        for rank in team:
            if not is_alive(rank.engine):
                continue
            engine = running_engine(rank.engine, rank.node.name, nodes=len(names), desktop=_desktop(rank.node))
            for finding in lint_findings(engine):
                is_pair_rule = len(names) > 1 and finding.rule in LEFT_TO_CLUSTER
                if finding.severity is Severity.INFO or is_pair_rule or _is_settled(finding, team):
                    continue
                key = (finding.rule, finding.subject, finding.title)
                previous = findings_by_key.get(key)
                evidence = (*previous.evidence, *finding.evidence) if previous else finding.evidence
                findings_by_key[key] = replace(finding, evidence=evidence)
        for finding in findings_by_key.values():
            yield replace(
                finding,
                severity=Severity.INFO if finding.rule in MEMORY_RULES and not is_tight else Severity.WARNING,
                nodes=names,
                engine=team[0].engine.name,
                subject=" ".join(filter(None, (team[0].engine.name, finding.subject))),
            )


def _is_settled(finding: Finding, team: Sequence[EngineRank]) -> bool:
    settling = SETTLED_BY_LOG.get(finding.rule, frozenset())
    return any(
        log_finding.rule in settling for rank in team if rank.engine.log for log_finding in rank.engine.log.findings
    )


def _desktop(node: NodeView) -> bool | None:
    if node.desktop is not None:
        return node.desktop.compositor is not None
    return node.facts.is_graphical if node.facts else None
