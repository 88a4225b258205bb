"""Rule on nodes with different available memory before an engine takes the same share of both (field report 003)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sparktop.checks.judgement import Judgement
from sparktop.checks.parity import MemoryFacts, judge_memory_parity
from sparktop.dataclass import dataclass
from sparktop.diagnose.rule import SEVERITY, check_rule
from sparktop.diagnose.rules.memory.held import largest_of_no_engine, lost_memory
from sparktop.diagnose.rules.window import seen
from sparktop.engines.memory_target import share_flags
from sparktop.engines.pair import Team, node_groups, over_nodes
from sparktop.engines.ranks import is_alive
from sparktop.knowledge.card import found
from sparktop.model.change import SMALLER_SHARE
from sparktop.model.engine import EngineKind
from sparktop.model.finding import Evidence, Finding
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.telemetry import GpuProcess
from sparktop.text.units import GIB, gib

RETURNING_BYTES_PER_S = 100e6
"""While memory still comes back after an engine's end, a comparison means nothing."""
BOOT_SETTLES_S = 300.0
"""So long after a boot its services still take their memory: the other node seems to have less."""
CACHE_BYTES = 10 * GIB
WORTH_NAMING_BYTES = 1 * GIB
JOB_BYTES = 16 * GIB
"""A process of no engine that holds more GPU memory is a job of its own, not a service."""
_NOT_HELD = ("free", "cache", "engine")
_UNIT = re.compile(r"[A-Za-z0-9][\w@.:-]*\.service")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gap:
    rich: NodeView
    poor: NodeView
    rich_bytes: int
    poor_bytes: int
    team: Team | None = None
    """The engine that is loading; None before a launch."""

    @property
    def size(self) -> int:
        return self.rich_bytes - self.poor_bytes


@check_rule(judge_memory_parity, hold_s=15.0, follows=("memory.held-after-exit",))
def memory_apart(fleet: FleetState) -> Iterable[Finding]:
    """cluster.memory-apart: before a launch, or during a load by the figures from before it."""
    for nodes in node_groups(fleet):
        coming = next((team for team in over_nodes(fleet) if team.is_coming and team.head.node in nodes), None)
        gap = _before_a_launch(nodes) if coming is None else _while_loading(coming)
        if gap is not None and (judgement := _judged(gap)).is_problem:
            yield _finding(gap, judgement, fleet)


def _judged(gap: _Gap, *, freed_bytes: int = 0) -> Judgement:
    """The gap, as it is or would be with so much freed on the node that has less."""
    available = (gap.rich_bytes, gap.poor_bytes + freed_bytes)
    engine = gap.team.head.engine.kind if gap.team is not None else None
    return judge_memory_parity(MemoryFacts(available=available, is_loading=gap.team is not None, engine=engine))


def _unit_of(node: NodeView, row: GpuProcess) -> str:
    """The system service that a process belongs to; empty if none."""
    table = node.processes.processes if node.processes else ()
    cgroup = next((process.cgroup for process in table if process.pid == row.pid), "") or ""
    unit = cgroup.rpartition("/")[2]
    return unit if cgroup.startswith("/system.slice/") and _UNIT.fullmatch(unit) else ""


def _before_a_launch(nodes: Sequence[NodeView]) -> _Gap | None:
    """The gap before a launch, only if no engine runs on any of the nodes: a serving one explains any difference."""
    if any(is_alive(engine) for node in nodes for engine in node.engines):
        return None
    if any(node.sample is not None and node.sample.boot_s < BOOT_SETTLES_S for node in nodes):
        return None  # services that take memory still start there
    if any(_job_bytes(node) > JOB_BYTES for node in nodes):
        return None  # a training run, say: nobody is about to launch
    if any(node.trend is not None and node.trend.bytes_per_s > RETURNING_BYTES_PER_S for node in nodes):
        return None
    return _gap(nodes, [node.sample.memory.available_bytes if node.sample else None for node in nodes])


def _job_bytes(node: NodeView) -> int:
    """GPU memory of the largest GPU process."""
    return max((row.used_bytes or 0 for row in node.gpu_processes if row.kind == "C"), default=0)


def _while_loading(team: Team) -> _Gap | None:
    """The gap before the load: what was available on each node before its rank started."""
    available = [_available_before(rank.node, rank.engine.uptime_s) for rank in team.ranks]
    return _gap([rank.node for rank in team.ranks], available, team)


def _available_before(node: NodeView, ago_s: float | None) -> int | None:
    if ago_s is None or node.sample_at_s is None:
        return None
    history, start_s = node.available_history, node.sample_at_s - ago_s
    index = bisect_right(history.times, start_s) - 1
    value = history.values[index] if index >= 0 else None
    return None if value is None else int(value)


def _gap(nodes: Sequence[NodeView], available: Sequence[int | None], team: Team | None = None) -> _Gap | None:
    """Between the node with most and the one with least; None where one isn't known."""
    sizes = [size for size in available if size is not None]
    if len(sizes) < len(nodes):
        return None
    rich, poor = (nodes[sizes.index(size)] for size in (max(sizes), min(sizes)))
    return _Gap(rich=rich, poor=poor, rich_bytes=max(sizes), poor_bytes=min(sizes), team=team)


def _finding(gap: _Gap, judgement: Judgement, fleet: FleetState) -> Finding:
    poor, kinds, is_loading = gap.poor.name, _kinds(gap), gap.team is not None
    is_sglang = kinds == {EngineKind.SGLANG}
    # What nobody holds there, another finding says how to give back.
    freeing = _freeing(gap) if lost_memory(fleet, poor) is None else {}
    smaller = replace(SMALLER_SHARE, flags={"--dist-timeout": "1800"}) if is_sglang else SMALLER_SHARE
    cached = [
        node.name for node in (gap.poor, gap.rich) if node.sample and node.sample.memory.page_cache_bytes > CACHE_BYTES
    ]
    return found(
        judge_memory_parity.id,
        "apart",
        {
            "rich": gap.rich.name,
            "poor": poor,
            "gap_gib": gap.size / GIB,
            "rich_gib": gap.rich_bytes / GIB,
            "poor_gib": gap.poor_bytes / GIB,
            "loading": is_loading,
            "reasons": "; ".join(_why(gap)),
            "refuses": EngineKind.SGLANG in kinds,
            "share": share_flags(kinds),
            "waits": is_sglang,
            "change": smaller if is_loading else None,  # before a launch there is nothing to relaunch
            "cached": tuple(cached),
            **freeing,
        },
        severity=SEVERITY[judgement.state],
        evidence=tuple(_evidence(gap)),
        nodes=tuple(node.name for node in fleet.nodes if node in (gap.rich, gap.poor)),
        subject=poor,
    )


def _kinds(gap: _Gap) -> set[EngineKind]:
    """The engines that the memory is for: the pair that loads, else what these nodes have run; all, where unknown."""
    if gap.team is not None:
        return {gap.team.head.engine.kind}
    return {engine.kind for node in (gap.rich, gap.poor) for engine in node.engines} or {*EngineKind}


def _why(gap: _Gap) -> list[str]:
    """What the node with less memory holds more of than the other, largest first."""
    reasons: list[tuple[int, str]] = []
    if gap.team is None and gap.rich.ledger is not None and gap.poor.ledger is not None:
        rich: dict[str, int] = {}
        for holder in gap.rich.ledger.holders:
            rich[holder.kind] = rich.get(holder.kind, 0) + holder.held_bytes
        poor: dict[str, int] = {}
        labels: dict[str, list[str]] = {}
        for holder in gap.poor.ledger.holders:
            poor[holder.kind] = poor.get(holder.kind, 0) + holder.held_bytes
            labels.setdefault(holder.kind, []).append(holder.label)
        for kind, held_bytes in poor.items():
            difference = held_bytes - rich.get(kind, 0)
            verb = "hold" if kind == "processes" or labels[kind][1:] else "holds"
            if kind not in _NOT_HELD and difference > WORTH_NAMING_BYTES:
                reasons.append(
                    (difference, f"{' and '.join(labels[kind])} of {gap.poor.name} {verb} {gib(difference)} more")
                )
    reasons.sort(reverse=True)
    totals = [node.sample.memory.total_bytes for node in (gap.rich, gap.poor) if node.sample]
    if len(totals) == 2 and totals[0] - totals[1] > WORTH_NAMING_BYTES:
        reasons.insert(0, (0, f"{gap.poor.name} has {gib(totals[0] - totals[1])} less memory altogether"))
    return [text for _, text in reasons[:3]]


def _evidence(gap: _Gap) -> Iterable[Evidence]:
    when = " before it began to load" if gap.team else ""
    for node, available in ((gap.rich, gap.rich_bytes), (gap.poor, gap.poor_bytes)):
        yield seen(node, "memory", f"available {gib(available)}{when}")
        if node.sample is not None:
            memory = node.sample.memory
            yield seen(
                node, "memory", f"page cache {gib(memory.page_cache_bytes)}, swap used {gib(memory.swap_used_bytes)}"
            )
    for text in _why(gap):
        yield seen(gap.poor, "ledger", text)


def _freeing(gap: _Gap) -> Mapping[str, object]:
    """What may be stopped on the node with less; a process, with its service, that holds most there."""
    process = largest_of_no_engine(gap.poor, WORTH_NAMING_BYTES)
    figures = {"frees": True, "besides": gap.team is not None}
    if process is None:
        return {**figures, "process": None, "unit": None}
    held_bytes = process.used_bytes or 0
    closes_gap = not _judged(gap, freed_bytes=held_bytes).is_problem
    return {
        **figures,
        "process": process.name,
        "process_pid": process.pid,
        "process_gib": held_bytes / GIB,
        "unit": _unit_of(gap.poor, process),
        "pid": process.pid if closes_gap else None,
    }
