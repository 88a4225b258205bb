"""Rule on an engine over several nodes of which one rank has ended while the others wait."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparktop.diagnose.ended_by import stopped_by
from sparktop.diagnose.findings import RANK_DIED
from sparktop.diagnose.rule import live_rule
from sparktop.diagnose.rules.window import seen
from sparktop.engines.pair import Team, engine_evidence, over_nodes
from sparktop.engines.ranks import EngineRank, is_alive, spans_nodes
from sparktop.knowledge.card import found
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Phase
from sparktop.model.fleet import FleetState, node_wall_s
from sparktop.text.units import requests, span

SAME_LIFE_S = 60.0
"""Ranks of one launch start within this time. Only ages are compared, because node clocks differ."""
BUSY_PERCENT = 50.0
MOST_NAMED = 3
"""More waiting ranks are counted."""


@live_rule(
    RANK_DIED,
    hold_s=5.0,
    follows=("guard.fired", "kernel.oom-kill", "memory.starved", "memory.falling", "memory.low", "cluster.link-down"),
)
def rank_died(fleet: FleetState) -> Iterable[Finding]:
    """cluster.rank-died: which rank ended first, when and how, and what the others do meanwhile."""
    spread = over_nodes(fleet)
    for team in spread:
        alive = [rank for rank in team.ranks if is_alive(rank.engine)]
        died = [
            (age_s, rank)
            for rank in team.ranks
            if rank not in alive
            and (age_s := _ended_ago_s(rank, fleet)) is not None
            and alive[0].engine.uptime_s is not None
            and age_s <= alive[0].engine.uptime_s + SAME_LIFE_S
            and _are_of_one_engine(rank, alive[0])
            and stopped_by(rank.node, rank.engine, fleet) is None  # a rank that a console stopped did not die
        ]
        if died:
            age_s, dead = max(died, key=lambda one: one[0])
            yield _finding(team, dead, alive, age_s)
    if not spread:
        yield from _all_down(fleet)


def _all_down(fleet: FleetState) -> Iterable[Finding]:
    """The death as it was told while the other ranks waited, for as long as no rank of that engine runs again."""
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


def _finding(team: Team, dead: EngineRank, waiting: Sequence[EngineRank], age_s: float) -> Finding:
    alive = waiting[0]  # the head, where it is alive
    metrics, gpu = alive.engine.metrics, alive.node.first_gpu
    pending = int((metrics.running or 0) + (metrics.waiting or 0)) if metrics else 0
    is_polling = gpu is not None and gpu.utilisation_percent is not None and gpu.utilisation_percent >= BUSY_PERCENT
    detail = dead.engine.exit_detail or "reason unknown"
    evidence = [engine_evidence(dead, f"exited {span(age_s)} ago: {detail}")]
    if dead.engine.log is not None and dead.engine.log.failure:
        evidence.append(engine_evidence(dead, dead.engine.log.failure))
    if metrics is not None:
        evidence.append(
            engine_evidence(alive, f"{metrics.running or 0:.0f} running, {metrics.waiting or 0:.0f} waiting")
        )
    if gpu is not None and gpu.utilisation_percent is not None:
        power = f" at {gpu.power_w:.0f} W" if gpu.power_w is not None else ""
        evidence.append(seen(alive.node, "GPU", f"SM {gpu.utilisation_percent:.0f} %{power}"))
    return found(
        RANK_DIED,
        "other-waits",
        {
            "engine": dead.engine.name,
            "node": dead.node.name,
            "is_head": dead is team.head,
            "ago": span(age_s),
            "detail": detail,
            "other": alive.node.name,
            "others": names
            if len(names := tuple(rank.node.name for rank in waiting)) <= MOST_NAMED
            else f"its other {len(names)} ranks",
            "wait": "waits" if len(waiting) == 1 else "wait",
            "pending": requests(pending) if pending else None,
            "holds": pending > 0,
            "polls": gpu.utilisation_percent if is_polling and gpu is not None else None,
            "both": pending > 0 and is_polling,
            "idles": not pending and not is_polling,
            "brief": f"{dead.node.name}: {detail}"[:100],
        },
        evidence=tuple(evidence),
        nodes=team.nodes,
        subject=team.name,
    )
