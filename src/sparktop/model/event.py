"""Kernel log lines that matter, read and folded."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad; shared by kernel events and findings."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What one source says an event means and what to do."""

    source: str
    """Who says it: "NVIDIA Xid catalogue", a field report, a GitHub thread."""
    meaning: str
    action: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEvent:
    """A kernel line that matters, or a burst of the same one."""

    kind: str
    """"xid", "nvrm-no-memory", "oom-kill", "gsp", "link", "aer", "nvme", "nvrm", "oops" ..."""
    severity: Severity
    title: str
    """One line for the pane: "Xid 43  GPU stopped processing"."""
    text: str
    """The first line as the kernel wrote it, sanitised."""
    code: int | None = None
    """The Xid number."""
    pattern: str = ""
    """The row of kernel_patterns.toml that read it; empty for Xids."""
    line: int | None = None
    """Line number, from 1, in the text it was read from; None where it came from a live log."""
    count: int = 1
    first_boot_s: float | None = None
    last_boot_s: float | None = None
    first_wall_s: float | None = None
    last_wall_s: float | None = None
    pid: int | None = None
    process: str | None = None
    container_id: str | None = None
    container: str | None = None
    """The victim's container by name, where the cgroup names it and Docker is readable."""
    follows: int | None = None
    """The Xid that caused this one, where the line or the order of lines says so."""
    advice: tuple[Advice, ...] = ()
