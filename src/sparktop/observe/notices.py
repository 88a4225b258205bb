"""What to say first: plain facts of the picture that an operator must not miss.

These are observations, not diagnoses: no cause is named here. Ordered worst first.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.model.engine import EngineState
from sparktop.model.event import KernelEvent, Severity
from sparktop.model.fleet import LinkState, NodeView, Notice, Reach
from sparktop.model.telemetry import CollectorState

LOW_BYTES = 8 * 1024**3
"""The floor below which GB10 machines were seen to wedge (facts/gb10.md section 2)."""
SOON_EMPTY_S = 60.0
RECENT_S = 30 * 60.0
HELD_S = 30.0
"""Longer than a prefill of ordinary length; what it means is for diagnosis."""
_GIB = 1024**3
_SAME_KEY = "same host key"
"""A connection's own warning of it; the pair of nodes is named once, below."""
_ORDER = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}


def notices(nodes: Sequence[NodeView], *, fingerprints: dict[str, str]) -> tuple[Notice, ...]:
    """All that is to be said of these nodes now; `fingerprints` are the host keys of this session by node."""
    found = [notice for node in nodes for notice in _of(node)]
    found += _twins(nodes, fingerprints)
    return tuple(sorted(found, key=lambda notice: _ORDER[notice.severity]))


def _of(node: NodeView) -> list[Notice]:
    found = list(_link(node))
    if node.link.state is LinkState.LIVE:
        found += _memory(node)
        found += _engines(node)
    found += _kernel(node)
    found += [
        Notice(severity=Severity.WARNING, node=node.name, text=f"{collector.name} is stuck: {collector.detail}")
        for collector in node.collectors.values()
        if collector.state is CollectorState.STUCK
    ]
    found += [
        Notice(severity=Severity.WARNING, node=node.name, text=warning)
        for warning in node.warnings
        if _SAME_KEY not in warning
    ]
    return found


def _link(node: NodeView) -> list[Notice]:
    link = node.link
    if link.state is LinkState.LIVE or link.state is LinkState.CONNECTING:
        return []
    named = link.reach not in (Reach.UNTESTED, Reach.ANSWERS)
    severity = Severity.CRITICAL if named or link.state is not LinkState.STALE else Severity.WARNING
    # The verdict first: on a narrow screen the rest of the sentence is cut.
    text = f"{link.reach}: {link.reason}" if named else f"{link.state}: {link.reason}"
    if link.hint and link.state is LinkState.REFUSED:
        text += f" · {link.hint}"
    last = node.sample
    if last is not None and link.state is not LinkState.REFUSED:
        seen = f"last seen with {last.memory.available_bytes / _GIB:.1f} GiB available"
        if node.trend and node.trend.time_to_empty_s is not None:
            seen += f", falling {-node.trend.bytes_per_s / 1e9:.1f} GB/s"
        text = f"{link.reach}, {seen} · {link.reason}" if named else f"{text} · {seen}"
    return [Notice(severity=severity, node=node.name, text=text)]


def _memory(node: NodeView) -> list[Notice]:
    if node.sample is None:
        return []
    memory = node.sample.memory
    left = f"{memory.available_bytes / _GIB:.1f} GiB available"
    empty_s = node.trend.time_to_empty_s if node.trend else None
    if empty_s is not None and empty_s < SOON_EMPTY_S and node.trend is not None:
        minutes, seconds = divmod(int(empty_s), 60)
        text = f"{left}, falling {-node.trend.bytes_per_s / 1e9:.1f} GB/s: empty in {minutes}:{seconds:02}"
        return [Notice(severity=Severity.CRITICAL, node=node.name, text=text)]
    if memory.available_bytes < min(LOW_BYTES, memory.total_bytes * 0.07):
        return [Notice(severity=Severity.CRITICAL, node=node.name, text=f"only {left}")]
    return []


def _engines(node: NodeView) -> list[Notice]:
    """Engines that ended badly lately, and requests held without a token, with what tells work from spinning."""
    found: list[Notice] = []
    for engine in node.engines:
        if engine.state is EngineState.EXITED:
            ended_s, now_s = engine.exited_wall_s, node.sample.wall_s if node.sample else None
            code = engine.container.exit_code if engine.container else None
            if code != 0 and ended_s is not None and now_s is not None and now_s - ended_s < RECENT_S:
                text = f"{engine.name} has exited: {engine.exit_detail or 'its process ended'}"
                found.append(Notice(severity=Severity.WARNING, node=node.name, text=text))
            continue
        held = engine.metrics.running if engine.metrics else None
        still_s = engine.rates.progress_age_s if engine.rates else None
        if held and still_s is not None and still_s >= HELD_S:
            gpu = node.first_gpu
            drawn = ""
            if gpu is not None and gpu.utilisation_percent is not None and gpu.power_w is not None:
                drawn = f", SM {gpu.utilisation_percent:.0f} % at {gpu.power_w:.0f} W"
            text = f"{engine.name}: {held:.0f} requests held and no token for {still_s:.0f} s{drawn}"
            found.append(Notice(severity=Severity.WARNING, node=node.name, text=text))
    return found


def _kernel(node: NodeView) -> list[Notice]:
    """The newest kernel events at critical, while they are recent."""
    now_boot_s = node.sample.boot_s if node.sample else None
    recent: list[KernelEvent] = [
        event
        for event in node.kernel_events
        if event.severity is Severity.CRITICAL
        and event.last_boot_s is not None
        and now_boot_s is not None
        and now_boot_s - event.last_boot_s < RECENT_S
    ]
    if not recent:
        return []
    newest = recent[-1]
    more = f" (and {len(recent) - 1} more in the kernel log)" if len(recent) > 1 else ""
    times = f"{newest.count} x " if newest.count > 1 else ""
    return [Notice(severity=Severity.CRITICAL, node=node.name, text=f"kernel: {times}{newest.title}{more}")]


def _twins(nodes: Sequence[NodeView], fingerprints: dict[str, str]) -> list[Notice]:
    """Two nodes that present one host key or machine id: seen on shipped units (CVE-2026-24218)."""
    found: list[Notice] = []
    for index, one in enumerate(nodes):
        for other in nodes[index + 1 :]:
            both = f"{one.name} and {other.name}"
            key = fingerprints.get(one.name)
            same_id = (
                one.facts is not None
                and other.facts is not None
                and one.facts.machine_id_digest is not None
                and one.facts.machine_id_digest == other.facts.machine_id_digest
            )
            same_boot = same_id and one.facts and other.facts and one.facts.boot_id == other.facts.boot_id
            if same_boot:
                text = f"{both} are one machine (same boot id): is one of the names wrong?"
            elif key is not None and key == fingerprints.get(other.name):
                text = f"{both} present the same SSH host key: each can pose as the other; make new host keys on one"
            elif same_id:
                text = f"{both} have the same machine id (cloned image): give one a new /etc/machine-id"
            else:
                continue
            found.append(Notice(severity=Severity.WARNING, text=text))
    return found
