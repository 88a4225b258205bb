"""Inference servers (vLLM, SGLang) and containers discovered on a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from sparktop.dataclass import dataclass
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.kinds.engine_kind import VERSIONED as VERSIONED
from sparktop.model.kinds.engine_kind import EngineKind as EngineKind
from sparktop.model.proof import Canary
from sparktop.model.telemetry import GapReason, no_gaps

STOPPED_EXITS = (130, 143)
"""Exit codes after SIGINT and SIGTERM."""
ORDINARY_EXITS = (0, *STOPPED_EXITS)
"""Exit codes of a clean end and of an ordinary stop."""
RESTARTING_POLICIES = ("always", "unless-stopped", "on-failure")
"""Docker's restart policies by which a container starts again."""
EQUAL_MEMORY_GIB = 5.0
"""The largest difference of two nodes' available memory with which one share fits both ranks (docs/facts/engines.md
MEM-09); a recipe may ask for another."""


class EngineState(StrEnum):
    """The phase of an engine's life; "stalled" is no state but a finding."""

    UNKNOWN = "unknown"
    STARTING = "starting"
    LOADING = "loading"
    CAPTURING = "capturing"
    READY = "ready"
    SERVING = "serving"
    EXITED = "exited"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A phase with a count: weights 12/37, capture 20/36."""

    phase: str
    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container as the Docker Engine reports it; names and commands are sanitised."""

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
    """The init process on the host; the engine is often another process (docker exec)."""
    published_ports: Mapping[int, int] | None = None
    """Container port to host port on loopback or all addresses."""
    addresses: tuple[str, ...] = ()
    """Its addresses on Docker's networks, reachable from the node."""
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
    """By device requests, devices or the nvidia runtime; by NVIDIA_VISIBLE_DEVICES alone only where no runtime is
    named."""
    devices: tuple[str, ...] = ()
    """Host paths passed in: /dev/infiniband ..."""
    ulimits: tuple[str, ...] = ()
    """NAME=soft:hard."""
    mounts: tuple[str, ...] = ()
    """source:destination of binds and volumes."""
    is_gone: bool = False
    """The container was removed; this is its last known state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMetrics:
    """An engine's figures from one scrape of its endpoint; names by version in docs/facts/engines.md section 3."""

    wall_s: float
    """The operator's wall clock at the scrape."""
    running: float | None = None
    waiting: float | None = None
    prompt_tokens: float | None = None
    """Those computed, not cached, where the engine tells them apart. Counters, as all `*_tokens`, `prefix_*`,
    `preemptions`."""
    generation_tokens: float | None = None
    iterations: float | None = None
    kv_cache_ratio: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    preemptions: float | None = None
    unfinished_tokens: float | None = None
    """Generated for requests that still run, where `generation_tokens` counts at their end; no counter."""
    slots: float | None = None
    """Requests that can run at once, where the engine has a fixed number."""
    context_tokens: float | None = None
    """The longest context that one request can have."""
    model_bytes: float | None = None
    """What the models that it has loaded take, as it says itself."""
    answers: float | None = None
    """Finished requests, and of them (`cut`) those that ended at their token limit, or that the engine ended because
    they repeated themselves (`repeated`). Counters."""
    cut: float | None = None
    repeated: float | None = None
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
    """Rates between two scrapes; latencies are of that window where it had requests, else of the engine's life."""

    prompt_tokens_per_s: float | None = None
    generation_tokens_per_s: float | None = None
    prefix_hit_ratio: float | None = None
    ttft_p50_s: float | None = None
    itl_p50_s: float | None = None
    of_life: frozenset[str] = frozenset()
    """Which of these two latencies are of the engine's whole life, not of the last window."""
    preemptions_per_min: float | None = None
    answers: float | None = None
    """How many of the last answers, ANSWERS or more, the next two are of."""
    cut: float | None = None
    repeated: float | None = None
    progress_age_s: float | None = None
    """Seconds since a token counter last advanced, or a request came after an idle time; operator's clock."""


class EndpointState(StrEnum):
    """The result of asking an engine's HTTP endpoint."""

    NOT_ASKED = "not asked"
    OK = "ok"
    REFUSED = "refused"
    TIMED_OUT = "timed out"
    NOT_METRICS = "not metrics"
    NO_METRICS = "metrics off"
    LOADING = "loading"
    """It answers that it can't serve yet (503)."""
    NO_FIGURES = "without figures"
    """It answers, and may have some later: SGLang's first come with its first request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An engine's HTTP endpoint, and the result of the last request."""

    host: str
    port: int
    state: EndpointState = EndpointState.NOT_ASKED
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What an engine's log says that its load took of its node's memory; None: it doesn't say."""

    weights_bytes: int | None = None
    """With those of its drafts."""
    cache_bytes: int | None = None
    contexts: float | None = None
    """How many requests of `context_tokens` each the cache holds."""
    context_tokens: int | None = None

    @property
    def context_bytes(self) -> int | None:
        """Cache of one request of `context_tokens`."""
        return int(self.cache_bytes / self.contexts) if self.cache_bytes and self.contexts else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What an engine's log says about its current run."""

    phase: str = ""
    """weights, compile, kv cache, autotune, capture, warm-up ... as in diagnose.logs.engine_state."""
    progress: Progress | None = None
    moved_wall_s: float | None = None
    """When state, phase or count last changed, node time: reveals a capture that is stuck."""
    last_line_wall_s: float | None = None
    """When its newest line was written (or arrived, without a timestamp), node time."""
    failure: str = ""
    """The first line that says that the engine died or couldn't start."""
    is_stopping: bool = False
    has_served: bool = False
    """It was ready or serving in this run."""
    ready_wall_s: float | None = None
    """When it was first ready in this run, node time; None where its log isn't read back to its load."""
    loaded: Loaded = Loaded()
    has_come_further: bool = False
    """Restarted after a failure, its load has come to what no failed run before it came to."""
    findings: tuple[Finding, ...] = ()
    """Findings of the log rules, with nodes and subject filled in."""

    @property
    def critical_finding(self) -> Finding | None:
        """The first critical one."""
        return next((finding for finding in self.findings if finding.severity is Severity.CRITICAL), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """An engine as it last served."""

    wall_s: float
    """Node time."""
    requests: int | None = None
    """Running and waiting, by its last figures; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCommand:
    """An engine's command line, as far as an observer needs it."""

    kind: EngineKind
    model: str | None = None
    """ORG/NAME where that can be told, else its path, else the name it is served under."""
    port: int
    host: str | None = None
    is_worker: bool = False
    """A worker node's part of a server, which serves no HTTP."""
    metrics_off: str = ""
    """What to change so that it exports metrics; empty where it should."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """Each flag's value by its canonical name; "" for a switch, `no-NAME` for one that is off."""
    is_known: bool = True
    """A server that is known stands in it; else all its words were taken for flags."""
    joins_ray: bool = False
    """It only joins another node's Ray: the head starts the engine's worker there."""

    def value(self, *names: str) -> str | None:
        """The value of the first of these flags, by canonical names, that is set, "" for a switch; None: none is."""
        return next((self.flags[name] for each in names if (name := each.lstrip("-")) in self.flags), None)

    def has(self, *names: str) -> bool:
        """Whether a flag is set."""
        return self.value(*names) is not None

    def count(self, name: str) -> int:
        """A flag's value as a number of nodes or ranks: 1 where it isn't set, or is none."""
        text = self.value(name) or ""
        return int(text) if text.isdecimal() and 0 < int(text[:4]) < 1000 else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One inference server on one node."""

    key: str
    """Stable during its life: container id (12 digits) or "pid:N"."""
    kind: EngineKind
    name: str
    """Container name, else kind and port."""
    state: EngineState = EngineState.UNKNOWN
    progress: Progress | None = None
    model: str | None = None
    version: str | None = None
    pids: tuple[int, ...] = ()
    argv: tuple[str, ...] = ()
    command: EngineCommand
    """What they say, with its container's where a process hides them."""
    is_exec: bool = False
    """`docker exec` put it into its container, whose own command starts no engine."""
    container: Container | None = None
    endpoint: Endpoint | None = None
    metrics: EngineMetrics | None = None
    rates: EngineRates | None = None
    canaries: tuple[Canary, ...] = ()
    """Of this run, the newest last; empty where none is asked."""
    started_boot_s: float | None = None
    uptime_s: float | None = None
    gpu_bytes: int | None = None
    """Sum of its processes' GPU memory, from NVML."""
    exit_detail: str = ""
    exited_wall_s: float | None = None
    """When it exited, node time; None while it runs."""
    served: Served | None = None
    """When this console last saw it serve, in this run or an earlier one; None: never."""
    log: LogFacts | None = None
    """None where its log can't be read, or hasn't been read yet."""
    environment: tuple[str, ...] = ()
    """NAME=value of the engine's process or container, secrets masked; empty where it can't be read."""
    gaps: Mapping[str, GapReason] = field(default_factory=no_gaps)

    @property
    def restarts(self) -> int | None:
        return self.container.restart_count if self.container else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Containers:
    """The Docker Engine's list of containers on one node, or why there is none."""

    containers: tuple[Container, ...] = ()
    available: bool = False
    detail: str = ""
    """Why there is none, and how to fix it."""
    is_asked: bool = True
    is_denied: bool = False
    """This user may not use the Docker Engine."""
    is_absent: bool = False
    """There is no Docker Engine there."""

    @property
    def unknown(self) -> str:
        """Why it isn't known which there are; empty where it is, and where there is no Docker Engine."""
        if self.available or self.is_absent:
            return ""
        return self.detail if self.is_asked else "the Docker Engine has not answered yet"


NOT_ASKED = Containers(is_asked=False, detail="not asked yet")


def figures_of(engine: Engine) -> tuple[float | None, ...]:
    """Tokens and prompt tokens a second, running, waiting, KV cache and prefix hits (0 to 1), TTFT and ITL (seconds).

    Latencies of the engine's whole life are none of this moment.
    """
    rates, metrics = engine.rates or EngineRates(), engine.metrics or EngineMetrics(wall_s=0.0)
    return (
        rates.generation_tokens_per_s,
        rates.prompt_tokens_per_s,
        metrics.running,
        metrics.waiting,
        metrics.kv_cache_ratio,
        rates.prefix_hit_ratio,
        None if "ttft_p50_s" in rates.of_life else rates.ttft_p50_s,
        None if "itl_p50_s" in rates.of_life else rates.itl_p50_s,
    )
