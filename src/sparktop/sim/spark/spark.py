"""The state of a simulated Spark at a given second: memory, processes, containers and engine counters."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import field
from functools import cached_property
from itertools import pairwise
from math import ceil

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
from sparktop.sim.scenario.tracks import noise

TTFT_BUCKETS_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip


ITL_BUCKETS_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
"""Bucket bounds of vLLM's histograms: docs/facts/engines.md section 3.1."""


class EngineCounters:
    """Counters of one engine since its last start; `t` is in seconds of the showing."""

    def __init__(self, engine: EngineScript) -> None:
        self._engine = engine

    def at(self, t: float) -> dict[str, float]:
        """Totals by the names in `_step`, and cumulative buckets as ttft<i> and itl<i>."""
        engine = self._engine
        since = max((start for start, _ in engine.serves if start <= t), default=0.0)
        total, total_at_start = self._total(max(t, 0.0)), self._total(max(since, 0.0))
        totals = {key: total[key] - total_at_start[key] for key in total}
        if since <= 0:
            self._add_history(totals)
        return totals

    def _add_history(self, totals: dict[str, float]) -> None:
        engine = self._engine
        shape = self._step(0, prompt=0.0, generation=1.0, busy=False)
        totals["prompt"] += engine.prompt_tokens
        totals["generation"] += engine.generation_tokens
        totals["requests"] += engine.requests
        totals["cached"] += engine.prompt_tokens * engine.tracks["prefix_hit"].at(0)
        for key, share in shape.items():
            if key.startswith("ttft"):
                totals[key] += share * engine.request_tokens * engine.requests
            elif key.startswith("itl"):
                totals[key] += share * engine.generation_tokens

    def _total(self, t: float) -> dict[str, float]:
        totals = dict.fromkeys(self._names, 0.0)
        for stretch in self._stretches:
            if t > stretch.start_s:
                stretch_totals = self._stretch_total(stretch, min(t, stretch.end_s) - stretch.start_s)
                totals = {key: value + stretch_totals[key] for key, value in totals.items()}
        return totals

    def _stretch_total(self, stretch: _Stretch, t: float) -> dict[str, float]:
        if not stretch.table:
            self._fill(stretch)
        length = len(stretch.table) - 1
        periods = 0.0
        if stretch.repeats:
            periods, t = divmod(t, length)
        second = min(int(t), length - 1)
        low, high, whole = stretch.table[second], stretch.table[second + 1], stretch.table[length]
        fraction = t - second  # after the last keyframe, its last second continues
        return {key: periods * whole[key] + low[key] + (high[key] - low[key]) * fraction for key in low}

    @cached_property
    def _stretches(self) -> list[_Stretch]:
        """The stretches between two changes of the tracks: each repeats, or stays at its last keyframe."""
        segments = [segment for track in self._engine.tracks.values() for segment in track.stretches]
        changes_s = {segment.from_s for segment in segments if segment.before is not None and segment.from_s > 0}
        stretches: list[_Stretch] = []
        for start, end in pairwise([0.0, *sorted(changes_s), float("inf")]):
            held = [track.holds(start) for track in self._engine.tracks.values()]
            period = max((track.period_s or 0.0 for track in held if len(track.times) > 1), default=0.0)
            last = max(track.times[-1] for track in held) - start
            seconds = max(1, ceil(period or min(last, end - start)) + 1)
            stretches.append(_Stretch(start, end, repeats=bool(period), seconds=seconds))
        return stretches

    def _fill(self, stretch: _Stretch) -> None:
        tracks = self._engine.tracks
        stretch.table.append(dict.fromkeys(self._names, 0.0))
        for second in range(stretch.seconds - 1 if stretch.repeats else stretch.seconds):
            begin = stretch.start_s + second
            lively = 1 + 0.06 * noise(self._engine.port, self._engine.name, begin, every_s=1.0)
            # Only up to the next change of the tracks: after it another stretch counts.
            prompt, generation = (
                tracks[name].holds(stretch.start_s).alone.mean(begin, begin + 1) * lively
                for name in ("prompt_tps", "gen_tps")
            )
            step = self._step(begin + 0.5, prompt=prompt, generation=generation)
            stretch.table.append({key: value + step[key] for key, value in stretch.table[-1].items()})

    @cached_property
    def _names(self) -> list[str]:
        return list(self._step(0, prompt=0.0, generation=0.0))

    def _step(self, t: float, *, prompt: float, generation: float, busy: bool = True) -> dict[str, float]:
        tracks, engine = self._engine.tracks, self._engine
        ttft, itl = tracks["ttft_s"].at(t), tracks["itl_s"].at(t)
        requests = generation / engine.request_tokens
        step = {
            "prompt": prompt,
            "generation": generation,
            "requests": requests,
            "cached": prompt * tracks["prefix_hit"].at(t),
            "preemptions": tracks["preemptions_per_s"].at(t) if busy else 0.0,
            "ttft_sum": requests * ttft * 1.2,
            "itl_sum": generation * itl * 1.05,
        }
        step |= {f"ttft{i}": requests * _share(le, ttft, 3.0) for i, le in enumerate(TTFT_BUCKETS_S)}
        step |= {f"itl{i}": generation * _share(le, itl, 8.0) for i, le in enumerate(ITL_BUCKETS_S)}
        return step


@dataclass(slots=True)
class _Stretch:
    """The time between two changes of an engine's tracks."""

    start_s: float
    end_s: float
    repeats: bool
    seconds: int
    table: list[dict[str, float]] = field(default_factory=list)
    """Totals after each second of it, filled on demand."""


def _share(bound: float, median: float, steepness: float) -> float:
    """The share of a log-logistic distribution below a bound."""
    return 1.0 / (1.0 + float((median / bound) ** steepness))


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
            script=script,
            container_id=self.container_id(script.name),
            image_id=script.image_id or "sha256:" + hashlib.sha256(script.image.encode()).hexdigest(),
            run=run,
            running=running,
            pid=first + _PIDS_A_RUN * max(0, len(started_runs) - 1),
            started=bool(started_runs),
            restarts=_restarts(script, started_runs),
        )

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
            script=script,
            pid=pid,
            started_s=started,
            resident_gib=script.resident_gib.at(t),
            shared_gib=script.shared_gib.at(t),
            swapped_gib=script.swapped_gib.at(t),
            gpu_gib=script.gpu_gib.at(t) if script.gpu_gib else None,
            cgroup=cgroup,
        )

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
            total=total,
            available=available,
            free=free,
            cached=cached,
            shared=shared,
            **_KERNEL_GIB,
            gpu=gpu,
            anonymous=max(0.8, total - free - cached - KERNEL_GIB - gpu - leaked - FIRMWARE_GIB),
            swap_used=self.figure("swap_gib", t),
        )

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
