"""What the links themselves say: a node that is lost or refused, two nodes that are one.

These are observations, not diagnoses: no cause is named here. What is wrong on a node is said by rules. Worst first.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.model.event import Severity
from sparktop.model.fleet import LinkState, NodeView, Notice, Reach

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
