"""The state of a simulated Spark at a given second: memory, processes, containers and engine counters."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from functools import cached_property

from sparktop.dataclass import dataclass
from sparktop.sim.scenario.script import (
    ContainerScript,
    EngineScript,
    KernelEntry,
    NodeScript,
    ProcessScript,
    Run,
    Scenario,
)
from sparktop.sim.scenario.tracks import Track, noise


class EngineCounters:
    """Counters of one engine since its last start; `t` is in seconds of the showing."""

    def __init__(self, engine: EngineScript) -> None:
        self._engine = engine
        tracks, tokens = engine.tracks, engine.request_tokens
        self._generated, self._medians = tracks["gen_tps"], {"ttft": tracks["ttft_s"], "itl": tracks["itl_s"]}
        self._rates = {
            "prompt": tracks["prompt_tps"],
            "generation": tracks["gen_tps"],
            "requests": tracks["gen_tps"].weighted(tracks["itl_s"], lambda _: 1 / tokens),
            "cached": tracks["prompt_tps"].weighted(tracks["prefix_hit"], lambda share: share),
            "preemptions": tracks["preemptions_per_s"],
            "ttft_sum": tracks["gen_tps"].weighted(tracks["ttft_s"], lambda median: 1.2 * median / tokens),
            "itl_sum": tracks["gen_tps"].weighted(tracks["itl_s"], lambda median: 1.05 * median),
        }
        self._buckets: dict[tuple[str, float], Track] = {}
        self._before = {
            "prompt": engine.prompt_tokens,
            "generation": engine.generation_tokens,
            "requests": engine.requests,
            "cached": engine.prompt_tokens * tracks["prefix_hit"].at(0),
        }

    def at(self, t: float) -> dict[str, float]:
        """Totals by the names of the rates."""
        return {name: self._total(rate, t, self._before.get(name, 0.0)) for name, rate in self._rates.items()}

    def below(self, histogram: str, bound: float, t: float) -> float:
        """How many of "ttft" or "itl" were below a bound."""
        median, each = self._medians[histogram], self._engine.request_tokens if histogram == "ttft" else 1.0
        share = _below(bound, 3.0 if histogram == "ttft" else 8.0)
        if (rate := self._buckets.get((histogram, bound))) is None:
            rate = self._generated.weighted(median, lambda seconds: share(seconds) / each)
            self._buckets[histogram, bound] = rate
        before = self._engine.requests if histogram == "ttft" else self._engine.generation_tokens
        return self._total(rate, t, before * share(median.at(0)))

    def _total(self, rate: Track, t: float, before: float) -> float:
        """Since its last start; what it counted before the scenario began too, if that was earlier."""
        since = max((start for start, _ in self._engine.serves if start <= t), default=0.0)
        wavers = 0.06 * (noise(self._engine.port, self._engine.name, t) - 1)  # so rates waver, and no counter falls
        first, last = max(0.0, since), max(0.0, since, t + wavers)
        return rate.integral(last) - rate.integral(first) + (before if since <= 0 else 0.0)


def _below(bound: float, steepness: float) -> Callable[[float], float]:
    """The share of a log-logistic distribution below a bound, by its median."""
    return lambda median: 1.0 / (1.0 + float((median / bound) ** steepness))


GIB = 1024**3
_KIB_IN_GIB = 1024**2
_PIDS_A_RUN = 4111
FIRMWARE_GIB = 1.0
"""Memory that no process holds, on a healthy machine too."""
_KERNEL_GIB = {
    "buffers": 0.06, "slab_reclaimable": 0.55, "slab_unreclaimable": 0.85, "page_tables": 0.16, "kernel_stack": 0.03,
}  # fmt: skip
KERNEL_GIB = sum(_KERNEL_GIB.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveProcess:
    """A process at one second."""

    script: ProcessScript
    pid: int
    started_s: float
    resident_gib: float
    shared_gib: float
    swapped_gib: float
    gpu_gib: float | None
    cgroup: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveContainer:
    """A container at one second; `run` is its current or last run."""

    script: ContainerScript
    container_id: str
    image_id: str
    run: Run
    running: bool
    pid: int
    restarts: int
    started: bool = True
    """False: only created; `run` then has the time of creation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryState:
    """How memory is used, in GiB; the parts sum to MemTotal."""

    total: float
    available: float
    free: float
    cached: float
    shared: float
    buffers: float
    slab_reclaimable: float
    slab_unreclaimable: float
    page_tables: float
    kernel_stack: float
    gpu: float
    anonymous: float
    swap_used: float
    swap_total: float = 16.0


class Spark:
    """A node of one showing of a scenario; `t` is seconds since the showing began, and may be negative."""

    def __init__(self, scenario: Scenario, script: NodeScript, *, showing: int, began_wall_s: float) -> None:
        self.scenario = scenario
        self.script = script
        self.showing = showing
        self._began_wall_s = began_wall_s
        self._identity = f"{scenario.name}/{script.name}"
        boot = f"{self._identity}/{showing}" + (f"/{script.boots}" if script.boots else "")
        self.boot_id = str(uuid.UUID(bytes=hashlib.sha256(boot.encode()).digest()[:16]))
        self.machine_digest = hashlib.sha256(f"machine/{self._identity}".encode()).hexdigest()[:8]
        self.gpu_uuid = "GPU-" + str(uuid.UUID(bytes=hashlib.sha256(f"gpu/{self._identity}".encode()).digest()[:16]))

    def boot_s(self, t: float) -> float:
        """CLOCK_BOOTTIME at `t`."""
        return self.script.boot_age_s + t

    def wall_s(self, t: float) -> float:
        """The node's wall clock at `t`."""
        return self._began_wall_s + t

    def figure(self, name: str, t: float) -> float:
        """A track's value at `t`, without noise."""
        return self.script.tracks[name].at(t)

    def jitter(self, name: str, t: float) -> float:
        """A smooth, repeatable value in -1..1."""
        return noise(self.script.seed, name, t)

    # Processes and containers

    def containers(self, t: float) -> list[LiveContainer]:
        """The containers that the Docker Engine lists with all=1."""
        return [live for script in self.script.containers if (live := self._container(script, t))]

    def _container(self, script: ContainerScript, t: float) -> LiveContainer | None:
        started_runs = [run for run in script.runs if run.start_s <= t]
        if not started_runs and (script.created_s is None or script.created_s > t):
            return None
        run = started_runs[-1] if started_runs else Run(start_s=script.created_s or 0.0, end_s=script.created_s)
        running = run.end_s is None or t < run.end_s
        if not running and script.auto_remove and started_runs:
            return None
        first = next((p.pid for p in self.script.processes if p.container == script.name), 4000)
        return LiveContainer(
            script=script, container_id=self.container_id(script.name), run=run, running=running,
            image_id=script.image_id or "sha256:" + hashlib.sha256(script.image.encode()).hexdigest(),
            pid=first + _PIDS_A_RUN * max(0, len(started_runs) - 1), started=bool(started_runs),
            restarts=_restarts(script, started_runs),
        )  # fmt: skip

    def container_id(self, name: str) -> str:
        """The container's id: 64 hex digits."""
        key = next((container.key for container in self.script.containers if container.name == name), "") or name
        return hashlib.sha256(f"container/{self._identity}/{key}".encode()).hexdigest()

    def process(self, pid: int, t: float) -> LiveProcess | None:
        """The process with this pid, if it is there."""
        return next((live for live in self.processes(t) if live.pid == pid), None)

    def processes(self, t: float) -> list[LiveProcess]:
        """The processes that a scan at `t` would report."""
        return [live for script in self.script.processes if (live := self._process(script, t))]

    def _process(self, script: ProcessScript, t: float) -> LiveProcess | None:
        pid, started, cgroup = script.pid, script.start_s, self._with_ids(script.cgroup)
        if script.container:
            container = next(c for c in self.script.containers if c.name == script.container)
            started_runs = [run for run in container.runs if run.start_s + script.delay_s <= t]
            if not started_runs or ((end := started_runs[-1].end_s) is not None and t >= end):
                return None
            pid += _PIDS_A_RUN * (len(started_runs) - 1)
            started = started_runs[-1].start_s + script.delay_s
            cgroup = f"/system.slice/docker-{self.container_id(container.name)}.scope"
        elif not started <= t or (script.end_s is not None and t >= script.end_s):
            return None
        return LiveProcess(
            script=script, pid=pid, started_s=started, resident_gib=script.resident_gib.at(t),
            shared_gib=script.shared_gib.at(t), swapped_gib=script.swapped_gib.at(t), cgroup=cgroup,
            gpu_gib=script.gpu_gib.at(t) if script.gpu_gib else None,
        )  # fmt: skip

    # Memory

    def memory(self, t: float) -> MemoryState:
        """How all of MemTotal is used at `t`."""
        total = self.script.machine.total_kib / _KIB_IN_GIB
        available = max(0.05, self.figure("available_gib", t) + 0.02 * self.jitter("available", t))
        cached, shared = self.figure("cache_gib", t), self.figure("shared_gib", t)
        free = min(available, max(0.25, available - 0.95 * max(0.0, cached - shared)))
        gpu = sum(process.gpu_gib or 0.0 for process in self.processes(t))
        leaked = self.figure("leaked_gib", t)
        return MemoryState(
            total=total, available=available, free=free, cached=cached, shared=shared, **_KERNEL_GIB, gpu=gpu,
            anonymous=max(0.8, total - free - cached - KERNEL_GIB - gpu - leaked - FIRMWARE_GIB),
            swap_used=self.figure("swap_gib", t),
        )  # fmt: skip

    def oom_kills(self, t: float) -> int:
        """Number of OOM kills in the kernel log up to `t`."""
        return sum(1 for entry in self.script.kernel if entry.at_s <= t and "Killed process" in entry.text)

    def kernel_text(self, entry: KernelEntry) -> str:
        """A kernel line; `<id of NAME>` in it is that container's id, `{driver}` the loaded driver."""
        return self._with_ids(entry.text).replace("{driver}", self.script.machine.driver)

    def _with_ids(self, text: str) -> str:
        if "<id of " in text:
            for container in self.script.containers:
                text = text.replace(f"<id of {container.name}>", self.container_id(container.name))
        return text

    # Engines

    @cached_property
    def counters(self) -> dict[str, EngineCounters]:
        """Each engine's counters, by its container's name."""
        return {engine.name: EngineCounters(engine) for engine in self.script.engines}

    def engine_at(self, port: int, t: float) -> EngineScript | None:
        """The engine that serves on a port at `t`; None where none does."""
        return next((e for e in self.script.engines if e.port == port and e.serves_at(t)), None)


def _restarts(script: ContainerScript, started_runs: list[Run]) -> int:
    """Restarts by the restart policy since somebody last started the container."""
    manual_starts = [i for i, run in enumerate(started_runs) if run.asked]
    if manual_starts:
        return len(started_runs) - 1 - manual_starts[-1]
    return script.restart_count + (max(0, len(started_runs) - 1) if script.restart_policy != "no" else 0)
