"""What happened between two pictures: each thing once, a consequence marked, what got worse told apart."""

from __future__ import annotations

from dataclasses import replace

from tests.ui.look import clock_of_pictures
from tests.ui.pictures import PICTURES

from sparktop.diagnose.events import events_between
from sparktop.model.event import EventKind, Severity
from sparktop.model.finding import Finding, Phase
from sparktop.model.fleet import FleetState, Intervention, LinkState

PICTURE = PICTURES["decode"](clock_of_pictures())
FINDING = Finding(rule="memory.low", severity=Severity.WARNING, title="low", nodes=("spark1",))


def told(before: FleetState, now: FleetState) -> list[tuple[EventKind, str]]:
    return [(event.kind, event.subject) for event in events_between(before, now)]


def with_findings(*findings: Finding) -> FleetState:
    return replace(PICTURE, findings=findings)


def test_the_same_picture_tells_nothing() -> None:
    assert told(PICTURE, PICTURE) == []


def test_a_finding_is_found_gets_worse_and_is_resolved() -> None:
    worse = replace(FINDING, severity=Severity.CRITICAL)
    gone = replace(worse, phase=Phase.RESOLVED)
    assert told(with_findings(), with_findings(FINDING)) == [(EventKind.FOUND, "memory.low")]
    assert told(with_findings(FINDING), with_findings(worse)) == [(EventKind.WORSE, "memory.low")]
    assert told(with_findings(worse), with_findings(FINDING)) == []
    assert told(with_findings(worse), with_findings(gone)) == [(EventKind.RESOLVED, "memory.low")]
    (event,) = events_between(with_findings(), with_findings(replace(FINDING, caused_by="memory.falling")))
    assert event.is_consequence


def test_links_boots_engines_and_what_consoles_did_are_told() -> None:
    node = PICTURE.nodes[0]
    assert node.facts is not None
    engine = node.engines[0]
    lost = replace(node, link=replace(node.link, state=LinkState.LOST))
    booted = replace(node, facts=replace(node.facts, boot_id="another"), engines=node.engines[1:])
    stopped = Intervention(node=node.name, engine=engine.name, action="safe-restart", began_wall_s=5.0)

    def now(one: object) -> FleetState:
        return replace(PICTURE, nodes=(one, *PICTURE.nodes[1:]))  # type: ignore[arg-type]

    assert told(PICTURE, now(lost)) == [(EventKind.LINK, "lost")]
    assert told(PICTURE, now(booted)) == [(EventKind.BOOT, ""), (EventKind.ENGINE, engine.name)]
    assert told(PICTURE, replace(PICTURE, interventions=(stopped,))) == [(EventKind.ACTION, "safe-restart")]
