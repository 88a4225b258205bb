"""Memory that an engine which ended has not given back: the ladder from waiting to a reboot, as one rule.

Two reports contradict one another: memory comes back after a minute (004), or only by a reboot (003). Both are true of
different cases, and which one this is can be measured: is it still rising, does a living process hold it, is it cache,
or is it nobody's against what this machine had after its boot (facts/engines.md section 1E, C5 and C6).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sparktop.diagnose.live.graphs import version_of
from sparktop.diagnose.live.orphan import orphan
from sparktop.diagnose.live.ranks import flag, is_alive
from sparktop.diagnose.live.window import GIB, gib, is_current, newest, node_wall_s, seen, span
from sparktop.diagnose.rule import LiveRule, Rule, RuleKind
from sparktop.model.change import SMALLER_SHARE
from sparktop.model.engine import Engine, EngineKind
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Remedy
from sparktop.model.fleet import FleetState, NodeView

TRAPPED_BYTES = 8 * GIB
TRAPPED_BADLY_BYTES = 24 * GIB
UNKNOWN_NORMAL_BYTES = 16 * GIB
"""Held by nobody, on a machine whose normal is not known: so much is no rounding."""
CACHE_BYTES = 10 * GIB
RECENT_S = 600.0
RISING_BYTES_PER_S = 0.15 * GIB
RISING_OVER_S = 5.0
FLAT_S = 20.0
"""So long memory must have stood still before what is missing is called trapped; while it is released it rises."""
WAIT_AT_MOST_S = 300.0

_REFERENCES = (
    "field report 003 (33 GiB until a reboot)",
    "field report 004 (back after 60 s and more)",
    "vllm-project/vllm#45179 (0.23 kept the memory of a failed load until a reboot, 0.24 does not)",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _After:
    """A node on which no engine runs as it should, after one that did."""

    node: NodeView
    engine: Engine | None
    """The one that ended last, lately."""
    ended_s: float | None
    """How long ago."""
    available: int
    target: int | None
    """What should be there: this machine's own figure after its boot."""


def check(fleet: FleetState) -> Iterable[Finding]:
    """memory.held-after-exit: at most one finding a node, by the lowest rung of the ladder that holds.

    A process that outlived its engine and holds the memory; else, with no engine alive, memory that still comes back,
    memory held by nobody against this machine's own figure after its boot, page cache.
    """
    for node in fleet.nodes:
        if not is_current(node) or node.sample is None:
            continue
        if (held := orphan(node)) is not None:
            yield held
            continue
        if any(is_alive(engine) for engine in node.engines):
            continue
        after = _after(node, fleet)
        finding = _rising(after) or _trapped(after) or _cache(after)
        if finding is not None:
            yield finding


def _after(node: NodeView, fleet: FleetState) -> _After:
    now_s = node_wall_s(node, fleet)
    ended = [
        (now_s - engine.exited_wall_s, engine)
        for engine in node.engines
        if engine.exited_wall_s is not None and now_s is not None and now_s - engine.exited_wall_s < RECENT_S
    ]
    ended.sort(key=lambda row: row[0])
    baseline = node.baseline
    assert node.sample is not None
    return _After(
        node=node,
        engine=ended[0][1] if ended else None,
        ended_s=max(0.0, ended[0][0]) if ended else None,
        available=node.sample.memory.available_bytes,
        target=baseline.after_boot_available_bytes if baseline else None,
    )


# The rungs


def _rising(after: _After) -> Finding | None:
    """Still coming back: wait, with a forecast."""
    if after.engine is None or after.ended_s is None or after.ended_s > WAIT_AT_MOST_S:
        return None
    points = list(newest(after.node.available_history, RISING_OVER_S))
    if len(points) < 3:
        return None
    (now_s, now), (then_s, then) = points[0], points[-1]
    rate = (now - then) / max(0.1, now_s - then_s)
    if rate < RISING_BYTES_PER_S or now <= points[1][1]:
        return None
    missing = (after.target or 0) - now
    if after.target is not None and missing < GIB:
        return None
    forecast = (
        f" At this rate the {gib(after.target)} of after its boot are there in {span(missing / rate)}."
        if (after.target is not None)
        else ""
    )
    return _finding(
        after,
        Severity.INFO,
        title=f"{after.node.name}: the memory of {after.engine.name} is coming back",
        explanation=(
            f"{after.engine.name} ended {span(after.ended_s)} ago, and available memory rises {rate / GIB:.1f} GiB/s, "
            f"now {gib(now)}. The driver gives unified memory back some time after the process; it has taken more than "
            f"a minute.{forecast} A start before that is over is killed for want of memory."
        ),
        remedies=(
            Remedy(
                title="Wait until it stops rising before starting anything",
                steps=(
                    f"start the engine when {gib(after.target)} are available" if after.target else "watch it here",
                ),
                cost="a minute or two",
                action="safe-restart",
            ),
        ),
        brief=f"{gib(now)} available, +{rate / GIB:.1f} GiB/s",
        evidence=(seen(after.node, "memory", f"available {gib(then)} {now_s - then_s:.0f} s ago, {gib(now)} now"),),
    )


def _trapped(after: _After) -> Finding | None:
    """Nobody's: missing against this machine's own figure after boot, with no process that holds it."""
    node, ledger = after.node, after.node.ledger
    unaccounted = ledger.unaccounted_bytes if ledger else None
    if unaccounted is None or not _is_flat(node):
        return None
    baseline = node.baseline
    if after.target is not None and baseline is not None:
        trapped = min(after.target - after.available, unaccounted)
        sure = not baseline.is_earlier_boot
        limit = TRAPPED_BYTES
        whose = "in an earlier boot" if baseline.is_earlier_boot else "earlier in this boot"
        against = (
            f"This machine had {gib(after.target)} available {whose}, with no engine; now {gib(after.available)}. "
        )
        settles = "The same figure seen in this boot, before any engine ran."
    else:
        trapped, sure, limit = unaccounted, False, UNKNOWN_NORMAL_BYTES
        against = f"{gib(after.available)} are available, and "
        settles = "What this machine has available after a reboot: it has not been seen without an engine yet."
    if trapped < limit:
        return None
    name = after.engine.name if after.engine else "an engine that ended"
    since = f" {name} ended {span(after.ended_s)} ago;" if after.ended_s is not None and after.engine else ""
    bad = trapped >= TRAPPED_BADLY_BYTES or (after.ended_s is not None and after.ended_s > WAIT_AT_MOST_S)
    return _finding(
        after,
        Severity.CRITICAL if bad and sure else Severity.WARNING,
        confidence=Confidence.CONFIRMED if sure else Confidence.SUSPECTED,
        settles="" if sure else settles,
        title=f"{node.name}: {gib(trapped)} are held by nobody since {name} ended",
        explanation=(
            f"{against}{gib(trapped)} are missing that no process, no GPU process, no cache and no kernel table "
            f"accounts for.{since} memory has stood still for {FLAT_S:.0f} s and more, so it is not on its way back. "
            "The driver kept the allocations of a process that is gone: `docker rm`, dropping caches and "
            "killing processes have not released them; a reboot has. The next engine starts into what is left."
        ),
        distinction=(
            "Not page cache: MemAvailable counts cache as free already.",
            "No process holds it: the GPU's process list and /proc were read.",
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
        remedies=_reboot(after),
        brief=f"{gib(trapped)} unaccounted, {gib(after.available)} available",
    )


def _cache(after: _After) -> Finding | None:
    """Not a leak at all: what is not free is page cache, and available memory is as it should be."""
    if after.engine is None or after.node.sample is None:
        return None
    memory = after.node.sample.memory
    if memory.page_cache_bytes < CACHE_BYTES or memory.free_bytes > memory.total_bytes // 2:
        return None
    if after.target is not None and after.target - after.available > TRAPPED_BYTES:
        return None
    return _finding(
        after,
        Severity.INFO,
        title=f"{after.node.name}: {gib(memory.page_cache_bytes)} are page cache, which is no leak",
        explanation=(
            f"{after.engine.name} is gone and its memory is back: {gib(after.available)} are available. Of that "
            f"{gib(memory.page_cache_bytes)} hold files that were read, weights most of all, and make the next load of "
            "the same model faster. vLLM's and SGLang's own start-up checks count it as free; a large cudaMalloc and "
            "the driver may stumble over it, and the other node of a pair may have less of it."
        ),
        remedies=(
            Remedy(
                title="Drop the caches only if a launch on this node stalls or fails for want of memory",
                steps=("sudo sh -c 'sync; echo 3 > /proc/sys/vm/drop_caches'",),
                cost="the next load reads its weights from disk again; it releases no leaked GPU memory",
                action="drop-caches",
            ),
        ),
        brief=f"{gib(memory.page_cache_bytes)} cache, {gib(after.available)} available",
        evidence=(
            seen(
                after.node,
                "memory",
                f"available {gib(after.available)}, of it cache {gib(memory.page_cache_bytes)}",
            ),
        ),
    )


# Words


def _is_flat(node: NodeView) -> bool:
    """Available memory has not risen by a GiB for FLAT_S: neither coming back nor just changed."""
    points = list(newest(node.available_history, FLAT_S))
    if len(points) < 5 or points[0][0] - points[-1][0] < FLAT_S - 3:
        return False
    values = [value for _, value in points]
    return max(values) - min(values) < GIB


def _ended_evidence(engine: Engine, node: NodeView) -> Evidence:
    code = engine.container.exit_code if engine.container else None
    detail = engine.exit_detail or (f"exit code {code}" if code is not None else "ended")
    return Evidence(source=f"{engine.name} @ {node.name}", text=detail, wall_s=engine.exited_wall_s)


def _reboot(after: _After) -> tuple[Remedy, ...]:
    remedies = []
    if after.ended_s is not None and after.ended_s < WAIT_AT_MOST_S / 2:
        remedies.append(
            Remedy(
                title="Wait until five minutes after its end, in case it begins to rise",
                cost="minutes",
            )
        )
    remedies.append(
        Remedy(
            title=f"Reboot {after.node.name}: the known way to have it back",
            steps=("sudo systemctl reboot", "compare available memory afterwards with the figure here"),
            cost="everything running there; about two minutes",
            action="reboot",
        )
    )
    engine = after.engine
    if engine is not None and engine.kind is EngineKind.VLLM:
        version = version_of(engine.version)
        if version is None or version < (0, 24):
            remedies.append(
                Remedy(
                    title="Use vLLM 0.24 or later, which gives back the memory of a failed load", cost="another image"
                )
            )
    if engine is not None and flag(engine.argv, "--mem-fraction-static", "--gpu-memory-utilization"):
        remedies.append(
            Remedy(
                title="Or launch with a smaller share, into what is left",
                cost="KV cache",
                action="relaunch",
                change=SMALLER_SHARE,
            )
        )
    return tuple(remedies)


def _finding(
    after: _After,
    severity: Severity,
    *,
    title: str,
    explanation: str,
    remedies: tuple[Remedy, ...],
    brief: str,
    evidence: tuple[Evidence, ...],
    confidence: Confidence = Confidence.CONFIRMED,
    settles: str = "",
    distinction: tuple[str, ...] = (),
) -> Finding:
    return Finding(
        rule="memory.held-after-exit",
        severity=severity,
        confidence=confidence,
        title=title,
        explanation=explanation,
        distinction=distinction,
        settles=settles,
        evidence=evidence,
        remedies=remedies,
        references=_REFERENCES,
        nodes=(after.node.name,),
        brief=brief,
    )


RULES: tuple[LiveRule, ...] = (
    LiveRule(
        card=Rule(
            id="memory.held-after-exit",
            kind=RuleKind.LIVE,
            title="An engine ended, and its memory is not back: on its way, held by a process, cache, or nobody's",
            severity=Severity.CRITICAL,
            scope="unified memory; what is normal is this machine's own figure after its boot",
            sources=_REFERENCES,
        ),
        check=check,
        hold_s=2.0,
        clear_s=8.0,
    ),
)
