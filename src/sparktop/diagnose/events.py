"""What happened between two pictures, as one stream on one clock: link, boots, kernel, engines, actions, findings."""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.model.event import Event, EventKind, Severity
from sparktop.model.finding import Finding, FindingKey, Phase
from sparktop.model.fleet import FleetState, LinkState, NodeView


def events_between(before: FleetState, now: FleetState) -> Iterator[Event]:
    """What the second picture shows that the first did not."""
    olds = {node.name: node for node in before.nodes}
    for node in now.nodes:
        old = olds.get(node.name)
        if old is not None and old is not node:
            yield from _of_node(old, node, now)
    known = {(one.node, one.action, one.began_wall_s) for one in before.interventions}
    for one in now.interventions:
        if (one.node, one.action, one.began_wall_s) not in known:
            who = f" by {one.who}" if one.who else ""
            text = f"{one.action}{f' of {one.engine}' if one.engine else ''}{who}"
            yield Event(at_s=one.began_wall_s, kind=EventKind.ACTION, nodes=(one.node,), subject=one.action, text=text)
    yield from _of_findings(before, now)


def _of_node(old: NodeView, node: NodeView, now: FleetState) -> Iterator[Event]:
    name = (node.name,)
    if node.link.state is not old.link.state:
        is_lost = node.link.state not in (LinkState.LIVE, LinkState.CONNECTING)
        yield Event(
            at_s=now.wall_s,
            kind=EventKind.LINK,
            nodes=name,
            severity=Severity.WARNING if is_lost else None,
            subject=str(node.link.state),
            text=node.link.trouble if is_lost else node.link.reason or str(node.link.state),
        )
    if old.facts is not None and node.facts is not None and old.facts.boot_id != node.facts.boot_id:
        yield Event(at_s=now.wall_s, kind=EventKind.BOOT, nodes=name, text="the node has rebooted")
    seen = {(event.kind, event.first_boot_s, event.title) for event in old.kernel_events}
    for event in node.kernel_events:
        if (event.kind, event.first_boot_s, event.title) not in seen:
            yield Event(
                at_s=now.wall_s,
                kind=EventKind.KERNEL,
                nodes=name,
                severity=event.severity,
                subject=event.kind,
                text=event.headline,
            )
    states = {engine.key: engine.state for engine in old.engines}
    for engine in node.engines:
        if states.get(engine.key) is not engine.state:
            text = f"{engine.name}: {engine.state}{f', {engine.exit_detail}' if engine.exit_detail else ''}"
            yield Event(at_s=now.wall_s, kind=EventKind.ENGINE, nodes=name, subject=engine.name, text=text)
    there = {engine.key for engine in node.engines}
    for gone in old.engines:
        if gone.key not in there:
            yield Event(
                at_s=now.wall_s, kind=EventKind.ENGINE, nodes=name, subject=gone.name, text=f"{gone.name}: not there"
            )


def _of_findings(before: FleetState, now: FleetState) -> Iterator[Event]:
    old, new = _firing(before), _firing(now)
    for key, finding in new.items():
        earlier = old.get(key)
        if earlier is None:
            yield _told(finding, EventKind.FOUND, now)
        elif finding.severity.weight > earlier.severity.weight:
            yield _told(finding, EventKind.WORSE, now)
    for key, finding in old.items():
        if key not in new:
            yield _told(finding, EventKind.RESOLVED, now)


def _firing(picture: FleetState) -> dict[FindingKey, Finding]:
    return {finding.key: finding for finding in picture.findings if finding.phase is Phase.FIRING}


def _told(finding: Finding, kind: EventKind, now: FleetState) -> Event:
    figures = f" ({finding.figures})" if finding.figures else ""
    return Event(
        at_s=now.wall_s,
        kind=kind,
        nodes=finding.nodes,
        severity=finding.severity,
        subject=finding.rule,
        text=f"{finding.title}{figures}",
        is_consequence=finding.caused_by is not None,
    )
