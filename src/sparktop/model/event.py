"""Kernel log lines of interest, parsed and combined."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import Self

from sparktop.dataclass import dataclass


class Severity(StrEnum):
    """Severity of kernel events and findings."""

    INFO = "info", 0
    WARNING = "warning", 1
    CRITICAL = "critical", 2

    weight: int
    """0 for information, more for worse."""

    def __new__(cls, value: str, weight: int = 0) -> Self:
        """A severity of this name and weight."""
        severity = str.__new__(cls, value)
        severity._value_ = value
        severity.weight = weight
        return severity


def worse(first: Severity, second: Severity) -> Severity:
    """The worse of two severities."""
    return max(first, second, key=lambda severity: severity.weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What one source says an event means, and what to do."""

    source: str
    """"NVIDIA Xid catalogue", a field report, a GitHub thread."""
    meaning: str
    remedy: str = ""
    """What to do, in sentences."""
    action: str | None = None
    """The sparktop action that does it, where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEvent:
    """A kernel line of interest, or a burst of the same line."""

    kind: str
    """"xid", "nvrm-no-memory", "oom-kill", "gsp", "link", "aer", "nvme", "nvrm", "oops" ..."""
    severity: Severity
    title: str
    """What happened, in front of a burst's count: "Xid 43", "link down"."""
    detail: str = ""
    """Which or how: "GPU stopped processing", "enp1s0f0np0"."""
    text: str
    """The first line as the kernel wrote it, sanitised."""
    code: int | None = None
    """The Xid number."""
    pattern: str = ""
    """The row of patterns.toml that matched; empty for Xids."""
    figures: tuple[tuple[str, str], ...] = ()
    """(name, value) of what its line names, by the pattern's groups: interface, device, module, signal ..."""
    line: int | None = None
    """Line number, from 1, in its text; None where it came from a live log."""
    count: int = 1
    first_boot_s: float | None = None
    last_boot_s: float | None = None
    first_wall_s: float | None = None
    last_wall_s: float | None = None
    pid: int | None = None
    process: str | None = None
    container_id: str | None = None
    container: str | None = None
    """The victim's container by name, where the cgroup shows it and Docker is readable."""
    follows: int | None = None
    """The Xid that caused this one, where the line or the order of lines shows it."""
    advice: tuple[Advice, ...] = field(default=(), hash=False)  # its pattern says as much, sooner

    @property
    def particulars(self) -> str:
        """Its detail with the Xid it follows: "GPU stopped processing, after Xid 13"."""
        return self.detail if self.follows is None else f"{self.detail}, after Xid {self.follows}"

    @property
    def headline(self) -> str:
        """What happened in one line, without count and victim."""
        return f"{self.title}  {self.particulars}" if self.particulars else self.title

    def figure(self, name: str) -> str | None:
        """What its line names so."""
        return dict(self.figures).get(name)


class EventKind(StrEnum):
    """Of what happened to a fleet."""

    LINK = "link"
    BOOT = "boot"
    KERNEL = "kernel"
    ENGINE = "engine"
    ACTION = "action"
    FOUND = "found"
    WORSE = "worse"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened."""

    at_s: float
    """Seconds since the epoch, operator's clock."""
    kind: EventKind
    nodes: tuple[str, ...]
    severity: Severity | None = None
    """Of a finding or a kernel event."""
    subject: str = ""
    """The rule of a finding; an engine, an action."""
    text: str
    is_consequence: bool = False
    """Of a finding: another one has caused it."""
