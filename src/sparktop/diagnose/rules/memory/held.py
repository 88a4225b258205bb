"""Rule on memory that an ended engine still holds.

Two field reports disagree: memory comes back after a minute (004), or only by a reboot (003). Both are right in
different cases, and measuring tells which: is memory still rising, does a living process hold it, is it page cache, or
is it unaccounted for against this machine's figure after boot (docs/facts/engines.md section 1E, C5 and C6)?
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sparktop.checks.parity import TOLERATED_SHARE
from sparktop.cmdline.engine_command import command_of
from sparktop.dataclass import dataclass
from sparktop.diagnose.rule import live_rule
from sparktop.diagnose.rules.window import newest, of_engine, seen
from sparktop.engines.images import release_of
from sparktop.engines.ranks import is_alive, spans_nodes
from sparktop.model.change import SMALLER_SHARE
from sparktop.model.engine import Engine, EngineKind
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Phase, Remedy
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

_REFERENCES = (
    "field report 003 (33 GiB until a reboot)",
    "field report 004 (back after 60 s and more)",
    "vllm-project/vllm#45179 (0.23 kept the memory of a failed load until a reboot, 0.24 does not)",
)


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


@live_rule(
    RULE,
    "An engine stopped, but its memory isn't free: still being freed, held by a process, cached, or lost",
    Severity.CRITICAL,
    scope="unified memory; compared with this machine's own figure after its boot",
    sources=_REFERENCES,
    hold_s=2.0,
    clear_s=CLEAR_S,
)
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
    forecast = (
        f" At this rate the {gib(after.target)} available after its boot are free again in {span(missing / rate)}."
        if after.target is not None
        else ""
    )
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        title=f"{after.node.name}: the memory of {after.engine.name} is being freed",
        explanation=(
            f"{after.engine.name} stopped {span(after.ended_s)} ago. Available memory rises {rate / GIB:.1f} GiB/s "
            f"and is now {gib(latest)}. The driver frees unified memory some time after the process exits; it has "
            f"taken more than a minute.{forecast} An engine that starts earlier runs out of memory."
        ),
        remedies=(
            Remedy(
                title="Wait until it stops rising, then start an engine",
                steps=(
                    f"start the engine when {gib(after.target)} are available" if after.target else "watch it here",
                ),
                cost="a minute or two",
                action="safe-restart",
            ),
        ),
        references=_REFERENCES,
        nodes=(after.node.name,),
        brief=f"{gib(latest)} available, +{rate / GIB:.1f} GiB/s",
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
    if not is_measured and least is not None and unaccounted - least >= TRAPPED_BYTES:
        trapped, is_confirmed, limit, settles = unaccounted - least, True, TRAPPED_BYTES, ""
        comparison = (
            f"Earlier in this boot {gib(least)} were unaccounted for; now {gib(unaccounted)} are, and "
            f"{gib(after.available)} are available. "
        )
    elif after.target is not None and baseline is not None:
        trapped = min(after.target - after.available, unaccounted)
        is_confirmed = not baseline.is_earlier_boot
        limit = TRAPPED_BYTES
        boot = "in an earlier boot" if baseline.is_earlier_boot else "earlier in this boot"
        comparison = (
            f"This machine had {gib(after.target)} available {boot}, with no engine; now {gib(after.available)}. "
        )
        settles = "The same figure in this boot, before any engine ran."
    else:
        trapped, is_confirmed, limit = unaccounted, False, UNKNOWN_NORMAL_BYTES
        comparison = f"{gib(after.available)} are available, and "
        settles = "Its available memory after a reboot: sparktop hasn't seen it without an engine yet."
    if trapped < limit:
        return None
    name = after.engine.name if after.engine else "an engine"
    is_severe = trapped >= TRAPPED_BADLY_BYTES or (after.ended_s is not None and after.ended_s > WAIT_AT_MOST_S)
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL if is_severe and is_confirmed else Severity.WARNING,
        confidence=Confidence.CONFIRMED if is_confirmed else Confidence.SUSPECTED,
        settles="" if is_confirmed else settles,
        title=f"{node.name}: {gib(trapped)} lost since {name} stopped: no process holds them",
        explanation=(
            f"{comparison}{gib(trapped)} are missing. No process, GPU process, cache or kernel table accounts for "
            f"them. Available memory hasn't changed for {FLAT_S:.0f} s and more, so it isn't being freed. The "
            "driver kept the allocations of a dead process. `docker rm`, dropping caches and killing processes "
            "haven't released them; a reboot has. The next engine gets only the rest."
        ),
        distinction=(
            "Not page cache: MemAvailable counts cache as free already.",
            "No process holds it: sparktop read the GPU's process list and /proc.",
        ),
        evidence=(
            *(
                [seen(node, "baseline", f"{gib(after.target)} available after boot, without an engine")]
                if after.target is not None
                else []
            ),
            seen(node, "memory", f"available {gib(after.available)}, unaccounted {gib(unaccounted)}"),
            *([_ended_evidence(after.engine, node)] if after.engine is not None else []),
        ),
        remedies=_reboot(after, trapped, is_confirmed=is_confirmed),
        references=_REFERENCES,
        nodes=(after.node.name,),
        brief=_lost_brief(trapped, after.available),
        blocks_starts=True,
    )


def _still_lost(lost: Finding | None, node: NodeView, sample: Sample, fleet: FleetState) -> Finding | None:
    """What was told as lost, while as much belongs to nobody: an engine that starts doesn't give it back."""
    unaccounted = node.ledger.unaccounted_bytes if node.ledger else None
    least = (node.baseline.least_unaccounted_bytes if node.baseline else None) or 0
    if lost is None or unaccounted is None or unaccounted - least < TRAPPED_BYTES:
        return None
    remedies = lost.remedies
    if lost.since_wall_s is None or fleet.wall_s - lost.since_wall_s >= WAIT_AT_MOST_S:
        remedies = tuple(remedy for remedy in remedies if remedy is not _WAIT)
    return replace(
        lost, is_unseen=False, remedies=remedies, brief=_lost_brief(unaccounted - least, sample.memory.available_bytes)
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
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        title=f"{after.node.name}: {gib(memory.page_cache_bytes)} are page cache, not a leak",
        explanation=(
            f"{after.engine.name} is gone and its memory is free: {gib(after.available)} are available. Of that "
            f"{gib(memory.page_cache_bytes)} hold files, mostly weights, and speed up the next load of the same "
            "model. vLLM's and SGLang's startup checks count it as free. A large cudaMalloc and the driver may still "
            "fail, and the other node of a pair may have less page cache."
        ),
        remedies=(
            Remedy(
                title="Drop the caches only if a launch on this node stalls or runs out of memory",
                steps=("sudo sh -c 'sync; echo 3 > /proc/sys/vm/drop_caches'",),
                cost="the next load reads its weights from disk again; it releases no leaked GPU memory",
                action="drop-caches",
            ),
        ),
        references=_REFERENCES,
        nodes=(after.node.name,),
        brief=f"{gib(memory.page_cache_bytes)} cache, {gib(after.available)} available",
        evidence=(
            seen(
                after.node,
                "memory",
                f"available {gib(after.available)}, including cache {gib(memory.page_cache_bytes)}",
            ),
        ),
    )


# Wording


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


_WAIT = Remedy(title="Wait until five minutes after it stopped, in case memory starts to rise", cost="minutes")


def _reboot(after: _AfterExit, trapped: int, *, is_confirmed: bool) -> tuple[Remedy, ...]:
    """What gives it back, or does without it; to wait comes first only while the loss is suspected."""
    wait = [_WAIT] if after.ended_s is not None and after.ended_s < WAIT_AT_MOST_S else []
    remedies = [] if is_confirmed else [*wait]
    remedies.append(
        Remedy(
            title=f"Reboot {after.node.name}: the only known way to free it",
            steps=("sudo systemctl reboot", "afterwards compare available memory with this figure"),
            cost="everything running there; about two minutes",
            action="reboot",
        )
    )
    engine = after.engine
    if engine is not None and engine.kind is EngineKind.VLLM:
        version = release_of(engine.version)
        if version is None or version < (0, 24):
            remedies.append(
                Remedy(title="Use vLLM 0.24 or later, which frees the memory of a failed load", cost="another image")
            )
    has_share = engine is not None and command_of(engine).value("--mem-fraction-static", "--gpu-memory-utilization")
    if engine is not None and has_share and not _is_refused_by_sglang(engine, trapped, after.available):
        remedies.append(
            Remedy(
                title="Launch with a smaller share, in the remaining memory",
                cost="KV cache",
                action="relaunch",
                change=SMALLER_SHARE,
            )
        )
    return (*remedies, *(wait if is_confirmed else ()))


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
    return Finding(
        rule=RULE,
        severity=Severity.WARNING,
        title=f"{node.name}: {process.command} (pid {process.pid}) still holds {gib(size)} of a stopped engine",
        explanation=(
            f"The process still runs although {reason}. It holds {gib(size)} of GPU memory, which on this machine is "
            "the host's memory. It serves nobody, and the next engine can't use that memory."
        ),
        distinction=("A running process holds it, so waiting, dropping caches or a reboot isn't needed.",),
        evidence=(
            seen(node, "GPU processes", f"pid {process.pid} {process.command}: {gib(size)}"),
            seen(node, "processes", f"pid {process.pid}, parent {process.parent_pid}, state {process.state}: {reason}"),
        ),
        remedies=(
            Remedy(
                title=f"Kill pid {process.pid} (SIGTERM, SIGKILL after 15 s)",
                steps=(f"sudo kill {process.pid}", f"after 15 s: sudo kill -9 {process.pid}"),
                cost="nothing: it serves nobody",
                action="end-holder",
                pid=process.pid,
            ),
        ),
        references=("Blackwellboy/model-serving-minefield (trap 123)",),
        nodes=(node.name,),
        brief=f"pid {process.pid} {process.command} holds {gib(size)}",
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
