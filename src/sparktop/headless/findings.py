"""The exit code that findings lead to, the same for explain, lint, recipes and status."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Phase

WORSE = (Severity.WARNING, Severity.CRITICAL)


def exit_code(findings: Sequence[Finding]) -> int:
    """1 when a finding of warning or above fires now, else 0."""
    return int(any(finding.severity in WORSE and finding.phase is Phase.FIRING for finding in findings))
