"""The wait for memory after an engine's end: how much has come back, and where it stalls, what holds the rest.

The ladder is that of the finding about held memory (`diagnose.rules.memory.held`; docs/facts/engines.md section 1E,
C5): still rising: wait; flat and a process holds it: name the process; flat and nobody holds it: it is trapped, and
only a reboot helps. Dropping caches is one rung: MemAvailable counts the page cache as free already (C6).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparktop.dataclass import dataclass
from sparktop.diagnose.rules.memory.held import (
    CACHE_BYTES,
    FLAT_S,
    RISING_BYTES_PER_S,
    RISING_OVER_S,
    TRAPPED_BYTES,
    lost_memory,
    orphan,
)
from sparktop.engines.ranks import is_alive
from sparktop.model.fleet import FleetState, NodeView
from sparktop.operate.step.act import Wait
from sparktop.operate.step.wait import Since, WaitStatus, WaitVerdict, met, waiting
from sparktop.text.units import GIB, gib, span

STALLED_S = 60.0
"""Failed when flat for so long while a process holds it: it comes back when that ends."""
UNHELD_S = 120.0
"""Failed when flat for so long with nobody holding it: a release may take a minute and more (field report 004)."""
FLAT_BYTES = GIB
"""A spread of less than this counts as standing still, as in the finding."""
HOLDER_BYTES = GIB
SHARED_BYTES = 4 * GIB
"""Up to this, shared memory is normal for a desktop and a served engine."""
Points = Sequence[tuple[float, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitMemory(Wait):
    """Wait until this much memory is available and stays so; if it stalls, report what may hold it, step by step."""

    target_bytes: int
    stable_s: float = 5.0
    unless_runs: str = ""
    """A container's id, or its name where it may have been recreated: while it runs there is nothing to wait for
    (the rollback of a run that stopped nothing)."""

    @property
    def is_kept(self) -> bool:
        return True

    def text(self) -> Iterator[str]:
        yield f"until {gib(self.target_bytes)} are available, and stay so for {self.stable_s:g} s"

    def judge(self, picture: FleetState, node: str, since: Since) -> WaitStatus:
        """Met when the target has been available for `stable_s`; failed when it has stood still below it."""
        view = picture.node(node)
        points = since.available
        # A container of that name may have been stopped a moment ago: give the picture time to show it.
        is_settled = bool(points) and points[-1][0] - points[0][0] >= self.stable_s
        if self.unless_runs and view is not None and _runs(view, self.unless_runs, by_name=is_settled):
            return met("it still runs: nothing to wait for")
        if view is None or not points:
            return waiting(f"waiting for new figures from {node}")
        available = points[-1][1]
        ratio = min(1.0, available / max(1, self.target_bytes))
        figures = f"{available / GIB:.1f} of {gib(self.target_bytes)} available"
        if available >= self.target_bytes:
            reached_s = _reached_for_s(points, self.target_bytes)
            if reached_s >= self.stable_s:
                return met(f"{gib(available)} available for {span(reached_s)}")
            needed = f"{gib(available)} available, {gib(self.target_bytes)} needed"
            return waiting(f"{needed}; watched for {self.stable_s:.0f} s", ratio)
        rate = rise_of(points)
        if rate >= RISING_BYTES_PER_S:
            left_s = (self.target_bytes - available) / rate
            detail = f"{figures}, rising {rate / GIB:.1f} GiB/s, there in {clock(left_s)}"
            return waiting(detail, ratio)
        flat_s = flat_for_s(points)
        if flat_s < FLAT_S:
            return waiting(figures, ratio)
        is_held, why = rung(view, self.target_bytes - available, since.before)
        is_lost = not is_held and lost_memory(picture, node) is not None  # it has been waited for already
        stall = f"{figures}, flat for {span(flat_s)}: {why}"
        is_over = is_lost or flat_s >= (STALLED_S if is_held else UNHELD_S)
        return WaitStatus(verdict=WaitVerdict.FAILED if is_over else WaitVerdict.WAITING, detail=stall, ratio=ratio)


def rung(view: NodeView, missing_bytes: int, before: NodeView | None = None) -> tuple[bool, str]:
    """What keeps memory from coming back: (whether a process holds it, a sentence with what to do)."""
    if (orphan_holder := orphan(view)) is not None:
        return True, f"{orphan_holder.brief}; kill it (end-holder), then try again"
    ledger = view.ledger
    unaccounted = ledger.unaccounted_bytes if ledger else None
    trapped = min(missing_bytes, unaccounted) if unaccounted is not None else 0
    holders, stuck = list(_holders(view)), list(_stuck_processes(view, before))
    if stuck or (holders and trapped < max(TRAPPED_BYTES, missing_bytes // 2)):
        holders = stuck + holders
        return True, f"held by {'; '.join(holders)}. Stop what you don't need, then try again"
    return False, _unheld_text(view, missing_bytes, trapped, unaccounted)


def _unheld_text(view: NodeView, missing_bytes: int, trapped: int, unaccounted: int | None) -> str:
    cache = view.sample.memory.page_cache_bytes if view.sample else 0
    if trapped >= TRAPPED_BYTES:
        normal = (view.baseline.least_unaccounted_bytes if view.baseline else None) or 0
        lost = max(trapped, (unaccounted or 0) - normal)
        return (
            f"{gib(lost)} belong to no process, no GPU process and no cache: the driver has kept them. Reboot "
            f"{view.name}: dropping caches and killing processes haven't released such memory"
        )
    if cache >= CACHE_BYTES:
        return (
            f"nobody holds what is missing, and {gib(cache)} are page cache. Drop caches and try again: it counts as "
            "available already for the most part, so the gain is small; or set a lower target (target_gib)"
        )
    unknown = "" if unaccounted is not None else ", though the GPU's processes can't be listed here"
    return (
        f"no holder is to be seen{unknown}, and {gib(missing_bytes)} are missing. Set a lower target (target_gib) if "
        f"the engine fits into what is there{', or reboot' if missing_bytes >= TRAPPED_BYTES else ''}"
    )


def rise_of(points: Points) -> float:
    """The rise in bytes a second over the last seconds; 0 or less where it doesn't rise."""
    end_s, end = points[-1]
    start_s, start = next(point for point in points if point[0] >= end_s - RISING_OVER_S)
    return (end - start) / (end_s - start_s) if end_s - start_s >= 1.0 else 0.0


def flat_for_s(points: Points) -> float:
    """For how long, up to now, it has stayed within FLAT_BYTES; falling memory counts as flat."""
    end_s, lowest = points[-1]
    began_s = end_s
    for at_s, value in reversed(points):
        lowest = min(lowest, value)
        if points[-1][1] - lowest >= FLAT_BYTES:
            break
        began_s = at_s
    return end_s - began_s


def clock(seconds: float) -> str:
    """A time to come: "0:20", "4:05"."""
    whole = round(min(max(seconds, 0.0), 359_999))
    return f"{whole // 60}:{whole % 60:02d}"


def _reached_for_s(points: Points, target_bytes: int) -> float:
    began_s = points[-1][0]
    for at_s, value in reversed(points):
        if value < target_bytes:
            break
        began_s = at_s
    return points[-1][0] - began_s


def _runs(view: NodeView, id_or_name: str, *, by_name: bool) -> bool:
    return any(
        (container.container_id == id_or_name or (by_name and container.name == id_or_name))
        and container.status in ("running", "restarting", "paused")
        for container in view.containers.containers
    )


def _holders(view: NodeView) -> Iterator[str]:
    """The largest known holders: engines, further GPU processes, and shared memory."""
    living = [engine for engine in view.engines if is_alive(engine)]
    rows: dict[int, tuple[str, int]] = {}
    owned = {pid for engine in living for pid in engine.pids}
    table = {process.pid: process for process in (view.processes.processes if view.processes else ())}
    container_names = {container.container_id: container.name for container in view.containers.containers}
    for row in view.gpu_processes:
        size = row.used_bytes or 0
        if row.pid in owned or row.kind != "C" or size < HOLDER_BYTES:
            continue
        process = table.get(row.pid)
        name = process.command if process else row.name.rpartition("/")[2]
        container_name = container_names.get(process.container_id or "") if process else None
        where = f" in container {container_name}" if container_name else ""
        state = f", state {process.state}" if process and process.state in ("D", "Z") else ""
        rows[row.pid] = (f"{name} (pid {row.pid}{where}{state}) with {gib(size)}", size)
    holders = [*rows.values()]
    holders += [
        (f"engine {engine.name} with {gib(engine.gpu_bytes)}", engine.gpu_bytes)
        for engine in living
        if engine.gpu_bytes and engine.gpu_bytes >= HOLDER_BYTES
    ]
    yield from (text for text, _ in sorted(holders, key=lambda holder: -holder[1])[:4])
    shared = view.sample.memory.shared_bytes if view.sample else 0
    if shared >= SHARED_BYTES:
        yield f"files in /dev/shm and other shared memory with {gib(shared)}"


def _stuck_processes(view: NodeView, before: NodeView | None) -> Iterator[str]:
    """The stopped engine's own processes that are still in the table: zombies, or stuck in the kernel."""
    started = {
        process.pid: process.started_boot_s
        for process in (before.processes.processes if before and before.processes else ())
    }
    pids = {pid for engine in (before.engines if before else ()) for pid in engine.pids}
    for process in view.processes.processes if view.processes else ():
        is_same = process.pid in pids and abs(started.get(process.pid, -1e9) - process.started_boot_s) < 1.0
        if is_same and process.state in ("Z", "D"):
            state_text = "a zombie" if process.state == "Z" else "stuck in the kernel (state D)"
            yield f"{process.command} (pid {process.pid}), {state_text}"
