"""The frozen picture: everything the screens, the JSON and the rules see of one or two nodes.

Compared by identity (`eq=False`): a deep comparison of the picture on each publication would cost more than drawing it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sparktop.model.engine import Containers, Engine
from sparktop.model.event import KernelEvent, Severity
from sparktop.model.finding import Finding
from sparktop.model.guard import GuardState
from sparktop.model.telemetry import (
    Collector,
    DesktopReading,
    Gpu,
    GpuReading,
    HostFacts,
    NetworkReading,
    ProcessTable,
    Sample,
    Series,
)


class LinkState(StrEnum):
    CONNECTING = "connecting"
    LIVE = "live"
    STALE = "stale"
    LOST = "lost"
    REFUSED = "refused"


class Reach(StrEnum):
    """What TCP and the SSH banner said while samples were missing."""

    UNTESTED = "untested"
    NO_NETWORK = "network gone"
    NO_HOST = "host gone"
    NO_SSHD = "host up, sshd down"
    STARVED = "host up but starved"
    ANSWERS = "SSH answers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The state of the line to one node, and why."""

    state: LinkState = LinkState.CONNECTING
    since_s: float = 0.0
    """Operator's monotonic clock."""
    since_wall_s: float = 0.0
    reason: str = ""
    hint: str = ""
    reach: Reach = Reach.UNTESTED
    attempt: int = 0
    next_attempt_s: float | None = None
    """Operator's monotonic clock, while waiting to try again."""
    round_trip_s: float | None = None
    host_key_fingerprint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkChange:
    """One entry of a link's history: what happened during a gap stays on screen, with times."""

    wall_s: float
    state: LinkState
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """Which way available memory goes, by a fit over the last seconds of samples."""

    bytes_per_s: float
    time_to_empty_s: float | None = None
    """Only when falling faster than noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """One part of the bar that shows who holds the node's memory."""

    kind: str
    """"engine", "gpu", "desktop", "cache", "processes", "kernel", "unaccounted", "free"."""
    label: str
    held_bytes: int
    estimated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A process that takes GPU memory now, by its last readings."""

    label: str
    """The engine's name where it is one's, else the process's."""
    pid: int
    held_bytes: int
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What holds memory: parts that sum to the total."""

    holders: tuple[Holder, ...]
    total_bytes: int
    unaccounted_bytes: int | None
    """None where GPU processes can't be listed: then the rest is not known to be unaccounted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """Memory bandwidth, said honestly."""

    percent: float | None = None
    """The counter, on GPUs where it moves."""
    estimated_bytes_per_s: float | None = None
    """Tokens/s times active bytes, where the model's size is known; always labelled an estimate."""
    peak_bytes_per_s: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What is normal on this machine, learned by watching it and kept per machine (and boot, where that matters)."""

    after_boot_available_bytes: int | None = None
    """The most that was available in this boot, or an earlier one, while no engine was there."""
    after_boot_wall_s: float | None = None
    """When that was seen; of an earlier boot where `is_earlier_boot`."""
    is_earlier_boot: bool = False
    loaded_idle_power_w: float | None = None
    """GPU power with a model resident and nothing to do (10-14 W on most units)."""
    decode_power_w: float | None = None
    """GPU power while tokens flow (31-45 W on most units); a median of what was seen."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeView:
    """Everything known of one node at one moment."""

    name: str
    """As the operator typed it; two nodes never share one."""
    link: Link
    link_history: tuple[LinkChange, ...] = ()
    facts: HostFacts | None = None
    sample: Sample | None = None
    sample_at_s: float | None = None
    """Operator's monotonic clock at the moment the sample was taken (placed by the node's clock)."""
    gpu: GpuReading | None = None
    processes: ProcessTable | None = None
    containers: Containers = Containers()
    engines: tuple[Engine, ...] = ()
    collectors: Mapping[str, Collector] = field(default_factory=dict)
    ledger: Ledger | None = None
    growing: tuple[Growth, ...] = ()
    """Which processes' GPU memory grew over the last seconds, fastest first."""
    trend: Trend | None = None
    cpu_busy_percent: float | None = None
    """Of all cores together, between the last two samples."""
    probe_cpu_percent: float | None = None
    """What watching costs the node: the probe with its children, percent of one core."""
    bandwidth: Bandwidth = Bandwidth()
    available_history: Series = Series()
    utilisation_history: Series = Series()
    power_history: Series = Series()
    clock_history: Series = Series()
    """SM clock in MHz, beside utilisation and power."""
    swap_bytes_per_s: float | None = None
    """Swapped in and out together, between the last two samples."""
    rdma_bytes_per_s: float | None = None
    """Both ways over all RDMA ports, between the last two readings."""
    network: NetworkReading | None = None
    desktop: DesktopReading | None = None
    baseline: Baseline | None = None
    kernel_source: str = ""
    """Where kernel lines come from; empty while none do."""
    kernel_events: tuple[KernelEvent, ...] = ()
    """Newest last, folded."""
    guard: GuardState | None = None
    """What the probe has said of its guard; None: it has none armed and none has fired."""
    garbled_count: int = 0
    warnings: tuple[str, ...] = ()

    def age_s(self, now_s: float) -> float | None:
        """Seconds since the sample shown was taken, by the operator's monotonic clock."""
        return None if self.sample_at_s is None else max(0.0, now_s - self.sample_at_s)

    @property
    def first_gpu(self) -> Gpu | None:
        return self.gpu.gpus[0] if self.gpu and self.gpu.gpus else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One line for the top of the console that is no rule's: what is wrong now, plainly."""

    severity: Severity
    text: str
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FleetState:
    """The picture of all nodes; a new one replaces the old, nothing in it changes."""

    nodes: tuple[NodeView, ...] = ()
    wall_s: float = 0.0
    monotonic_s: float = 0.0
    notices: tuple[Notice, ...] = ()
    """What the links say: a node that is lost, refused, or the twin of another."""
    findings: tuple[Finding, ...] = ()
    """Root cause first; firing, and those resolved a short while ago."""
    rules_watching: int = 0

    def node(self, name: str) -> NodeView | None:
        return next((node for node in self.nodes if node.name == name), None)
