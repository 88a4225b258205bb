"""Names causes across kinds: an engine's death in its log, and the kernel's line, maybe in another file, that says why.

Within one kind its own reader knows (logs by rank, Xids by NVIDIA's catalogue); here the readers' findings meet. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sparktop.diagnose.logs.rules import LogRule
from sparktop.diagnose.order import ordered
from sparktop.model.event import Severity
from sparktop.model.finding import Finding

_KILLS = ("kernel.oom-kill", "kernel.oom-kill-in-limit", "kernel.memory-earlyoom-kill", "kernel.memory-oomd-kill")
_GPU_LOST = tuple(f"kernel.xid-{code}" for code in (79, 119, 120, 62, 143, 48, 95, 140))
_GPU_FAULT = tuple(f"kernel.xid-{code}" for code in (13, 31, 43, 69, 94))

_AFTER: dict[str, tuple[str, ...]] = {
    "restart.exit-137": _KILLS,
    "restart.oom-killed": _KILLS,
    "docker.exit-137": _KILLS,
    "docker.oom-killed": _KILLS,
    "driver.gpu-lost": _GPU_LOST,
    "driver.gpu-error": _GPU_LOST,
    "driver.gpu-lost-in-container": _GPU_LOST,
}
"""What a finding may follow from, the likeliest first."""
_ENDS = ("restart.failed", "restart.aborted", "restart.segfault", "restart.loop", "docker.restart-loop")
"""A container that ended by itself did so for what its log says."""
_ANY_END = (*_KILLS, *_GPU_LOST, *_GPU_FAULT)


_SAID_BETTER = {"docker.exit-137": "restart.exit-137", "docker.oom-killed": "restart.oom-killed"}
"""A line's finding that a document's finding of the same text tells with names and times."""


def linked(findings: Sequence[Finding], rules: Iterable[LogRule]) -> tuple[Finding, ...]:
    """The findings in order, each that follows from one of another kind with its cause named."""
    by_id = {rule.id: rule for rule in rules}
    present = {finding.rule for finding in findings}
    findings = [finding for finding in findings if _SAID_BETTER.get(finding.rule) not in present]
    present = {finding.rule for finding in findings}
    consequences = {name for name in present if name in _ENDS or (name in by_id and by_id[name].consequence)}
    roots = [
        finding.rule
        for finding in findings
        if finding.severity is Severity.CRITICAL
        and finding.caused_by is None
        and finding.rule in by_id
        and finding.rule not in consequences
    ]

    def cause_of(name: str) -> str | None:
        wanted = [*(by_id[name].follows if name in by_id else ()), *_AFTER.get(name, ())]
        if name.startswith("cuda."):
            wanted += _GPU_LOST
        if name in consequences and name not in _AFTER:
            wanted += [*_ANY_END, *roots]
        elif name in consequences:
            wanted += roots
        return next((cause for cause in wanted if cause in present and cause != name), None)

    return ordered(
        [
            finding if finding.caused_by in present else replace(finding, caused_by=cause_of(finding.rule))
            for finding in findings
        ]
    )
