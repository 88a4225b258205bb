"""Rule on a two-node engine of which one rank has ended while the other waits."""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.diagnose.ended_by import stopped_by
from sparktop.diagnose.findings import RANK_DIED
from sparktop.diagnose.rule import live_rule
from sparktop.diagnose.rules.window import seen
from sparktop.engines.pair import Pair, pair_of, said
from sparktop.engines.ranks import EngineRank, is_alive, spans_nodes
from sparktop.knowledge.card import found
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Phase
from sparktop.model.fleet import FleetState, node_wall_s
from sparktop.text.units import requests, span

SAME_LIFE_S = 60.0
"""Ranks of one launch start within this time. Only ages are compared, because node clocks differ."""
BUSY_PERCENT = 50.0


@live_rule(
    RANK_DIED,
    hold_s=5.0,
    follows=("guard.fired", "kernel.oom-kill", "memory.starved", "memory.falling", "memory.low", "cluster.link-down"),
)
def rank_died(fleet: FleetState) -> Iterable[Finding]:
    """cluster.rank-died: which rank ended, when and how, and what the other does meanwhile."""
    pair = pair_of(fleet)
    if pair is None:
        yield from _all_down(fleet)
        return
    if pair.is_whole:
        return
    dead, alive = (pair.head, pair.worker) if is_alive(pair.worker.engine) else (pair.worker, pair.head)
    age_s = _ended_ago_s(dead, fleet)
    uptime_s = alive.engine.uptime_s
    if age_s is None or uptime_s is None or age_s > uptime_s + SAME_LIFE_S or not _are_of_one_engine(dead, alive):
        return
    if stopped_by(dead.node, dead.engine, fleet) is None:  # a rank that a console stopped did not die
        yield _finding(pair, dead, alive, age_s)


def _all_down(fleet: FleetState) -> Iterable[Finding]:
    """The death as it was told while the other rank waited, for as long as no rank of that engine runs again."""
    for told in fleet.findings:
        if told.rule != RANK_DIED or told.phase is not Phase.FIRING:
            continue
        views = [view for name in told.nodes if (view := fleet.node(name)) is not None]
        ranks = [engine for view in views for engine in view.engines if spans_nodes(engine)]
        if len(views) == len(told.nodes) and ranks and not any(map(is_alive, ranks)):
            has_requests = any(engine.served is not None and engine.served.requests for engine in ranks)
            yield found(
                RANK_DIED,
                "all-down",
                {"pair": told.subject, "brief": told.brief},
                severity=Severity.CRITICAL if has_requests else Severity.WARNING,  # as of one engine that is down
                evidence=told.evidence,
                nodes=told.nodes,
                subject=told.subject,
                caused_by=told.caused_by,
            )


def _ended_ago_s(rank: EngineRank, fleet: FleetState) -> float | None:
    now_s = node_wall_s(rank.node, fleet)
    if now_s is None or rank.engine.exited_wall_s is None:
        return None
    return max(0.0, now_s - rank.engine.exited_wall_s)


def _are_of_one_engine(dead: EngineRank, alive: EngineRank) -> bool:
    """Whether both are ranks of one engine.

    An ended container reports little: its command must be that of a rank, with the same model.
    """
    if not spans_nodes(dead.engine):
        return False
    models = [(engine.model or "").rstrip("/").rpartition("/")[2] for engine in (dead.engine, alive.engine)]
    return "" in models or models[0] == models[1]


def _finding(pair: Pair, dead: EngineRank, alive: EngineRank, age_s: float) -> Finding:
    metrics, gpu = alive.engine.metrics, alive.node.first_gpu
    pending = int((metrics.running or 0) + (metrics.waiting or 0)) if metrics else 0
    is_polling = gpu is not None and gpu.utilisation_percent is not None and gpu.utilisation_percent >= BUSY_PERCENT
    detail = dead.engine.exit_detail or "reason unknown"
    evidence = [said(dead, f"exited {span(age_s)} ago: {detail}")]
    if dead.engine.log is not None and dead.engine.log.failure:
        evidence.append(said(dead, dead.engine.log.failure))
    if metrics is not None:
        evidence.append(said(alive, f"{metrics.running or 0:.0f} running, {metrics.waiting or 0:.0f} waiting"))
    if gpu is not None and gpu.utilisation_percent is not None:
        power = f" at {gpu.power_w:.0f} W" if gpu.power_w is not None else ""
        evidence.append(seen(alive.node, "GPU", f"SM {gpu.utilisation_percent:.0f} %{power}"))
    return found(
        RANK_DIED,
        "other-waits",
        {
            "engine": dead.engine.name,
            "node": dead.node.name,
            "is_head": dead is pair.head,
            "ago": span(age_s),
            "detail": detail,
            "other": alive.node.name,
            "pending": requests(pending) if pending else None,
            "holds": pending > 0,
            "polls": gpu.utilisation_percent if is_polling and gpu is not None else None,
            "both": pending > 0 and is_polling,
            "idles": not pending and not is_polling,
            "brief": f"{dead.node.name}: {detail}"[:100],
        },
        evidence=tuple(evidence),
        nodes=pair.nodes,
        subject=pair.name,
    )
