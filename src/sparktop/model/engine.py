"""Inference servers (vLLM, SGLang) as they are found on a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sparktop.model.finding import Finding
from sparktop.model.telemetry import GapReason, no_gaps


class EngineKind(StrEnum):
    VLLM = "vllm"
    SGLANG = "sglang"


class EngineState(StrEnum):
    """Where an engine is in its life; `stalled` is a finding's word and joins with diagnosis."""

    UNKNOWN = "unknown"
    STARTING = "starting"
    LOADING = "loading"
    CAPTURING = "capturing"
    READY = "ready"
    SERVING = "serving"
    EXITED = "exited"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A counted phase: weights 12/37, capture 20/36."""

    phase: str
    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container as the Docker Engine describes it; names and commands are sanitised."""

    container_id: str
    name: str
    image: str
    image_id: str = ""
    status: str = ""
    """created, running, paused, restarting, removing, exited, dead."""
    exit_code: int | None = None
    oom_killed: bool = False
    started_wall_s: float | None = None
    finished_wall_s: float | None = None
    restart_count: int = 0
    restart_policy: str = ""
    auto_remove: bool = False
    network_mode: str = ""
    pid: int | None = None
    """The init process on the host; the engine is often another one (docker exec)."""
    published_ports: Mapping[int, int] | None = None
    """Container port to host port on loopback or all addresses."""
    addresses: tuple[str, ...] = ()
    """Its own addresses on Docker's networks, which the node reaches."""
    argv: tuple[str, ...] = ()
    """Entrypoint and command, secrets masked."""
    environment: tuple[str, ...] = ()
    """NAME=value, secrets masked."""
    labels: Mapping[str, str] | None = None
    ipc_mode: str = ""
    shm_bytes: int | None = None
    memory_limit_bytes: int | None = None
    is_privileged: bool = False
    has_gpus: bool | None = None
    """Device requests, devices or the nvidia runtime; NVIDIA_VISIBLE_DEVICES alone only where no runtime is named."""
    devices: tuple[str, ...] = ()
    """Host paths passed in: /dev/infiniband ..."""
    ulimits: tuple[str, ...] = ()
    """NAME=soft:hard."""
    mounts: tuple[str, ...] = ()
    """source:destination of binds and volumes."""
    is_gone: bool = False
    """It was removed: Docker knows it no more, and this is how it was last seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMetrics:
    """An engine's own figures from one scrape of its endpoint, names by version as facts/engines.md section 3."""

    wall_s: float
    """Operator's clock at the scrape."""
    running: float | None = None
    waiting: float | None = None
    prompt_tokens: float | None = None
    """Counters, as all `*_tokens`, `prefix_*`, `preemptions`."""
    generation_tokens: float | None = None
    iterations: float | None = None
    kv_cache_ratio: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    preemptions: float | None = None
    ttft_sum_s: float | None = None
    ttft_count: float | None = None
    ttft_buckets: tuple[tuple[float, float], ...] = ()
    """(upper bound in seconds, cumulative count)."""
    itl_sum_s: float | None = None
    itl_count: float | None = None
    itl_buckets: tuple[tuple[float, float], ...] = ()
    model: str | None = None
    gaps: Mapping[str, GapReason] = field(default_factory=no_gaps)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRates:
    """What two scrapes say together; latencies are of the window where it had requests, else of the engine's life."""

    prompt_tokens_per_s: float | None = None
    generation_tokens_per_s: float | None = None
    prefix_hit_ratio: float | None = None
    ttft_p50_s: float | None = None
    itl_p50_s: float | None = None
    lifetime_latency: bool = False
    """True when the latencies are of the engine's whole life, not of the last window."""
    progress_age_s: float | None = None
    """Seconds since a token counter last moved, or work came after a rest; operator's clock."""


class EndpointState(StrEnum):
    """What an engine's HTTP endpoint did when asked."""

    NOT_ASKED = "not asked"
    OK = "ok"
    REFUSED = "refused"
    TIMED_OUT = "timed out"
    NOT_METRICS = "not metrics"
    NO_METRICS = "metrics off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where an engine's own figures come from, and how that went."""

    host: str
    port: int
    state: EndpointState = EndpointState.NOT_ASKED
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What an engine's log has said so far of its present run."""

    phase: str = ""
    """weights, compile, kv cache, autotune, capture, warm-up ... as diagnose.enginelog has it."""
    progress: Progress | None = None
    moved_wall_s: float | None = None
    """When state, phase or count last changed, node time: a capture that stands still shows here."""
    last_line_wall_s: float | None = None
    """When its newest line was written (or came, where it carries no time), node time."""
    failure: str = ""
    """The first line that said that the engine died, or couldn't start."""
    is_stopping: bool = False
    findings: tuple[Finding, ...] = ()
    """What the log rules found in it; their nodes and subject are filled in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One inference server on one node."""

    key: str
    """Stable while it lives: container id (12 digits) or "pid:N"."""
    kind: EngineKind
    name: str
    """Container name, else kind and port."""
    state: EngineState = EngineState.UNKNOWN
    progress: Progress | None = None
    model: str | None = None
    version: str | None = None
    pids: tuple[int, ...] = ()
    argv: tuple[str, ...] = ()
    container: Container | None = None
    endpoint: Endpoint | None = None
    metrics: EngineMetrics | None = None
    rates: EngineRates | None = None
    started_boot_s: float | None = None
    uptime_s: float | None = None
    gpu_bytes: int | None = None
    """Sum of its processes' GPU memory as NVML has it."""
    exit_detail: str = ""
    exited_wall_s: float | None = None
    """When it ended, node time; None while it lives."""
    log: LogFacts | None = None
    """None where its log can't be read, or has not been yet."""
    environment: tuple[str, ...] = ()
    """NAME=value of the engine's process or container, secrets masked; empty where it can't be read."""
    gaps: Mapping[str, GapReason] = field(default_factory=no_gaps)

    @property
    def restarts(self) -> int | None:
        return self.container.restart_count if self.container else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Containers:
    """The Docker Engine's answer for one node, or why there is none."""

    containers: tuple[Container, ...] = ()
    available: bool = False
    detail: str = "not asked yet"
    """Why there is none, and what would permit it."""
