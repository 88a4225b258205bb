"""One line of the probe's to one message of the model; every string is sanitised here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from sparktop import sanitise
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.model.telemetry import (
    NO_GAPS,
    Bye,
    Collector,
    CollectorState,
    DesktopReading,
    Disk,
    GapReason,
    Garbled,
    Gpu,
    GpuProcess,
    GpuReading,
    Hello,
    HostFacts,
    Interface,
    KernelLines,
    LogLine,
    Memory,
    Message,
    NetworkReading,
    Pressure,
    Process,
    ProcessTable,
    RdmaPort,
    Sample,
    Unit,
)

THROTTLE_BITS: Mapping[int, str] = {
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
    0x100: "display clocks",
}
"""nvmlClocksEventReason bits (nvml.h); 0x1, idle, is no throttling."""

_KIB = 1024
_T = TypeVar("_T")


def decode(line: bytes) -> Message | None:
    """One line to a message; Garbled when it isn't one, None when its kind is from a later version."""
    try:
        raw = json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return Garbled(reason="not JSON", excerpt=sanitise.line(line[:200]))
    if not isinstance(raw, dict) or not isinstance(raw.get("kind"), str):
        return Garbled(reason="not a message", excerpt=sanitise.line(line[:200]))
    reader = _READERS.get(raw["kind"])
    if reader is None:
        return None
    try:
        return reader(raw)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        reason = f"{sanitise.name(raw['kind'])}: {type(error).__name__} {sanitise.line(str(error), limit=80)}"
        return Garbled(reason=reason, excerpt=sanitise.line(line[:200]))


def _no_number(name: str) -> NoReturn:
    """NaN and Infinity are no JSON, and one of them in a history would spoil every sum after it."""
    raise ValueError(name)


def _memory(kib: Mapping[str, int]) -> Memory:
    def at(key: str) -> int:
        return int(kib.get(key, 0)) * _KIB

    return Memory(
        total_bytes=int(kib["MemTotal"]) * _KIB,
        available_bytes=int(kib["MemAvailable"]) * _KIB,
        free_bytes=int(kib["MemFree"]) * _KIB,
        buffers_bytes=at("Buffers"),
        cached_bytes=at("Cached"),
        shared_bytes=at("Shmem"),
        slab_reclaimable_bytes=at("SReclaimable"),
        slab_unreclaimable_bytes=at("SUnreclaim"),
        anonymous_bytes=at("AnonPages"),
        page_tables_bytes=at("PageTables"),
        kernel_stack_bytes=at("KernelStack"),
        swap_total_bytes=at("SwapTotal"),
        swap_free_bytes=at("SwapFree"),
        huge_pages_bytes=int(kib.get("HugePages_Total", 0)) * at("Hugepagesize"),
        cma_total_bytes=at("CmaTotal") if "CmaTotal" in kib else None,
        cma_free_bytes=at("CmaFree") if "CmaFree" in kib else None,
    )


def _pressure(psi: Mapping[str, Sequence[float]], key: str) -> Pressure | None:
    row = psi.get(key)
    if row is None:
        return None
    some10, some60, full10, full60 = (float(value) for value in row)
    return Pressure(some_avg10=some10, some_avg60=some60, full_avg10=full10, full_avg60=full60)


def _optional(raw: Mapping[str, Any], key: str, convert: Callable[[Any], _T]) -> _T | None:
    value = raw.get(key)
    return None if value is None else convert(value)


def _gaps(raw: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, GapReason]:
    found = raw.get("gaps")
    if not found:
        return NO_GAPS
    return {names.get(key, key): _reason(reason) for key, reason in found.items()}


def _reason(text: str) -> GapReason:
    try:
        return GapReason(text)
    except ValueError:
        return GapReason.FAILED


def _facts(raw: Mapping[str, Any]) -> HostFacts:
    def text(key: str) -> str | None:
        return _optional(raw, key, lambda value: sanitise.name(str(value)))

    return HostFacts(
        hostname=text("hostname") or "",
        boot_id=text("boot_id") or "",
        machine_id_digest=text("machine_digest"),
        kernel=text("kernel") or "",
        architecture=text("arch") or "",
        os_name=text("os"),
        dgx_release=text("dgx"),
        product=text("product"),
        driver_version=text("driver"),
        cpu_count=int(raw.get("cpus") or 0),
        python_version=text("python") or "",
        user=text("user") or "",
        user_id=_optional(raw, "uid", int),
        disks=tuple(
            Disk(mount=sanitise.name(str(mount)), total_bytes=int(total), free_bytes=int(free))
            for mount, total, free in raw.get("disks") or ()
        ),
        driver_installed=text("installed"),
        kernel_next=text("next_kernel"),
        kernel_next_has_driver=_optional(raw, "next_driver", bool),
        is_lingering=_optional(raw, "lingers", bool),
        removes_ipc=_optional(raw, "removes_ipc", bool),
        is_graphical=_optional(raw, "graphical", bool),
        units=tuple(_unit(row) for row in raw.get("units") or ()),
        gaps=_gaps(raw, _FACT_NAMES),
    )


_FACT_NAMES = {
    "dgx": "dgx_release",
    "driver": "driver_version",
    "machine_digest": "machine_id_digest",
    "installed": "driver_installed",
    "next_kernel": "kernel_next",
    "next_driver": "kernel_next_has_driver",
    "lingers": "is_lingering",
    "graphical": "is_graphical",
}


def _unit(row: Sequence[Any]) -> Unit:
    name, active, sub, result, restarts, restart, delay_s, pid, status = row
    return Unit(
        name=sanitise.name(str(name)),
        active=sanitise.name(str(active)),
        sub=sanitise.name(str(sub)),
        result=sanitise.name(str(result)),
        restarts=None if restarts is None else int(restarts),
        restart=sanitise.name(str(restart)),
        restart_delay_s=None if delay_s is None else float(delay_s),
        main_pid=None if pid is None else int(pid),
        exit_status=None if status is None else int(status),
    )


def _hello(raw: Mapping[str, Any]) -> Hello:
    return Hello(
        protocol=int(raw["protocol"]),
        pid=int(raw["pid"]),
        probe_digest=sanitise.name(str(raw["digest"])),
        facts=_facts(raw["facts"]),
    )


def _sample(raw: Mapping[str, Any]) -> Sample:
    psi = raw.get("psi") or {}
    vmstat = raw.get("vmstat") or {}
    busy, total = raw.get("cpu") or (None, None)
    load_1m, load_5m, _ = raw.get("load") or (None, None, None)
    cpu_s, resident_kib = raw.get("cost") or (None, None)
    return Sample(
        sequence=int(raw["seq"]),
        boot_s=float(raw["boot"]),
        wall_s=float(raw["wall"]),
        interval_s=float(raw["interval"]),
        memory=_memory(raw["meminfo"]),
        memory_pressure=_pressure(psi, "memory"),
        io_pressure=_pressure(psi, "io"),
        cpu_pressure=_pressure(psi, "cpu"),
        cpu_busy_ticks=None if busy is None else int(busy),
        cpu_total_ticks=None if total is None else int(total),
        load_1m=None if load_1m is None else float(load_1m),
        load_5m=None if load_5m is None else float(load_5m),
        swap_in_pages=_optional(vmstat, "pswpin", int),
        swap_out_pages=_optional(vmstat, "pswpout", int),
        major_faults=_optional(vmstat, "pgmajfault", int),
        allocation_stalls=_optional(vmstat, "allocstall", int),
        oom_kills=_optional(vmstat, "oom_kill", int),
        probe_cpu_s=None if cpu_s is None else float(cpu_s),
        probe_resident_bytes=None if resident_kib is None else int(resident_kib) * _KIB,
        skipped=int(raw.get("skipped") or 0),
    )


_GPU_NAMES = {
    "util": "utilisation_percent",
    "mem_util": "bandwidth_percent",
    "power_mw": "power_w",
    "sm_mhz": "sm_clock_mhz",
    "sm_max_mhz": "sm_clock_max_mhz",
    "temp_c": "temperature_c",
    "pstate": "performance_state",
    "throttle": "throttle_reasons",
    "mem_total": "memory_total_bytes",
    "mem_used": "memory_used_bytes",
    "procs": "processes",
    "driver": "driver_version",
}


def _gpu(raw: Mapping[str, Any]) -> Gpu:
    name = sanitise.name(str(raw["name"]))
    gaps = dict(_gaps(raw, _GPU_NAMES))
    bandwidth = _optional(raw, "mem_util", float)
    if "GB10" in name:
        # Always 0 there, in healthy decode too: a figure would accuse every working machine.
        bandwidth = None
        gaps["bandwidth_percent"] = GapReason.NOT_SUPPORTED
    mask = _optional(raw, "throttle", int)
    return Gpu(
        name=name,
        uuid=_optional(raw, "uuid", lambda value: sanitise.name(str(value))),
        driver_version=_optional(raw, "driver", lambda value: sanitise.name(str(value))),
        utilisation_percent=_optional(raw, "util", float),
        bandwidth_percent=bandwidth,
        power_w=_optional(raw, "power_mw", lambda value: float(value) / 1000.0),
        sm_clock_mhz=_optional(raw, "sm_mhz", int),
        sm_clock_max_mhz=_optional(raw, "sm_max_mhz", int),
        temperature_c=_optional(raw, "temp_c", int),
        performance_state=_optional(raw, "pstate", lambda value: f"P{int(value)}"),
        throttle_reasons=None if mask is None else tuple(t for bit, t in THROTTLE_BITS.items() if mask & bit),
        memory_total_bytes=_optional(raw, "mem_total", int),
        memory_used_bytes=_optional(raw, "mem_used", int),
        processes=_optional(raw, "procs", _gpu_processes),
        gaps=gaps or NO_GAPS,
    )


def _gpu_processes(rows: Sequence[Sequence[Any]]) -> tuple[GpuProcess, ...]:
    return tuple(
        GpuProcess(
            pid=int(pid),
            name=sanitise.name(str(name)),
            used_bytes=None if used is None else int(used),
            kind="G" if kind == "G" else "C",
        )
        for pid, name, used, kind in rows
    )


def _gpu_reading(raw: Mapping[str, Any]) -> GpuReading:
    return GpuReading(boot_s=float(raw["boot"]), gpus=tuple(_gpu(gpu) for gpu in raw["gpus"]))


def _process(raw: Mapping[str, Any]) -> Process:
    cgroup = sanitise.line(str(raw.get("cgroup") or ""), limit=512)
    return Process(
        pid=int(raw["pid"]),
        parent_pid=int(raw.get("ppid") or 0),
        command=sanitise.name(str(raw.get("comm") or "")),
        state=sanitise.name(str(raw.get("state") or "?"))[:1],
        resident_bytes=int(raw.get("rss") or 0),
        shared_bytes=int(raw.get("shm") or 0),
        swapped_bytes=int(raw.get("swap") or 0),
        user_id=_optional(raw, "uid", int),
        started_boot_s=float(raw.get("start") or 0.0),
        container_id=container_id_of(cgroup),
        cgroup=cgroup,
        argv=tuple(sanitise.line(str(part)) for part in raw.get("argv") or ()),
        wait_channel=_optional(raw, "wchan", lambda value: sanitise.name(str(value))),
    )


def container_id_of(cgroup: str) -> str | None:
    """The 64 hex digits a Docker or containerd cgroup path ends in, in either cgroup driver's spelling."""
    for part in reversed(cgroup.split("/")):
        digits = part.removesuffix(".scope").rpartition("-")[2]
        if len(digits) == 64 and all(char in "0123456789abcdef" for char in digits):
            return digits
    return None


def _process_table(raw: Mapping[str, Any]) -> ProcessTable:
    return ProcessTable(
        boot_s=float(raw["boot"]),
        processes=tuple(_process(row) for row in raw["rows"]),
        total_count=int(raw["total"]),
        zombie_count=int(raw.get("zombies") or 0),
    )


def _network(raw: Mapping[str, Any]) -> NetworkReading:
    return NetworkReading(
        boot_s=float(raw["boot"]),
        interfaces=tuple(_interface(row) for row in raw["interfaces"]),
        rdma_ports=tuple(_rdma_port(row) for row in raw.get("rdma") or ()),
    )


def _interface(raw: Mapping[str, Any]) -> Interface:
    return Interface(
        name=sanitise.name(str(raw["name"])),
        is_up=_optional(raw, "up", bool),
        mtu=_optional(raw, "mtu", int),
        speed_mbps=_optional(raw, "speed", int),
        addresses=tuple(sanitise.name(str(address)) for address in raw.get("addresses") or ()),
    )


def _rdma_port(raw: Mapping[str, Any]) -> RdmaPort:
    return RdmaPort(
        device=sanitise.name(str(raw["device"])),
        port=int(raw.get("port") or 1),
        interface=_optional(raw, "interface", lambda value: sanitise.name(str(value))),
        state=sanitise.name(str(raw.get("state") or "")),
        rate_gbps=_optional(raw, "rate", float),
        received_bytes=_optional(raw, "rx", int),
        sent_bytes=_optional(raw, "tx", int),
        roce_v2_gids=tuple((int(index), sanitise.name(str(address))) for index, address in raw.get("gids") or ()),
    )


def _desktop(raw: Mapping[str, Any]) -> DesktopReading:
    def text(key: str) -> str | None:
        return _optional(raw, key, lambda value: sanitise.name(str(value)))

    return DesktopReading(
        boot_s=float(raw["boot"]),
        compositor=text("compositor"),
        pid=_optional(raw, "pid", int),
        user_id=_optional(raw, "uid", int),
        state=(text("state") or "")[:1],
        wait_channel=text("wchan"),
        answers=_optional(raw, "answers", bool),
        silent_since_boot_s=_optional(raw, "silent", float),
        blocked_since_boot_s=_optional(raw, "blocked", float),
        reason=sanitise.line(str(raw.get("reason") or ""), limit=300),
        is_greeter=bool(raw.get("greeter")),
    )


def _collector(raw: Mapping[str, Any]) -> Collector:
    return Collector(
        name=sanitise.name(str(raw["name"])),
        state=CollectorState(raw["state"]),
        detail=sanitise.line(str(raw.get("detail") or ""), limit=300),
        since_boot_s=float(raw.get("since") or 0.0),
    )


def _kernel(raw: Mapping[str, Any]) -> KernelLines:
    return KernelLines(
        source=sanitise.name(str(raw["source"])),
        lines=tuple(
            LogLine(
                text=sanitise.line(str(text)),
                boot_s=None if boot is None else float(boot),
                wall_s=None if wall is None else float(wall),
                priority=None if priority is None else int(priority),
            )
            for boot, wall, priority, text in raw["lines"]
        ),
        dropped=int(raw.get("dropped") or 0),
    )


def _guard(raw: Mapping[str, Any]) -> GuardState:
    return GuardState(
        phase=GuardPhase(raw["phase"]),
        container_id=sanitise.name(str(raw.get("id") or "")),
        container_name=sanitise.name(str(raw.get("name") or "")),
        floor_bytes=int(raw.get("floor") or 0),
        empty_within_s=_optional(raw, "within", float),
        stay_s=float(raw.get("stay") or 0.0),
        since_wall_s=_optional(raw, "since", float),
        available_bytes=_optional(raw, "available", int),
        answered_s=_optional(raw, "answered", float),
        until_wall_s=_optional(raw, "until", float),
        detail=sanitise.line(str(raw.get("detail") or ""), limit=300),
    )


def _bye(raw: Mapping[str, Any]) -> Bye:
    return Bye(reason=sanitise.line(str(raw.get("reason") or ""), limit=200))


_READERS: Mapping[str, Callable[[Mapping[str, Any]], Message]] = {
    "hello": _hello,
    "sample": _sample,
    "gpu": _gpu_reading,
    "processes": _process_table,
    "network": _network,
    "desktop": _desktop,
    "facts": _facts,
    "collector": _collector,
    "kernel": _kernel,
    "guard": _guard,
    "bye": _bye,
}
