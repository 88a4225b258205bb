"""Rule: how the boot before this one ended, from what the node still knows of it and what this console saw last.

Only what is written down is sure. A machine without power writes nothing, and neither does one that hangs: an end
without a trace is suspected to be either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from sparktop.diagnose.ended_by import rebooted_by
from sparktop.diagnose.kernel import findings as kernel_findings
from sparktop.diagnose.kernel import line as kernel_line
from sparktop.diagnose.kernel.findings import GPU_GONE, NO_MEMORY, OOM_CALLED, OOM_KILL
from sparktop.diagnose.kernel.incident import IncidentGrouper
from sparktop.diagnose.rule import live_rule
from sparktop.knowledge.card import found
from sparktop.model.event import KernelEvent
from sparktop.model.finding import Confidence, Evidence, Finding
from sparktop.model.fleet import FleetState, LastSeen, current_nodes
from sparktop.model.telemetry import YOUNG_BOOT_S, LogLine, PreviousBoot
from sparktop.text.units import GIB, day_time, gib

NEAR_S = 5 * 60.0
"""What the kernel logged this short before the end may have caused it."""
ORDERED_S = 15 * 60.0
"""A shutdown takes no longer, from its order to the journal's end."""
STARVED_BYTES, STARVED_SHARE, STARVED_PERCENT = 2 * GIB, 0.05, 20.0
"""Less memory available, and of all of it; or more time in which all tasks waited for memory (PSI)."""
REFUSALS = 10
"""So many of the driver's refused allocations are no routine."""

_ORDERED = re.compile(
    r"systemd-logind: (?:The system will (?:reboot|power off|halt|kexec) now|System is (?:re|power|halt|kexec))"
    r"|systemd: (?:Reached target .*\b(?:reboot|power-?off|halt|kexec)\b|Shutting down\.)",
    re.IGNORECASE,
)
_OFF = re.compile(r"power|halt", re.IGNORECASE)
_BY = (
    re.compile(
        r"sudo: +(?P<who>[\w.@-]+) : .*COMMAND="
        r"(?P<how>\S*(?:reboot|shutdown|poweroff|halt|init [06]|systemctl (?:reboot|poweroff|halt|kexec)).*)"
    ),
    re.compile(r"systemd-logind: (?P<who>Power key) (?P<how>pressed)"),
    re.compile(r"systemd: .*requested from client PID \d+ \('(?P<who>[^']+)'\) ?(?P<how>.*)"),
)
_IN_MODULE = re.compile(r"[\w.]+\+0x[0-9a-f]+/0x[0-9a-f]+ \[(?P<module>\w+)")
_PANIC = "kernel.panic"
_MEMORY = (NO_MEMORY, "kernel.memory-page-allocation", "kernel.memory-earlyoom-kill", "kernel.memory-oomd-kill")
_CASES = {
    "overheated": ("kernel.thermal-shutdown",),
    "kernel-crash": (_PANIC, "kernel.oops"),
    "pcie": ("kernel.aer-fatal", "kernel.aer-recovery-failed", "kernel.hardware-fatal"),
    "gpu-wedged": (*GPU_GONE, *kernel_line.causes("gpu-lost"), "kernel.nvrm-gpu-lost"),
    "out-of-memory": (OOM_KILL, OOM_CALLED),
    "memory-starved": _MEMORY,
    "hung": ("kernel.link-wifi-chip", "kernel.lockup", "kernel.rcu-stall", "kernel.hung-task"),
}
"""The kernel rules of each case; the first case that is there is the cause."""
_UNTRACED = ("power-lost", "unknown")
"""Cases in which the node itself knows nothing of an order."""


class Ending(NamedTuple):
    """How a boot ended: a case of the card, with its figures."""

    case: str
    figures: Mapping[str, object]
    evidence: tuple[Evidence, ...]
    confidence: Confidence = Confidence.SUSPECTED


@live_rule("host.rebooted")
def rebooted(fleet: FleetState) -> Iterator[Finding]:
    """host.rebooted: why the node went down before this boot; a day long, then it is history."""
    for node, sample in current_nodes(fleet):
        previous = node.previous_boot
        end_s = previous.end_wall_s if previous is not None else None
        is_young = sample.boot_s < YOUNG_BOOT_S or (end_s is not None and sample.wall_s - end_s < YOUNG_BOOT_S)
        if previous is None or not is_young or (ending := judge(previous, node.last_seen, node.name)) is None:
            continue
        by = rebooted_by(node, fleet)
        if by is not None and ending.case in _UNTRACED:
            ending = Ending("from-a-console", {"who": by.who}, ending.evidence, Confidence.CONFIRMED)
        ahead_s = sample.wall_s - fleet.wall_s if abs(sample.wall_s - fleet.wall_s) > 5.0 else 0.0
        yield found(
            "host.rebooted",
            ending.case,
            {"node": node.name, "when": day_time(end_s) if end_s else "", **ending.figures},
            confidence=ending.confidence,
            evidence=ending.evidence,
            nodes=(node.name,),
            since_wall_s=None if end_s is None else end_s - round(ahead_s),
        )


@lru_cache(maxsize=64)
def judge(previous: PreviousBoot, last_seen: LastSeen | None, node: str) -> Ending | None:
    """How that boot ended; None where nothing is left of it and nobody here saw it. Cached: it comes once a boot."""
    source = f"{node} previous boot"
    if last_seen is not None and previous.boot_id and last_seen.boot_id.replace("-", "") != previous.boot_id:
        last_seen = None  # of a boot before that
    end_s = previous.end_wall_s
    last = sorted((*previous.kernel, *previous.system), key=lambda line: line.wall_s or 0.0)[-1:]
    events = _events(previous, end_s or (last_seen.wall_s if last_seen is not None else None))
    causes = {one.rule: one for one in kernel_findings.findings(events, source=source)}
    case, cause = kernel_cause(causes, events)
    logged = cause.evidence if cause is not None else ()
    order, is_panic = _order(previous.system, end_s), _PANIC in causes
    if order and case != "overheated" and not is_panic:
        who, shown = _orderer(previous.system, order[0])
        is_off = any(_OFF.search(line.text.partition(": ")[2]) for line in order)
        figures: dict[str, object] = {"who": who, "trouble": cause.title if cause else ""}
        evidence = _shown([*shown, order[0], order[-1]], source)
        return Ending(f"ordered-{'shutdown' if is_off else 'reboot'}", figures, evidence, Confidence.CONFIRMED)
    starved = _starved(last_seen, end_s, node)
    if case in ("", "memory-starved", "hung") and starved is not None:
        figures = {"what": starved.text, "is_read": end_s is not None, "alone": bool(last), "why": previous.reason}
        return Ending("memory-starved", figures, (*logged, starved, *_shown(last, source)))
    if cause is not None:
        module, places = _module(previous, cause) if case == "kernel-crash" else ("", [])
        is_wifi = "mt79" in f"{module} {cause.title}"
        figures = {"what": cause.title, "module": module, "is_wifi": is_wifi, "is_read": True, "alone": True}
        is_sure = is_panic or case == "overheated"
        evidence = tuple(dict.fromkeys((*logged, *_shown([*places, *last], source))))
        return Ending(case, figures, evidence, Confidence.CONFIRMED if is_sure else Confidence.SUSPECTED)
    if end_s is not None:
        return Ending("power-lost", {}, _shown(last, source))
    if last_seen is None:
        return None
    seen = Evidence(source=f"{node} link", text="another boot was seen before this one", wall_s=last_seen.wall_s)
    return Ending("unknown", {"why": previous.reason}, (seen,))


def _events(previous: PreviousBoot, over_s: float | None) -> tuple[KernelEvent, ...]:
    """What the kernel logged near the end, and what it left in a crash dump of that time."""
    grouper = IncidentGrouper()
    killers = [line for line in previous.system if line.text.startswith(("earlyoom: ", "systemd-oomd: "))]
    near = [one for one in (*previous.kernel, *killers) if over_s and one.wall_s and over_s - one.wall_s < NEAR_S]
    is_dump_fresh = any(over_s is not None and changed_s > over_s - NEAR_S for _, changed_s in previous.pstore[:1])
    known = {line.text for line in near}
    for line in (*near, *(one for one in previous.dump if is_dump_fresh and one.text not in known)):
        if (event := kernel_line.read(line)) is not None:
            grouper.add(event)
    return grouper.events


def kernel_cause(causes: Mapping[str, Finding], events: Sequence[KernelEvent]) -> tuple[str, Finding | None]:
    """(the case, the kernel's finding that it rests on); ("", None) where the kernel logged no cause."""
    refused = sum(event.count for event in events if kernel_findings.rule_of(event) == NO_MEMORY)
    for case, rules in _CASES.items():
        for rule in rules:
            if rule in causes and (rule != NO_MEMORY or refused >= REFUSALS):
                return case, causes[rule]
    return "", None


def _order(lines: Iterable[LogLine], end_s: float | None) -> list[LogLine]:
    """The lines by which the machine was shut down; of a forced reboot sudo's, with nothing after it."""
    near = [line for line in lines if end_s and line.wall_s and end_s - line.wall_s < ORDERED_S]
    ordered = [line for line in near if _ORDERED.match(line.text)]
    return ordered or [line for line in near if end_s and _BY[0].match(line.text) and end_s - (line.wall_s or 0) < 10]


def _orderer(lines: Iterable[LogLine], order: LogLine) -> tuple[str, list[LogLine]]:
    """(who ordered it, with the line that says so); "" where none does."""
    age_s = {line: (order.wall_s or 0.0) - (line.wall_s or 0.0) for line in lines}
    for line in sorted((line for line, before_s in age_s.items() if 0 <= before_s < NEAR_S), key=age_s.__getitem__):
        for pattern in _BY:
            if match := pattern.match(line.text):
                return f"{match['who']} ({match['how']})".replace(" ()", ""), [line]
    return "", []


def _starved(last_seen: LastSeen | None, end_s: float | None, node: str) -> Evidence | None:
    """The console's own last look, where memory was gone in it; None where it wasn't, or is of long before the end."""
    if last_seen is None or last_seen.available_bytes is None:
        return None
    if end_s is not None and last_seen.wall_s < end_s - NEAR_S:
        return None
    least_bytes = min(STARVED_BYTES, STARVED_SHARE * last_seen.total_bytes)
    if last_seen.available_bytes >= least_bytes and last_seen.stall_percent < STARVED_PERCENT:
        return None
    stalled = f"{last_seen.stall_percent:.0f} % of the time"
    text = f"{gib(last_seen.available_bytes)} available, all tasks waited for memory {stalled}"
    return Evidence(source=f"{node} memory", text=text, wall_s=last_seen.wall_s)


def _module(previous: PreviousBoot, cause: Finding) -> tuple[str, list[LogLine]]:
    """(the module that the crash was in, by its registers or call trace; the line that says so); "" where none does."""
    lines = (*previous.kernel, *previous.dump)
    texts = [line.text for line in lines]
    begin = texts.index(cause.evidence[0].text)
    for line in lines[max(0, begin - 60) :]:  # a panic ends a crash whose trace came before it
        if match := _IN_MODULE.search(line.text):
            return match["module"], [line]
    return "", []


def _shown(lines: Iterable[LogLine], source: str) -> tuple[Evidence, ...]:
    return tuple(Evidence(source=source, text=line.text, wall_s=line.wall_s) for line in dict.fromkeys(lines))
