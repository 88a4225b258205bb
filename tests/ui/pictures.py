"""Pictures of fleets for tests and for looking at: each is a FleetState as a Monitor would publish it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from tests import pictures_support
from tests.pictures_support import GIB, TOTAL_BYTES, gib
from tests.support import engine_of
from tests.ui import claims

from sparktop.clock import ManualClock
from sparktop.cmdline.engine_command import is_exec, with_argv
from sparktop.diagnose.notices import notices
from sparktop.model.engine import (
    Container,
    Containers,
    Endpoint,
    EndpointState,
    Engine,
    EngineKind,
    EngineMetrics,
    EngineRates,
    EngineState,
    Progress,
)
from sparktop.model.event import Advice, KernelEvent, Severity
from sparktop.model.finding import Finding
from sparktop.model.fleet import (
    Bandwidth,
    FleetState,
    Forward,
    Holder,
    Ledger,
    Link,
    LinkChange,
    LinkState,
    NodeView,
    Notice,
    Reach,
    Trend,
)
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.model.telemetry import (
    Collector,
    CollectorState,
    Disk,
    EngineMoment,
    GapReason,
    GpuProcess,
    GpuReading,
    HostFacts,
    Level,
    LogLine,
    Memory,
    Pressure,
    ProcessTable,
    Sample,
    Series,
)
from sparktop.observe.log_ring import LineRing
from sparktop.observe.memory_ledger import level

BOOT_S = 1_051_200.0
"""Twelve days and four hours."""
NAMES = ("spark1", "spark2")


def levels(values: Iterable[float | None]) -> list[float | None]:
    """GiB as bytes."""
    return [None if value is None else value * GIB for value in values]


def held(values: Iterable[float | None], mem: Memory, book: Ledger) -> list[float | None]:
    """Available GiB as bytes, with the ledger's engines growing first and what else it has before that."""
    now = level(mem, book)
    engines, processes, used, cache = now.tops
    made: list[float | None] = []
    for value in levels(values):
        more = 0 if value is None else int(now - value)
        kept = max(0, engines + more)
        tops = (kept, processes + kept - engines, used + kept - engines, min(TOTAL_BYTES, cache + kept - engines))
        made.append(None if value is None else Level(value, tops))
    return made


def series(now_boot_s: float, values: Iterable[float | None], step_s: float = 1.0) -> Series:
    """Values one step apart, the last at `now_boot_s`."""
    known = list(values)
    times = tuple(now_boot_s - step_s * (len(known) - 1 - index) for index in range(len(known)))
    return Series(times=times, values=tuple(known))


def wave(length: int, base: float, swing: float, period: int = 37) -> list[float]:
    """A calm figure that moves a little, the same each time."""
    return [base + swing * (((i * 7) % period) / period - 0.5) for i in range(length)]


def facts(name: str = "spark-a1") -> HostFacts:
    return pictures_support.facts(
        hostname=name,
        boot_id=f"boot-{name}",
        machine_id_digest=f"digest-{name}",
        kernel="6.17.0-1014-nvidia",
        user="ops",
        disks=(Disk(mount="/", total_bytes=gib(3700), free_bytes=gib(1240)),),
    )


def memory(available: float, *, cache: float = 9.1, swap: float = 0.0, shared: float = 0.4) -> Memory:
    """Memory with so many GiB available; the free part is what cache leaves of it."""
    free = max(0.3, available - cache)
    return Memory(
        total_bytes=TOTAL_BYTES,
        available_bytes=gib(available),
        free_bytes=gib(free),
        cached_bytes=gib(cache + shared),
        shared_bytes=gib(shared),
        swap_total_bytes=gib(16),
        swap_free_bytes=gib(16 - swap),
    )


def ledger(mem: Memory, *held: tuple[str, str, float]) -> Ledger:
    """Named holders, then what is left as unaccounted, cache and free."""
    holders = [Holder(kind=kind, label=label, held_bytes=gib(size)) for kind, label, size in held]
    holders.append(Holder(kind="cache", label="page cache", held_bytes=mem.page_cache_bytes))
    holders.append(Holder(kind="free", label="free", held_bytes=mem.free_bytes))
    rest = max(0, mem.total_bytes - sum(holder.held_bytes for holder in holders))
    holders.insert(len(held), Holder(kind="unaccounted", label="unaccounted", held_bytes=rest))
    return Ledger(holders=tuple(holders), total_bytes=mem.total_bytes, unaccounted_bytes=rest)


def gpu(
    *,
    busy: float = 0.0,
    power: float = 4.4,
    clock: int = 208,
    heat: int = 38,
    state: str = "P8",
    processes: tuple[GpuProcess, ...] = (
        GpuProcess(pid=3067, name="/usr/lib/xorg/Xorg", used_bytes=18 << 20, kind="G"),
    ),
    throttle: tuple[str, ...] = (),
) -> GpuReading:
    """A GB10 as NVML shows it: no memory figures, no bandwidth counter."""
    shown = pictures_support.gpu(
        busy, power, clock, temp_c=heat, performance_state=state, throttle_reasons=throttle, processes=processes,
        uuid="GPU-4e847c30",
        gaps=dict.fromkeys(
            ("bandwidth_percent", "memory_total_bytes", "memory_used_bytes"), GapReason.NOT_SUPPORTED
        ),
    )  # fmt: skip
    return GpuReading(boot_s=BOOT_S, gpus=(shown,))


WORKER = GpuProcess(pid=197277, name="VLLM::Worker_TP0", used_bytes=gib(62.1))
XORG = GpuProcess(pid=3067, name="/usr/lib/xorg/Xorg", used_bytes=18 << 20, kind="G")
ARGV = (
    "vllm", "serve", "MiniMaxAI/MiniMax-M2.7-NVFP4", "--tensor-parallel-size", "2", "--max-model-len", "131072",
    "--gpu-memory-utilization", "0.82", "--port", "8000", "--api-key", "•••",
)  # fmt: skip


def engine(
    *,
    key: str = "3f1c9a04d2be",
    name: str = "vllm-minimax",
    state: EngineState = EngineState.SERVING,
    running: float = 3,
    waiting: float = 0,
    speed: float = 32.7,
    progress: Progress | None = None,
    metrics: bool = True,
    **more: object,
) -> Engine:
    made = engine_of(
        key=key,
        kind=EngineKind.VLLM,
        name=name,
        state=state,
        progress=progress,
        model="MiniMaxAI/MiniMax-M2.7-NVFP4",
        version="0.14.1",
        pids=(197277,),
        argv=ARGV,
        container=Container(
            container_id=key.ljust(64, "0"),
            name=name,
            image="vllm/vllm-openai:v0.14.1-aarch64",
            image_id="sha256:9d2f6c1b77aa",
            status="running",
            started_wall_s=1_779_992_560.0,
            restart_policy="unless-stopped",
            network_mode="host",
        ),
        endpoint=Endpoint(host="127.0.0.1", port=8000, state=EndpointState.OK),
        metrics=EngineMetrics(wall_s=0, running=running, waiting=waiting, kv_cache_ratio=0.41, preemptions=0)
        if metrics
        else None,
        rates=EngineRates(
            prompt_tokens_per_s=411.0,
            generation_tokens_per_s=speed,
            prefix_hit_ratio=0.62,
            ttft_p50_s=1.2,
            itl_p50_s=0.0306,
        )
        if metrics
        else None,
        uptime_s=7440,
        gpu_bytes=gib(62.1),
    )
    made = replace(made, **more)  # type: ignore[arg-type]
    made = replace(made, is_exec=is_exec(made.container, made.endpoint, made.pids))
    return with_argv(made, made.argv)


def node(
    clock: ManualClock,
    name: str,
    *,
    available: float = 101.3,
    age_s: float = 0.4,
    link: Link | None = None,
    holders: tuple[tuple[str, str, float], ...] = (("desktop", "desktop", 2.1), ("processes", "other processes", 4.2)),
    history: Iterable[float | None] = (),
    trend: Trend | None = None,
    pressure: Pressure | None = None,
    reading: GpuReading | None = None,
    cache: float = 9.1,
    swap: float = 0.0,
    **more: object,
) -> NodeView:
    now_s, wall_s = clock.monotonic(), clock.wall()
    mem = memory(available, cache=cache, swap=swap)
    made = NodeView(
        name=name,
        link=link or Link(state=LinkState.LIVE, since_s=now_s - 620, since_wall_s=wall_s - 620),
        link_history=(
            LinkChange(wall_s=wall_s - 621, state=LinkState.CONNECTING, text="first contact"),
            LinkChange(wall_s=wall_s - 620, state=LinkState.LIVE, text="probe runs as ops"),
        ),
        facts=facts(f"{name}-host"),
        sample=Sample(
            sequence=620,
            boot_s=BOOT_S,
            wall_s=wall_s - age_s,
            interval_s=1.0,
            memory=mem,
            memory_pressure=pressure or Pressure(some_avg10=0, some_avg60=0, full_avg10=0, full_avg60=0),
            load_1m=1.9,
        ),
        sample_at_s=now_s - age_s,
        gpu=reading or gpu(),
        processes=ProcessTable(boot_s=BOOT_S, processes=(), total_count=412),
        containers=Containers(available=True, detail=""),
        collectors={
            part: Collector(name=part, state=CollectorState.OK) for part in ("nvml", "processes", "kernel", "facts")
        },
        ledger=ledger(mem, *holders),
        trend=trend or Trend(bytes_per_s=2e6),
        cpu_busy_percent=8.2,
        probe_cpu_percent=0.09,
        bandwidth=Bandwidth(peak_bytes_per_s=273e9, reason="n/a on GB10"),
        utilisation_history=series(BOOT_S, wave(620, 2, 3)),
        power_history=series(BOOT_S, wave(620, 4.6, 0.6)),
        kernel_source="journal",
    )
    made = replace(made, **more)  # type: ignore[arg-type]
    if "available_history" in more or made.ledger is None or made.sample is None:
        return made
    values = held(history or wave(620, available, 0.8), made.sample.memory, made.ledger)
    return replace(made, available_history=series(BOOT_S, values))


def _fleet(clock: ManualClock, *nodes: NodeView) -> FleetState:
    return FleetState(nodes=nodes, wall_s=clock.wall(), monotonic_s=clock.monotonic(), notices=notices(nodes))


def idle(clock: ManualClock) -> FleetState:
    """Two Sparks with nothing to do."""
    return _fleet(clock, node(clock, "spark1", available=107.2), node(clock, "spark2", available=112.9, age_s=0.6))


def engine_history() -> Series:
    """An engine that began to serve 400 s ago."""
    busy = zip(wave(400, 32.7, 6), wave(400, 411.0, 300), wave(400, 3, 2), wave(400, 0.4, 0.1), strict=True)
    moments = [
        EngineMoment((speed, prompt, round(running), max(0, round(running) - 3), kv, 0.62, 1.2 + kv, 0.0306))
        for speed, prompt, running, kv in busy
    ]
    return series(BOOT_S, moments)


def _decoding(clock: ManualClock, name: str, age_s: float, **more: object) -> NodeView:
    load = [44.8 + 62 * max(0.0, 1 - i / 90) for i in range(300)] + wave(320, 45.4, 0.8)
    options: dict[str, object] = {
        "available": 45.4,
        "age_s": age_s,
        "holders": (
            ("engine", "vllm-minimax", 66.0),
            ("desktop", "desktop", 2.1),
            ("processes", "other processes", 3.6),
        ),
        "token_history": series(BOOT_S, wave(400, 32.7, 6)),
        "engine_histories": {"3f1c9a04d2be": engine_history(), "8be07711aa23": engine_history()},
        "history": load,
        "reading": gpu(busy=96, power=38.2, clock=2405, heat=58, state="P0", processes=(WORKER, XORG)),
        "engines": (engine(),),
        "utilisation_history": series(BOOT_S, [*wave(220, 4, 6), *wave(400, 95, 2)]),
        "power_history": series(BOOT_S, [*wave(220, 11.5, 1), *wave(400, 38, 6)]),
        "bandwidth": Bandwidth(estimated_bytes_per_s=184e9, peak_bytes_per_s=273e9, reason="n/a on GB10"),
        **more,
    }
    return node(clock, name, **options)  # type: ignore[arg-type]


def decode(clock: ManualClock) -> FleetState:
    """Both serve a model over two nodes, healthily."""
    second = engine(key="8be07711aa23", running=3, speed=32.7)
    return _fleet(clock, _decoding(clock, "spark1", 0.4), _decoding(clock, "spark2", 0.6, engines=(second,)))


def loading(clock: ManualClock) -> FleetState:
    """One captures graphs, the other has lost its engine to the kernel and one whose metrics are off."""
    capturing = engine(
        state=EngineState.CAPTURING, metrics=False, progress=Progress(phase="capture", done=20, total=36)
    )
    killed = engine(key="77aa00112233", name="sglang-qwen", state=EngineState.EXITED, metrics=False)
    assert killed.container is not None
    killed = replace(
        killed,
        kind=EngineKind.SGLANG,
        model="Qwen/Qwen3.6-35B-A3B-FP8",
        uptime_s=None,
        container=replace(killed.container, status="exited", exit_code=137, oom_killed=True, restart_count=2),
    )
    silent = engine(key="pid:4711", name="sglang:30000", metrics=False)
    silent = replace(
        silent, container=None, endpoint=Endpoint(host="127.0.0.1", port=30000, state=EndpointState.NO_METRICS)
    )
    return _fleet(
        clock,
        _decoding(clock, "spark1", 0.4, engines=(capturing,)),
        _decoding(clock, "spark2", 0.5, engines=(killed, silent)),
    )


def memory_spike(clock: ManualClock) -> FleetState:
    """Field report 001 in its fifth second: 45 GiB left and falling 6 GB/s."""
    fall = [*wave(612, 76.0, 0.8), 74.0, 70.1, 65.0, 60.2, 55.1, 49.8, 45.4]
    falling = _decoding(
        clock,
        "spark1",
        0.2,
        history=fall,
        trend=Trend(bytes_per_s=-6.1e9, time_to_empty_s=7.9),
        pressure=Pressure(some_avg10=23.4, some_avg60=5.1, full_avg10=11.2, full_avg60=2.0),
        swap=1.2,
        engines=(
            engine(state=EngineState.CAPTURING, metrics=False, progress=Progress(phase="capture", done=20, total=36)),
        ),
    )
    return claims.with_findings(_fleet(clock, falling, _decoding(clock, "spark2", 0.6)), clock, claims.falling)


def guard_fired(clock: ManualClock) -> FleetState:
    """The guard has killed the engine that fell, 40 s ago; its memory is back."""
    spike = memory_spike(clock)
    fall = [*wave(572, 76.0, 0.8), 70.1, 60.2, 45.4, 28.0, 17.2, 40.0, 80.0, *wave(35, 111.0, 0.4)]
    dead = replace(engine(state=EngineState.EXITED, metrics=False), uptime_s=None)
    guard = GuardState(
        phase=GuardPhase.FIRED, container_name="vllm-minimax", floor_bytes=gib(4), since_wall_s=clock.wall() - 40,
        available_bytes=gib(17.2), answered_s=0.41,
    )  # fmt: skip
    idle_gpu = gpu()
    view = node(clock, "spark1", available=111.0, history=fall, engines=(dead,), guard=guard, reading=idle_gpu,
                utilisation_history=series(BOOT_S, [*wave(580, 95, 2), *wave(40, 0, 1)]))  # fmt: skip
    return claims.with_findings(_fleet(clock, view, spike.nodes[1]), clock, claims.killed)


def low(clock: ManualClock) -> FleetState:
    """Nearly nothing left, steady, much of it held by no one that can be named."""
    view = _decoding(clock, "spark1", 0.5, available=3.1, history=wave(620, 3.4, 0.8), cache=2.0, swap=9.4)
    return claims.with_findings(_fleet(clock, view, _decoding(clock, "spark2", 0.6)), clock, claims.low)


def spin_deadlock(clock: ManualClock) -> FleetState:
    """Both at 96 % SM and 15 W, three requests held, no token for two minutes; the kernel saw two Xids."""

    def spun(name: str, age_s: float, key: str) -> NodeView:
        stuck = engine(key=key, speed=0.0)
        assert stuck.rates is not None
        stuck = replace(stuck, rates=replace(stuck.rates, progress_age_s=121.0, prompt_tokens_per_s=0.0))
        return _decoding(
            clock,
            name,
            age_s,
            reading=gpu(busy=96, power=15.1, clock=2405, heat=45, state="P0", processes=(WORKER, XORG)),
            engines=(stuck,),
            utilisation_history=series(BOOT_S, wave(620, 95, 2)),
            power_history=series(BOOT_S, [*wave(500, 38, 6), *wave(120, 15, 1)]),
            bandwidth=Bandwidth(estimated_bytes_per_s=0.0, peak_bytes_per_s=273e9, reason="n/a on GB10"),
            kernel_events=(
                xid(clock, 43, "GPU stopped processing", 140),
                xid(clock, 13, "graphics engine exception", 61, count=91, severity=Severity.WARNING),
            ),
        )

    return _fleet(clock, spun("spark1", 0.4, "3f1c9a04d2be"), spun("spark2", 0.6, "8be07711aa23"))


def deadlock(clock: ManualClock) -> FleetState:
    """The same, named, with what follows from it."""
    return claims.with_findings(
        spin_deadlock(clock), clock, claims.spin, claims.held, claims.rdma, claims.apart, claims.dead_variable
    )


def many(clock: ManualClock) -> FleetState:
    """More than the verdict has room for, one of it over."""
    made = (claims.spin, claims.held, claims.rdma, claims.apart, claims.unaccounted, claims.full_disk)
    return claims.with_findings(spin_deadlock(clock), clock, *made, claims.dead_variable, claims.hot)


def suspicion(clock: ManualClock) -> FleetState:
    """One thing, and not yet sure."""
    return claims.with_findings(idle(clock), clock, claims.unaccounted)


def well(clock: ManualClock) -> FleetState:
    """Nothing wrong, and a note."""
    return claims.with_findings(decode(clock), clock, claims.dead_variable)


def xid(
    clock: ManualClock, code: int, title: str, ago_s: float, *, count: int = 1, severity: Severity = Severity.CRITICAL
) -> KernelEvent:
    return KernelEvent(
        kind="xid",
        severity=severity,
        title=f"Xid {code}",
        detail=title,
        text=f"NVRM: Xid (PCI:000f:01:00): {code}, pid=197277, name=VLLM::Worker_TP, Ch 00000008",
        code=code,
        count=count,
        first_boot_s=BOOT_S - ago_s,
        last_boot_s=BOOT_S - ago_s,
        first_wall_s=clock.wall() - ago_s,
        last_wall_s=clock.wall() - ago_s,
        pid=197277,
        process="VLLM::Worker_TP",
        advice=(Advice(source="NVIDIA Xid catalogue", meaning=title, action="restart the application"),),
    )


def stale(clock: ManualClock) -> FleetState:
    """The second node has been silent for twelve seconds."""
    link = Link(
        state=LinkState.STALE,
        since_s=clock.monotonic() - 9,
        since_wall_s=clock.wall() - 9,
        reason="no sample for 12 s, the connection is still open",
    )
    return _fleet(clock, _decoding(clock, "spark1", 0.4), _decoding(clock, "spark2", 12.3, link=link))


def lost(clock: ManualClock) -> FleetState:
    """The first node was lost while its memory fell: TCP answers, SSH does not."""
    wall_s = clock.wall()
    link = Link(
        state=LinkState.LOST,
        since_s=clock.monotonic() - 42,
        since_wall_s=wall_s - 42,
        reason="TCP answers on port 22, no SSH banner within 5 s: the host is up, its user space gets no turn",
        hint="wait: it may come back by itself; a power cycle loses what the kernel logged",
        reach=Reach.SSH_SILENT,
        attempt=3,
        next_attempt_s=clock.monotonic() + 12,
    )
    fall = [*wave(560, 76.0, 0.8), 70.1, 60.2, 49.8, 38.0, 26.1, 14.2, 5.9, 2.1]
    view = _decoding(
        clock,
        "spark1",
        44.0,
        available=2.1,
        cache=1.0,
        swap=4.4,
        link=link,
        history=fall,
        trend=Trend(bytes_per_s=-10.2e9, time_to_empty_s=0.2),
        pressure=Pressure(some_avg10=78.0, some_avg60=21.0, full_avg10=64.0, full_avg60=18.0),
        link_history=(
            LinkChange(wall_s=wall_s - 620, state=LinkState.LIVE, text="probe runs as ops"),
            LinkChange(wall_s=wall_s - 54, state=LinkState.STALE, text="no sample for 3 s"),
            LinkChange(
                wall_s=wall_s - 42, state=LinkState.LOST, text="keepalive unanswered; TCP answers, SSH does not"
            ),
        ),
    )
    return _fleet(clock, view, _decoding(clock, "spark2", 0.6))


def connecting(clock: ManualClock) -> FleetState:
    """Nothing is known yet."""
    link = Link(since_s=clock.monotonic() - 1.0, since_wall_s=clock.wall() - 1.0, attempt=1)
    return _fleet(clock, *(NodeView(name=name, link=link) for name in NAMES))


def refused(clock: ManualClock) -> FleetState:
    """One takes no key, the other's host key has changed."""
    key = Link(
        state=LinkState.REFUSED,
        since_s=clock.monotonic() - 8,
        reason="ops@spark1:22 refused every key and password offered",
        hint="check `ssh spark1`; add your key with `ssh-copy-id spark1`",
    )
    changed = Link(
        state=LinkState.REFUSED,
        since_s=clock.monotonic() - 8,
        reason="the host key of spark2 has changed: known_hosts has SHA256:q1w2e3r4, it presents SHA256:z9y8x7w6",
        hint="if the machine was reinstalled: ssh-keygen -R spark2 (~/.ssh/known_hosts line 12)",
    )
    return _fleet(clock, NodeView(name="spark1", link=key), NodeView(name="spark2", link=changed))


def bare(clock: ManualClock) -> FleetState:
    """A machine with no GPU and no Docker for this user, as a laptop or a virtual machine is."""
    view = node(
        clock,
        "local",
        available=5.1,
        available_history=series(BOOT_S, levels(wave(200, 5.1, 0.2))),
        holders=(),
        utilisation_history=Series(),
        power_history=Series(),
        containers=Containers(detail="permission denied on /var/run/docker.sock: add ops to the group docker"),
        kernel_source="",
        trend=Trend(bytes_per_s=0.0),
    )
    mem = replace(memory(5.1, cache=1.4), total_bytes=gib(7.8), swap_total_bytes=0, swap_free_bytes=0)
    assert view.sample is not None
    assert view.facts is not None
    parts = ledger(mem, ("processes", "other processes", 1.4), ("kernel", "kernel", 0.2))
    return _fleet(
        clock,
        replace(
            view,
            gpu=None,
            sample=replace(view.sample, memory=mem),
            ledger=replace(
                parts,
                unaccounted_bytes=None,
                holders=tuple(replace(part, estimated=part.kind == "unaccounted") for part in parts.holders),
            ),
            facts=replace(view.facts, dgx_release=None, driver_version=None, product=None, cpu_count=2),
            collectors={
                "nvml": Collector(name="nvml", state=CollectorState.MISSING, detail="libnvidia-ml.so.1 not found"),
                "kernel": Collector(
                    name="kernel",
                    state=CollectorState.DENIED,
                    detail="needs the group systemd-journal: sudo usermod -aG systemd-journal ops",
                ),
            },
        ),
    )


def stuck(clock: ManualClock) -> FleetState:
    """The GPU driver answers no more: NVML's child hangs, everything else goes on."""
    view = _decoding(clock, "spark1", 0.4)
    parts = {
        **view.collectors,
        "nvml": Collector(
            name="nvml",
            state=CollectorState.STUCK,
            detail="no answer from the driver; figures stand still, the child is left alone",
            since_boot_s=BOOT_S - 124,
        ),
    }
    assert view.gpu is not None
    old = replace(view.gpu, boot_s=BOOT_S - 124)
    return _fleet(clock, replace(view, collectors=parts, gpu=old), _decoding(clock, "spark2", 0.6))


def one(clock: ManualClock) -> FleetState:
    """A single Spark, decoding."""
    return _fleet(clock, _decoding(clock, "spark1", 0.4))


def five(clock: ManualClock) -> FleetState:
    """Five Sparks: one falls, two decode, one is lost, one has nothing to do and a full disk."""
    spike, gone = memory_spike(clock).nodes[0], lost(clock).nodes[0]
    nodes = (
        spike,
        _decoding(clock, "spark2", 0.6),
        node(clock, "spark3", available=112.9),
        replace(gone, name="spark4", facts=facts("spark4-host")),
        _decoding(clock, "spark5", 0.3),
    )

    def full(wall_s: float) -> Finding:
        return replace(claims.full_disk(wall_s), nodes=("spark3",))

    return claims.with_findings(_fleet(clock, *nodes), clock, claims.falling, claims.hot, full, claims.unaccounted)


def hostile(clock: ManualClock) -> FleetState:
    """Names and texts that would break a console that reads markup."""
    nasty = "[/][b]x[@click=app.quit]y[/red"
    view = _decoding(clock, "spark1", 0.4, warnings=(nasty,))
    bad = engine(name=nasty, model=nasty, version=nasty, exit_detail=nasty)
    assert bad.container is not None
    bad = replace(bad, container=replace(bad.container, name=nasty, image=nasty))
    mem = memory(45.4)
    reading = gpu(processes=(GpuProcess(pid=1, name=nasty, used_bytes=gib(60)),), throttle=(nasty,))
    link = Link(state=LinkState.LOST, reason=nasty, hint=nasty, since_s=clock.monotonic())
    other = replace(
        _decoding(clock, "[b]spark2[/", 20.0, link=link),
        link_history=(LinkChange(wall_s=clock.wall(), state=LinkState.LOST, text=nasty),),
    )
    named = replace(
        view,
        engines=(bad,),
        gpu=reading,
        ledger=ledger(mem, ("engine", nasty, 60.0)),
        facts=replace(facts(nasty), kernel=nasty, dgx_release=nasty, driver_version=nasty, product=nasty),
        collectors={"nvml": Collector(name=nasty, state=CollectorState.STUCK, detail=nasty)},
        containers=Containers(detail=nasty),
        kernel_events=(replace(xid(clock, 43, nasty, 4), text=nasty, process=nasty),),
        kernel_source=nasty,
    )
    state = _fleet(clock, named, other)
    return replace(state, notices=(*state.notices, Notice(severity=Severity.CRITICAL, text=nasty, node=nasty)))


PICTURES: dict[str, Callable[[ManualClock], FleetState]] = {
    "idle": idle,
    "decode": decode,
    "loading": loading,
    "memory-spike": memory_spike,
    "guard-fired": guard_fired,
    "low": low,
    "spin-deadlock": spin_deadlock,
    "deadlock": deadlock,
    "many": many,
    "suspicion": suspicion,
    "well": well,
    "stale": stale,
    "lost": lost,
    "connecting": connecting,
    "refused": refused,
    "no-gpu": bare,
    "stuck": stuck,
    "one": one,
    "five": five,
    "hostile": hostile,
}

LOG = (
    "INFO 03:09:58 [api_server.py:1352] Starting vLLM API server 0.14.1 on http://0.0.0.0:8000",
    "INFO 03:10:02 [gpu_model_runner.py:2602] Loading weights took 41.20 seconds",
    "INFO 03:10:31 [gpu_worker.py:298] Available KV cache memory: 21.4 GiB",
    "WARNING 03:11:02 [scheduler.py:641] Running out of KV blocks, preempting request cmpl-81",
    "INFO 03:12:04 [loggers.py:123] Engine 000: Avg prompt throughput: 411.0 tokens/s, Avg generation throughput: 32.7",
    "ERROR 03:12:31 [core.py:710] EngineCore encountered a fatal error.",
    "RuntimeError: NCCL error: remote process exited or there was a network error",
    'INFO:     127.0.0.1:51234 - "POST /v1/chat/completions HTTP/1.1" 200 OK [/b][red]',
)
KERNEL = (
    "NVRM: Xid (PCI:000f:01:00): 43, pid=197277, name=VLLM::Worker_TP, Ch 00000008",
    "mlx5_core 0000:01:00.0 enp1s0f0np0: Link down",
    "mlx5_core 0000:01:00.0 enp1s0f0np0: Link up",
)


class FakeFeed:
    """A log that stands still."""

    def __init__(self, title: str, lines: Iterable[str], status: str = "docker logs") -> None:
        self.title = title
        self.status = status
        self.ring = LineRing()
        self.brief = None
        self.folded: dict[str, int] = {}
        self.previous = None
        self.ring.extend(LogLine(text=line) for line in lines)


class FakeWatch:
    """A Watch that publishes what a test hands it and remembers what it was asked."""

    def __init__(self, state: FleetState) -> None:
        self.state = state
        self.interval_s = 1.0
        self.retried: list[str] = []
        self.told: list[tuple[str, Mapping[str, object]]] = []
        self.has_ended = False
        self.failure: Exception | None = None
        self._feeds: dict[tuple[str, str], FakeFeed] = {}
        self._rings: dict[str, LineRing] = {}

    async def run(self) -> None:
        import asyncio

        try:
            if self.failure is not None:
                raise self.failure
            await asyncio.Event().wait()
        finally:
            self.has_ended = True

    def log(self, node_name: str, engine_key: str) -> FakeFeed | None:
        view = self.state.node(node_name)
        found = next((e for e in view.engines if e.key == engine_key), None) if view else None
        if found is None:
            return None
        return self._feeds.setdefault((node_name, engine_key), FakeFeed(f"{found.name} @ {node_name}", LOG))

    def kernel_lines(self, node_name: str) -> LineRing:
        if node_name not in self._rings:
            ring = LineRing()
            ring.extend(
                LogLine(text=line, wall_s=self.state.wall_s - 60, boot_s=BOOT_S - 60, priority=3) for line in KERNEL
            )
            self._rings[node_name] = ring
        return self._rings[node_name]

    def set_interval(self, seconds: float) -> None:
        self.interval_s = seconds

    def retry_now(self, node_name: str) -> None:
        self.retried.append(node_name)

    async def forward(self, node_name: str, engine: str, port: int = 0) -> Forward:
        made = Forward(node=node_name, engine=engine, port=port or 8000)
        self.state = replace(self.state, forwards=(*self.state.forwards, made))
        return made

    async def end_forward(self, node_name: str, engine: str) -> None:
        kept = tuple(one for one in self.state.forwards if (one.node, one.engine) != (node_name, engine))
        self.state = replace(self.state, forwards=kept)

    def tell(self, node_name: str, words: Mapping[str, object]) -> bool:
        self.told.append((node_name, words))
        return True
