"""How far memory has come back after an engine's end, and where it stalls, what is in the way: a wait's judge. Pure.

The ladder is that of the finding about held memory (`diagnose.live.leak`; facts/engines.md section 1E, C5): still
rising, wait; flat and somebody holds it, they are named; flat with nobody, it is trapped and a reboot is what is left.
Drop caches is a rung of it, and says what it can't do: MemAvailable counts the page cache as free already (C6).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparktop.diagnose.live.leak import CACHE_BYTES, FLAT_S, RISING_BYTES_PER_S, RISING_OVER_S, TRAPPED_BYTES
from sparktop.diagnose.live.orphan import orphan
from sparktop.diagnose.live.ranks import is_alive
from sparktop.diagnose.live.window import GIB, gib, span
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.plan import AwaitMemory
from sparktop.operate.judging import Judgement, Since, Verdict

STALLED_S = 60.0
"""Flat for so long while somebody holds it: it comes when they end."""
NOBODYS_S = 120.0
"""Flat for so long with nobody that holds it: a release may take a minute and more (field report 004)."""
FLAT_BYTES = GIB
"""Less than this between the highest and the lowest figure is standing still; so the finding has it."""
HOLDER_BYTES = GIB
SHARED_BYTES = 4 * GIB
"""Up to this shared memory is a desktop's and a served engine's ordinary use."""
Points = Sequence[tuple[float, int]]


def judge_memory(act: AwaitMemory, picture: FleetState, node: str, since: Since) -> Judgement:
    """Met when the target has been available for `stable_s`; failed when it has stood still below it for a minute."""
    view = picture.node(node)
    points = since.available
    # By its name it may be one that was stopped a moment ago: the picture is given time to say so.
    is_settled = bool(points) and points[-1][0] - points[0][0] >= act.stable_s
    if act.unless_runs and view is not None and _runs(view, act.unless_runs, by_name=is_settled):
        return Judgement(verdict=Verdict.MET, detail="it still runs: there is nothing to wait for", ratio=1.0)
    if view is None or not points:
        return Judgement(verdict=Verdict.WAITING, detail=f"no figures from {node} yet")
    now = points[-1][1]
    ratio = min(1.0, now / max(1, act.target_bytes))
    figures = f"{now / GIB:.1f} of {gib(act.target_bytes)} available"
    if now >= act.target_bytes:
        reached_s = _reached_for_s(points, act.target_bytes)
        if reached_s >= act.stable_s:
            return Judgement(verdict=Verdict.MET, detail=f"{gib(now)} available, {span(reached_s)} long", ratio=1.0)
        return Judgement(verdict=Verdict.WAITING, detail=f"{figures}, watched for {act.stable_s:.0f} s", ratio=ratio)
    rate = rise_of(points)
    if rate >= RISING_BYTES_PER_S:
        there_s = (act.target_bytes - now) / rate
        detail = f"{figures}, rising {rate / GIB:.1f} GiB/s, there in {clock(there_s)}"
        return Judgement(verdict=Verdict.WAITING, detail=detail, ratio=ratio)
    still_s = flat_for_s(points)
    if still_s < FLAT_S:
        return Judgement(verdict=Verdict.WAITING, detail=figures, ratio=ratio)
    is_held, why = rung(view, act.target_bytes - now, since.before)
    stall = f"{figures}, flat for {span(still_s)}: {why}"
    is_over = still_s >= (STALLED_S if is_held else NOBODYS_S)
    return Judgement(verdict=Verdict.FAILED if is_over else Verdict.WAITING, detail=stall, ratio=ratio)


def rung(view: NodeView, missing_bytes: int, before: NodeView | None = None) -> tuple[bool, str]:
    """What is in the way of memory that doesn't come: (whether somebody holds it, a sentence with what to do)."""
    if (held := orphan(view)) is not None:
        return True, f"{held.brief}; end it (end-holder), then try again"
    ledger = view.ledger
    unaccounted = ledger.unaccounted_bytes if ledger else None
    trapped = min(missing_bytes, unaccounted) if unaccounted is not None else 0
    holders, undead = list(_holders(view)), list(_undead(view, before))
    if undead or (holders and trapped < max(TRAPPED_BYTES, missing_bytes // 2)):
        holders = undead + holders
        return True, f"held by {'; '.join(holders)}. End what isn't needed, then try again"
    return False, _nobodys(view, missing_bytes, trapped, unaccounted)


def _nobodys(view: NodeView, missing_bytes: int, trapped: int, unaccounted: int | None) -> str:
    cache = view.sample.memory.page_cache_bytes if view.sample else 0
    if trapped >= TRAPPED_BYTES:
        return (
            f"{gib(trapped)} are held by nobody: no process, no GPU process and no cache accounts for them. The driver "
            "has kept them; dropping caches and ending processes have not released such memory, a reboot has"
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
    """Bytes a second over the last seconds; 0 or less where it doesn't rise."""
    end_s, end = points[-1]
    start_s, start = next(point for point in points if point[0] >= end_s - RISING_OVER_S)
    return (end - start) / (end_s - start_s) if end_s - start_s >= 1.0 else 0.0


def flat_for_s(points: Points) -> float:
    """For how long, up to now, it has stayed within FLAT_BYTES; falling memory doesn't come back either."""
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


def _runs(view: NodeView, which: str, *, by_name: bool) -> bool:
    return any(
        (box.container_id == which or (by_name and box.name == which))
        and box.status in ("running", "restarting", "paused")
        for box in view.containers.containers
    )


def _holders(view: NodeView) -> Iterator[str]:
    """Who can be named: engines, further GPU processes and shared memory, largest first."""
    living = [engine for engine in view.engines if is_alive(engine)]
    rows: dict[int, tuple[str, int]] = {}
    owned = {pid for engine in living for pid in engine.pids}
    table = {process.pid: process for process in (view.processes.processes if view.processes else ())}
    boxes = {box.container_id: box.name for box in view.containers.containers}
    for row in (row for gpu in (view.gpu.gpus if view.gpu else ()) for row in gpu.processes or ()):
        size = row.used_bytes or 0
        if row.pid in owned or row.kind != "C" or size < HOLDER_BYTES:
            continue
        process = table.get(row.pid)
        name = process.command if process else row.name.rpartition("/")[2]
        box = boxes.get(process.container_id or "") if process else None
        where = f" in container {box}" if box else ""
        state = f", state {process.state}" if process and process.state in ("D", "Z") else ""
        rows[row.pid] = (f"{name} (pid {row.pid}{where}{state}) with {gib(size)}", size)
    found = [*rows.values()]
    found += [
        (f"engine {engine.name} with {gib(engine.gpu_bytes)}", engine.gpu_bytes)
        for engine in living
        if engine.gpu_bytes and engine.gpu_bytes >= HOLDER_BYTES
    ]
    yield from (text for text, _ in sorted(found, key=lambda one: -one[1])[:4])
    shared = view.sample.memory.shared_bytes if view.sample else 0
    if shared >= SHARED_BYTES:
        yield f"files in /dev/shm and other shared memory with {gib(shared)}"


def _undead(view: NodeView, before: NodeView | None) -> Iterator[str]:
    """The ended engine's own processes that are still in the table: zombies, or stuck in the kernel."""
    started = {
        process.pid: process.started_boot_s
        for process in (before.processes.processes if before and before.processes else ())
    }
    pids = {pid for engine in (before.engines if before else ()) for pid in engine.pids}
    for process in view.processes.processes if view.processes else ():
        is_same = process.pid in pids and abs(started.get(process.pid, -1e9) - process.started_boot_s) < 1.0
        if is_same and process.state in ("Z", "D"):
            word = "a zombie" if process.state == "Z" else "stuck in the kernel (state D)"
            yield f"{process.command} (pid {process.pid}), {word}"
