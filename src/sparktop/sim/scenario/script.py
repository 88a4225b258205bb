"""The script of two simulated Sparks as frozen data on a clock; scenario.py reads it from files.

Times are seconds of the scenario; times before its start are negative.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import Any, Literal, TypeVar

from sparktop.dataclass import dataclass
from sparktop.sim.scenario.tracks import Track

NODE_TRACKS: Mapping[str, float] = {
    "available_gib": 110.0, "cache_gib": 9.0, "shared_gib": 0.9, "leaked_gib": 0.0, "swap_gib": 0.0,
    "psi": 0.0, "psi_io": 0.0, "psi_cpu": 0.3, "cpu_percent": 2.0, "load": 0.6,
    "util": 0.0, "power_w": 4.4, "sm_mhz": 2405.0, "temp_c": 38.0, "throttle": 0.0, "rdma_mb_s": 0.0,
    "desktop_answers": 1.0,
}  # fmt: skip
"""Name and default of each node track. `psi*` are "some avg10" percent; `leaked_gib` is memory that no process
holds; `throttle` is NVML's mask; `rdma_mb_s` is per direction, over all active RDMA ports; `desktop_answers` is 1 or
0: whether the compositor answers."""
ENGINE_TRACKS: Mapping[str, float] = {
    "running": 0.0, "waiting": 0.0, "prompt_tps": 0.0, "gen_tps": 0.0, "kv": 0.0,
    "prefix_hit": 0.4, "ttft_s": 0.4, "itl_s": 0.03, "preemptions_per_s": 0.0,
}  # fmt: skip
"""`kv` and `prefix_hit` are shares 0..1; `*_tps` tokens a second; `ttft_s` and `itl_s` medians."""


class Repeat(StrEnum):
    """What follows the scenario's last second."""

    LOOP = "loop"
    """The figures start over and time goes on: only where end and start match."""
    RESTART = "restart"
    """A new showing: connections close, the machines have rebooted."""
    HOLD = "hold"
    """The last state stays."""


class FaultKind(StrEnum):
    """What a fault does to the connection, at the level of sockets."""

    NO_ROUTE = "no-route"
    """Nothing answers: new connections time out, open ones go silent."""
    STARVED = "starved"
    """TCP answers, no SSH banner comes, open channels stall."""
    SLOW = "slow"
    """Everything arrives `delay_s` late."""
    RESET = "reset"
    """Open connections are reset, and new ones as well while it lasts."""
    REFUSED = "refused"
    """As if sshd had stopped: open connections close, new ones are refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of the connection from one second to another."""

    start_s: float
    end_s: float
    kind: FaultKind
    delay_s: float = 0.0
    once: bool = False
    """Happens once even where the scenario loops: it results from an act."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A node's facts (docs/facts/gb10.md sections 2 and 4)."""

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
    """The driver on disk; empty: the loaded one."""
    next_kernel: str = ""
    next_driver: bool = True
    """Whether that kernel has an NVIDIA module."""
    lingers: bool = True
    needs_password: bool = False
    """sshd has no key of the operator's yet: the demo types the password by itself."""
    has_mesh: bool = True
    """Its user logs in to the other nodes, and theirs here."""
    removes_ipc: bool = True
    graphical: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceScript:
    """A network interface; `mtu` and `up` (1 or 0) may change."""

    name: str
    addresses: tuple[str, ...] = ()
    mtu: Track = Track.constant(1500)
    up: Track = Track.constant(1)
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
    """A systemd service as the probe reports it; `restarts` may rise."""

    name: str
    active: str = "active"
    sub: str = "running"
    result: str = "success"
    restarts: Track = Track.constant(0)
    restart: str = "no"
    delay_s: float = 0.1
    main_pid: int | None = None
    exit_status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a container, from its start to its exit, if it exits within the scenario."""

    start_s: float
    end_s: float | None = None
    exit_code: int = 0
    oom_killed: bool = False
    asked: bool = False
    """Started by somebody, not by its restart policy."""
    ready_s: float | None = None
    """When it answers, or would; None: when its engine serves, or after its reaction's `load_s`."""
    joined_s: float | None = None
    """Since when all ranks are there, where it waited for the others."""
    log_share: float | None = None
    """The share of its start that it logs; None: all, or up to its reaction's fault."""
    says: str = ""
    """Its last lines, before it fails; else its reaction's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    r"""A line of an engine's log, a recurring line, or a progress bar drawn with `\\r`."""

    at_s: float
    text: str
    """A format string; its fields are those of `spark.engine_log`."""
    every_s: float | None = None
    until_s: float | None = None
    total: int | None = None
    """A bar's steps, from 0 at `at_s` to all at `until_s`."""
    busy: bool = False
    """Only while the engine works: vLLM's statistics line is silent when idle."""
    newline: bool = False
    """Each state of the bar ends in a newline as well (as vLLM's weight bar does)."""
    stream: Literal["stdout", "stderr"] = "stderr"
    once: bool = False
    """Happens once even where the scenario loops: it results from an act."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The conditions under which a fault is gone; none: a restart is enough."""

    eager: bool = False
    """A command line without CUDA graphs."""
    without: tuple[str, ...] = ()
    """Flags, or environment names, that must not be set."""
    environment: tuple[str, ...] = ()
    """Environment names that must be set."""
    ended_pid: int | None = None
    """A process whose end is enough, whatever else is asked."""
    reboot: bool = False
    by_hand: bool = False
    """Nothing that can be done remotely helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """How a container, or a part of the machine, responds to acts."""

    name: str
    """A container's name, or "gpu", or "desktop"."""
    group: str = ""
    """The engine it is a rank of, which needs all its ranks. Empty: an engine of its own."""
    stop_s: float = 3.0
    """Seconds from SIGTERM to its exit; inf: it ignores SIGTERM."""
    load_s: float = 80.0
    leaks_gib: float = 0.0
    """GPU memory that stays lost after its exit, until a reboot."""
    gpu_gib: float | None = None
    """GPU memory after a restart; None: what its processes held at second 0."""
    tokens_per_s: float | None = None
    """Generation rate after a restart; None: its highest rate in the scenario."""
    needs: Needs = Needs()
    fault: Literal["", "capture", "spin", "exit", "spike"] = ""
    """The fault that returns while the needs aren't met."""
    says: str = ""
    """For "exit": the last lines of its log."""
    says_after: float = 0.0
    """For "exit": the share of its start after which it logs that; 0: soon."""
    ranks: int = 1
    """How many ranks its group needs."""
    spike_gib: float | None = None
    """For "spike": memory it takes; None: all there is."""
    load_share: float | None = None
    """Share of its memory that the weights take; None: the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """The engine that the command line starts, in a container created during the scenario."""

    kind: Literal["vllm", "sglang"]
    version: str
    model: str
    """The name in the catalogue."""
    share: float
    """Share of all memory (vLLM), or of the memory available before it loads (SGLang)."""
    context: int
    eager: bool
    rank: int = 0
    ranks: int = 1
    is_ray: bool = False
    problem: str = ""
    """Why it exits at once, whatever memory there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerScript:
    """A container and its runs; without runs it has only been created."""

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
    """Derived from the image's name where empty: the same on both nodes."""
    network: str = "host"
    privileged: bool = False
    devices: tuple[str, ...] = ()
    ulimits: tuple[str, ...] = ()
    """NAME=soft:hard."""
    labels: tuple[str, ...] = ()
    memory_limit_gib: float = 0.0
    reaction: Reaction = Reaction(name="")
    key: str = ""
    """What its id is derived from, if not its name: it was renamed, or took over a name."""
    created_s: float | None = None
    """Where it was created during the scenario."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Overrides the inspection's Config: as given in the create request."""
    host_config: Mapping[str, Any] = field(default_factory=dict)
    launched: Launched | None = None
    """Where it was created from an image during the scenario, not as a copy of another container."""
    notes: tuple[str, ...] = ()
    """Lines about its kernels that it logs at every start; else those in its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessScript:
    """A process that runs with its container, or from `start_s` to `end_s`."""

    pid: int
    comm: str
    argv: tuple[str, ...] = ()
    name: str = ""
    """In its file."""
    parent_pid: int = 1
    user_id: int = 0
    state: Literal["R", "S", "D", "Z", "T", "I"] = "S"
    container: str | None = None
    start_s: float = 0.0
    end_s: float | None = None
    delay_s: float = 0.0
    """Seconds after its container's start."""
    cgroup: str = ""
    wait_channel: str | None = None
    resident_gib: Track = Track.constant(0.1)
    shared_gib: Track = Track.constant(0.0)
    swapped_gib: Track = Track.constant(0.0)
    gpu_gib: Track | None = None
    gpu_kind: Literal["C", "G"] = "C"
    gpu_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineScript:
    """An inference server's own endpoint."""

    name: str
    """Its container's name."""
    kind: Literal["vllm", "sglang"]
    model: str
    version: str
    port: int
    max_model_len: int = 32768
    serves: tuple[tuple[float, float], ...]
    """(from, to) seconds during which its port answers."""
    tracks: Mapping[str, Track]
    prompt_tokens: float = 0.0
    """Its counter at the scenario's start."""
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
    """Its plain folder's parent ("/home/spark/models"); empty: in the hub's cache."""
    held_bytes: int | None = None
    """Bytes on disk; None: complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEntry:
    """A kernel log line, or `count` of them within `over_s`."""

    at_s: float
    text: str
    priority: int = 6
    count: int = 1
    over_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedAnswer:
    """What a program or file says, as captured from a real machine."""

    name: str
    """How the command line begins, or the file's path."""
    output: str = ""
    errors: str = ""
    code: int = 0
    is_missing: bool = False
    """There is no such program, or no such file."""
    until_reboot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeScript:
    """Everything one simulated Spark does."""

    name: str
    seed: int = 1
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
    """Images of the catalogue, besides those of its containers."""
    answers: tuple[CapturedAnswer, ...] = ()
    """Of programs and files, before those of a healthy Spark."""
    reactions: tuple[Reaction, ...] = ()
    """Of parts of the machine; a container has its own."""
    boots: int = 0
    """How often it was rebooted since the showing began."""
    began_s: float = 0.0
    """The second of the showing at which this boot began."""
    next_boot: NodeScript | None = None
    """The script after a reboot, from that one's `began_s` on."""

    def at(self, showing_s: float) -> NodeScript:
        """The script at a second of the showing: this, or that of a later boot."""
        script = self
        while script.next_boot is not None and showing_s >= script.next_boot.began_s:
            script = script.next_boot
        return script

    def container(self, name: str) -> ContainerScript | None:
        """A container by its name."""
        return next((container for container in self.containers if container.name == name), None)

    def engine(self, name: str) -> EngineScript | None:
        """The endpoint in a container, by the container's name."""
        return next((engine for engine in self.engines if engine.name == name), None)

    def with_container(self, name: str, /, **changes: Any) -> NodeScript:
        """The node with fields of one container replaced."""
        return replace(self, containers=_changed(self.containers, name, changes))

    def with_engine(self, name: str, /, **changes: Any) -> NodeScript:
        """The node with fields of one engine replaced."""
        return replace(self, engines=_changed(self.engines, name, changes))

    def reaction(self, name: str) -> Reaction:
        """How a part of the machine responds to acts."""
        return next((reaction for reaction in self.reactions if reaction.name == name), Reaction(name=name))


_Part = TypeVar("_Part", ContainerScript, EngineScript)


def _changed(parts: tuple[_Part, ...], name: str, changes: Mapping[str, Any]) -> tuple[_Part, ...]:
    return tuple(replace(part, **changes) if part.name == name else part for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario: the scripts of its simulated Sparks."""

    name: str
    title: str
    description: str
    length_s: float
    repeat: Repeat = Repeat.LOOP
    nodes: tuple[NodeScript, ...]
    remedies_s: tuple[float, ...] = ()
    """When the scenario repairs itself; after an act it no longer does."""
