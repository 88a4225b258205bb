"""What two simulated Sparks do, as frozen data on a clock; scenario.py reads it from files.

Times are seconds of the scenario; what happened before it began has a negative time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sparktop.sim.tracks import Track

NODE_TRACKS: Mapping[str, float] = {
    "available_gib": 110.0, "cache_gib": 9.0, "shared_gib": 0.9, "leaked_gib": 0.0, "swap_gib": 0.0,
    "psi": 0.0, "psi_io": 0.0, "psi_cpu": 0.3, "cpu_percent": 2.0, "load": 0.6,
    "util": 0.0, "power_w": 4.4, "sm_mhz": 2405.0, "temp_c": 38.0, "throttle": 0.0, "rdma_mb_s": 0.0,
    "desktop_answers": 1.0,
}  # fmt: skip
"""Name and default. `psi*` are "some avg10" percent; `leaked_gib` is held by nobody; `throttle` is NVML's mask;
`rdma_mb_s` is each way, over all active RDMA ports; `desktop_answers` 1 or 0: the compositor, to who asks it."""

ENGINE_TRACKS: Mapping[str, float] = {
    "running": 0.0, "waiting": 0.0, "prompt_tps": 0.0, "gen_tps": 0.0, "kv": 0.0,
    "prefix_hit": 0.4, "ttft_s": 0.4, "itl_s": 0.03, "preemptions_per_s": 0.0,
}  # fmt: skip
"""`kv` and `prefix_hit` are shares 0..1; `*_tps` tokens a second; `ttft_s` and `itl_s` medians."""


class Repeat(StrEnum):
    """What follows the last second."""

    LOOP = "loop"
    """The figures start over and time goes on: only where the end meets the beginning."""
    RESTART = "restart"
    """A new showing: connections end, the machines have booted anew."""
    HOLD = "hold"
    """The end stays."""


class FaultKind(StrEnum):
    """What a fault does to the line, at the level of sockets."""

    NO_ROUTE = "no-route"
    """Nothing answers: new connections time out, open ones fall silent."""
    STARVED = "starved"
    """TCP answers, no SSH banner comes, open channels stall."""
    SLOW = "slow"
    """Everything arrives `delay_s` late."""
    RESET = "reset"
    """Open connections are reset, and new ones too while it lasts."""
    REFUSED = "refused"
    """As if sshd had stopped: open connections end, new ones are refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of the line from one second to another."""

    start_s: float
    end_s: float
    kind: FaultKind
    delay_s: float = 0.0
    once: bool = False
    """Also where the scenario loops: it comes of something that was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a node says about itself (facts/gb10.md sections 2 and 4)."""

    hostname: str
    user: str = "spark"
    user_id: int = 1000
    total_kib: int = 127_600_748
    driver: str = "580.142"
    dgx: str = "7.6.0"
    kernel: str = "6.17.0-1026-nvidia"
    os_name: str = "Ubuntu 24.04.3 LTS"
    product: str = "DGX Spark"
    python: str = "3.12.3"
    cpus: int = 20
    disk_gib: float = 3666.0
    disk_free_gib: float = 2710.0
    driver_installed: str = ""
    """On disk; the loaded one where empty, as the kernel's."""
    next_kernel: str = ""
    next_driver: bool = True
    """Whether that kernel has an NVIDIA module."""
    lingers: bool = True
    removes_ipc: bool = True
    graphical: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceScript:
    """A network interface; `mtu` and `up` (1 or 0) may change."""

    name: str
    addresses: tuple[str, ...] = ()
    mtu: Track = Track.constant(1500)  # noqa: RUF009 (a frozen value)
    up: Track = Track.constant(1)  # noqa: RUF009
    speed_mbps: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaScript:
    """One RDMA device with one port; it is ACTIVE while its interface is up."""

    name: str
    interface: str
    rate_gbps: float = 200.0
    gids: tuple[tuple[int, str], ...] = ()
    """(index, IPv4) of its RoCE v2 entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitScript:
    """A systemd service as the probe tells of it; `restarts` may rise."""

    name: str
    active: str = "active"
    sub: str = "running"
    result: str = "success"
    restarts: Track = Track.constant(0)  # noqa: RUF009 (a frozen value)
    restart: str = "no"
    delay_s: float = 0.1
    main_pid: int | None = None
    exit_status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One life of a container: from its start to its end, if it ends within the scenario."""

    start_s: float
    end_s: float | None = None
    exit_code: int = 0
    oom_killed: bool = False
    asked: bool = False
    """Somebody started it, not its restart policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """A line of an engine's log, one that comes again and again, or a progress bar drawn with `\\r`."""

    at_s: float
    text: str
    """A format string: fields are scenario.SAMPLE_FIELDS."""
    every_s: float | None = None
    until_s: float | None = None
    total: int | None = None
    """A bar's steps; the bar goes from `first` at `at_s` to `last` at `until_s`."""
    first: int = 0
    last: int = 0
    busy: bool = False
    """Only while the engine works: vLLM's statistics line is silent when idle."""
    newline: bool = False
    """Each state of the bar ends in a newline too (vLLM's weight bar does)."""
    stream: str = "stderr"
    once: bool = False
    """Also where the scenario loops: it comes of something that was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What must be so for a trouble to be over; nothing at all: starting anew is enough."""

    flags: tuple[str, ...] = ()
    """Of the command line, each "--flag" or "--flag value"."""
    without: tuple[str, ...] = ()
    """Flags, or names of the environment, that must not be there."""
    environment: tuple[str, ...] = ()
    """Names that must be set."""
    reboot: bool = False
    by_hand: bool = False
    """Nothing helps that can be done over the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """How a container, or a part of the machine, takes what is done to it."""

    name: str
    """A container's, or "gpu", or "desktop"."""
    group: str = ""
    """The engine whose rank it is; all of its ranks are needed. Empty: an engine of its own."""
    stop_s: float | None = 3.0
    """From SIGTERM to its end; None: it doesn't listen."""
    load_s: float = 80.0
    leaks_gib: float = 0.0
    """Of its GPU memory, what nobody holds after its end, until a reboot."""
    gpu_gib: float | None = None
    """What it holds when it serves anew; else what its processes held at second 0."""
    tokens_per_s: float | None = None
    """When it serves anew; else the most it gave in the scenario."""
    needs: Needs = Needs()
    fault: str = ""
    """What comes back while that isn't so: "capture", "spin", "exit", "spike"."""
    says: str = ""
    """For "exit": the last lines of its log."""
    says_after: float = 0.0
    """For "exit": the part of its start after which it says so; 0: soon."""
    ranks: int = 1
    """How many of its group there must be."""
    spike_gib: float | None = None
    """For "spike": what it takes; None: all there is."""
    load_share: float | None = None
    """The part of its memory that weights are; None: the usual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """An engine as its command line asks for it, in a container that was made from an image (`launched`)."""

    kind: str
    version: str
    model: str
    """Of the catalogue."""
    share: float
    """Of all memory (vLLM), or of what is available before it loads (SGLang)."""
    context: int
    eager: bool
    rank: int = 0
    ranks: int = 1
    is_ray: bool = False
    problem: str = ""
    """What it ends with at once, whatever memory there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerScript:
    """A container and its lives; without any it has only been created."""

    name: str
    image: str
    argv: tuple[str, ...]
    runs: tuple[Run, ...]
    log: tuple[LogEntry, ...] = ()
    environment: tuple[str, ...] = ()
    binds: tuple[str, ...] = ()
    restart_policy: str = "no"
    restart_count: int = 0
    auto_remove: bool = False
    tty: bool = False
    shm_gib: float = 16.0
    image_id: str = ""
    """Made of the image's name where empty: the same on both nodes."""
    network: str = "host"
    privileged: bool = False
    devices: tuple[str, ...] = ()
    ulimits: tuple[str, ...] = ()
    """NAME=soft:hard."""
    labels: tuple[str, ...] = ()
    memory_limit_gib: float = 0.0
    reaction: Reaction = Reaction(name="")
    key: str = ""
    """What its id is made of, where that is not its name: it has been renamed, or took a name over."""
    created_s: float | None = None
    """Where it wasn't there from the beginning."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Laid over the inspection's Config: as it was asked for when it was created."""
    host_config: Mapping[str, Any] = field(default_factory=dict)
    launched: Launched | None = None
    """Where it was made from an image while the scenario ran, and not in the image of another."""
    notes: tuple[str, ...] = ()
    """Lines that it says at every start, of the kernels it chose; else those of its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessScript:
    """A process, alive with its container's lives or from `start_s` to `end_s`."""

    pid: int
    comm: str
    argv: tuple[str, ...]
    parent_pid: int = 1
    user_id: int = 0
    state: str = "S"
    container: str | None = None
    start_s: float = 0.0
    end_s: float | None = None
    delay_s: float = 0.0
    """Seconds after its container's start."""
    cgroup: str = ""
    wait_channel: str | None = None
    resident_gib: Track = Track.constant(0.1)  # noqa: RUF009 (a frozen value)
    shared_gib: Track = Track.constant(0.0)  # noqa: RUF009
    swapped_gib: Track = Track.constant(0.0)  # noqa: RUF009
    gpu_gib: Track | None = None
    gpu_kind: str = "C"
    gpu_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineScript:
    """An inference server's own endpoint."""

    name: str
    """Its container's name."""
    kind: str
    model: str
    version: str
    port: int
    max_model_len: int
    serves: tuple[tuple[float, float], ...]
    """From when to when its port answers."""
    tracks: Mapping[str, Track]
    prompt_tokens: float = 0.0
    """What its counters stand at when the scenario begins."""
    generation_tokens: float = 0.0
    requests: float = 0.0
    request_tokens: float = 380.0
    """Generated tokens of an average request."""
    metrics: bool = True

    def serves_at(self, t: float) -> bool:
        """Whether its port answers."""
        return any(start <= t < end for start, end in self.serves)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskModel:
    """A model of the catalogue on a node's disk."""

    name: str
    folder: str = ""
    """Where it lies as a plain folder ("/home/spark/models"); empty: in the hub's cache."""
    held_bytes: int | None = None
    """What is there of it; None: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEntry:
    """A kernel log line, or `count` of them within `over_s`."""

    at_s: float
    text: str
    priority: int = 6
    count: int = 1
    over_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeScript:
    """Everything one simulated Spark does."""

    name: str
    seed: int
    boot_age_s: float
    machine: Machine
    tracks: Mapping[str, Track]
    processes: tuple[ProcessScript, ...] = ()
    containers: tuple[ContainerScript, ...] = ()
    engines: tuple[EngineScript, ...] = ()
    kernel: tuple[KernelEntry, ...] = ()
    faults: tuple[Fault, ...] = ()
    interfaces: tuple[InterfaceScript, ...] = ()
    rdma: tuple[RdmaScript, ...] = ()
    units: tuple[UnitScript, ...] = ()
    models: tuple[DiskModel, ...] = ()
    images: tuple[str, ...] = ()
    """Of the catalogue, beside those that its containers are of."""
    reactions: tuple[Reaction, ...] = ()
    """Of parts of the machine; a container has its own."""
    boots: int = 0
    """How often it was booted since the showing began."""
    began_s: float = 0.0
    """The second of the showing that is its second 0."""
    next_boot: NodeScript | None = None
    """What it is from that one's `began_s` on."""

    def at(self, showing_s: float) -> NodeScript:
        """What it is at a second of the showing: this, or what it has become by booting anew."""
        script = self
        while script.next_boot is not None and showing_s >= script.next_boot.began_s:
            script = script.next_boot
        return script

    def reaction(self, name: str) -> Reaction:
        """How a part of the machine takes what is done to it."""
        return next((one for one in self.reactions if one.name == name), Reaction(name=name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What the simulated Sparks do."""

    name: str
    title: str
    description: str
    length_s: float
    repeat: Repeat
    nodes: tuple[NodeScript, ...]
    remedies_s: tuple[float, ...] = ()
    """When the scenario mends itself; once somebody else does something, it no longer will."""
