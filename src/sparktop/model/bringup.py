"""Bring-up of new Sparks: chapters of checks, and what each found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from sparktop.dataclass import dataclass
from sparktop.model.finding import Remedy
from sparktop.model.state import State


class Chapter(StrEnum):
    """The parts of a bring-up, in order; the values are the names that `--only` takes."""

    REACH = "reach"
    IDENTITY = "identity"
    RELEASE = "release"
    MACHINE = "machine"
    ACCESS = "access"
    MEMORY = "memory"
    TOOLS = "tools"
    WIRING = "wiring"
    ADDRESSES = "addresses"
    RDMA = "rdma"
    PARITY = "parity"
    BANDWIDTH = "bandwidth"
    COLLECTIVE = "collective"
    ENDPOINT = "endpoint"


CHAPTER_TITLES: Mapping[Chapter, str] = {
    Chapter.REACH: "Reach",
    Chapter.IDENTITY: "Identity",
    Chapter.RELEASE: "Release and firmware",
    Chapter.MACHINE: "Machine",
    Chapter.ACCESS: "Permissions and container runtime",
    Chapter.MEMORY: "Memory at rest",
    Chapter.TOOLS: "Tools",
    Chapter.WIRING: "Wiring",
    Chapter.ADDRESSES: "Addresses",
    Chapter.RDMA: "RDMA",
    Chapter.PARITY: "Parity",
    Chapter.BANDWIDTH: "Bandwidth",
    Chapter.COLLECTIVE: "Collective",
    Chapter.ENDPOINT: "Endpoint",
}
Key = tuple[str, tuple[str, ...], str]
"""Identifies a row across looks: check, nodes, subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A run that changed something, as the page to keep lists it."""

    wall_s: float
    """When it ended, operator's clock."""
    nodes: tuple[str, ...]
    title: str
    result: str
    """ "done", "rolled back"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """One measured figure beside what is healthy: a bar of the page."""

    label: str
    """ "rocep1s0f0, spark1 to spark2"."""
    value: float
    unit: str
    healthy: tuple[float, float]
    """From, to."""
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One row of the bring-up page: a check's result on one node, or on all of them together."""

    check: str
    """ "release.ota"."""
    nodes: tuple[str, ...]
    subject: str = ""
    """The engine that it is about, by name; empty where it is about the nodes."""
    state: State
    found: str = ""
    """What it found, with its figure; while skipped or unknown, why."""
    remedies: tuple[Remedy, ...] = ()
    gauges: tuple[Gauge, ...] = ()
    """Its figures, where they are measured."""
    basis: Mapping[str, str] = field(default_factory=dict)
    """What the result depends on: "spark1 boot", "spark1 driver"; where one of them changes, it is no longer proven."""
    proven_wall_s: float | None = None
    """When it was proven or measured, operator's clock; None: neither."""
    is_kept: bool = False
    """Proven or measured earlier, and its basis still holds."""

    @property
    def key(self) -> Key:
        return (self.check, self.nodes, self.subject)

    @property
    def chapter(self) -> Chapter:
        return Chapter(self.check.partition(".")[0])

    @property
    def is_problem(self) -> bool:
        return self.state.is_problem
