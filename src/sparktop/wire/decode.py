"""Decode lines of the probe into messages of the model; every string is sanitised here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from sparktop import sanitise
from sparktop.bounds import amount, json_of, list_of, real, seconds_of, string_of, whole
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
    PreviousBoot,
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
"""nvmlClocksEventReason bits (nvml.h); 0x1, idle, is not throttling."""

_KIB = 1024
MAX_GPUS = 64
_T = TypeVar("_T")


def decode(line: bytes) -> Message | None:
    """The message of one line; Garbled where it is none, None where its kind is from a later version."""
    try:
        raw = json_of(line)
    except ValueError:
        return Garbled(reason="not JSON")
    if not isinstance(raw, dict) or not isinstance(raw.get("kind"), str):
        return Garbled(reason="not a message")
    reader = _READERS.get(raw["kind"])
    if reader is None:
        return None
    try:
        return reader(raw)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        reason = f"{sanitise.name(raw['kind'])}: {type(error).__name__} {sanitise.line(str(error), limit=80)}"
        return Garbled(reason=reason)


def _memory(kib: Mapping[str, int]) -> Memory:
    def at(key: str) -> int:
        return amount(kib.get(key, 0)) * _KIB

    return Memory(
        total_bytes=amount(kib["MemTotal"]) * _KIB,
        available_bytes=amount(kib["MemAvailable"]) * _KIB,
        free_bytes=amount(kib["MemFree"]) * _KIB,
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
        huge_pages_bytes=amount(kib.get("HugePages_Total", 0)) * at("Hugepagesize"),
        cma_total_bytes=at("CmaTotal") if "CmaTotal" in kib else None,
        cma_free_bytes=at("CmaFree") if "CmaFree" in kib else None,
    )


def _pressure(psi: Mapping[str, Sequence[float]], key: str) -> Pressure | None:
    row = psi.get(key)
    if row is None:
        return None
    some10, some60, full10, full60, *total = (real(value) for value in row)
    total_s = total[0] if total else None
    return Pressure(some_avg10=some10, some_avg60=some60, full_avg10=full10, full_avg60=full60, full_total_s=total_s)


def _optional(raw: Mapping[str, Any], key: str, convert: Callable[[Any], _T]) -> _T | None:
    value = raw.get(key)
    return None if value is None else convert(value)


def _name(value: object) -> str:
    return sanitise.name(string_of(value))


_Fields = Mapping[str, tuple[str, Callable[[Any], Any]]]
"""Our name and the reader of a value, by its key in a message; None, with a reason in `gaps`, where it is missing."""


def _read(raw: Mapping[str, Any], table: _Fields) -> dict[str, Any]:
    fields = {name: _optional(raw, key, convert) for key, (name, convert) in table.items()}
    reasons: Mapping[str, str] = raw.get("gaps") or {}
    gaps = {table[key][0] if key in table else _name(key): _reason(reason) for key, reason in reasons.items()}
    return {**fields, "gaps": gaps or NO_GAPS}


def _reason(text: str) -> GapReason:
    try:
        return GapReason(text)
    except ValueError:
        return GapReason.FAILED


_FACT_FIELDS: _Fields = {
    "machine_digest": ("machine_id_digest", _name),
    "os": ("os_name", _name),
    "dgx": ("dgx_release", _name),
    "product": ("product", _name),
    "driver": ("driver_version", _name),
    "uid": ("user_id", amount),
    "installed": ("driver_installed", _name),
    "next_kernel": ("kernel_next", _name),
    "next_driver": ("kernel_next_has_driver", bool),
    "lingers": ("is_lingering", bool),
    "removes_ipc": ("removes_ipc", bool),
    "graphical": ("is_graphical", bool),
}


def _facts(raw: Mapping[str, Any]) -> HostFacts:
    return HostFacts(
        hostname=_name(raw.get("hostname") or ""),
        boot_id=_name(raw.get("boot_id") or ""),
        kernel=_name(raw.get("kernel") or ""),
        architecture=_name(raw.get("arch") or ""),
        cpu_count=amount(raw.get("cpus") or 0),
        python_version=_name(raw.get("python") or ""),
        user=_name(raw.get("user") or ""),
        disks=tuple(
            Disk(mount=_name(mount), total_bytes=amount(total), free_bytes=amount(free))
            for mount, total, free in list_of(raw.get("disks") or ())
        ),
        units=tuple(_unit(row) for row in list_of(raw.get("units") or ())),
        **_read(raw, _FACT_FIELDS),
    )


def _unit(row: Sequence[Any]) -> Unit:
    name, active, sub, result, restarts, restart, delay_s, pid, status = row
    return Unit(
        name=_name(name),
        active=_name(active),
        sub=_name(sub),
        result=_name(result),
        restarts=None if restarts is None else amount(restarts),
        restart=_name(restart),
        restart_delay_s=None if delay_s is None else seconds_of(delay_s),
        main_pid=None if pid is None else amount(pid),
        exit_status=None if status is None else whole(status),
    )


def _hello(raw: Mapping[str, Any]) -> Hello:
    return Hello(
        protocol=amount(raw["protocol"]),
        pid=amount(raw["pid"]),
        probe_digest=_name(raw["digest"]),
        facts=_facts(raw["facts"]),
    )


def _sample(raw: Mapping[str, Any]) -> Sample:
    psi = raw.get("psi") or {}
    vmstat = raw.get("vmstat") or {}
    busy, total = raw.get("cpu") or (None, None)
    load_1m, load_5m, _ = raw.get("load") or (None, None, None)
    cpu_s, resident_kib = raw.get("cost") or (None, None)
    return Sample(
        sequence=amount(raw["seq"]),
        boot_s=seconds_of(raw["boot"]),
        wall_s=seconds_of(raw["wall"]),
        interval_s=seconds_of(raw["interval"]),
        memory=_memory(raw["meminfo"]),
        memory_pressure=_pressure(psi, "memory"),
        io_pressure=_pressure(psi, "io"),
        cpu_pressure=_pressure(psi, "cpu"),
        cpu_busy_ticks=None if busy is None else amount(busy),
        cpu_total_ticks=None if total is None else amount(total),
        load_1m=None if load_1m is None else real(load_1m),
        load_5m=None if load_5m is None else real(load_5m),
        swap_in_pages=_optional(vmstat, "pswpin", amount),
        swap_out_pages=_optional(vmstat, "pswpout", amount),
        major_faults=_optional(vmstat, "pgmajfault", amount),
        allocation_stalls=_optional(vmstat, "allocstall", amount),
        oom_kills=_optional(vmstat, "oom_kill", amount),
        probe_cpu_s=None if cpu_s is None else seconds_of(cpu_s),
        probe_resident_bytes=None if resident_kib is None else amount(resident_kib) * _KIB,
        skipped=amount(raw.get("skipped") or 0),
    )


def _gpu_processes(rows: Sequence[Sequence[Any]]) -> tuple[GpuProcess, ...]:
    return tuple(
        GpuProcess(
            pid=amount(pid),
            name=_name(name),
            used_bytes=None if used is None else amount(used),
            kind="G" if kind == "G" else "C",
        )
        for pid, name, used, kind in list_of(rows)
    )


def _throttle_reasons(mask: Any) -> tuple[str, ...]:
    return tuple(reason for bit, reason in THROTTLE_BITS.items() if amount(mask) & bit)


_GPU_FIELDS: _Fields = {
    "uuid": ("uuid", _name),
    "driver": ("driver_version", _name),
    "util": ("utilisation_percent", real),
    "mem_util": ("bandwidth_percent", real),
    "power_mw": ("power_w", lambda milliwatts: real(milliwatts) / 1000.0),
    "sm_mhz": ("sm_clock_mhz", amount),
    "sm_max_mhz": ("sm_clock_max_mhz", amount),
    "temp_c": ("temperature_c", whole),
    "pstate": ("performance_state", lambda number: f"P{amount(number)}"),
    "throttle": ("throttle_reasons", _throttle_reasons),
    "mem_total": ("memory_total_bytes", amount),
    "mem_used": ("memory_used_bytes", amount),
    "procs": ("processes", _gpu_processes),
}


def _gpu(raw: Mapping[str, Any]) -> Gpu:
    name = _name(raw["name"])
    fields = _read(raw, _GPU_FIELDS)
    if "GB10" in name:
        # Always 0 there, in healthy decode too: a figure would accuse every working machine.
        fields["bandwidth_percent"] = None
        fields["gaps"] = {**fields["gaps"], "bandwidth_percent": GapReason.NOT_SUPPORTED}
    return Gpu(name=name, **fields)


def _gpu_reading(raw: Mapping[str, Any]) -> GpuReading:
    return GpuReading(boot_s=seconds_of(raw["boot"]), gpus=tuple(_gpu(gpu) for gpu in list_of(raw["gpus"], MAX_GPUS)))


def _process(raw: Mapping[str, Any]) -> Process:
    cgroup = sanitise.line(string_of(raw.get("cgroup") or ""), limit=512)
    return Process(
        pid=amount(raw["pid"]),
        parent_pid=amount(raw.get("ppid") or 0),
        command=_name(raw.get("comm") or ""),
        state=_name(raw.get("state") or "?")[:1],
        resident_bytes=amount(raw.get("rss") or 0),
        shared_bytes=amount(raw.get("shm") or 0),
        swapped_bytes=amount(raw.get("swap") or 0),
        user_id=_optional(raw, "uid", amount),
        started_boot_s=seconds_of(raw.get("start") or 0.0),
        container_id=container_id_of(cgroup),
        cgroup=cgroup,
        argv=tuple(sanitise.line(string_of(part)) for part in list_of(raw.get("argv") or ())),
        wait_channel=_optional(raw, "wchan", _name),
    )


def container_id_of(cgroup: str) -> str | None:
    """The 64 hex digits at the end of a Docker or containerd cgroup path, for either cgroup driver."""
    for segment in reversed(cgroup.split("/")):
        digits = segment.removesuffix(".scope").rpartition("-")[2]
        if len(digits) == 64 and all(char in "0123456789abcdef" for char in digits):
            return digits
    return None


def _process_table(raw: Mapping[str, Any]) -> ProcessTable:
    return ProcessTable(
        boot_s=seconds_of(raw["boot"]),
        processes=tuple(_process(row) for row in list_of(raw["rows"])),
        total_count=amount(raw["total"]),
        zombie_count=amount(raw.get("zombies") or 0),
    )


def _network(raw: Mapping[str, Any]) -> NetworkReading:
    return NetworkReading(
        boot_s=seconds_of(raw["boot"]),
        interfaces=tuple(_interface(row) for row in list_of(raw["interfaces"])),
        rdma_ports=tuple(_rdma_port(row) for row in list_of(raw.get("rdma") or ())),
    )


def _interface(raw: Mapping[str, Any]) -> Interface:
    return Interface(
        name=_name(raw["name"]),
        is_up=_optional(raw, "up", bool),
        mtu=_optional(raw, "mtu", amount),
        speed_mbps=_optional(raw, "speed", whole),
        addresses=tuple(_name(address) for address in list_of(raw.get("addresses") or ())),
    )


def _rdma_port(raw: Mapping[str, Any]) -> RdmaPort:
    return RdmaPort(
        device=_name(raw["device"]),
        port=amount(raw.get("port") or 1),
        interface=_optional(raw, "interface", _name),
        state=_name(raw.get("state") or ""),
        rate_gbps=_optional(raw, "rate", real),
        received_bytes=_optional(raw, "rx", amount),
        sent_bytes=_optional(raw, "tx", amount),
        roce_v2_gids=tuple((amount(index), _name(address)) for index, address in list_of(raw.get("gids") or ())),
    )


def _desktop(raw: Mapping[str, Any]) -> DesktopReading:
    return DesktopReading(
        boot_s=seconds_of(raw["boot"]),
        compositor=_optional(raw, "compositor", _name),
        pid=_optional(raw, "pid", amount),
        user_id=_optional(raw, "uid", amount),
        state=_name(raw.get("state") or "")[:1],
        wait_channel=_optional(raw, "wchan", _name),
        answers=_optional(raw, "answers", bool),
        silent_since_boot_s=_optional(raw, "silent", seconds_of),
        blocked_since_boot_s=_optional(raw, "blocked", seconds_of),
        reason=sanitise.line(string_of(raw.get("reason") or ""), limit=300),
        is_greeter=bool(raw.get("greeter")),
    )


def _collector(raw: Mapping[str, Any]) -> Collector:
    return Collector(
        name=_name(raw["name"]),
        state=CollectorState(raw["state"]),
        detail=sanitise.line(string_of(raw.get("detail") or ""), limit=300),
        since_boot_s=seconds_of(raw.get("since") or 0.0),
    )


def _kernel(raw: Mapping[str, Any]) -> KernelLines:
    return KernelLines(
        source=_name(raw["source"]),
        lines=_kernel_lines(raw["lines"]),
        dropped=amount(raw.get("dropped") or 0),
    )


def _kernel_lines(rows: Any) -> tuple[LogLine, ...]:
    return tuple(
        LogLine(
            text=sanitise.line(string_of(text)),
            boot_s=None if boot is None else seconds_of(boot),
            wall_s=None if wall is None else seconds_of(wall),
            priority=None if priority is None else whole(priority),
        )
        for boot, wall, priority, text in list_of(rows)
    )


def _previous(raw: Mapping[str, Any]) -> PreviousBoot:
    return PreviousBoot(
        boot_id=_name(raw.get("boot_id") or ""),
        kernel=_kernel_lines(raw.get("kernel") or ()),
        system=tuple(
            LogLine(text=sanitise.line(f"{string_of(sender)}: {string_of(text)}"), wall_s=seconds_of(wall))
            for wall, sender, text in list_of(raw.get("system") or ())
        ),
        reason=sanitise.line(string_of(raw.get("reason") or ""), limit=300),
        pstore=tuple((_name(path), seconds_of(wall)) for path, wall in list_of(raw.get("pstore") or ())),
        dump=tuple(replace(line, wall_s=None) for line in _kernel_lines(raw.get("dump") or ())),
    )


def _guard(raw: Mapping[str, Any]) -> GuardState:
    return GuardState(
        phase=GuardPhase(raw["phase"]),
        container_id=_name(raw.get("id") or ""),
        container_name=_name(raw.get("name") or ""),
        floor_bytes=amount(raw.get("floor") or 0),
        empty_within_s=_optional(raw, "within", seconds_of),
        stay_s=seconds_of(raw.get("stay") or 0.0),
        since_wall_s=_optional(raw, "since", seconds_of),
        available_bytes=_optional(raw, "available", amount),
        answered_s=_optional(raw, "answered", seconds_of),
        until_wall_s=_optional(raw, "until", seconds_of),
        detail=sanitise.line(string_of(raw.get("detail") or ""), limit=300),
    )


def _bye(raw: Mapping[str, Any]) -> Bye:
    return Bye(reason=sanitise.line(string_of(raw.get("reason") or ""), limit=200))


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
    "previous": _previous,
    "guard": _guard,
    "bye": _bye,
}
