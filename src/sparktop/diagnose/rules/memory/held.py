"""Rule on memory that an ended engine still holds.

Two field reports disagree: memory comes back after a minute (004), or only by a reboot (003). Both are right in
different cases, and measuring tells which: is memory still rising, does a living process hold it, is it page cache, or
is it unaccounted for against this machine's figure after boot (docs/facts/engines.md section 1E, C5 and C6)?
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sparktop.checks.parity import TOLERATED_SHARE
from sparktop.dataclass import dataclass
from sparktop.diagnose.rule import live_rule
from sparktop.diagnose.rules.window import newest, of_engine, seen
from sparktop.engines.images import release_of
from sparktop.engines.ranks import is_alive, spans_nodes
from sparktop.knowledge.card import found, remedies
from sparktop.model.change import SMALLER_SHARE
from sparktop.model.engine import Engine, EngineKind
from sparktop.model.event import Severity
from sparktop.model.finding import Evidence, Finding, Phase, Remedy
from sparktop.model.fleet import FleetState, NodeView, current_nodes, node_wall_s
from sparktop.model.telemetry import GpuProcess, Process, Sample
from sparktop.text.units import GIB, gib, span

RULE = "memory.held-after-exit"


def lost_memory(fleet: FleetState, node: str) -> Finding | None:
    """The finding that memory of this node is held by nobody, which only a reboot gives back; None without it."""
    return _held(fleet, node, "reboot")


def surviving_process(fleet: FleetState, node: str) -> Finding | None:
    """The finding that a living process of this node holds the memory of a stopped engine; None without it."""
    return _held(fleet, node, "end-holder")


def _held(fleet: FleetState, node: str, action: str) -> Finding | None:
    """The firing finding of held memory that `action` gives back."""
    return next(
        (
            finding
            for finding in fleet.findings
            if finding.rule == RULE
            and finding.phase is Phase.FIRING
            and node in finding.nodes
            and any(remedy.action == action for remedy in finding.remedies)
        ),
        None,
    )


def _had_holder(fleet: FleetState, node: str) -> bool:
    """Whether a process held the memory until less than FLAT_S ago: since its end it may not have begun to return."""
    return surviving_process(fleet, node) is not None or any(
        one.rule == RULE and node in one.nodes and fleet.wall_s - (one.resolved_wall_s or 0.0) < FLAT_S - CLEAR_S
        for one in fleet.findings
    )


CLEAR_S = 8.0
TRAPPED_BYTES = 8 * GIB
TRAPPED_BADLY_BYTES = 24 * GIB
UNKNOWN_NORMAL_BYTES = 16 * GIB
"""Unaccounted memory that counts as held on a machine whose normal figure isn't known."""
CACHE_BYTES = 10 * GIB
RECENT_S = 600.0
RISING_BYTES_PER_S = 0.15 * GIB
RISING_OVER_S = 5.0
FLAT_S = 20.0
"""Memory must have stood still this long to be called trapped; while it is released it rises."""
WAIT_AT_MOST_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _AfterExit:
    """A node without a living engine, after one ended."""

    node: NodeView
    engine: Engine | None
    """The engine that ended last; None if not recently."""
    ended_s: float | None
    """Seconds since its end."""
    available: int
    target: int | None
    """Available memory this machine had after its boot; None if unknown."""


@live_rule(RULE, hold_s=2.0, clear_s=CLEAR_S)
def held_after_exit(fleet: FleetState) -> Iterable[Finding]:
    """memory.held-after-exit: at most one finding a node, the first case that applies.

    A living process that outlived its engine; memory held by nobody compared with this machine's figure after boot,
    found with no engine alive and told until somebody gives it back; else, with no engine alive: memory that is still
    rising, page cache.
    """
    for node, sample in current_nodes(fleet):
        if (orphan_finding := orphan(node)) is not None:
            yield orphan_finding
            continue
        told = lost_memory(fleet, node.name)
        lost = _still_lost(told, node, sample, fleet)
        if any(is_alive(engine) for engine in node.engines):
            finding = lost
        else:
            after = _after_exit(node, sample, fleet, told)
            trapped = None if _had_holder(fleet, node.name) else _trapped(after)
            finding = trapped or lost or _rising(after) or _cache(after)
        if finding is not None:
            yield finding


def _after_exit(node: NodeView, sample: Sample, fleet: FleetState, told: Finding | None) -> _AfterExit:
    """`told` is what was found to be lost: of the engines that ended since, none lost it."""
    now_s = node_wall_s(node, fleet)
    told_ago_s = fleet.wall_s - told.since_wall_s if told is not None and told.since_wall_s is not None else None
    ended = [
        (now_s - engine.exited_wall_s, engine)
        for engine in node.engines
        if engine.exited_wall_s is not None and now_s is not None
    ]
    ended = [row for row in ended if (row[0] < RECENT_S if told_ago_s is None else row[0] >= told_ago_s)]
    ended.sort(key=lambda row: row[0])
    baseline = node.baseline
    return _AfterExit(
        node=node,
        engine=ended[0][1] if ended else None,
        ended_s=max(0.0, ended[0][0]) if ended else None,
        available=sample.memory.available_bytes,
        target=baseline.after_boot_available_bytes if baseline else None,
    )


# The cases


def _rising(after: _AfterExit) -> Finding | None:
    """Memory is still coming back: wait, with a forecast."""
    if after.engine is None or after.ended_s is None or after.ended_s > WAIT_AT_MOST_S:
        return None
    points = list(newest(after.node.available_history, RISING_OVER_S))
    if len(points) < 3:
        return None
    (newest_s, latest), (oldest_s, earliest) = points[0], points[-1]
    rate = (latest - earliest) / max(0.1, newest_s - oldest_s)
    if rate < RISING_BYTES_PER_S or latest <= points[1][1]:
        return None
    missing = (after.target or 0) - latest
    if after.target is not None and missing < GIB:
        return None
    return found(
        RULE,
        "rising",
        {
            "node": after.node.name,
            "engine": after.engine.name,
            "span": span(after.ended_s),
            "rate": rate / GIB,
            "available": gib(latest),
            "target": gib(after.target) if after.target else None,
            "forecast": span(missing / rate) if after.target is not None else None,
        },
        nodes=(after.node.name,),
        evidence=(
            seen(
                after.node,
                "memory",
                f"available {gib(earliest)} {newest_s - oldest_s:.0f} s ago, {gib(latest)} now",
            ),
        ),
    )


def _trapped(after: _AfterExit) -> Finding | None:
    """Memory is missing against this machine's figures of this boot, or after one, and no process holds it."""
    node, ledger = after.node, after.node.ledger
    unaccounted = ledger.unaccounted_bytes if ledger else None
    if unaccounted is None or not is_flat(node):
        return None
    baseline = node.baseline
    least = baseline.least_unaccounted_bytes if baseline else None
    is_measured = after.target is not None and baseline is not None and not baseline.is_earlier_boot
    limit = TRAPPED_BYTES
    if not is_measured and least is not None and unaccounted - least >= TRAPPED_BYTES:
        case, trapped = "grew", unaccounted - least
    elif after.target is not None and baseline is not None:
        case = "earlier-boot" if baseline.is_earlier_boot else "this-boot"
        trapped = min(after.target - after.available, unaccounted)
    else:
        case, trapped, limit = "unmeasured", unaccounted, UNKNOWN_NORMAL_BYTES
    if trapped < limit:
        return None
    is_confirmed = case in ("grew", "this-boot")
    is_severe = trapped >= TRAPPED_BADLY_BYTES or (after.ended_s is not None and after.ended_s > WAIT_AT_MOST_S)
    waits = _wait() if after.ended_s is not None and after.ended_s < WAIT_AT_MOST_S else ()
    figures = {
        "node": node.name,
        "engine": after.engine.name if after.engine else "an engine",
        "lost": gib(trapped),
        "available": gib(after.available),
        "unaccounted": gib(unaccounted),
        "least": gib(least) if least is not None else None,
        "target": gib(after.target) if after.target is not None else None,
        "flat_s": FLAT_S,
        "is_before_0_24": _is_before_0_24(after.engine),
        "smaller_share": SMALLER_SHARE if _may_have_less(after, trapped) else None,
        "brief": _lost_brief(trapped, after.available),
    }
    return found(
        RULE,
        case,
        figures,
        severity=Severity.CRITICAL if is_severe and is_confirmed else Severity.WARNING,
        evidence=(
            *(
                [seen(node, "baseline", f"{gib(after.target)} available after boot, without an engine")]
                if after.target is not None
                else []
            ),
            seen(node, "memory", f"available {gib(after.available)}, unaccounted {gib(unaccounted)}"),
            *([_ended_evidence(after.engine, node)] if after.engine is not None else []),
        ),
        # To wait comes first only while the loss is suspected.
        remedies=(*(() if is_confirmed else waits), *remedies(RULE, case, figures), *(waits if is_confirmed else ())),
        nodes=(node.name,),
        blocks_starts=True,
    )


def _wait() -> tuple[Remedy, ...]:
    return remedies(RULE, "just-stopped", {})


def _still_lost(lost: Finding | None, node: NodeView, sample: Sample, fleet: FleetState) -> Finding | None:
    """What was told as lost, while as much belongs to nobody: an engine that starts doesn't give it back."""
    unaccounted = node.ledger.unaccounted_bytes if node.ledger else None
    least = (node.baseline.least_unaccounted_bytes if node.baseline else None) or 0
    if lost is None or unaccounted is None or unaccounted - least < TRAPPED_BYTES:
        return None
    left = lost.remedies
    if lost.since_wall_s is None or fleet.wall_s - lost.since_wall_s >= WAIT_AT_MOST_S:
        left = tuple(remedy for remedy in left if remedy not in _wait())
    return replace(
        lost, is_unseen=False, remedies=left, brief=_lost_brief(unaccounted - least, sample.memory.available_bytes)
    )


def _lost_brief(lost: int, available: int) -> str:
    return f"{gib(lost)} lost, {gib(available)} available"


def _cache(after: _AfterExit) -> Finding | None:
    """No leak: the missing memory is page cache, and available memory is as it should be."""
    if after.engine is None or after.node.sample is None:
        return None
    memory = after.node.sample.memory
    if memory.page_cache_bytes < CACHE_BYTES or memory.free_bytes > memory.total_bytes // 2:
        return None
    ledger = after.node.ledger
    unaccounted = (ledger.unaccounted_bytes if ledger else None) or 0
    missing = (
        unaccounted >= UNKNOWN_NORMAL_BYTES if after.target is None else after.target - after.available > TRAPPED_BYTES
    )
    if missing:
        return None
    return found(
        RULE,
        "cached",
        {
            "node": after.node.name,
            "engine": after.engine.name,
            "cache": gib(memory.page_cache_bytes),
            "available": gib(after.available),
        },
        nodes=(after.node.name,),
        evidence=(
            seen(
                after.node,
                "memory",
                f"available {gib(after.available)}, including cache {gib(memory.page_cache_bytes)}",
            ),
        ),
    )


def is_flat(node: NodeView, for_s: float = FLAT_S) -> bool:
    """Whether available memory changed by less than a GiB for so long: neither coming back nor just changed."""
    points = list(newest(node.available_history, for_s))
    if len(points) < 5 or points[0][0] - points[-1][0] < for_s - 3:
        return False
    values = [value for _, value in points]
    return max(values) - min(values) < GIB


def _ended_evidence(engine: Engine, node: NodeView) -> Evidence:
    code = engine.container.exit_code if engine.container else None
    detail = engine.exit_detail or (f"exit code {code}" if code is not None else "ended")
    return of_engine(engine, node, detail, wall_s=engine.exited_wall_s)


def _is_before_0_24(engine: Engine | None) -> bool:
    """Whether it is a vLLM that may keep the memory of a failed load."""
    if engine is None or engine.kind is not EngineKind.VLLM:
        return False
    version = release_of(engine.version)
    return version is None or version < (0, 24)


def _may_have_less(after: _AfterExit, trapped: int) -> bool:
    """Whether its engine has a share to be lowered, and starts in the remaining memory."""
    engine = after.engine
    has_share = engine is not None and engine.command.value("--mem-fraction-static", "--gpu-memory-utilization")
    return engine is not None and bool(has_share) and not _is_refused_by_sglang(engine, trapped, after.available)


def _is_refused_by_sglang(engine: Engine, trapped: int, available: int) -> bool:
    """Whether SGLang refuses any share: of a pair, the other node's memory is whole."""
    is_of_a_pair = engine.kind is EngineKind.SGLANG and spans_nodes(engine)
    return is_of_a_pair and trapped > TOLERATED_SHARE * (available + trapped)


HOLDER_BYTES = 2 * GIB
_ENGINE_TITLES = ("VLLM::", "sglang::", "ray::")


def _surviving_process(node: NodeView) -> tuple[Process, int, str] | None:
    """(process, GPU bytes, reason) of an engine's process that outlived its server or container."""
    bytes_by_pid = {row.pid: row.used_bytes or 0 for row in node.gpu_processes if row.kind == "C"}
    table = {process.pid: process for process in (node.processes.processes if node.processes else ())}
    ended_containers = {
        container.container_id for container in node.containers.containers if container.status in ("exited", "dead")
    }
    served_pids = {pid for engine in node.engines if is_alive(engine) and _has_server(engine) for pid in engine.pids}
    for pid in sorted(bytes_by_pid, key=lambda pid: -bytes_by_pid[pid]):
        process = table.get(pid)
        if bytes_by_pid[pid] < HOLDER_BYTES or process is None:
            continue
        if process.container_id in ended_containers:
            return process, bytes_by_pid[pid], "its container has stopped"
        if process.parent_pid == 1 and process.container_id is None and pid not in served_pids and _is_titled(process):
            return process, bytes_by_pid[pid], "its server has exited and left it to init"
    return None


def orphan(node: NodeView) -> Finding | None:
    """memory.held-after-exit where a living process holds the memory: the finding names its pid."""
    survivor = _surviving_process(node)
    if survivor is None:
        return None
    process, size, reason = survivor
    return found(
        RULE,
        "process-left",
        {"node": node.name, "command": process.command, "pid": process.pid, "size": gib(size), "reason": reason},
        evidence=(
            seen(node, "GPU processes", f"pid {process.pid} {process.command}: {gib(size)}"),
            seen(node, "processes", f"pid {process.pid}, parent {process.parent_pid}, state {process.state}: {reason}"),
        ),
        references=("Blackwellboy/model-serving-minefield (trap 123)",),
        nodes=(node.name,),
        blocks_starts=True,
    )


def _is_titled(process: Process) -> bool:
    """Whether a process is named as engines name their workers (setproctitle)."""
    title = process.argv[0] if process.argv else ""
    return process.command.startswith(_ENGINE_TITLES) or title.startswith(_ENGINE_TITLES)


def _has_server(engine: Engine) -> bool:
    """Whether the engine's server process was found, and not only workers."""
    return engine.endpoint is not None or not engine.argv[:1] or not engine.argv[0].startswith(_ENGINE_TITLES)


OTHER_HOLDER_BYTES = 8 * GIB
"""Another program that holds less isn't why a start lacks memory."""


def largest_of_no_engine(node: NodeView, least_bytes: int) -> GpuProcess | None:
    """The process of no engine that holds the most GPU memory, where it holds more than that."""
    containers = {engine.container.container_id for engine in node.engines if engine.container is not None}
    table = node.processes.processes if node.processes else ()
    pids = {pid for engine in node.engines for pid in engine.pids}
    pids |= {process.pid for process in table if process.container_id in containers}
    rows = [
        row
        for row in node.gpu_processes
        if row.kind == "C" and row.pid not in pids and (row.used_bytes or 0) > least_bytes
    ]
    return max(rows, key=lambda row: row.used_bytes or 0, default=None)
