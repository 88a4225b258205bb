"""The exit code that findings lead to, the same for check, explain, lint, recipes and status."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Phase

WORSE = (Severity.WARNING, Severity.CRITICAL)


def firing_at(findings: Sequence[Finding], level: Severity) -> list[Finding]:
    """The findings at this level or above that fire now."""
    return [one for one in findings if one.severity.weight >= level.weight and one.phase is Phase.FIRING]


def exit_code(findings: Sequence[Finding], level: Severity = Severity.WARNING) -> int:
    """1 when a finding at this level or above fires now, else 0."""
    return int(bool(firing_at(findings, level)))
