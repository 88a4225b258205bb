"""Pictures of two Sparks for tests of live rules: sane and healthy by default, whatever is wrong said by keyword.

    picture(node("spark1", power_w=15.0, engines=(engine(stuck_s=70.0),)), node("spark2"))

`node()` without more is a Spark whose engine decodes well: 96 % SM at 38 W and 2398 MHz, two requests, tokens flowing.
A figure may be a number (so it was for 15 minutes) or keyframes [(seconds from now, value), ...] with straight lines
between; two keyframes at one second are a jump. History, newest reading, trend and ledger are made of the same figures,
by the product's own functions. Any field of the dataclass itself may be given too, and then wins.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from tests.support import engine_of

from sparktop.cmdline.engine_command import is_exec, with_argv
from sparktop.diagnose.catalogue import live_rules
from sparktop.diagnose.rule import LiveRule
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
    LogFacts,
)
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState, Link, LinkState, NodeView, Reach
from sparktop.model.telemetry import (
    Collector,
    CollectorState,
    GapReason,
    Gpu,
    GpuProcess,
    GpuReading,
    HostFacts,
    Interface,
    Memory,
    NetworkReading,
    Pressure,
    Process,
    ProcessTable,
    RdmaPort,
    Sample,
    Series,
)
from sparktop.observe.history import WINDOW_S, trend
from sparktop.observe.memory_ledger import bandwidth, ledger

GIB = 1024**3
NOW_S = 50_000.0
"""The operator's monotonic clock in every picture; histories and `sample_at_s` are on it."""
WALL_S = 1_780_000_000.0
"""Operator's wall clock, and the nodes'."""
BOOT_S = 356_000.0
"""The nodes' boot clock: some four days."""
TOTAL_BYTES = 127_600_748 * 1024
KEPT_S = 900

Figure = float | Sequence[tuple[float, float]]
"""A number, or keyframes (seconds from now, value)."""


def gib(value: float) -> int:
    return int(value * GIB)


def value_at(figure: Figure, ago_s: float = 0.0) -> float:
    """A figure so many seconds before now."""
    if isinstance(figure, int | float):
        return float(figure)
    moments = [moment for moment, _ in figure]
    index = bisect_right(moments, -ago_s)
    if index == 0:
        return figure[0][1]
    if index == len(figure):
        return figure[-1][1]
    (start, first), (end, last) = figure[index - 1], figure[index]
    return first + (last - first) * (-ago_s - start) / (end - start)


def series(figure: Figure | None, *, seconds: float = KEPT_S, step_s: float = 1.0, scale: float = 1.0) -> Series:
    """The figure's history up to now, on the operator's clock; empty for None."""
    if figure is None:
        return Series()
    return _series(figure if isinstance(figure, int | float) else tuple(figure), seconds, step_s, scale)


@lru_cache(512)
def _series(figure: Figure, seconds: float, step_s: float, scale: float) -> Series:
    steps = range(int(seconds / step_s), -1, -1)
    return Series(
        times=tuple(NOW_S - step * step_s for step in steps),
        values=tuple(value_at(figure, step * step_s) * scale for step in steps),
    )


def memory(available_gib: float = 27.0, *, cache_gib: float = 9.2, swap_gib: float = 0.0, **more: Any) -> Memory:
    """/proc/meminfo with so much available; what is free is what the cache leaves of it."""
    made = Memory(
        total_bytes=TOTAL_BYTES,
        available_bytes=gib(available_gib),
        free_bytes=gib(max(0.2, available_gib - 0.95 * cache_gib)),
        cached_bytes=gib(cache_gib + 0.9),
        shared_bytes=gib(0.9),
        slab_reclaimable_bytes=gib(0.5),
        slab_unreclaimable_bytes=gib(0.8),
        anonymous_bytes=gib(7.0),
        page_tables_bytes=gib(0.1),
        swap_total_bytes=gib(16),
        swap_free_bytes=gib(16 - swap_gib),
    )
    return replace(made, **more)


def facts(name: str = "spark1", **more: Any) -> HostFacts:
    made = HostFacts(
        hostname=f"{name}-host",
        boot_id=f"boot-of-{name}",
        machine_id_digest=f"machine-{name}",
        kernel="6.17.0-1026-nvidia",
        architecture="aarch64",
        os_name="Ubuntu 24.04.3 LTS",
        dgx_release="7.6.0",
        product="DGX Spark",
        driver_version="580.142",
        cpu_count=20,
        python_version="3.12.3",
        user="spark",
        user_id=1000,
    )
    return replace(made, **more)


def gpu(
    util: float = 96.0,
    power_w: float = 38.0,
    sm_mhz: float = 2398.0,
    *,
    temp_c: int = 56,
    processes: tuple[GpuProcess, ...] | None = None,
    **more: Any,
) -> Gpu:
    """A GB10 as NVML shows it: no memory figures, no bandwidth counter."""
    made = Gpu(
        name="NVIDIA GB10",
        driver_version="580.142",
        utilisation_percent=util,
        power_w=power_w,
        sm_clock_mhz=round(sm_mhz),
        sm_clock_max_mhz=3003,
        temperature_c=temp_c,
        performance_state="P0",
        throttle_reasons=(),
        processes=processes,
        gaps={"bandwidth_percent": GapReason.NOT_SUPPORTED},
    )
    return replace(made, **more)


def process(pid: int, command: str, resident_gib: float = 0.5, **more: Any) -> Process:
    made = Process(
        pid=pid,
        parent_pid=1,
        command=command,
        state="S",
        resident_bytes=gib(resident_gib),
        started_boot_s=BOOT_S - 7200,
    )
    return replace(made, **more)


def container(name: str = "vllm-qwen36", **more: Any) -> Container:
    made = Container(
        container_id=name.encode().hex().ljust(64, "0")[:64],
        name=name,
        image="nvcr.io/nvidia/vllm:26.05.post1-py3",
        image_id="sha256:" + "5a" * 32,
        status="running",
        started_wall_s=WALL_S - 7200,
        restart_policy="unless-stopped",
        network_mode="host",
        pid=76811,
        argv=ARGV,
    )
    return replace(made, **more)


ARGV = (
    "vllm", "serve", "Qwen/Qwen3.6-35B-A3B-FP8", "--host", "0.0.0.0", "--port", "8000", "--gpu-memory-utilization",
    "0.70", "--max-model-len", "32768",
)  # fmt: skip


def engine(
    name: str = "vllm-qwen36",
    *,
    running: float = 2.0,
    waiting: float = 0.0,
    tokens_per_s: float = 35.0,
    stuck_s: float = 0.0,
    silent_s: float = 3.0,
    has_metrics: bool = True,
    **more: Any,
) -> Engine:
    """An engine that serves; `stuck_s`: since when its token counters stand, `silent_s`: and its log.

    With `stuck_s` the token rates are 0 unless said otherwise. `has_metrics=False`: its figures can't be read.
    """
    box = more.pop("container", container(name))
    speed = 0.0 if stuck_s > 5 else tokens_per_s
    made = engine_of(
        key=box.container_id[:12] if box else "pid:77352",
        kind=EngineKind.VLLM,
        name=name,
        state=EngineState.SERVING if running else EngineState.READY,
        model="Qwen/Qwen3.6-35B-A3B-FP8",
        version="0.21.0",
        pids=(76811, 77352),
        argv=ARGV,
        container=box,
        endpoint=Endpoint(
            host="127.0.0.1", port=8000, state=EndpointState.OK if has_metrics else EndpointState.NO_METRICS
        ),
        metrics=EngineMetrics(
            wall_s=WALL_S - 1,
            running=running,
            waiting=waiting,
            prompt_tokens=901_224.0,
            generation_tokens=411_908.0,
            kv_cache_ratio=0.2,
        )
        if has_metrics
        else None,
        rates=EngineRates(
            prompt_tokens_per_s=0.0, generation_tokens_per_s=speed if running else 0.0, progress_age_s=stuck_s
        )
        if has_metrics
        else None,
        started_boot_s=BOOT_S - 7200,
        uptime_s=7200.0,
        gpu_bytes=gib(84.1),
        log=LogFacts(
            last_line_wall_s=WALL_S - max(silent_s, stuck_s), moved_wall_s=WALL_S - 7000, ready_wall_s=WALL_S - 7000
        ),
    )
    made = replace(made, **more)
    made = replace(made, is_exec=is_exec(made.container, made.endpoint, made.pids))
    return with_argv(made, made.argv)


def link(state: LinkState = LinkState.LIVE, *, since_s: float = 3600.0, **more: Any) -> Link:
    """A link that has been so for `since_s` seconds; `reach=Reach.SSH_SILENT` says what TCP told."""
    made = Link(state=state, since_s=NOW_S - since_s, since_wall_s=WALL_S - since_s)
    return replace(made, **more)


STARVED = link(LinkState.LOST, since_s=12.0, reach=Reach.SSH_SILENT, reason="TCP answers, SSH does not")


def network(mtu: int = 9000, **more: Any) -> NetworkReading:
    """A linked pair of ConnectX-7 ports."""
    made = NetworkReading(
        boot_s=BOOT_S,
        interfaces=(
            Interface(name="enp1s0f0np0", is_up=True, mtu=mtu, speed_mbps=200_000, addresses=("10.0.0.1/24",)),
            Interface(name="enP7s7", is_up=True, mtu=1500, speed_mbps=10_000, addresses=("192.168.0.50/24",)),
        ),
        rdma_ports=(
            RdmaPort(
                device="rocep1s0f0",
                interface="enp1s0f0np0",
                state="ACTIVE",
                rate_gbps=200.0,
                roce_v2_gids=((3, "10.0.0.1"),),
            ),
        ),
    )
    return replace(made, **more)


def node(
    name: str = "spark1",
    *,
    available_gib: Figure = 27.0,
    util: Figure | None = 96.0,
    power_w: Figure | None = 38.0,
    sm_mhz: Figure | None = 2398.0,
    throttle: tuple[str, ...] = (),
    cache_gib: float = 9.2,
    swap_gib: float = 0.0,
    psi_full: float = 0.0,
    psi_some: float | None = None,
    engines: tuple[Engine, ...] | None = None,
    processes: tuple[Process, ...] | None = None,
    gpu_processes: tuple[GpuProcess, ...] | None = None,
    age_s: float = 0.3,
    step_s: float = 1.0,
    **more: Any,
) -> NodeView:
    """One node; without more, a Spark whose engine decodes well. `step_s` is the histories' interval."""
    running = engines if engines is not None else (engine(),)
    table = processes or (
        process(3849, "gnome-shell", 0.4, user_id=1000),
        process(2411, "dockerd", 0.1),
        process(76811, "vllm", 1.9),
        process(77352, "VLLM::EngineCor", 4.1),
    )
    users = gpu_processes
    if users is None:
        users = (
            GpuProcess(pid=3849, name="/usr/bin/gnome-shell", used_bytes=gib(0.09), kind="G"),
            *(
                GpuProcess(pid=one.pids[-1], name="VLLM::EngineCore", used_bytes=one.gpu_bytes)
                for one in running
                if one.pids and one.gpu_bytes
            ),
        )
    mem = more.pop("memory", memory(value_at(available_gib), cache_gib=cache_gib, swap_gib=swap_gib))
    reading = GpuReading(
        boot_s=BOOT_S,
        gpus=(
            gpu(
                value_at(util or 0.0),
                value_at(power_w or 0.0),
                value_at(sm_mhz or 0.0),
                processes=users,
                throttle_reasons=throttle,
            ),
        )
        if util is not None
        else (),
    )
    scan = ProcessTable(boot_s=BOOT_S, processes=table, total_count=412)
    psi = Pressure(
        some_avg10=psi_full / 0.7 if psi_some is None else psi_some,
        some_avg60=0.0,
        full_avg10=psi_full,
        full_avg60=psi_full / 3,
    )
    available = series(available_gib, scale=GIB, step_s=step_s)
    recent = [
        (time_s, value)
        for time_s, value in zip(available.times, available.values, strict=True)
        if time_s > NOW_S - WINDOW_S and value is not None
    ]
    made = NodeView(
        name=name,
        link=link(),
        facts=facts(name),
        sample=Sample(
            sequence=3600,
            boot_s=BOOT_S,
            wall_s=WALL_S,
            interval_s=step_s,
            memory=mem,
            memory_pressure=psi,
            load_1m=1.6,
            swap_in_pages=0,
            swap_out_pages=0,
        ),
        sample_at_s=NOW_S - age_s,
        gpu=reading,
        processes=scan,
        containers=Containers(containers=tuple(e.container for e in running if e.container), available=True, detail=""),
        engines=running,
        collectors={
            part: Collector(name=part, state=CollectorState.OK) for part in ("nvml", "processes", "kernel", "facts")
        },
        ledger=ledger(mem, scan, reading, running),
        trend=trend(recent),
        cpu_busy_percent=8.0,
        bandwidth=bandwidth(reading.gpus[0] if reading.gpus else None, running),
        available_history=available,
        utilisation_history=series(util, step_s=step_s),
        power_history=series(power_w, step_s=step_s),
        clock_history=series(sm_mhz, step_s=step_s),
        network=network(),
        kernel_source="journal",
    )
    return replace(made, **more)


def idle_node(name: str = "spark1", **more: Any) -> NodeView:
    """A Spark with no engine and nothing to do: 4.4 W, 116 GiB available."""
    options: dict[str, Any] = {
        "available_gib": 116.0,
        "util": 0.0,
        "power_w": 4.4,
        "sm_mhz": 2405.0,
        "engines": (),
        "processes": (process(3849, "gnome-shell", 0.4, user_id=1000), process(2411, "dockerd", 0.1)),
        "memory": memory(value_at(more.get("available_gib", 116.0)), anonymous_bytes=gib(1.4)),
        **more,
    }
    return node(name, **options)


def picture(*nodes: NodeView, **more: Any) -> FleetState:
    """The fleet of these nodes at NOW_S; the two healthy ones where none are named."""
    views = nodes or (node("spark1"), node("spark2"))
    return replace(FleetState(nodes=views, wall_s=WALL_S, monotonic_s=NOW_S), **more)


def rules_on(*areas: str) -> tuple[LiveRule, ...]:
    """The live rules of these areas, as "memory" or "gpu", in their order."""
    return tuple(rule for rule in live_rules() if rule.id.partition(".")[0] in areas)


def claims(rules: Iterable[LiveRule], fleet: FleetState) -> list[Finding]:
    """What rules find in one picture."""
    return [finding for rule in rules for finding in rule.check(fleet)]


def only(found: Iterable[Finding]) -> Finding:
    """The one finding that there is."""
    rows = list(found)
    assert len(rows) == 1, rows
    return rows[0]
