"""What differs between what an engine last served on and what it fails on: "worked yesterday", answered. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sparktop.model.engine import Engine, EngineState
from sparktop.model.event import Severity
from sparktop.model.finding import Evidence, Finding, Phase
from sparktop.model.fleet import FleetState, NodeView, ServedOn
from sparktop.text.units import day_time

WORDS = 6
"""At most so many changed words of its command are told."""
_UP = (EngineState.READY, EngineState.SERVING)


def with_changes(finding: Finding, fleet: FleetState) -> Finding:
    """The finding, and of an engine that doesn't serve as evidence what has changed since it did."""
    if finding.severity is not Severity.CRITICAL or finding.phase is not Phase.FIRING or len(finding.nodes) != 1:
        return finding
    view = fleet.node(finding.nodes[0])
    engine = next((one for one in view.engines if one.name == finding.subject), None) if view is not None else None
    changed = changed_since_served(engine, view) if view is not None and engine is not None else ""
    if view is None or not changed:
        return finding
    return replace(finding, evidence=(*finding.evidence, Evidence(source=view.name, text=changed)))


def changed_since_served(engine: Engine, view: NodeView) -> str:
    """When an engine last served and what has changed since; empty: it serves, or was never seen to."""
    served = view.baseline.served_on.get(engine.name) if view.baseline is not None else None
    if served is None or engine.state in _UP:
        return ""
    changed = "; ".join(_changes(served, engine, view))
    since = f"{engine.name} last served on {day_time(served.wall_s)}"
    return (
        f"{since}. Changed since: {changed}" if changed else f"{since}, on the same kernel, driver, image and command"
    )


def _changes(served: ServedOn, engine: Engine, view: NodeView) -> Iterator[str]:
    image_id = engine.container.image_id if engine.container else ""
    for what, old, new in (
        ("kernel", served.kernel, view.facts.kernel if view.facts else ""),
        ("driver", served.driver, view.driver_version),
        ("image", served.image_id.removeprefix("sha256:")[:12], image_id.removeprefix("sha256:")[:12]),
        ("version", served.version, engine.version or ""),
    ):
        if old and new and old != new:
            yield f"{what} {old} to {new}"
    before, now = served.command.split(), " ".join(engine.argv).split()
    if before and now and before != now:
        gone = [f"without {word}" for word in before if word not in now]
        new_words = [f"with {word}" for word in now if word not in before]
        yield ", ".join([*gone, *new_words][:WORDS]) or "the order of its command's words"
