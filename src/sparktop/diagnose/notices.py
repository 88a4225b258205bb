"""What the links say of themselves, and warnings of nodes, as notices: observations, worst first, which name no cause.

Diagnoses come from the live rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sparktop.checks.identity import identity_of, judge_clones
from sparktop.diagnose.ended_by import doing
from sparktop.model.event import Severity
from sparktop.model.fleet import Intervention, LinkState, NodeView, Notice, Reach
from sparktop.text.units import gib, memory_rate

_SAME_KEY = "same host key"
"""A connection's own warning of it; `_twin_notices` names the pair once."""
LOST_TOGETHER_S = 10.0
"""Nodes that are lost within this time have most likely lost what is between them and the operator."""
_SILENT = (Reach.UNTESTED, Reach.NO_NETWORK, Reach.NO_HOST)


def notices(nodes: Sequence[NodeView], interventions: Sequence[Intervention] = ()) -> tuple[Notice, ...]:
    """All notices about these nodes, worst first."""
    all_notices = [notice for node in nodes for notice in _node_notices(node, nodes, interventions)]
    return tuple(sorted(all_notices + _twin_notices(nodes), key=lambda notice: -notice.severity.weight))


def _node_notices(node: NodeView, nodes: Sequence[NodeView], interventions: Sequence[Intervention]) -> Iterator[Notice]:
    reboot = _reboot_under_way(node, interventions)
    if reboot is not None:
        text = f"{doing(reboot)}: it doesn't answer until it has booted"
        yield Notice(severity=Severity.WARNING, node=node.name, text=text)
    else:
        yield from _link_notices(node, _lost_together(nodes, interventions))
    for warning in node.warnings:
        if _SAME_KEY not in warning:
            yield Notice(severity=Severity.WARNING, node=node.name, text=warning)


def _reboot_under_way(node: NodeView, interventions: Sequence[Intervention]) -> Intervention | None:
    """The reboot by a console for which a node doesn't answer."""
    if node.link.state in (LinkState.LIVE, LinkState.REFUSED):
        return None
    return next((one for one in interventions if one.node == node.name and one.is_reboot and one.is_under_way), None)


def _lost_together(nodes: Sequence[NodeView], interventions: Sequence[Intervention]) -> bool:
    """Whether all nodes, of two or more, were lost at the same time, and none answers anything nor reboots."""
    if any(_reboot_under_way(node, interventions) for node in nodes):
        return False
    silent_s = [node.link.since_s for node in nodes if node.link.state is LinkState.LOST and node.link.reach in _SILENT]
    return 1 < len(silent_s) == len(nodes) and max(silent_s) - min(silent_s) <= LOST_TOGETHER_S


def with_likely_hints(nodes: Sequence[NodeView], interventions: Sequence[Intervention]) -> tuple[NodeView, ...]:
    """The nodes; the hint of a link that is down is one of what is known of all nodes and of the console's runs."""
    together = _lost_together(nodes, interventions)
    told = []
    for node in nodes:
        hint = ""
        if _reboot_under_way(node, interventions) is not None:
            hint = "A sparktop console reboots it: it answers again once it has booted."
        elif together:
            hint = "All nodes were lost at once: check your own network, then the switch."
        told.append(replace(node, link=replace(node.link, hint=hint)) if hint else node)
    return tuple(told)


def _link_notices(node: NodeView, is_one_of_all: bool) -> list[Notice]:
    link = node.link
    if link.state is LinkState.LIVE or link.state is LinkState.CONNECTING:
        return []
    is_open = link.state in (LinkState.STALE, LinkState.UNRECORDED) and not link.is_tested
    severity = Severity.WARNING if is_open else Severity.CRITICAL
    # The state first: a narrow screen cuts the rest of the sentence.
    text = link.trouble
    if is_one_of_all:
        text = f"{link.reach if link.is_tested else link.state} like all others: check your own network first"
    elif link.hint and link.state is LinkState.REFUSED:
        text += f" · {link.hint}"
    sample = node.sample
    if sample is not None and link.state is not LinkState.REFUSED:
        seen = f"last seen with {gib(sample.memory.available_bytes)} available"
        if node.trend and node.trend.time_to_empty_s is not None:
            seen += f", falling {memory_rate(-node.trend.bytes_per_s)}"
        is_seen_first = link.is_tested and not is_one_of_all
        text = f"{link.reach}, {seen} · {link.reason}" if is_seen_first else f"{text} · {seen}"
    return [Notice(severity=severity, node=node.name, text=text)]


def _twin_notices(nodes: Sequence[NodeView]) -> list[Notice]:
    """Two nodes with the same host key or machine id: seen on shipped units (CVE-2026-24218)."""
    twins: list[Notice] = []
    for index, first in enumerate(nodes):
        for second in nodes[index + 1 :]:
            names = f"{first.name} and {second.name}"
            text = {
                "one-machine": f"{names} are one machine (same boot id): is one of the names wrong?",
                "host-key": (
                    f"{names} present the same SSH host key: each can pose as the other; make new host keys on one"
                ),
                "machine-id": f"{names} have the same machine id (cloned image): give one a new /etc/machine-id",
            }.get(judge_clones((identity_of(first), identity_of(second))).case)
            if text is not None:
                twins.append(Notice(severity=Severity.WARNING, text=text))
    return twins
