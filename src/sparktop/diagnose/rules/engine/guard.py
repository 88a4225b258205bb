"""Rules on the guard: what it stopped, or why it couldn't. The probe reports it, so nothing is only suspected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sparktop.diagnose.ended_by import is_guard_outdated
from sparktop.diagnose.findings import without_repeats
from sparktop.diagnose.rule import live_rule
from sparktop.diagnose.rules.engine.down import original_remedies
from sparktop.diagnose.rules.window import seen
from sparktop.knowledge.card import found, remedies
from sparktop.model.finding import Evidence, Finding, Remedy
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.guard import GuardPhase, GuardState, pid_of
from sparktop.text.units import gib, span


@live_rule("guard.fired", clear_s=0.0, follows=("memory.first-request-spike", "memory.falling"))
def fired(fleet: FleetState) -> Iterable[Finding]:
    """guard.fired: the guard stopped an engine that doesn't run again yet."""
    for node, guard in _guards(fleet, GuardPhase.FIRED):
        if guard.available_bytes is None or is_guard_outdated(node, guard, fleet):
            continue
        name, available = guard.container_name, gib(guard.available_bytes)
        evidence = [
            Evidence(
                source=f"{node.name} guard", text=guard.detail or f"fired at {available}", wall_s=guard.since_wall_s
            )
        ]
        if node.sample is not None:
            evidence.append(seen(node, "memory", f"available {gib(node.sample.memory.available_bytes)} now"))
        yield found(
            "guard.fired",
            "once",
            {
                "name": name,
                "node": node.name,
                "available": available,
                "floor": gib(guard.floor_bytes),
                "empty_within_s": guard.empty_within_s or None,
                "within": span(guard.empty_within_s) if guard.empty_within_s else None,
                "what": f"{guard.detail[:1].upper()}{guard.detail[1:]}",
                "has_killed": guard.answered_s is not None,
                "answered_s": guard.answered_s,
                "killed_in_s": guard.answered_s,
                **_kind(guard),
            },
            evidence=tuple(evidence),
            remedies=_starts(node, guard, fleet),
            nodes=(node.name,),
            subject=name,
            since_wall_s=guard.since_wall_s,
        )


def _kind(guard: GuardState) -> Mapping[str, object]:
    """`is_process` its pid, or `in_container`."""
    pid = pid_of(guard.container_id)
    return {"is_process": pid, "in_container": None if pid else True}


def _starts(node: NodeView, guard: GuardState, fleet: FleetState) -> tuple[Remedy, ...]:
    """The ways to start it: first with the change that what took the memory needs, where that is known."""
    name = guard.container_name
    killed = [engine for engine in node.engines if engine.name == name]
    known = [remedy for engine in killed for remedy in original_remedies(node, engine, fleet)[0]]
    return tuple(without_repeats((*known, *remedies("guard.fired", "start", {"name": name, **_kind(guard)}))))


@live_rule("guard.failed", hold_s=2.0)
def failed(fleet: FleetState) -> Iterable[Finding]:
    """guard.failed: the guard is armed but can't protect an engine, or failed to stop it."""
    for node, guard in _guards(fleet, GuardPhase.FAILED):
        name, acted = guard.container_name or "the engine", guard.available_bytes is not None
        if acted and is_guard_outdated(node, guard, fleet):
            continue
        yield found(
            "guard.failed",
            "kill" if acted else "unable",
            {
                "name": name,
                "node": node.name,
                "available": gib(guard.available_bytes or 0),
                "why": guard.detail,
                **_kind(guard),
            },
            evidence=(Evidence(source=f"{node.name} guard", text=guard.detail, wall_s=guard.since_wall_s),),
            nodes=(node.name,),
            subject=name,
            since_wall_s=guard.since_wall_s,
        )


def _guards(fleet: FleetState, phase: GuardPhase) -> Iterator[tuple[NodeView, GuardState]]:
    for node in fleet.nodes:
        if node.guard is not None and node.guard.phase is phase:
            yield node, node.guard
