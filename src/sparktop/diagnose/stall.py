"""Whether an engine makes no progress, by the findings: it is then stalled, whatever its own state says."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.engines.pair import Pair
from sparktop.model.engine import Engine, EngineState
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Phase

STALLED = "stalled"
"""The word in the place of such an engine's state."""
RULES = ("gpu.spin-deadlock", "gpu.capture-stuck", "engine.no-tokens", "engine.load-stalled")
"""Rules whose findings mean that an engine makes no progress."""


def stall_of(engine: Engine, node: str, findings: Sequence[Finding], pair: Pair | None) -> Severity | None:
    """The worst severity of the findings that this engine makes no progress; None where it may make some.

    A finding over several nodes is of all ranks, and a worker rank is stalled while the head of its pair is.
    """
    if engine.state is EngineState.EXITED:
        return None
    own = _worst(engine, node, findings)
    if own is None and pair is not None and engine is pair.worker.engine:
        return _worst(pair.head.engine, pair.head.node.name, findings)
    return own


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
