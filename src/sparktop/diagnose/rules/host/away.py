"""Rule: why a node was away and came back in the same boot, from its counters before and after, its kernel log, and
what tests of the host showed meanwhile.

The kernel counts through a silence: how long all tasks waited for memory or a disk (PSI's totals) is a measure, not a
guess. That nothing of it was seen leaves the network, or programs that stood still.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from sparktop.diagnose.kernel import findings as kernel_findings
from sparktop.diagnose.rule import live_rule
from sparktop.diagnose.rules.host.kernel_log import Relevance, relevance_of
from sparktop.diagnose.rules.host.previous_boot import kernel_cause
from sparktop.knowledge.card import found
from sparktop.model.event import KernelEvent, Severity
from sparktop.model.finding import Confidence, Evidence, Finding
from sparktop.model.fleet import Absence, FleetState, NodeView, Reach, boot_s_now, current_nodes
from sparktop.text.units import gib, span

SETTLED_S = 5.0
"""So long after the first sample, what the node logged meanwhile has been read."""
KEPT_S = 3600.0
NEWS_S = 300.0
"""So long it stands in the verdict, as a resolved finding stays in the list; then it is a note. What may still be wrong
has findings of its own."""
NEAR_S = 10.0
"""What the kernel logged this short before the silence may have caused it."""
STALLED_SHARE = 0.25
"""All tasks waited this share of the time: that is what it did."""
_SUSPEND = frozenset({"power.suspend"})
_LINK_DOWN = frozenset({"link.unplugged", "link.mlx5-down", "link.nic-down", "link.tx-timeout"})
_BY_REACH = {
    Reach.NO_HOST: "network",
    Reach.SSH_SILENT: "frozen",
    Reach.NO_SSHD: "no-ssh",
}


class Verdict(NamedTuple):
    """Why it was away: a case of the card, with its figures."""

    case: str
    figures: Mapping[str, object]
    evidence: tuple[Evidence, ...] = ()
    confidence: Confidence = Confidence.SUSPECTED


@live_rule("host.away")
def away(fleet: FleetState) -> Iterator[Finding]:
    """host.away: why the node was away without a reboot; for an hour after it came back, at last as a note."""
    for node, sample in current_nodes(fleet):
        absence = node.absence
        if absence is None or not SETTLED_S <= sample.boot_s - absence.after.boot_s < KEPT_S:
            continue
        if (verdict := judge(absence, node)) is None:
            continue
        finding = found(
            "host.away",
            verdict.case,
            {"node": node.name, "away": span(absence.away_s), **verdict.figures},
            confidence=verdict.confidence,
            evidence=(*verdict.evidence, *_measured(absence, node.name)),
            nodes=(node.name,),
            since_wall_s=absence.before.wall_s,
        )
        now_boot_s = boot_s_now(node, sample, fleet)
        if now_boot_s - absence.after.boot_s >= NEWS_S or _is_made_good(absence, node, now_boot_s):
            finding = replace(finding, severity=Severity.INFO)
        yield finding


def _is_made_good(absence: Absence, node: NodeView, now_boot_s: float) -> bool:
    """Whether what the kernel killed meanwhile was started again, and serves."""
    kills = [event for event in _meanwhile(absence, node) if event.kind == "oom-kill"]
    return bool(kills) and all(relevance_of(event, node, now_boot_s) is not Relevance.NOW for event in kills)


def _meanwhile(absence: Absence, node: NodeView) -> tuple[KernelEvent, ...]:
    """What its kernel logged shortly before it was away, and until it was back."""
    first_s, last_s = absence.before.boot_s - NEAR_S, absence.after.boot_s
    return tuple(
        event
        for event in node.kernel_events
        if event.last_boot_s is not None and first_s <= event.last_boot_s <= last_s
    )


def judge(absence: Absence, node: NodeView) -> Verdict | None:
    """Why the node was away; "unknown" where nothing says so, None where only the operator's own network was gone."""
    events = _meanwhile(absence, node)
    causes = {one.rule: one for one in kernel_findings.findings(events, source=f"{node.name} kernel log")}
    case, cause = kernel_cause(causes, events)
    logged = cause.evidence if cause is not None else ()
    if suspended := _first(events, _SUSPEND, node.name):
        return Verdict("suspended", {}, suspended, Confidence.CONFIRMED)
    if case == "out-of-memory" and cause is not None:
        return Verdict(case, {"what": cause.title}, logged, Confidence.CONFIRMED)
    memory, disk = absence.memory_share, absence.disk_share
    if memory is not None and memory >= STALLED_SHARE:
        return Verdict("memory-starved", {"percent": 100 * memory}, logged, Confidence.CONFIRMED)
    if case == "memory-starved":
        return Verdict(case, {"percent": None}, logged)
    if disk is not None and disk >= STALLED_SHARE:
        return Verdict("disk", {"percent": 100 * disk}, logged, Confidence.CONFIRMED)
    if cause is not None:
        return Verdict("kernel", {"what": cause.title}, logged)
    if dropped := _first(events, _LINK_DOWN, node.name):
        return Verdict("link-down", {}, dropped, Confidence.CONFIRMED)
    seen = [_BY_REACH[reach] for reach in absence.reaches if reach in _BY_REACH]
    case = next((one for one in ("frozen", "network", "no-ssh") if one in seen), "unknown")
    if Reach.NO_NETWORK in absence.reaches and not seen:
        return None
    tested = (Evidence(source=f"{node.name} link", text=", then ".join(absence.reaches)),) if seen else ()
    return Verdict(case, {"is_counted": memory is not None}, tested)


def _first(events: tuple[KernelEvent, ...], patterns: frozenset[str], node: str) -> tuple[Evidence, ...]:
    """The first event of these patterns, as evidence; empty where there is none."""
    shown = [event for event in events if event.pattern in patterns][:1]
    return tuple(Evidence(source=f"{node} kernel log", text=event.text, wall_s=event.first_wall_s) for event in shown)


def _measured(absence: Absence, node: str) -> Iterator[Evidence]:
    """What its own counters say of that time."""
    before, after = absence.before, absence.after
    yield Evidence(
        source=f"{node} memory",
        text=f"{gib(before.memory.available_bytes)} available before, {gib(after.memory.available_bytes)} after",
        wall_s=before.wall_s,
    )
    shares = {"memory": absence.memory_share, "a disk": absence.disk_share}
    waited = [f"for {what} {100 * share:.0f} %" for what, share in shares.items() if share is not None]
    if waited:
        yield Evidence(source=f"{node} pressure", text=f"all its tasks waited {' and '.join(waited)} of that time")
