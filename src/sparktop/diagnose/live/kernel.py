"""What the kernel log says that still matters: recent lines, and older ones while what they did lasts.

The words are `kernelfindings`'; here stands for how long they hold. Times are each node's boot clock: a kernel line of
hours ago is history, told as information, unless it left something broken that only a reboot mends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import Enum
from functools import lru_cache

from sparktop.diagnose import kernelfindings
from sparktop.diagnose.kernelfindings import NO_MEMORY, OOM_KILL, OOM_LIMIT, is_restored, rule_of
from sparktop.diagnose.live.ranks import is_alive
from sparktop.diagnose.live.window import GIB, gib, is_current, seen, span
from sparktop.diagnose.rule import LiveRule, Rule, RuleKind
from sparktop.model.engine import Engine
from sparktop.model.event import KernelEvent, Severity
from sparktop.model.finding import Finding, Remedy
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.telemetry import CollectorState, Interface

RECENT_S = 30 * 60.0
PASSING_S = 10 * 60.0
"""For what passes by itself: refused allocations, notes at information level."""
STUCK_TASK_S = 150.0
"""The kernel tells of a stuck task again every 120 s."""
HISTORY_S = 24 * 3600.0
TOGETHER_S = 2.0
"""What two nodes' kernels say so close together is one event."""
GOES_ON_S = 60.0
"""Of what came again for longer than this the time of the last is said."""
LOW_BYTES = 10 * GIB
EASY_BYTES = 16 * GIB

_UNTIL_REBOOT = frozenset((48, 62, 64, 79, 95, 120, 140, 143, 154, 158, 167, 169, 171, 172, 173, 175))
_UNLESS_IT_ANSWERS = frozenset((46, 109, 110, 119, 136))
"""Xids after which a GPU that still gives figures half a minute later has got over it."""
_DISK_GONE = frozenset(("kernel.nvme-dead", "kernel.disk-read-only"))
_NO_GPU = frozenset(
    ("kernel.driver-module-refused", "kernel.nvrm-init-failed", "kernel.nvrm-sec2-boot", "kernel.nvrm-open-module")
)


_MEMORY = {
    OOM_KILL: ("The kernel killed a process for want of memory", "Linux mm/oom_kill.c"),
    NO_MEMORY: ("The NVIDIA driver was refused memory", "NVIDIA/open-gpu-kernel-modules#1358"),
}


class Standing(Enum):
    """Whether an event still matters."""

    NOW = "now"
    PAST = "past"
    OVER = "over"


def check(fleet: FleetState) -> Iterable[Finding]:
    """kernel.*: one finding for each kind of failure in the kernel log, on one node or on both together."""
    return [finding for finding in claims(fleet) if finding.rule not in _MEMORY]


def check_memory(rule: str) -> Callable[[FleetState], Iterable[Finding]]:
    """The check of one of the kernel's rules on memory, which follow the live rules on memory."""
    return lambda fleet: [finding for finding in claims(fleet) if finding.rule == rule]


@lru_cache(maxsize=1)
def claims(fleet: FleetState) -> list[Finding]:
    """All that the kernel logs of a picture say now; made once for the rules that share it."""
    found = [_of_node(node, fleet) for node in fleet.nodes if is_current(node) and node.kernel_events]
    return _together([finding for findings in found for finding in findings])


def standing(event: KernelEvent, node: NodeView, now_boot_s: float) -> Standing:
    """Whether a kernel event of this node is news, history or nothing any more."""
    rule, seen_s = rule_of(event), event.last_boot_s
    if rule is None or seen_s is None:
        return Standing.OVER
    age_s = max(0.0, now_boot_s - seen_s)
    past = Standing.PAST if event.severity is not Severity.INFO and age_s < HISTORY_S else Standing.OVER
    if event.code is not None:
        return _xid_standing(event, node, age_s, past)
    if rule in _NO_GPU and _gpu_answers_after(node, seen_s):
        return Standing.OVER
    if rule in ("kernel.link-down", "kernel.link-unplugged"):
        if is_restored(event, node.kernel_events) or _is_up(node, event):
            return Standing.OVER
        return Standing.NOW if _is_down(node, event) else _while(age_s, RECENT_S, past)
    if rule in _DISK_GONE or rule in _NO_GPU:
        return Standing.NOW
    if rule == NO_MEMORY:
        return _while(age_s, PASSING_S, past if event.severity is Severity.CRITICAL else Standing.OVER)
    if rule == "kernel.hung-task":
        return Standing.NOW if _is_stuck(node, event.pid) else _while(age_s, STUCK_TASK_S, past)
    return _while(age_s, PASSING_S if event.severity is Severity.INFO else RECENT_S, past)


def _xid_standing(event: KernelEvent, node: NodeView, age_s: float, past: Standing) -> Standing:
    if event.code == 154 and event.severity is Severity.INFO:
        return Standing.OVER  # "no recovery needed any more"
    if event.code == 154 and any(_takes_back(other, event) for other in node.kernel_events):
        return past
    if event.code in _UNTIL_REBOOT and event.severity is Severity.CRITICAL:
        return Standing.NOW
    if event.code in _UNLESS_IT_ANSWERS and not _gpu_answers_after(node, (event.last_boot_s or 0.0) + 30.0):
        return Standing.NOW
    engine = _engine_of(node, event)
    if engine is not None and (engine.started_boot_s or 0.0) > (event.last_boot_s or 0.0) and is_alive(engine):
        return past  # it has been started anew since
    return _while(age_s, PASSING_S if event.severity is Severity.INFO else RECENT_S, past)


def _while(age_s: float, lasts_s: float, then: Standing) -> Standing:
    return Standing.NOW if age_s < lasts_s else then


def _takes_back(later: KernelEvent, event: KernelEvent) -> bool:
    same = later.code == 154 and later.severity is Severity.INFO
    return same and (later.last_boot_s or 0.0) > (event.last_boot_s or 0.0)


# --- what else the picture says of an event --------------------------------------------------------------------------


def _gpu_answers_after(node: NodeView, boot_s: float) -> bool:
    collector = node.collectors.get("nvml")
    return (
        node.gpu is not None
        and bool(node.gpu.gpus)
        and node.gpu.boot_s > boot_s
        and node.gpu.gpus[0].power_w is not None
        and (collector is None or collector.state is CollectorState.OK)
    )


def _interface_of(event: KernelEvent) -> str:
    return event.title.partition("  ")[2]


def _is_up(node: NodeView, event: KernelEvent) -> bool:
    return any(one.name == _interface_of(event) and one.is_up for one in _interfaces(node))


def _is_down(node: NodeView, event: KernelEvent) -> bool:
    return any(one.name == _interface_of(event) and one.is_up is False for one in _interfaces(node))


def _interfaces(node: NodeView) -> tuple[Interface, ...]:
    return node.network.interfaces if node.network else ()


def _is_stuck(node: NodeView, pid: int | None) -> bool:
    table = node.processes.processes if node.processes else ()
    return pid is not None and any(process.pid == pid and process.state == "D" for process in table)


def _engine_of(node: NodeView, event: KernelEvent) -> Engine | None:
    """The engine an event names: by its container, its processes, or because no other could be meant."""
    for engine in node.engines:
        box = engine.container
        if box is not None and event.container_id == box.container_id:
            return engine
        if event.pid is not None and event.pid in engine.pids:
            return engine
    table = node.processes.processes if node.processes else ()
    held = next((one.container_id for one in table if one.pid == event.pid and event.pid is not None), None)
    if held is not None:
        return next((one for one in node.engines if one.container and one.container.container_id == held), None)
    named = (event.process or "").lower()
    if named.startswith(("vllm", "sglang")):
        alike = [engine for engine in node.engines if named.startswith(engine.kind.value)]
        return alike[0] if len(alike) == 1 else None
    return None


# --- the findings of a node ------------------------------------------------------------------------------------------


def _of_node(node: NodeView, fleet: FleetState) -> list[Finding]:
    assert node.sample is not None
    now_boot_s = node.sample.boot_s + max(0.0, fleet.monotonic_s - (node.sample_at_s or fleet.monotonic_s))
    stands = [(event, standing(event, node, now_boot_s)) for event in node.kernel_events]
    if all(how is Standing.OVER for _, how in stands):
        return []
    current = {rule_of(event) for event, how in stands if how is Standing.NOW}
    told = [
        _named(event, node)
        for event, how in stands
        if how is Standing.NOW or (how is Standing.PAST and rule_of(event) not in current)
    ]
    spans: dict[str | None, tuple[float, float]] = {}
    for event in told:
        last_s = now_boot_s - (event.last_boot_s or now_boot_s)
        first_s = spans[rule_of(event)][0] if rule_of(event) in spans else now_boot_s - (event.first_boot_s or 0.0)
        spans[rule_of(event)] = (first_s, last_s)
    # Among causes of their own the one of this moment comes first, before one of twenty minutes ago.
    findings = sorted(_findings(tuple(told), node.name), key=lambda one: spans.get(one.caused_by, spans[one.rule])[1])
    return [_placed(finding, node, fleet, *spans[finding.rule], finding.rule in current) for finding in findings]


@lru_cache(maxsize=16)
def _findings(told: tuple[KernelEvent, ...], node: str) -> tuple[Finding, ...]:
    """Asked with each picture; a kernel says something new once in an hour."""
    return kernelfindings.findings(told, source=f"{node} kernel log", nodes=(node,))


def _named(event: KernelEvent, node: NodeView) -> KernelEvent:
    engine = _engine_of(node, event)
    return event if engine is None or event.container else replace(event, container=engine.name)


def _placed(
    finding: Finding, node: NodeView, fleet: FleetState, first_s: float, last_s: float, is_now: bool
) -> Finding:
    """A finding with its time on the operator's clock, and what the node's other figures add."""
    brief = f"last {span(last_s)} ago" if first_s - last_s > GOES_ON_S else finding.brief
    finding = replace(finding, since_wall_s=fleet.wall_s - first_s, brief=brief)
    if not is_now:
        return replace(
            finding,
            severity=Severity.INFO,
            title=f"Earlier, {span(last_s) if last_s < 7200 else f'{last_s / 3600:.0f} h'} ago: {finding.title}",
            remedies=(),
            caused_by=None,
        )
    if finding.caused_by is None and finding.rule.startswith("kernel.display-"):
        return replace(finding, caused_by="desktop.frozen")
    if finding.caused_by is None and finding.rule.startswith("kernel.link-"):
        return replace(finding, caused_by="cluster.link-down")
    if finding.rule == NO_MEMORY:
        return _no_memory(finding, node)
    if finding.rule in (OOM_KILL, OOM_LIMIT):
        return _with_holder(finding, node)
    return finding


def _no_memory(finding: Finding, node: NodeView) -> Finding:
    """The same lines are routine with memory to spare and the last warning without."""
    assert node.sample is not None
    available = node.sample.memory.available_bytes
    severity, low = finding.severity, available < LOW_BYTES
    if severity is Severity.CRITICAL and available >= EASY_BYTES:
        severity = Severity.WARNING
    elif severity is Severity.WARNING and low:
        severity = Severity.CRITICAL
    told = f" {gib(available)} are available now" + (
        ": this is how whole machines hung, with no kill and no way in." if severity is Severity.CRITICAL else "."
    )
    stop = Remedy(
        title="Stop an engine now, while the machine still answers", cost="its requests", action="stop-engine"
    )
    remedies = (stop, *(one for one in finding.remedies if one.action != stop.action))
    return replace(
        finding,
        severity=severity,
        explanation=finding.explanation + told,
        evidence=(*finding.evidence, seen(node, "memory", f"{gib(available)} available")),
        remedies=remedies if severity is Severity.CRITICAL else finding.remedies,
        brief=f"{gib(available)} available now",
    )


def _with_holder(finding: Finding, node: NodeView) -> Finding:
    holders = node.ledger.holders if node.ledger else ()
    users = [one for one in holders if one.kind in ("engine", "gpu", "processes", "unaccounted")]
    if not users:
        return finding
    most = max(users, key=lambda one: one.held_bytes)
    text = f"{most.label} holds the most now: {gib(most.held_bytes)}"
    return replace(
        finding,
        explanation=f"{finding.explanation} {text[0].upper()}{text[1:]}.",
        evidence=(*finding.evidence, seen(node, "memory", text)),
    )


# --- two nodes -------------------------------------------------------------------------------------------------------


def _together(findings: Sequence[Finding]) -> list[Finding]:
    """Findings of one rule that began on both nodes at the same moment, as one."""
    joined: list[Finding] = []
    places: dict[str, list[int]] = {}
    for finding in findings:
        alike = places.setdefault(finding.rule, [])
        twin = next((index for index in alike if _are_one(joined[index], finding)), None)
        if twin is None:
            alike.append(len(joined))
            joined.append(finding)
            continue
        other = joined[twin]
        joined[twin] = replace(
            other,
            title=f"{other.title}, on {other.nodes[0]} and {finding.nodes[0]} at once",
            explanation=f"{other.explanation} It came on both nodes in the same moment: one cause, most likely the "
            "engine that spans them.",
            evidence=(*other.evidence, *finding.evidence),
            nodes=(*other.nodes, *finding.nodes),
            since_wall_s=min(other.since_wall_s or 0.0, finding.since_wall_s or 0.0),
        )
    return joined


def _are_one(one: Finding, other: Finding) -> bool:
    """Of two findings of one rule, whether they are one event."""
    if one.severity is not other.severity or one.severity is Severity.INFO:
        return False
    if set(one.nodes) & set(other.nodes) or one.since_wall_s is None or other.since_wall_s is None:
        return False
    return abs(one.since_wall_s - other.since_wall_s) <= TOGETHER_S


RULES: tuple[LiveRule, ...] = (
    *(
        LiveRule(
            card=Rule(
                id=rule,
                kind=RuleKind.KERNEL,
                title=title,
                severity=Severity.CRITICAL,
                scope="every node whose kernel log can be read",
                sources=(source,),
            ),
            check=check_memory(rule),
            hold_s=1.0,
            follows=("memory.first-request-spike", "memory.falling", "memory.starved", "memory.low"),
        )
        for rule, (title, source) in _MEMORY.items()
    ),
    LiveRule(
        card=Rule(
            id="kernel.log",
            kind=RuleKind.LIVE,
            title="The kernel log tells of a failure: Xids, GSP, links, disks, crashes (rules kernel.*)",
            severity=Severity.CRITICAL,
            scope="every node whose kernel log can be read",
            sources=("NVIDIA Xid catalogue", "Linux", "field report 000", "field report 002"),
        ),
        check=check,
        hold_s=1.0,
        clear_s=5.0,
    ),
)
