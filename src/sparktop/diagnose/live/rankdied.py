"""One rank of a two-node engine has ended, and the other waits for it."""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.diagnose.live.pair import Pair, pair_of, said
from sparktop.diagnose.live.ranks import Rank, is_alive, spans_nodes
from sparktop.diagnose.live.window import node_wall_s, seen, span
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Remedy
from sparktop.model.fleet import FleetState

SAME_LIFE_S = 60.0
"""The ranks of one start don't begin in one second, and two clocks are never compared: each age is its own node's."""
BUSY_PERCENT = 50.0


def rank_died(fleet: FleetState) -> Iterable[Finding]:
    """cluster.rank-died: which rank ended, when and how, and what the other one does meanwhile."""
    pair = pair_of(fleet)
    if pair is None or pair.is_whole:
        return
    dead, alive = (pair.head, pair.worker) if is_alive(pair.worker.engine) else (pair.worker, pair.head)
    age_s = _ended_ago_s(dead, fleet)
    uptime_s = alive.engine.uptime_s
    if age_s is None or uptime_s is None or age_s > uptime_s + SAME_LIFE_S or not _is_same(dead, alive):
        return
    yield _finding(pair, dead, alive, age_s)


def _ended_ago_s(rank: Rank, fleet: FleetState) -> float | None:
    now_s = node_wall_s(rank.node, fleet)
    if now_s is None or rank.engine.exited_wall_s is None:
        return None
    return max(0.0, now_s - rank.engine.exited_wall_s)


def _is_same(dead: Rank, alive: Rank) -> bool:
    """A container that ended says less of itself than a living one: its command must be a rank's, of the same model."""
    if not spans_nodes(dead.engine):
        return False
    models = [(engine.model or "").rstrip("/").rpartition("/")[2] for engine in (dead.engine, alive.engine)]
    return "" in models or models[0] == models[1]


def _finding(pair: Pair, dead: Rank, alive: Rank, age_s: float) -> Finding:
    metrics, gpu = alive.engine.metrics, alive.node.first_gpu
    held = int((metrics.running or 0) + (metrics.waiting or 0)) if metrics else 0
    busy = gpu is not None and gpu.utilisation_percent is not None and gpu.utilisation_percent >= BUSY_PERCENT
    doing = [
        *([f"holds {held} request{'s' * (held != 1)}"] if held else []),
        *([f"its GPU polls at {gpu.utilisation_percent:.0f} %"] if busy and gpu is not None else []),
    ] or ["answers its health check"]
    which = "the head, which serves requests," if dead is pair.head else "the worker"
    detail = dead.engine.exit_detail or "why is not known"
    evidence = [said(dead, f"ended {span(age_s)} ago: {detail}")]
    if dead.engine.log is not None and dead.engine.log.failure:
        evidence.append(said(dead, dead.engine.log.failure))
    if metrics is not None:
        evidence.append(said(alive, f"{metrics.running or 0:.0f} running, {metrics.waiting or 0:.0f} waiting"))
    if gpu is not None and gpu.utilisation_percent is not None:
        power = f" at {gpu.power_w:.0f} W" if gpu.power_w is not None else ""
        evidence.append(seen(alive.node, "GPU", f"SM {gpu.utilisation_percent:.0f} %{power}"))
    return Finding(
        rule="cluster.rank-died",
        severity=Severity.CRITICAL,
        title=f"{dead.engine.name} on {dead.node.name} has ended; {alive.node.name} waits for it",
        explanation=(
            f"{dead.engine.name} on {dead.node.name}, {which} ended {span(age_s)} ago ({detail}). The other rank can't "
            f"know: it {' and '.join(doing)}, and stays so until a watchdog ends it. A rank started again alone "
            "doesn't rejoin: both must start anew."
        ),
        distinction=(f"Not a fault of {alive.node.name}: its rank lives and does what it can.",),
        evidence=tuple(evidence),
        remedies=(
            Remedy(
                title="Read why it ended, then restart every rank together",
                steps=(
                    f"the last lines of {dead.engine.name}'s log, and the kernel log of {dead.node.name}",
                    f"stop the rank on {alive.node.name}",
                    "wait until memory is back on both nodes",
                    "start them together",
                ),
                cost=f"the {held} request{'s' * (held != 1)} it holds; the time to load"
                if held
                else "the time to load",
                action="safe-restart",
            ),
        ),
        references=("field report 003", "eugr/spark-vllm-docker#352"),
        nodes=pair.nodes,
        subject=pair.name,
        brief=f"{dead.node.name}: {detail}"[:100],
    )
