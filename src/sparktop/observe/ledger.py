"""Who holds a node's memory: a pure sum over processes, GPU processes and /proc/meminfo.

On GB10 GPU allocations don't show in a process's resident size (facts/gb10.md section 2), so an engine holds its
GPU bytes and its private pages both. What no one is known to hold is `unaccounted`: trapped allocations show there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparktop.model.engine import Engine
from sparktop.model.fleet import Holder, Ledger
from sparktop.model.telemetry import Gpu, GpuProcess, GpuReading, Memory, Process, ProcessTable

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
    """Parts that sum to MemTotal, largest claim first within what is held, free last."""
    unified = _unified_gpus(gpu)
    gpu_rows = [row for device in unified for row in device.processes or ()]
    listed = all(device.processes is not None for device in unified)
    table = {process.pid: process for process in (processes.processes if processes else ())}

    taken: set[int] = set()
    holders: list[Holder] = []
    private_total = 0
    for engine in engines:
        pids = set(engine.pids) - taken
        taken |= pids
        private = _private(table, pids)
        private_total += private
        held = private + _gpu_bytes(gpu_rows, pids)
        if held:
            holders.append(Holder(kind="engine", label=engine.name, held_bytes=held))

    desktop = {pid for pid, process in table.items() if process.command in DESKTOP_COMMANDS} - taken
    desktop |= {row.pid for row in gpu_rows if _command(row.name) in DESKTOP_COMMANDS} - taken
    taken |= desktop
    private = _private(table, desktop)
    private_total += private
    if held := private + _gpu_bytes(gpu_rows, desktop):
        holders.append(Holder(kind="desktop", label="desktop", held_bytes=held))

    other_gpu = [row for row in gpu_rows if row.pid not in taken]
    if held := _gpu_bytes(other_gpu, {row.pid for row in other_gpu}):
        names = sorted({_command(row.name) for row in other_gpu})
        label = names[0] if len(names) == 1 else f"{len(names)} GPU processes"
        holders.append(Holder(kind="gpu", label=label, held_bytes=held))

    if held := max(0, memory.anonymous_bytes - private_total):
        holders.append(Holder(kind="processes", label="other processes", held_bytes=held))
    if memory.shared_bytes:
        holders.append(Holder(kind="shared", label="shared memory", held_bytes=memory.shared_bytes))
    if memory.huge_pages_bytes:
        holders.append(Holder(kind="huge", label="huge pages", held_bytes=memory.huge_pages_bytes))
    kernel = memory.slab_unreclaimable_bytes + memory.page_tables_bytes + memory.kernel_stack_bytes
    if kernel:
        holders.append(Holder(kind="kernel", label="kernel", held_bytes=kernel))
    return _closed(memory, holders, listed=listed)


def _closed(memory: Memory, holders: list[Holder], *, listed: bool) -> Ledger:
    """Add cache, the rest and what is free, and make the parts sum to the total."""
    cache = memory.page_cache_bytes + memory.slab_reclaimable_bytes
    known = sum(holder.held_bytes for holder in holders)
    rest = memory.total_bytes - known - cache - memory.free_bytes
    if rest < 0 and known:
        # Figures taken at different moments overlap by a little: shrink the claims, never invent a negative.
        share = max(0, memory.total_bytes - cache - memory.free_bytes) / known
        holders = [
            Holder(kind=h.kind, label=h.label, held_bytes=int(h.held_bytes * share), estimated=True) for h in holders
        ]
        rest = memory.total_bytes - cache - memory.free_bytes - sum(h.held_bytes for h in holders)
    holders.append(Holder(kind="unaccounted", label="unaccounted", held_bytes=max(0, rest), estimated=not listed))
    holders.append(Holder(kind="cache", label="page cache", held_bytes=cache))
    holders.append(Holder(kind="free", label="free", held_bytes=memory.free_bytes))
    return Ledger(
        holders=tuple(holders),
        total_bytes=memory.total_bytes,
        unaccounted_bytes=max(0, rest) if listed else None,
    )


def _unified_gpus(gpu: GpuReading | None) -> list[Gpu]:
    """GPUs whose memory is the machine's own; a discrete card's memory is no part of MemTotal."""
    return [device for device in (gpu.gpus if gpu else ()) if device.is_gb10 or device.memory_total_bytes is None]


def _private(table: dict[int, Process], pids: Iterable[int]) -> int:
    found = (table[pid] for pid in pids if pid in table)
    return sum(max(0, process.resident_bytes - process.shared_bytes) for process in found)


def _gpu_bytes(rows: Iterable[GpuProcess], pids: set[int]) -> int:
    # A process that is listed as compute and as graphics holds its memory once.
    held: dict[int, int] = {}
    for row in rows:
        if row.pid in pids and row.used_bytes:
            held[row.pid] = max(held.get(row.pid, 0), row.used_bytes)
    return sum(held.values())


def _command(name: str) -> str:
    return name.rsplit("/", 1)[-1][:15]
