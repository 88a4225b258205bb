"""The frozen picture of the watched nodes, for the screens, the JSON output and the rules.

Compared by identity (`eq=False`): a deep comparison of the picture on each publication would cost more than drawing it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import StrEnum

from sparktop.dataclass import dataclass
from sparktop.model.engine import NOT_ASKED, Containers, Engine
from sparktop.model.event import Event, KernelEvent, Severity
from sparktop.model.finding import Finding
from sparktop.model.guard import GuardState
from sparktop.model.telemetry import (
    Collector,
    DesktopReading,
    Gpu,
    GpuProcess,
    GpuReading,
    HostFacts,
    Interface,
    NetworkReading,
    Pressure,
    PreviousBoot,
    ProcessTable,
    RdmaPort,
    Sample,
    Series,
)


class LinkState(StrEnum):
    CONNECTING = "connecting"
    LIVE = "live"
    STALE = "stale"
    LOST = "lost"
    REFUSED = "refused"
    UNRECORDED = "not recorded"
    """Of a replay alone: no console was running."""


class Reach(StrEnum):
    """What TCP and the SSH banner showed while samples were missing."""

    UNTESTED = "untested"
    NO_NETWORK = "network gone"
    NO_HOST = "host gone"
    NO_SSHD = "host up, no SSH"
    SSH_SILENT = "host up, SSH silent"
    ANSWERS = "SSH answers"


class LoginMethod(StrEnum):
    """What a login was accepted by."""

    NONE = ""
    """Nobody logged in."""
    KEY = "key"
    PASSWORD = "password"  # noqa: S105 - a method's name
    """Typed by the operator: also where a server's questions stood for it (keyboard-interactive)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """What the newest attempt to connect met, as the operator's machine sees it."""

    host: str = ""
    """What was looked up: a name or an address, by the ssh configuration; empty: nothing was."""
    port: int = 22
    via: str = ""
    """The jump host or proxy command, which looks the name up in our place."""
    addresses: tuple[str, ...] = ()
    """The name's addresses, in the resolver's order."""
    is_unknown_name: bool = False
    """The resolver said that there is no such name."""
    answered: str = ""
    """The address that took the connection."""
    login: LoginMethod = LoginMethod.NONE
    """What the newest login was accepted by: of this connection, or of one that proved a key."""
    host_key: str = ""
    """The key by which the host was recognised: algorithm and base64, as known_hosts has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The state of the connection to one node, and why."""

    state: LinkState = LinkState.CONNECTING
    since_s: float = 0.0
    """Operator's monotonic clock."""
    since_wall_s: float = 0.0
    reason: str = ""
    hint: str = ""
    reach: Reach = Reach.UNTESTED
    was_gone: bool = False
    """Since it was last live, nothing answered there at all for a while."""
    attempt: int = 0
    next_attempt_s: float | None = None
    """Operator's monotonic clock, during a back-off."""
    host_key_fingerprint: str | None = None
    contact: Contact = field(default_factory=Contact)

    @property
    def is_tested(self) -> bool:
        """Whether a test of the host told more than the link's state."""
        return self.reach not in (Reach.UNTESTED, Reach.ANSWERS)

    @property
    def trouble(self) -> str:
        """ "host up, SSH silent: no answer to keepalives", "lost: ...": the host's state where it was tested."""
        if self.state is LinkState.UNRECORDED:
            return self.reason
        word = str(self.reach if self.is_tested else self.state)
        return f"{word}: {self.reason}" if self.reason and self.reason != self.state else word


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkChange:
    """One entry of a link's history: a gap's cause stays on screen, with its time."""

    wall_s: float
    state: LinkState
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """The trend of available memory, by a fit over the last seconds of samples."""

    bytes_per_s: float
    time_to_empty_s: float | None = None
    """Only when falling faster than noise, and to nothing within minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """One part of the memory bar: who holds how much."""

    kind: str
    """"engine", "gpu", "desktop", "cache", "shared", "huge", "processes", "kernel", "unaccounted", "free"."""
    label: str
    held_bytes: int
    estimated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A process whose GPU memory is growing, by its last readings."""

    label: str
    """The engine's name where the process belongs to one, else the process's name."""
    pid: int
    held_bytes: int
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Who holds the memory: parts that sum to the total."""

    holders: tuple[Holder, ...]
    total_bytes: int
    unaccounted_bytes: int | None
    """None where GPU processes can't be listed: the rest may be theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """Memory bandwidth: measured, estimated, or why there is none."""

    percent: float | None = None
    """The counter, on GPUs where it works."""
    estimated_bytes_per_s: float | None = None
    """Tokens/s times active bytes, where the model's size is known; always shown as an estimate."""
    peak_bytes_per_s: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedOn:
    """What an engine ran on when tokens last flowed; empty where it isn't known."""

    wall_s: float = 0.0
    """When, node time."""
    kernel: str = ""
    driver: str = ""
    image_id: str = ""
    version: str = ""
    command: str = ""
    """Its words with spaces between, secrets masked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What an engine took of this machine's memory, as it was seen to serve; None: not known."""

    wall_s: float = 0.0
    """When, node time."""
    kind: str
    model: str
    image: str = ""
    version: str = ""
    flags: tuple[str, ...] = ()
    """Those that decide about memory, but for its share and its context."""
    share: float | None = None
    weights_bytes: int | None = None
    """With those of its drafts."""
    context_tokens: int | None = None
    context_bytes: int | None = None
    """Cache of one request of `context_tokens`."""
    beyond_bytes: int | None = None
    """The most that it was seen to hold beyond its share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Normal figures of this machine, learned by watching it and kept per machine (and boot, where that matters)."""

    after_boot_available_bytes: int | None = None
    """The most memory available in this boot, or an earlier one, while no engine ran."""
    after_boot_wall_s: float | None = None
    """When that was measured; in an earlier boot where `is_earlier_boot`."""
    is_earlier_boot: bool = False
    least_unaccounted_bytes: int | None = None
    """The least memory that nothing accounted for in this boot, with or without an engine."""
    loaded_idle_power_w: float | None = None
    """GPU power with a model loaded and no requests (10-14 W on most units)."""
    decode_power_w: float | None = None
    """GPU power while tokens are generated (31-45 W on most units); a median."""
    served_on: Mapping[str, ServedOn] = field(default_factory=dict, hash=False)
    """By the engine's name."""
    taken: tuple[Taken, ...] = ()
    """What engines took of its memory, the newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """What came before a node's histories begin, back to the session's start: the lowest value of each stretch."""

    available: Series = Series()
    utilisation: Series = Series()
    power: Series = Series()
    tokens: Series = Series()


@dataclass(frozen=True, slots=True, kw_only=True)
class LastSeen:
    """What a console saw last of a node's earlier boot."""

    boot_id: str
    wall_s: float
    """Node time."""
    available_bytes: int | None = None
    """None: this console wasn't there."""
    total_bytes: int = 0
    stall_percent: float = 0.0
    """PSI memory full avg10."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """A time in which a console that was watching heard nothing of a node, which did not reboot."""

    before: Sample
    after: Sample
    reaches: tuple[Reach, ...] = ()
    """What tests of the host showed meanwhile, each once, in order."""

    @property
    def away_s(self) -> float:
        return self.after.boot_s - self.before.boot_s

    @property
    def memory_share(self) -> float | None:
        """The share of that time in which all tasks waited for memory; None where the node doesn't count it."""
        return _stalled_share(self.before.memory_pressure, self.after.memory_pressure, self.away_s)

    @property
    def disk_share(self) -> float | None:
        """The same for disks."""
        return _stalled_share(self.before.io_pressure, self.after.io_pressure, self.away_s)


def _stalled_share(before: Pressure | None, after: Pressure | None, away_s: float) -> float | None:
    if before is None or after is None or before.full_total_s is None or after.full_total_s is None:
        return None
    return min(1.0, max(0.0, after.full_total_s - before.full_total_s) / away_s)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeView:
    """Everything known about one node at one moment."""

    name: str
    """As the operator typed it; unique."""
    link: Link
    link_history: tuple[LinkChange, ...] = ()
    facts: HostFacts | None = None
    sample: Sample | None = None
    sample_at_s: float | None = None
    """When the sample was taken, on the operator's monotonic clock (derived from the node's clock)."""
    gpu: GpuReading | None = None
    processes: ProcessTable | None = None
    containers: Containers = NOT_ASKED
    containers_at_s: float | None = None
    """When Docker was asked for them, on the operator's monotonic clock."""
    engines: tuple[Engine, ...] = ()
    has_looked_for_engines: bool = True
    """False until engines were looked for in a table of processes and Docker's first answer: before, one that isn't
    shown may be there."""
    collectors: Mapping[str, Collector] = field(default_factory=dict)
    ledger: Ledger | None = None
    growing: tuple[Growth, ...] = ()
    """Processes whose GPU memory grew over the last seconds, fastest first."""
    trend: Trend | None = None
    cpu_busy_percent: float | None = None
    """Of all cores together, between the last two samples."""
    probe_cpu_percent: float | None = None
    """The cost of watching: the probe with its children, in percent of one core."""
    bandwidth: Bandwidth = Bandwidth()
    available_history: Series = Series()
    utilisation_history: Series = Series()
    power_history: Series = Series()
    clock_history: Series = Series()
    """SM clock in MHz."""
    token_history: Series = Series()
    """Tokens a second that the node's engines generate together."""
    engine_histories: Mapping[str, Series] = field(default_factory=dict)
    """Of EngineMoments, by the engine's key; an engine without metrics has none."""
    earlier: Earlier = Earlier()
    swap_bytes_per_s: float | None = None
    """Swapped in and out together, between the last two samples."""
    rdma_bytes_per_s: float | None = None
    """Both directions over all RDMA ports, between the last two readings."""
    network: NetworkReading | None = None
    desktop: DesktopReading | None = None
    baseline: Baseline | None = None
    kernel_source: str = ""
    """The source of kernel lines; empty while there are none."""
    kernel_events: tuple[KernelEvent, ...] = ()
    """Newest last, folded."""
    guard: GuardState | None = None
    """The guard's last report by the probe; None: not armed and never fired."""
    previous_boot: PreviousBoot | None = None
    """None: not asked for, as of a boot that was known already, or not answered yet."""
    awaits_previous_boot: bool = False
    last_seen: LastSeen | None = None
    """Of another boot than this one; None: nobody here has seen one."""
    absence: Absence | None = None
    """The newest of this boot."""
    garbled_count: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def engines_gap(self) -> str:
        """Why an engine that isn't shown may be there all the same; empty: all of them are shown."""
        if not self.has_looked_for_engines:
            return f"the engines of {self.name} are not known yet"
        if not self.containers.available:
            return f"stopped engines of {self.name} are not known: {self.containers.detail}"
        return ""

    def age_s(self, now_s: float) -> float | None:
        """Seconds since the shown sample was taken, by the operator's monotonic clock."""
        return None if self.sample_at_s is None else max(0.0, now_s - self.sample_at_s)

    @property
    def first_gpu(self) -> Gpu | None:
        return self.gpu.gpus[0] if self.gpu and self.gpu.gpus else None

    @property
    def gpu_processes(self) -> tuple[GpuProcess, ...]:
        """Processes on all its GPUs; empty: none, or not read."""
        return tuple(row for gpu in (self.gpu.gpus if self.gpu else ()) for row in gpu.processes or ())

    def holders(self, *kinds: str) -> list[Holder]:
        """Who holds its memory, of these kinds, largest first; empty: none, or not known."""
        holders = self.ledger.holders if self.ledger else ()
        return sorted((holder for holder in holders if holder.kind in kinds), key=lambda holder: -holder.held_bytes)

    @property
    def interfaces(self) -> tuple[Interface, ...]:
        """Empty: none, or not read."""
        return self.network.interfaces if self.network else ()

    @property
    def rdma_ports(self) -> tuple[RdmaPort, ...]:
        """Empty: none, or not read."""
        return self.network.rdma_ports if self.network else ()

    def interface_of(self, port: RdmaPort) -> Interface:
        """The port's; one without addresses where it wasn't read."""
        return next(
            (one for one in self.interfaces if one.name == port.interface), Interface(name=port.interface or "")
        )

    @property
    def driver_version(self) -> str:
        """Version of the loaded NVIDIA driver; empty: not known."""
        by_kernel = self.facts.driver_version if self.facts else None
        return by_kernel or (self.first_gpu.driver_version if self.first_gpu else None) or ""

    @property
    def is_spark(self) -> bool | None:
        """Whether the machine is a DGX Spark; None: not known."""
        product = self.facts.product if self.facts else None
        return product == "DGX Spark" if product else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervention:
    """A stop or a reboot that a sparktop console sent to a node; times on the operator's clock."""

    node: str
    containers: tuple[str, ...] = ()
    """Full ids of the containers it stopped."""
    engine: str = ""
    """Name of the engine it stopped; empty with no containers either: a reboot."""
    action: str
    """One of operate.actions.ACTIONS."""
    who: str = ""
    """user@machine; empty: this operator."""
    began_wall_s: float
    ended_wall_s: float | None = None
    """When the step ended; None: it still runs."""
    is_under_way: bool = False
    """The run goes on: what it stopped may come back."""
    is_meant: bool = False
    """The run was to leave it stopped."""

    @property
    def is_reboot(self) -> bool:
        return not self.containers and not self.engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One line at the top of the console that comes from no rule: an observed problem."""

    severity: Severity
    text: str
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """A port of this machine that leads to an engine."""

    node: str
    engine: str
    port: int
    """On 127.0.0.1."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FleetState:
    """The picture of all nodes; immutable, a new one replaces it."""

    nodes: tuple[NodeView, ...] = ()
    wall_s: float = 0.0
    monotonic_s: float = 0.0
    notices: tuple[Notice, ...] = ()
    """Problems with the links: a node that is lost, refused, or the twin of another."""
    findings: tuple[Finding, ...] = ()
    """Root cause first; firing ones and recently resolved ones. To a rule: those of the picture before."""
    interventions: tuple[Intervention, ...] = ()
    """What sparktop consoles have stopped on these nodes, oldest first."""
    rules_watching: int = 0
    forwards: tuple[Forward, ...] = ()
    events: tuple[Event, ...] = ()
    """What happened of late, oldest first."""
    news: tuple[Event, ...] = ()
    """What this picture shows that the one before did not."""

    def node(self, name: str) -> NodeView | None:
        return next((node for node in self.nodes if node.name == name), None)


def is_current(node: NodeView) -> bool:
    """Whether the node's figures are current: a silent node is left to the rules about silence."""
    return node.link.state is LinkState.LIVE and node.sample is not None


def current_nodes(fleet: FleetState) -> Iterator[tuple[NodeView, Sample]]:
    """The nodes whose figures are current, with their newest samples."""
    for node in fleet.nodes:
        if is_current(node) and node.sample is not None:
            yield node, node.sample


def live_engines(fleet: FleetState) -> Iterator[tuple[NodeView, Engine]]:
    """The engines of the nodes whose connection is live."""
    for node in fleet.nodes:
        if node.link.state is LinkState.LIVE:
            yield from ((node, engine) for engine in node.engines)


def boot_s_now(node: NodeView, sample: Sample, fleet: FleetState) -> float:
    """The node's boot clock now, which its kernel lines' times use."""
    return sample.boot_s + (node.age_s(fleet.monotonic_s) or 0.0)


def node_wall_s(node: NodeView, fleet: FleetState) -> float | None:
    """The node's wall clock now, which its log lines' times use."""
    age_s = node.age_s(fleet.monotonic_s)
    return None if node.sample is None or age_s is None else node.sample.wall_s + age_s


def has_rebooted_since(node: NodeView, wall_s: float | None) -> bool:
    """Whether the node booted after this time of its wall clock; False where either isn't known."""
    sample = node.sample
    return sample is not None and wall_s is not None and sample.wall_s - sample.boot_s > wall_s
