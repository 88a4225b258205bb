"""One simulated Spark at any second of a scenario: pure functions of time, nothing kept between calls.

The sums hold as on the machine: MemTotal is what is free, cached, in the kernel's hands, in the GPU's hands
(facts/gb10.md section 2: not in any process's resident size), leaked, and the rest anonymous.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from functools import cached_property

from sparktop.sim.counters import EngineCounters
from sparktop.sim.script import (
    ContainerScript,
    EngineScript,
    KernelEntry,
    NodeScript,
    ProcessScript,
    Run,
    Scenario,
)
from sparktop.sim.tracks import noise

GIB = 1024**3
_KIB_IN_GIB = 1024**2
FIRMWARE_GIB = 1.0
"""Held by nobody on a healthy machine too."""
_KERNEL_GIB = {
    "buffers": 0.06, "slab_reclaimable": 0.55, "slab_unreclaimable": 0.85, "page_tables": 0.16, "kernel_stack": 0.03,
}  # fmt: skip
KERNEL_GIB = sum(_KERNEL_GIB.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveProcess:
    """A process as it is at one second."""

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
    """A container as it is at one second; `run` is its present or last life."""

    script: ContainerScript
    container_id: str
    image_id: str
    run: Run
    running: bool
    pid: int
    restarts: int
    started: bool = True
    """False: it was created, and `run` is only when."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryState:
    """Where memory is, in GiB."""

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
    leaked: float
    anonymous: float
    swap_used: float
    swap_total: float = 16.0


class Spark:
    """A node of one showing of a scenario; `t` is seconds since the showing began, and may be negative."""

    def __init__(self, scenario: Scenario, script: NodeScript, *, showing: int, began_wall_s: float) -> None:
        self.scenario = scenario
        self.script = script
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
        """The node's own idea of the time at `t`."""
        return self._began_wall_s + t

    def figure(self, name: str, t: float) -> float:
        """A track's value at `t`, without noise."""
        return self.script.tracks[name].at(t)

    def jitter(self, name: str, t: float) -> float:
        """-1..1, smooth and repeatable."""
        return noise(self.script.seed, name, t)

    # Processes and containers

    def containers(self, t: float) -> list[LiveContainer]:
        """What the Docker Engine lists with all=1."""
        return [live for script in self.script.containers if (live := self._container(script, t))]

    def _container(self, script: ContainerScript, t: float) -> LiveContainer | None:
        begun = [run for run in script.runs if run.start_s <= t]
        if not begun and (script.created_s is None or script.created_s > t):
            return None
        run = begun[-1] if begun else Run(start_s=script.created_s or 0.0, end_s=script.created_s)
        running = run.end_s is None or t < run.end_s
        if not running and script.auto_remove and begun:
            return None
        first = next((p.pid for p in self.script.processes if p.container == script.name), 4000)
        return LiveContainer(
            script=script,
            container_id=self.container_id(script.name),
            image_id=script.image_id or "sha256:" + hashlib.sha256(script.image.encode()).hexdigest(),
            run=run,
            running=running,
            pid=first + _pid_step(max(0, len(begun) - 1)),
            started=bool(begun),
            restarts=_restarts(script, begun),
        )

    def container_id(self, name: str) -> str:
        """64 hex digits."""
        key = next((one.key for one in self.script.containers if one.name == name), "") or name
        return hashlib.sha256(f"container/{self._identity}/{key}".encode()).hexdigest()

    def processes(self, t: float) -> list[LiveProcess]:
        """The processes alive at `t` that a scan would report."""
        return [live for script in self.script.processes if (live := self._process(script, t))]

    def _process(self, script: ProcessScript, t: float) -> LiveProcess | None:
        pid, started, cgroup = script.pid, script.start_s, self._with_ids(script.cgroup)
        if script.container:
            container = next(c for c in self.script.containers if c.name == script.container)
            begun = [run for run in container.runs if run.start_s + script.delay_s <= t]
            if not begun or ((end := begun[-1].end_s) is not None and t >= end):
                return None
            pid += _pid_step(len(begun) - 1)
            started = begun[-1].start_s + script.delay_s
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
        """Where all of MemTotal is at `t`."""
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
            leaked=leaked,
            anonymous=max(0.8, total - free - cached - KERNEL_GIB - gpu - leaked - FIRMWARE_GIB),
            swap_used=self.figure("swap_gib", t),
        )

    def oom_kills(self, t: float) -> int:
        """How often the kernel's log said so up to `t`."""
        return sum(1 for entry in self.script.kernel if entry.at_s <= t and "Killed process" in entry.text)

    def kernel_text(self, entry: KernelEntry) -> str:
        """A kernel line; `<id of NAME>` in it is that container's id."""
        return self._with_ids(entry.text)

    def _with_ids(self, text: str) -> str:
        if "<id of " in text:
            for container in self.script.containers:
                text = text.replace(f"<id of {container.name}>", self.container_id(container.name))
        return text

    # Engines

    @cached_property
    def counters(self) -> dict[str, EngineCounters]:
        """What each engine has counted, by its container's name."""
        return {engine.name: EngineCounters(engine) for engine in self.script.engines}

    def engine_at(self, port: int, t: float) -> EngineScript | None:
        """The engine that answers on a port at `t`; None while none does."""
        return next((e for e in self.script.engines if e.port == port and e.serves_at(t)), None)


def _restarts(script: ContainerScript, begun: list[Run]) -> int:
    """What its restart policy did since somebody last started it."""
    asked = [i for i, run in enumerate(begun) if run.asked]
    if asked:
        return len(begun) - 1 - asked[-1]
    return script.restart_count + (max(0, len(begun) - 1) if script.restart_policy != "no" else 0)


def _pid_step(lives: int) -> int:
    return 4111 * lives
