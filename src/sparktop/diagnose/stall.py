"""Whether an engine makes no progress, by the findings: it is then stalled, whatever its own state says."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.engines.pair import Team, team_with
from sparktop.model.engine import Engine, EngineState
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Phase

STALLED = "stalled"
"""The word in the place of such an engine's state."""
RULES = ("gpu.spin-deadlock", "gpu.capture-stuck", "engine.no-tokens", "engine.load-stalled")
"""Rules whose findings mean that an engine makes no progress."""


def stall_of(engine: Engine, node: str, findings: Sequence[Finding], spread: Sequence[Team]) -> Severity | None:
    """The worst severity of the findings that this engine makes no progress; None where it may make some.

    A finding over several nodes is of all ranks, and a worker rank is stalled while its head is.
    """
    if engine.state is EngineState.EXITED:
        return None
    own = _worst(engine, node, findings)
    team = team_with(engine, spread)
    return _worst(team.head.engine, team.head.node.name, findings) if own is None and team is not None else own


def _worst(engine: Engine, node: str, findings: Sequence[Finding]) -> Severity | None:
    severities = [
        finding.severity
        for finding in findings
        if finding.rule in RULES
        and finding.phase is Phase.FIRING
        and node in finding.nodes
        and (finding.subject in ("", engine.name) or len(finding.nodes) > 1)
    ]
    return Severity.CRITICAL if Severity.CRITICAL in severities else severities[0] if severities else None
