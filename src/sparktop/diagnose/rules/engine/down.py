"""Engines that are down: which ones are missed, what stopped them, and what starts them again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from sparktop.cmdline.engine_command import joins_ray
from sparktop.dataclass import dataclass
from sparktop.diagnose.container_exit import endings, shell_name
from sparktop.diagnose.ended_by import (
    doing,
    ended_by_guard,
    exit_code,
    failed,
    is_guard_reported,
    is_since_reboot,
    since_reboot,
    stopped,
    stopped_by,
    successor,
    work,
)
from sparktop.diagnose.findings import ENGINE_DOWN, RANK_DIED, without_repeats
from sparktop.diagnose.rule import live_rule
from sparktop.engines.labels import name_set_aside
from sparktop.engines.ranks import EngineRank, is_alive, other_ranks, rank_of
from sparktop.knowledge import card
from sparktop.model.engine import STOPPED_EXITS, Engine
from sparktop.model.event import Severity
from sparktop.model.finding import Evidence, Finding, Phase, Remedy
from sparktop.model.fleet import FleetState, Intervention, LinkState, NodeView, node_wall_s
from sparktop.text.units import requests, span

LAST_FIGURES_S = 15.0
"""Requests that were counted this long before the end were lost with it."""
RECENT_S = 600.0
"""How long the end of an engine that never served is told; after that only the engine table shows it."""
RELATED_S = 120.0
"""A problem that was resolved this long before is what the engine was stopped for."""
HEAD_SEEN_S = 15.0
"""Another node's containers are listed some seconds late: after this the end of a head is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Down:
    """An engine that has ended, and that no running engine replaces."""

    node: NodeView
    engine: Engine
    name: str
    """Its name; also that of a container which a relaunch has set aside."""
    ended_s: float
    """Node time."""
    ago_s: float
    by: Intervention | None
    """The console's stop or reboot that ended it; None: not ours."""
    is_since_reboot: bool
    has_served: bool
    """This console saw it serve, or its log did."""
    requests: int
    """Running and waiting when it ended; 0 also where not known."""

    @property
    def lost(self) -> str:
        """ "2 requests"; empty without any."""
        return requests(self.requests) if self.requests else ""


def down(fleet: FleetState) -> Iterator[Down]:
    """Every engine that is down and not replaced; a worker only where its head is not known."""
    for node in fleet.nodes:
        now_s = node_wall_s(node, fleet)
        if now_s is None:
            continue
        for engine in node.engines:
            ended_s = engine.exited_wall_s
            if is_alive(engine) or ended_s is None or _is_replaced(engine, node):
                continue
            if node.link.state is LinkState.LOST and node.sample is not None and ended_s > node.sample.wall_s:
                continue  # Docker answers before the probe: whether the machine went down too, the next sample says
            ago_s = max(0.0, now_s - ended_s)
            if _is_told_with_its_head(engine, node, fleet, ago_s):
                continue
            served = engine.served
            is_recent = served is not None and abs(ended_s - served.wall_s) <= LAST_FIGURES_S
            by = stopped_by(node, engine, fleet)
            yield Down(
                node=node,
                engine=engine,
                name=name_set_aside(engine.name) or engine.name,
                ended_s=ended_s,
                ago_s=ago_s,
                by=by,
                is_since_reboot=is_since_reboot(by, node, engine, fleet),
                has_served=served is not None or bool(engine.log and engine.log.has_served),
                requests=(served.requests or 0) if served is not None and is_recent else 0,
            )


def _is_replaced(engine: Engine, node: NodeView) -> bool:
    """Whether another engine took its place, or has its name and is down itself since a later moment."""
    name, ended_s = name_set_aside(engine.name), engine.exited_wall_s or 0.0
    if name and any(other.name == name for other in node.engines if other is not engine):
        return True
    if any(other.name == engine.name and (other.exited_wall_s or 0.0) > ended_s for other in node.engines):
        return True
    return successor(engine, node) is not None


def _is_told_with_its_head(engine: Engine, node: NodeView, fleet: FleetState, ago_s: float) -> bool:
    """Whether a worker rank's end is told with its head: `ray start --block` exits with 1 when the head has gone.

    A worker that ended by itself while its head waits is told: that is the cause.
    """
    rank, container = rank_of(engine, node), engine.container
    if rank.is_head:
        return False
    heads = [other.engine for other in other_ranks(rank, fleet) if other.is_head]
    if container is not None and joins_ray(container.argv) and container.exit_code in (None, 0, 1):
        # A head younger than this end belongs to another launch or was restarted; ages, because node clocks differ.
        return ago_s < HEAD_SEEN_S or (
            bool(heads) and all(not is_alive(head) or (head.uptime_s or 0.0) < ago_s for head in heads)
        )
    is_stopped = stopped_by(node, engine, fleet) is not None
    return bool(heads) and is_stopped and not any(is_alive(head) for head in heads)


def is_reported_elsewhere(missing: Down, fleet: FleetState) -> bool:
    """Whether the guard's own finding tells of this end."""
    return ended_by_guard(missing.node, missing.engine) and is_guard_reported(missing.node, fleet)


def remedies(missing: Down, fleet: FleetState, others: Sequence[Remedy] = ()) -> tuple[Remedy, ...]:
    """What mends the grave problem before the end, then `others`, the start as it was, and what mends lesser ones."""
    start = () if any(remedy.action == "safe-restart" for remedy in others) else _start_again(missing)
    grave, lesser = original_remedies(missing.node, missing.engine, fleet)
    return tuple(without_repeats((*grave, *others, *start, *lesser)))


def original_remedies(node: NodeView, engine: Engine, fleet: FleetState) -> tuple[list[Remedy], list[Remedy]]:
    """The relaunches that problems of this engine offered before it ended, (of grave ones, of others): after a grave
    one the next start would end as this did.

    They are taken from the picture before, and from then on from the finding of the end itself, which begins with
    those of grave problems.
    """
    told = {ENGINE_DOWN, "guard.fired", *(ending.rule for ending in endings().values())}
    grave: list[Remedy] = []
    lesser: list[Remedy] = []
    for one in [finding for finding in fleet.findings if _is_about(finding, node, engine)]:
        if one.rule in told and one.phase is Phase.FIRING:
            grave += takewhile(_is_relaunch, one.remedies)
            lesser += one.remedies
        elif one.blocks_starts:  # memory that isn't free yet: once it is, the same start succeeds
            continue
        elif one.rule not in told and one.severity is not Severity.INFO and _is_recent(one, fleet):
            is_of_node = not (one.engine or one.subject)  # short memory: the same start makes it short again
            (grave if is_of_node or one.severity is Severity.CRITICAL else lesser).extend(one.remedies)
    return list(filter(_is_relaunch, grave)), list(filter(_is_relaunch, lesser))


def _is_recent(finding: Finding, fleet: FleetState) -> bool:
    return finding.resolved_wall_s is None or fleet.wall_s - finding.resolved_wall_s <= RELATED_S


def _is_relaunch(remedy: Remedy) -> bool:
    return remedy.action == "relaunch" and remedy.change is not None


def _is_about(finding: Finding, node: NodeView, engine: Engine) -> bool:
    if node.name not in finding.nodes:
        return False
    if finding.engine or finding.subject:
        return engine.name in (finding.engine, finding.subject)
    return len(node.engines) == 1  # memory that was short on its node


def _start_again(missing: Down) -> tuple[Remedy, ...]:
    container = missing.engine.container
    has_gone = container is not None and container.is_gone
    name = shell_name(container.name) if container is not None and not has_gone else ""
    return card.remedies(
        ENGINE_DOWN, "start", {"name": name, "has_gone": has_gone, "has_no_container": container is None}
    )


@live_rule(ENGINE_DOWN, clear_s=0.0, follows=(RANK_DIED,))
def engine_down(fleet: FleetState) -> Iterator[Finding]:
    """Engines that were stopped, by a console, by a reboot, or by somebody else; a bad end is told by its exit code."""
    for missing in down(fleet):
        if is_reported_elsewhere(missing, fleet):
            continue
        is_explained = missing.by is not None or missing.is_since_reboot
        if is_explained or (missing.has_served and not failed(missing.engine)) or _is_stopped_early(missing):
            yield _finding(missing, fleet)


def _is_stopped_early(missing: Down) -> bool:
    """Whether somebody stopped its load, lately; a worker's is told with its head's."""
    is_head, code = rank_of(missing.engine, missing.node).is_head, exit_code(missing.engine)
    return not missing.has_served and is_head and code in STOPPED_EXITS and missing.ago_s < RECENT_S


def _finding(missing: Down, fleet: FleetState) -> Finding:
    node, engine, served = missing.node, missing.engine, missing.engine.served
    severity, case, figures = _cause(missing, fleet)
    container = engine.container
    policy = f", restart policy {container.restart_policy or 'no'}" if container is not None else ""
    is_idle = missing.is_since_reboot and not missing.requests
    return card.found(
        ENGINE_DOWN,
        case,
        {
            "engine": missing.name,
            "node": node.name,
            "lost": missing.lost,
            "served_before": span(max(0.0, missing.ended_s - served.wall_s)) if served is not None and is_idle else "",
            **figures,
        },
        severity=severity,
        evidence=(
            Evidence(
                source=f"docker @ {node.name}" if container is not None else f"{node.name} processes",
                text=f"{engine.name}: {_how_it_ended(missing)}{policy}",
                wall_s=missing.ended_s,
            ),
        ),
        remedies=remedies(missing, fleet),
        nodes=(node.name,),
        subject=engine.name,
        since_wall_s=fleet.wall_s - missing.ago_s,
    )


def _how_it_ended(missing: Down) -> str:
    container = missing.engine.container
    if missing.by is not None and container is not None and container.exit_code is not None:
        return f"exit code {container.exit_code}"  # who sent its signal is known
    return missing.engine.exit_detail or "ended"


def _ended_before(missing: Down, fleet: FleetState) -> EngineRank | None:
    """The other rank that exited first and left it waiting, while cluster.rank-died reports that; else None."""
    firing = [one for one in fleet.findings if one.rule == RANK_DIED and one.phase is Phase.FIRING]
    if not any(missing.node.name in one.nodes for one in firing):
        return None
    for other in other_ranks(rank_of(missing.engine, missing.node), fleet):
        now_s, ended_s = node_wall_s(other.node, fleet), other.engine.exited_wall_s
        if now_s is not None and ended_s is not None and now_s - ended_s > missing.ago_s:
            return other
    return None


def _cause(missing: Down, fleet: FleetState) -> tuple[Severity, str, card.Figures]:
    """(severity, case, its figures)."""
    by = missing.by
    is_lost = Severity.CRITICAL if missing.requests else Severity.WARNING
    if by is not None and by.is_under_way:
        return Severity.INFO, "in-progress", {"doing": doing(by)}
    if missing.is_since_reboot:
        severity = Severity.CRITICAL if missing.has_served else Severity.WARNING
        return severity, "rebooted", {"since": since_reboot(by)}
    if by is not None and by.is_meant:
        severity = Severity.INFO if not by.who else Severity.WARNING
        return severity, "stopped", {"stopped": stopped(by), "work": work(by)}
    if by is not None:
        return Severity.CRITICAL, "not-restarted", {"stopped": stopped(by)}
    if (first := _ended_before(missing, fleet)) is not None:
        return is_lost, "after-another", {"first": first.engine.name, "place": first.node.name}
    if not missing.has_served:
        return Severity.INFO, "loading", {}
    container = missing.engine.container
    how = {None: "has_exited", 0: "has_code_0"}.get(exit_code(missing.engine), "is_stopped")
    if container is not None and container.is_gone:
        how = "is_cleaned" if container.auto_remove else "is_removed"
    return is_lost, "unexplained", {how: True, "log_is_lost": how == "is_cleaned"}
