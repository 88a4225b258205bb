"""Readings of one node, as the probe sends them; units are part of the names.

A value that couldn't be read is None, and the reading's `gaps` says why under the field's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from functools import lru_cache
from ipaddress import IPv4Interface, IPv4Network
from types import MappingProxyType

from sparktop.dataclass import dataclass
from sparktop.model.guard import GuardState


class GapReason(StrEnum):
    """Why a value is None."""

    NOT_SUPPORTED = "not supported"
    NO_PERMISSION = "no permission"
    NOT_FOUND = "not found"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    NOT_YET = "not read yet"


YOUNG_BOOT_S = 24 * 3600.0
"""While a boot is younger than this, how the one before it ended matters."""
NO_GAPS: Mapping[str, GapReason] = MappingProxyType({})


def no_gaps() -> Mapping[str, GapReason]:
    """The empty mapping, shared by all readings without gaps."""
    return NO_GAPS


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """/proc/meminfo, in bytes. On GB10 this is the GPU's memory too (docs/facts/gb10.md section 2)."""

    total_bytes: int
    available_bytes: int
    """MemAvailable: the figure for alarms, never MemFree."""
    free_bytes: int
    buffers_bytes: int = 0
    cached_bytes: int = 0
    shared_bytes: int = 0
    """Shmem: tmpfs and shared mappings; counted inside `cached_bytes` by the kernel, not reclaimable."""
    slab_reclaimable_bytes: int = 0
    slab_unreclaimable_bytes: int = 0
    anonymous_bytes: int = 0
    page_tables_bytes: int = 0
    kernel_stack_bytes: int = 0
    swap_total_bytes: int = 0
    swap_free_bytes: int = 0
    huge_pages_bytes: int = 0
    """Reserved huge pages, used or not."""
    cma_total_bytes: int | None = None
    """CmaTotal; None where the kernel has no such line."""
    cma_free_bytes: int | None = None

    @property
    def used_bytes(self) -> int:
        """Memory that isn't available: total less available."""
        return self.total_bytes - self.available_bytes

    @property
    def page_cache_bytes(self) -> int:
        """The most that dropping caches (3) could free: cache, buffers and reclaimable slab less shared memory."""
        return max(0, self.cached_bytes + self.buffers_bytes + self.slab_reclaimable_bytes - self.shared_bytes)

    @property
    def swap_used_bytes(self) -> int:
        return self.swap_total_bytes - self.swap_free_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """One /proc/pressure file (PSI): percent of time some, or all, tasks waited."""

    some_avg10: float
    some_avg60: float
    full_avg10: float
    full_avg60: float
    full_total_s: float | None = None
    """Since boot; None in recordings by a probe that didn't send it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that holds GPU memory, as NVML lists it."""

    pid: int
    name: str
    used_bytes: int | None
    kind: str = "C"
    """C compute, G graphics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU as NVML reports it. On GB10 `memory_*` is NOT_SUPPORTED and the bandwidth counter always reads 0."""

    name: str
    uuid: str | None = None
    driver_version: str | None = None
    utilisation_percent: float | None = None
    bandwidth_percent: float | None = None
    """utilization.memory on GPUs where it works; None with NOT_SUPPORTED on GB10 (docs/facts/gb10.md section 0)."""
    power_w: float | None = None
    """Power of the GPU rail alone, not the whole machine."""
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    temperature_c: int | None = None
    performance_state: str | None = None
    throttle_reasons: tuple[str, ...] | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    processes: tuple[GpuProcess, ...] | None = None
    gaps: Mapping[str, GapReason] = field(default_factory=no_gaps)

    @property
    def is_gb10(self) -> bool:
        return "GB10" in self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """All GPUs at one moment; empty where there are none."""

    boot_s: float
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process of the scanner's table (all GPU users, engine candidates, the desktop, the largest processes)."""

    pid: int
    parent_pid: int
    command: str
    """comm: at most 15 characters."""
    state: str
    """R, S, D, Z ... as /proc/PID/stat has it."""
    resident_bytes: int
    shared_bytes: int = 0
    swapped_bytes: int = 0
    user_id: int | None = None
    started_boot_s: float = 0.0
    container_id: str | None = None
    """64 hex digits from the cgroup, where it runs in a container."""
    cgroup: str = ""
    argv: tuple[str, ...] = ()
    """Only for engine candidates, with secrets already masked on the Spark; empty otherwise."""
    wait_channel: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTable:
    """One scan of the processes, at the scanner's own slower rate."""

    boot_s: float
    processes: tuple[Process, ...]
    total_count: int
    zombie_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One sample of a node, timed by the node's boot-time clock, never by arrival."""

    sequence: int
    boot_s: float
    """CLOCK_BOOTTIME on the node, seconds."""
    wall_s: float
    """The node's wall clock; never subtract it from another machine's."""
    interval_s: float
    """The probe's current interval; it samples faster when memory is low or falling."""
    memory: Memory
    memory_pressure: Pressure | None = None
    io_pressure: Pressure | None = None
    cpu_pressure: Pressure | None = None
    cpu_busy_ticks: int | None = None
    cpu_total_ticks: int | None = None
    """Counters of all cores together; NodeView has the share between two samples."""
    load_1m: float | None = None
    load_5m: float | None = None
    swap_in_pages: int | None = None
    """Counters since boot (/proc/vmstat), as all counters here."""
    swap_out_pages: int | None = None
    major_faults: int | None = None
    allocation_stalls: int | None = None
    oom_kills: int | None = None
    probe_cpu_s: float | None = None
    """CPU time of the probe and its children since they started."""
    probe_resident_bytes: int | None = None
    skipped: int = 0
    """Samples not sent so far because three were unacknowledged (so a slow connection still shows fresh figures)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """Space on one filesystem."""

    mount: str
    total_bytes: int
    free_bytes: int
    """Free to an unprivileged user."""

    @property
    def low_bytes(self) -> int:
        """With less free it is nearly full."""
        return min(20 << 30, self.total_bytes // 10)

    @property
    def full_bytes(self) -> int:
        """With less free it is full."""
        return min(2 << 30, self.total_bytes // 50)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One systemd service, as `systemctl show` has it."""

    name: str
    active: str = ""
    """active, activating, deactivating, inactive, failed."""
    sub: str = ""
    result: str = ""
    restarts: int | None = None
    """NRestarts."""
    restart: str = ""
    """Restart=: no, on-failure, always ..."""
    restart_delay_s: float | None = None
    main_pid: int | None = None
    exit_status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """Facts that change rarely: sent at the start and every minute."""

    hostname: str
    boot_id: str
    machine_id_digest: str | None = None
    """A digest of /etc/machine-id: equal on two nodes means cloned units (CVE-2026-24218)."""
    kernel: str = ""
    architecture: str = ""
    os_name: str | None = None
    dgx_release: str | None = None
    """The last DGX_OTA_VERSION of /etc/dgx-release, else its DGX_SWBUILD_VERSION."""
    product: str | None = None
    """DMI product family: "DGX Spark" on every maker's unit."""
    driver_version: str | None = None
    cpu_count: int = 0
    python_version: str = ""
    user: str = ""
    user_id: int | None = None
    disks: tuple[Disk, ...] = ()
    driver_installed: str | None = None
    """Version of the NVIDIA module on disk; if it differs from the loaded one, a reboot is pending."""
    kernel_next: str | None = None
    """The newest installed kernel, most likely the next to boot."""
    kernel_next_has_driver: bool | None = None
    """Whether an NVIDIA module is installed for it."""
    is_lingering: bool | None = None
    """loginctl's Linger for the user: without it logind may remove the user's IPC objects at logout."""
    removes_ipc: bool | None = None
    """RemoveIPC of logind.conf; its default is yes."""
    is_graphical: bool | None = None
    """Whether its display manager runs."""
    units: tuple[Unit, ...] = ()
    """systemd services that run, or ran, an engine or a container."""
    gaps: Mapping[str, GapReason] = field(default_factory=no_gaps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """One network interface that is not loopback, a bridge or a container's end."""

    name: str
    is_up: bool | None = None
    """carrier."""
    mtu: int | None = None
    speed_mbps: int | None = None
    """200000 on a linked ConnectX-7 port of a Spark."""
    addresses: tuple[str, ...] = ()
    """With prefix: 192.168.100.10/24."""
    lost_addresses: tuple[str, ...] = ()
    """What was taken from it together with its carrier, as networkd and NetworkManager do."""

    @property
    def ipv4(self) -> tuple[IPv4Interface, ...]:
        """Its IPv4 addresses, with their networks."""
        return tuple(filter(None, map(_ipv4, self.addresses)))

    @property
    def networks(self) -> frozenset[IPv4Network]:
        """The networks of its addresses."""
        return _networks(self.addresses)

    @property
    def lost_networks(self) -> frozenset[IPv4Network]:
        """The networks that it led to before it lost its carrier; empty while it has one."""
        return _networks(self.addresses or self.lost_addresses) if self.is_up is False else frozenset()

    @property
    def plain_addresses(self) -> frozenset[str]:
        """Its addresses without prefix."""
        return frozenset(text.partition("/")[0] for text in self.addresses)


def _networks(addresses: tuple[str, ...]) -> frozenset[IPv4Network]:
    return frozenset(address.network for text in addresses if (address := _ipv4(text)) is not None)


@lru_cache(maxsize=256)
def _ipv4(text: str) -> IPv4Interface | None:
    try:
        return IPv4Interface(text)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaPort:
    """One port of an RDMA device; /proc/net/dev doesn't count its traffic."""

    device: str
    port: int = 1
    interface: str | None = None
    state: str = ""
    """ACTIVE, DOWN ..."""
    rate_gbps: float | None = None
    received_bytes: int | None = None
    """Counters since boot: port_rcv_data and port_xmit_data times 4."""
    sent_bytes: int | None = None
    roce_v2_gids: tuple[tuple[int, str], ...] = ()
    """(index, IPv4 address) of its RoCE v2 entries; the index differs between machines."""

    @property
    def is_active(self) -> bool:
        return self.state == "ACTIVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkReading:
    """Interfaces and RDMA ports at one moment."""

    boot_s: float
    interfaces: tuple[Interface, ...] = ()
    rdma_ports: tuple[RdmaPort, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DesktopReading:
    """Whether the desktop's compositor responds; asked on its own session bus, where that is the user's."""

    boot_s: float
    compositor: str | None = None
    """gnome-shell, mutter, kwin_wayland ...; None: no desktop runs."""
    pid: int | None = None
    user_id: int | None = None
    state: str = ""
    """R, S, D as /proc/PID/stat has it."""
    wait_channel: str | None = None
    answers: bool | None = None
    """To a D-Bus ping within the limit; None: could not be asked, `reason` says why."""
    silent_since_boot_s: float | None = None
    """Since when pings have been unanswered."""
    blocked_since_boot_s: float | None = None
    """Since when every check has found it in state D without having run in between."""
    reason: str = ""
    is_greeter: bool = False
    """The login screen's own compositor (gdm)."""


class CollectorState(StrEnum):
    """The state of one part of the probe."""

    OK = "ok"
    MISSING = "missing"
    DENIED = "denied"
    STUCK = "stuck"
    FAILED = "failed"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    """One part of the probe (nvml, processes, kernel, facts) and its state."""

    name: str
    state: CollectorState
    detail: str = ""
    since_boot_s: float = 0.0


NOTE = 8
"""The priority of a line by sparktop itself, beyond syslog's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of text from a node, already sanitised."""

    text: str
    wall_s: float | None = None
    """The timestamp its writer gave it, node time."""
    boot_s: float | None = None
    priority: int | None = None
    """syslog 0 (emergency) to 7 (debug), kernel lines only; NOTE in a line by sparktop."""
    replaces_last: bool = False
    r"""The next state of a `\\r` progress bar: it replaces the line before."""

    @property
    def is_note(self) -> bool:
        """Whether sparktop put it between the lines of a log."""
        return self.priority == NOTE


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLines:
    """A batch of the kernel log."""

    source: str
    """"journal", "sudo journal", "sudo dmesg" or "kmsg"."""
    lines: tuple[LogLine, ...]
    dropped: int = 0
    """Lines the follower dropped to limit its own cost."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreviousBoot:
    """What the node still knows of the boot before this one. Compared by identity: it comes once a boot."""

    boot_id: str = ""
    """Empty: its journal can't be read, or holds no such boot."""
    kernel: tuple[LogLine, ...] = ()
    """The end of its kernel log, oldest first."""
    system: tuple[LogLine, ...] = ()
    """The end of the rest of its journal, each "sender: text"; of its earlier lines, those on going down."""
    reason: str = ""
    """Why there are no lines."""
    pstore: tuple[tuple[str, float], ...] = ()
    """Files with what a crashing kernel wrote, the newest first: path and time of change."""
    dump: tuple[LogLine, ...] = ()
    """The lines of the newest one, where this user may read it; with the kernel's own clock alone."""

    @property
    def end_wall_s(self) -> float | None:
        """When the last line of its journal was written."""
        return max((line.wall_s for line in (*self.kernel, *self.system) if line.wall_s is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The probe's first message on a connection."""

    protocol: int
    pid: int
    probe_digest: str
    facts: HostFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbled:
    """A line of the probe that is not a message: cut, too long, not JSON, or of another shape."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bye:
    """The probe's last message, with the reason."""

    reason: str


Message = (
    Hello
    | GuardState
    | Sample
    | GpuReading
    | ProcessTable
    | NetworkReading
    | DesktopReading
    | HostFacts
    | Collector
    | KernelLines
    | PreviousBoot
    | Garbled
    | Bye
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A bounded history: parallel tuples, oldest first; None marks a gap."""

    times: tuple[float, ...] = ()
    """Node boot-time seconds, continued across reboots (see observe.history)."""
    values: tuple[float | None, ...] = ()


class Level(float):
    """Available memory in bytes at one moment, with who held the rest."""

    __slots__ = ("tops",)
    tops: tuple[int, int, int, int]
    """Bytes up to the top of each part, stacked: engines, other processes, unaccounted, page cache."""

    def __new__(cls, available_bytes: float, tops: tuple[int, int, int, int]) -> Level:
        level = super().__new__(cls, available_bytes)
        level.tops = tops
        return level


class EngineMoment(float):
    """Tokens a second that an engine generates at one moment, 0 where unknown, with its figures then."""

    __slots__ = ("figures",)
    figures: tuple[float | None, ...]
    """As `engine.figures_of` has them."""

    def __new__(cls, figures: tuple[float | None, ...]) -> EngineMoment:
        moment = super().__new__(cls, figures[0] or 0.0)
        moment.figures = figures
        return moment
