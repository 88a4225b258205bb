"""What holds a node's memory, and an estimate of the memory bandwidth its tokens use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sparktop.bounds import number_in
from sparktop.model.engine import Engine
from sparktop.model.fleet import Bandwidth, Holder, Ledger
from sparktop.model.telemetry import Gpu, GpuProcess, GpuReading, Level, Memory, Process, ProcessTable

DESKTOP_COMMANDS = frozenset(
    {
        "gnome-shell", "Xorg", "Xwayland", "mutter-x11-fram", "gdm-x-session", "gdm-wayland-ses", "gnome-session-b",
        "nautilus", "gsd-xsettings", "kwin_wayland", "kwin_x11", "plasmashell", "xdg-desktop-por", "gnome-software",
        "ibus-x11", "gjs", "firefox", "nvidia-settings",
    }
)  # fmt: skip
"""comm is cut to 15 characters."""


def ledger(
    memory: Memory,
    processes: ProcessTable | None,
    gpu: GpuReading | None,
    engines: Sequence[Engine],
) -> Ledger:
    """Who holds the memory: parts that sum to MemTotal, first the holders, then unaccounted, page cache and free."""
    unified = _unified_gpus(gpu)
    gpu_rows = [row for device in unified for row in device.processes or ()]
    is_listed = all(
        device.processes is not None and all(row.used_bytes is not None for row in device.processes if row.kind == "C")
        for device in unified
    )
    by_pid = {process.pid: process for process in (processes.processes if processes else ())}

    counted_pids: set[int] = set()
    holders: list[Holder] = []
    private_total = 0

    def hold(kind: str, label: str, held_bytes: int) -> None:
        if held_bytes:
            holders.append(Holder(kind=kind, label=label, held_bytes=held_bytes))

    for engine in engines:
        pids = set(engine.pids) - counted_pids
        counted_pids |= pids
        private = _private(by_pid, pids)
        private_total += private
        hold("engine", engine.name, private + _gpu_bytes(gpu_rows, pids))

    desktop = {pid for pid, process in by_pid.items() if process.command in DESKTOP_COMMANDS} - counted_pids
    desktop |= {row.pid for row in gpu_rows if _command(row.name) in DESKTOP_COMMANDS} - counted_pids
    counted_pids |= desktop
    private = _private(by_pid, desktop)
    private_total += private
    hold("desktop", "desktop", private + _gpu_bytes(gpu_rows, desktop))

    other_gpu = [row for row in gpu_rows if row.pid not in counted_pids]
    names = sorted({_command(row.name) for row in other_gpu})
    label = names[0] if len(names) == 1 else f"{len(names)} GPU processes"
    hold("gpu", label, _gpu_bytes(other_gpu, {row.pid for row in other_gpu}))

    hold("processes", "other processes", max(0, memory.anonymous_bytes - private_total))
    hold("shared", "shared memory", memory.shared_bytes)
    hold("huge", "huge pages", memory.huge_pages_bytes)
    kernel = memory.slab_unreclaimable_bytes + memory.page_tables_bytes + memory.kernel_stack_bytes
    hold("kernel", "kernel", kernel)
    return _with_remainder(memory, holders, is_listed=is_listed)


def level(memory: Memory, held: Ledger) -> Level:
    """The available memory with the ledger's parts; where processes can't be listed, the rest may be theirs."""
    by_kind: dict[str, int] = {}
    for holder in held.holders:
        kind = "processes" if holder.kind == "unaccounted" and held.unaccounted_bytes is None else holder.kind
        by_kind[kind] = by_kind.get(kind, 0) + holder.held_bytes
    cache = by_kind.get("cache", 0)
    used = held.total_bytes - cache - by_kind.get("free", 0)
    tops = (by_kind.get("engine", 0), used - by_kind.get("unaccounted", 0), used, used + cache)
    return Level(memory.available_bytes, tops)


def _with_remainder(memory: Memory, holders: list[Holder], *, is_listed: bool) -> Ledger:
    """Add unaccounted memory, page cache and free memory, and make the parts sum to the total."""
    cache = memory.page_cache_bytes
    held_bytes = sum(holder.held_bytes for holder in holders)
    unaccounted_bytes = memory.total_bytes - held_bytes - cache - memory.free_bytes
    if unaccounted_bytes < 0 and held_bytes:
        # Figures taken at different moments overlap by a little: shrink the claims, never invent a negative.
        share = max(0, memory.total_bytes - cache - memory.free_bytes) / held_bytes
        holders = [
            Holder(kind=h.kind, label=h.label, held_bytes=int(h.held_bytes * share), estimated=True) for h in holders
        ]
        unaccounted_bytes = memory.total_bytes - cache - memory.free_bytes - sum(h.held_bytes for h in holders)
    holders.append(
        Holder(kind="unaccounted", label="unaccounted", held_bytes=max(0, unaccounted_bytes), estimated=not is_listed)
    )
    holders.append(Holder(kind="cache", label="page cache", held_bytes=cache))
    holders.append(Holder(kind="free", label="free", held_bytes=memory.free_bytes))
    return Ledger(
        holders=tuple(holders),
        total_bytes=memory.total_bytes,
        unaccounted_bytes=max(0, unaccounted_bytes) if is_listed else None,
    )


def _unified_gpus(gpu: GpuReading | None) -> list[Gpu]:
    """GPUs that use the machine's own memory; a discrete card's memory is no part of MemTotal."""
    return [device for device in (gpu.gpus if gpu else ()) if device.is_gb10 or device.memory_total_bytes is None]


def _private(table: dict[int, Process], pids: Iterable[int]) -> int:
    processes = (table[pid] for pid in pids if pid in table)
    return sum(max(0, process.resident_bytes - process.shared_bytes) for process in processes)


def _gpu_bytes(rows: Iterable[GpuProcess], pids: set[int]) -> int:
    # A process that is listed as compute and as graphics holds its memory once.
    bytes_by_pid: dict[int, int] = {}
    for row in rows:
        if row.pid in pids and row.used_bytes:
            bytes_by_pid[row.pid] = max(bytes_by_pid.get(row.pid, 0), row.used_bytes)
    return sum(bytes_by_pid.values())


def _command(name: str) -> str:
    return name.rsplit("/", 1)[-1][:15]


GB10_PEAK_BYTES_PER_S = 273e9
_ACTIVE = re.compile(r"(?:^|[-_.])A(\d+(?:\.\d+)?)B(?=$|[-_.])", re.IGNORECASE)
_TOTAL = re.compile(r"(?:^|[-_.])(\d+(?:\.\d+)?)B(?=$|[-_.])", re.IGNORECASE)

_KNOWN_ACTIVE_BILLIONS = {
    "gpt-oss-120b": 5.1,
    "gpt-oss-20b": 3.6,
    "minimax-m2": 10.0,
}
"""Mixtures of experts whose names don't say how much of them is active (their model cards)."""
_BITS_PER_WEIGHT = (
    (re.compile(r"nvfp4|mxfp4|fp4|int4|w4a16|awq|gptq|q4", re.IGNORECASE), 4.5),
    (re.compile(r"fp8|int8|w8a8|q8", re.IGNORECASE), 8.0),
)
_MXFP4_BY_DEFAULT = "gpt-oss"


def active_bytes(model: str) -> float | None:
    """Bytes of weights read per token, from the model's name alone; None where the name doesn't say."""
    name = model.rstrip("/").rsplit("/", 1)[-1]
    billions = next((size for key, size in _KNOWN_ACTIVE_BILLIONS.items() if key in name.lower()), None)
    if billions is None:
        match = _ACTIVE.search(name) or _TOTAL.search(name)
        if match is None:
            return None
        billions = number_in(match.group(1))
    if billions is None:
        return None
    default = 4.5 if _MXFP4_BY_DEFAULT in name.lower() else 16.0
    bits = next((bits for pattern, bits in _BITS_PER_WEIGHT if pattern.search(name)), default)
    return billions * 1e9 * bits / 8


def bandwidth(gpu: Gpu | None, engines: Sequence[Engine]) -> Bandwidth:
    """The node's memory bandwidth now: measured, estimated, or why there is none."""
    if gpu is None:
        return Bandwidth(reason="no GPU reading")
    if gpu.bandwidth_percent is not None:
        return Bandwidth(percent=gpu.bandwidth_percent)
    estimate = 0.0
    has_estimate = False
    for engine in engines:
        speed = engine.rates.generation_tokens_per_s if engine.rates else None
        weights = active_bytes(engine.model) if engine.model else None
        if speed is not None and weights is not None:
            # Requests of one batch share a read of the weights (of a mixture of experts only in part: a low estimate).
            running = max(1.0, (engine.metrics.running if engine.metrics else None) or 1.0)
            estimate += speed * weights / running
            has_estimate = True
    reason = "n/a on GB10" if gpu.is_gb10 else "no counter"
    peak = GB10_PEAK_BYTES_PER_S if gpu.is_gb10 else None
    if peak is not None and estimate > peak:
        has_estimate = False  # a token costs less than a read of all weights: speculative decoding, other weights
    return Bandwidth(
        estimated_bytes_per_s=estimate if has_estimate else None,
        peak_bytes_per_s=peak,
        reason=reason,
    )
