"""Rules on the kernel log: recent failures, and older ones whose damage lasts.

The texts come from diagnose/kernel/findings.py; this module decides how long they matter. Times are each node's boot
clock: a line of hours ago is history, reported as information, unless it broke something that only a reboot fixes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from sparktop.diagnose.ended_by import successor
from sparktop.diagnose.kernel import findings as kernel_findings
from sparktop.diagnose.kernel.findings import NO_MEMORY, OOM_KILL, OOM_LIMIT, is_restored, knowledge_of, rule_of
from sparktop.diagnose.kernel.knowledge import Lasts
from sparktop.diagnose.rule import RuleKind, live_rule
from sparktop.diagnose.rules.window import seen
from sparktop.engines.ranks import is_alive
from sparktop.knowledge.card import found
from sparktop.model.engine import Engine, EngineState
from sparktop.model.event import KernelEvent, Severity
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState, NodeView, boot_s_now, current_nodes
from sparktop.model.telemetry import CollectorState, Sample
from sparktop.text.units import GIB, gib, span

RECENT_S = 30 * 60.0
PASSING_S = 10 * 60.0
"""For what passes by itself: refused allocations, notes at information level."""
SETTLE_S = 30.0
"""A GPU that gives readings so long after an Xid has survived it."""
HISTORY_S = 24 * 3600.0
TOGETHER_S = 2.0
"""What two nodes' kernels log this close together is one event."""
GOES_ON_S = 60.0
"""If it repeated for longer than this, the finding also tells when it last happened."""
LOW_BYTES = 10 * GIB
EASY_BYTES = 16 * GIB
WORTH_NAMING_BYTES = 8 * GIB
"""Whoever holds less after a kill didn't cause it."""
OVER_S = 60.0
"""Refusals this old are over where memory is to spare again."""
STEADY_DIGITS = 1
"""A node's boot on the operator's clock is told in tenths of a second: its samples are some milliseconds early or late,
and what is told of a finding doesn't change with each."""
_OF_MEMORY = ("memory.first-request-spike", "memory.falling", "memory.starved", "memory.low")


class Relevance(Enum):
    """Whether an event still matters."""

    NOW = "now"
    PAST = "past"
    OVER = "over"


@live_rule(OOM_KILL, kind=RuleKind.KERNEL, hold_s=1.0, follows=_OF_MEMORY)
def oom_kill(fleet: FleetState) -> Iterable[Finding]:
    """kernel.oom-kill: after the live memory rules, which may be its cause."""
    return [finding for finding in claims(fleet) if finding.rule == OOM_KILL]


@live_rule(NO_MEMORY, kind=RuleKind.KERNEL, hold_s=1.0, follows=_OF_MEMORY)
def nvrm_no_memory(fleet: FleetState) -> Iterable[Finding]:
    """kernel.nvrm-no-memory: after the live memory rules, which may be its cause."""
    return [finding for finding in claims(fleet) if finding.rule == NO_MEMORY]


@live_rule("kernel.log", hold_s=1.0)
def failures(fleet: FleetState) -> Iterable[Finding]:
    """kernel.*: one finding for each kind of failure in the kernel log, on one node or on both together."""
    return [finding for finding in claims(fleet) if finding.rule not in (OOM_KILL, NO_MEMORY)]


@lru_cache(maxsize=1)
def claims(fleet: FleetState) -> list[Finding]:
    """All kernel findings of a fleet state; cached for the rules that share it."""
    by_node = [_node_findings(node, sample, fleet) for node, sample in current_nodes(fleet) if node.kernel_events]
    return _joined_over_nodes([finding for findings in by_node for finding in findings])


def relevance_of(event: KernelEvent, node: NodeView, now_boot_s: float) -> Relevance:
    """Whether a kernel event of this node matters now, is history, or is over."""
    known, seen_s = knowledge_of(event), event.last_boot_s
    if known is None or seen_s is None:
        return Relevance.OVER
    age_s = max(0.0, now_boot_s - seen_s)
    past = Relevance.PAST if event.severity is not Severity.INFO and age_s < HISTORY_S else Relevance.OVER
    if known.is_routine and event.severity is not Severity.CRITICAL:
        past = Relevance.OVER
    if known.lasts is Lasts.LINK_IS_DOWN and (is_restored(event, node.kernel_events) or _is_link_up(node, event)):
        return Relevance.OVER
    if known.lasts is Lasts.GPU_ANSWERS and event.code is None and _gpu_answers_after(node, seen_s):
        return Relevance.OVER
    if event.code == 154 and event.severity is Severity.INFO:
        return Relevance.OVER  # "no recovery needed any more"
    if event.code == 154 and any(
        later.code == 154 and later.severity is Severity.INFO and (later.last_boot_s or 0.0) > seen_s
        for later in node.kernel_events
    ):
        return past
    if known.lasts is not Lasts.A_WHILE and _still_lasts(known.lasts, event, node, seen_s):
        return Relevance.NOW
    if _is_restarted_since(node, event, seen_s):
        return past
    lasts_s = known.lasts_s or (PASSING_S if event.severity is Severity.INFO else RECENT_S)
    return Relevance.NOW if age_s < lasts_s else past


def _is_restarted_since(node: NodeView, event: KernelEvent, seen_s: float) -> bool:
    """Whether the engine of an Xid or an OOM kill, or the one in its place, was started since.

    One that its restart policy starts is soon out of memory again: after a kill it must have been started by somebody,
    and serve.
    """
    is_kill = event.kind == "oom-kill"
    engine = _engine_of(node, event) if is_kill or event.code is not None else None
    now = engine if engine is None or is_alive(engine) else successor(engine, node)
    if now is None or (now.started_boot_s or 0.0) <= seen_s:
        return False
    return not is_kill or (not now.restarts and now.state in (EngineState.READY, EngineState.SERVING))


def _still_lasts(lasts: Lasts, event: KernelEvent, node: NodeView, seen_s: float) -> bool:
    """Whether a failure matters however old it is."""
    match lasts:
        case Lasts.REBOOT:
            return event.severity is Severity.CRITICAL
        case Lasts.GPU_ANSWERS:
            return event.code is None or not _gpu_answers_after(node, seen_s + SETTLE_S)
        case Lasts.LINK_IS_DOWN:
            return _is_link_up(node, event) is False
        case Lasts.TASK_IS_STUCK:
            table = node.processes.processes if node.processes else ()
            return any(process.pid == event.pid and process.state == "D" for process in table)
    return False


# --- what the fleet state adds to an event ---------------------------------------------------------------------------


def _gpu_answers_after(node: NodeView, boot_s: float) -> bool:
    collector = node.collectors.get("nvml")
    return (
        node.gpu is not None
        and bool(node.gpu.gpus)
        and node.gpu.boot_s > boot_s
        and node.gpu.gpus[0].power_w is not None
        and (collector is None or collector.state is CollectorState.OK)
    )


def _is_link_up(node: NodeView, event: KernelEvent) -> bool | None:
    """Whether the interface that an event names is up; None where that isn't known."""
    name = event.figure("interface")
    return next((interface.is_up for interface in node.interfaces if interface.name == name), None)


def _engine_of(node: NodeView, event: KernelEvent) -> Engine | None:
    """The engine that an event is about: by container, or as what has that one's name since it was set aside; by
    process; or as the only one of its kind."""
    if event.pid is None and event.container_id is None and not event.process:
        return None
    container_id = event.container_id
    if container_id is None and event.pid is not None:
        if (engine := next((one for one in node.engines if event.pid in one.pids), None)) is not None:
            return engine
        table = node.processes.processes if node.processes else ()
        container_id = next((process.container_id for process in table if process.pid == event.pid), None)
    if container_id is not None:
        boxes = ((engine, engine.container) for engine in node.engines if engine.container is not None)
        own = (engine for engine, box in boxes if box.container_id.startswith(container_id))
        return next(own, None) or next((one for one in node.engines if one.name == event.container), None)
    process_name = (event.process or "").lower()
    if process_name.startswith(("vllm", "sglang")):
        same_kind = [engine for engine in node.engines if process_name.startswith(engine.kind.value)]
        return same_kind[0] if len(same_kind) == 1 else None
    return None


# --- the findings of a node ------------------------------------------------------------------------------------------


def _node_findings(node: NodeView, sample: Sample, fleet: FleetState) -> list[Finding]:
    now_boot_s = boot_s_now(node, sample, fleet)
    relevances = ((event, relevance_of(event, node, now_boot_s)) for event in node.kernel_events)
    judged = [(event, rule_of(event), relevance) for event, relevance in relevances if relevance is not Relevance.OVER]
    current = {rule for _, rule, relevance in judged if relevance is Relevance.NOW}
    relevant = tuple(
        _with_engine_name(event, node)
        for event, rule, relevance in judged
        if relevance is Relevance.NOW or rule not in current
    )
    placed = _findings(relevant, node.name, round(fleet.wall_s - now_boot_s, STEADY_DIGITS))
    return [_with_node_state(one, node, sample, now_boot_s, one.finding.rule in current) for one in placed]


class _Placed(NamedTuple):
    """A finding of the kernel log with its place on the node's boot clock."""

    finding: Finding
    first_boot_s: float
    last_boot_s: float


@lru_cache(maxsize=16)
def _findings(events: tuple[KernelEvent, ...], node: str, booted_wall_s: float) -> tuple[_Placed, ...]:
    """The findings with their times on the operator's clock, of independent causes the most recent first.

    Cached: asked for every fleet state, while a kernel logs something relevant once an hour.
    """
    spans: dict[str | None, tuple[float, float]] = {}
    for event in events:
        rule, first_boot_s = rule_of(event), event.first_boot_s or 0.0
        spans[rule] = (spans[rule][0] if rule in spans else first_boot_s, event.last_boot_s or 0.0)
    findings = kernel_findings.findings(events, source=f"{node} kernel log", nodes=(node,))
    placed = [
        _Placed(
            replace(
                finding,
                since_wall_s=booted_wall_s + spans[finding.rule][0],
                caused_by=finding.caused_by or kernel_findings.live_cause(finding.rule) or None,
            ),
            *spans[finding.rule],
        )
        for finding in findings
    ]
    return tuple(sorted(placed, key=lambda one: -spans.get(one.finding.caused_by, spans[one.finding.rule])[1]))


def _with_engine_name(event: KernelEvent, node: NodeView) -> KernelEvent:
    engine = None if event.container else _engine_of(node, event)
    return event if engine is None else replace(event, container=engine.name)


def _with_node_state(placed: _Placed, node: NodeView, sample: Sample, now_boot_s: float, is_now: bool) -> Finding:
    """The finding with its severity and cause by the node's current state."""
    finding, last_s = placed.finding, now_boot_s - placed.last_boot_s
    if placed.last_boot_s - placed.first_boot_s > GOES_ON_S:
        finding = replace(finding, brief=found("kernel.log", "repeated", {"last": span(last_s)}).brief)
    if not is_now:
        earlier = found("kernel.log", "earlier", {"last": span(last_s), "what": finding.title})
        return replace(finding, severity=Severity.INFO, title=earlier.title, remedies=(), caused_by=None)
    if finding.caused_by and finding.caused_by == kernel_findings.live_cause(finding.rule):
        return finding
    if finding.rule == NO_MEMORY:
        return _with_memory_severity(finding, node, sample.memory.available_bytes, last_s)
    if finding.rule in (OOM_KILL, OOM_LIMIT):
        return _with_holder(finding, node)
    return finding


def _with_memory_severity(finding: Finding, node: NodeView, available: int, last_s: float) -> Finding:
    """The finding with its severity by available memory: routine with memory to spare, else the last warning.

    Args:
        last_s: seconds since the last refusal; with memory to spare it is over after OVER_S, or once no engine runs.
    """
    severity, low = finding.severity, available < LOW_BYTES
    if available >= EASY_BYTES and (last_s >= OVER_S or not any(map(is_alive, node.engines))):
        severity = Severity.INFO
    elif severity is Severity.CRITICAL and available >= EASY_BYTES:
        severity = Severity.WARNING
    elif severity is Severity.WARNING and low:
        severity = Severity.CRITICAL
    is_grave = severity is Severity.CRITICAL
    now = found(
        NO_MEMORY,
        "now",
        {
            "why": finding.explanation,
            "available": gib(available),
            "is_grave": is_grave,
            "is_over": available >= EASY_BYTES and not is_grave,
            "is_short": available < EASY_BYTES and not is_grave,
        },
    )
    others = finding.remedies
    if is_grave:
        others = (*now.remedies, *(one for one in others if one.action != now.remedies[0].action))
    return replace(
        finding,
        severity=severity,
        explanation=now.explanation,
        evidence=(*finding.evidence, seen(node, "memory", f"{gib(available)} available")),
        remedies=() if severity is Severity.INFO else others,
        brief=now.brief,
    )


def _with_holder(finding: Finding, node: NodeView) -> Finding:
    holders = node.holders("engine", "gpu", "processes", "unaccounted")
    if not holders or holders[0].held_bytes < WORTH_NAMING_BYTES:
        return finding
    verb = "hold" if holders[0].kind == "processes" else "holds"
    text = f"{holders[0].label} {verb} the most now: {gib(holders[0].held_bytes)}"
    return replace(
        finding,
        explanation=f"{finding.explanation} {text[0].upper()}{text[1:]}.",
        evidence=(*finding.evidence, seen(node, "memory", text)),
    )


# --- two nodes -------------------------------------------------------------------------------------------------------


def _joined_over_nodes(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, with one for both nodes where the same rule began on both at the same moment."""
    joined: list[Finding] = []
    indices_by_rule: dict[str, list[int]] = {}
    for finding in findings:
        indices = indices_by_rule.setdefault(finding.rule, [])
        twin = next((index for index in indices if _is_same_event(joined[index], finding)), None)
        if twin is None:
            indices.append(len(joined))
            joined.append(finding)
            continue
        joint = joined[twin]
        places = (joint.nodes[0], finding.nodes[0])
        both = found("kernel.log", "both", {"what": joint.title, "why": joint.explanation, "places": places})
        joined[twin] = replace(
            joint,
            title=both.title,
            explanation=both.explanation,
            evidence=(*joint.evidence, *finding.evidence),
            nodes=(*joint.nodes, *finding.nodes),
            since_wall_s=min(joint.since_wall_s or 0.0, finding.since_wall_s or 0.0),
        )
    return joined


def _is_same_event(first: Finding, second: Finding) -> bool:
    """Whether two findings of one rule on different nodes are one event."""
    if first.severity is not second.severity or first.severity is Severity.INFO:
        return False
    if set(first.nodes) & set(second.nodes) or first.since_wall_s is None or second.since_wall_s is None:
        return False
    return abs(first.since_wall_s - second.since_wall_s) <= TOGETHER_S
