"""Rules on the guard: what it stopped, or why it couldn't. The probe reports it, so nothing is only suspected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sparktop.diagnose.ended_by import is_guard_outdated
from sparktop.diagnose.findings import without_repeats
from sparktop.diagnose.rule import live_rule
from sparktop.diagnose.rules.engine.down import original_remedies
from sparktop.diagnose.rules.window import seen
from sparktop.model.event import Severity
from sparktop.model.finding import Evidence, Finding, Remedy
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.text.units import gib, span

_SOURCES = ("field report 001",)


@live_rule(
    "guard.fired",
    "The guard killed a container before memory ran out",
    Severity.CRITICAL,
    scope="a node whose guard was armed",
    sources=_SOURCES,
    clear_s=0.0,
    follows=("memory.first-request-spike", "memory.falling"),
)
def fired(fleet: FleetState) -> Iterable[Finding]:
    """guard.fired: the guard stopped a container that doesn't run again yet."""
    for node, guard in _guards(fleet, GuardPhase.FIRED):
        if guard.available_bytes is None or is_guard_outdated(node, guard, fleet):
            continue
        name, available = guard.container_name, gib(guard.available_bytes)
        delay = f"; Docker reported the kill {guard.answered_s:.2f} s later" if guard.answered_s is not None else ""
        yield Finding(
            rule="guard.fired",
            severity=Severity.CRITICAL,
            title=f"The guard killed {name} at {available} available"
            if guard.answered_s is not None
            else f"The guard is killing {name} at {available} available: Docker hasn't answered yet",
            explanation=(
                f"It was armed on {node.name} to kill {name} below {gib(guard.floor_bytes)}"
                + (f", or {guard.empty_within_s:g} s from empty" if guard.empty_within_s else "")
                + (
                    f". {_sentence(guard.detail)} The probe sent the request itself, without waiting for the "
                    f"network{delay}. Otherwise the host would most likely have hung. The guard fires once and is "
                    "off now. Docker doesn't restart a container after such a kill."
                )
            ),
            distinction=(
                "Neither a crash nor the kernel's OOM killer: exit code 137 is the guard's SIGKILL.",
                "The guard touched no other container.",
            ),
            evidence=(
                Evidence(
                    source=f"{node.name} guard", text=guard.detail or f"fired at {available}", wall_s=guard.since_wall_s
                ),
                *(
                    (seen(node, "memory", f"available {gib(node.sample.memory.available_bytes)} now"),)
                    if node.sample
                    else ()
                ),
            ),
            remedies=_starts(node, name, fleet),
            references=_SOURCES,
            nodes=(node.name,),
            subject=name,
            brief=_brief(guard),
            since_wall_s=guard.since_wall_s,
        )


def _starts(node: NodeView, name: str, fleet: FleetState) -> tuple[Remedy, ...]:
    """The ways to start it: first with the change that what took the memory needs, where that is known."""
    killed = [engine for engine in node.engines if engine.name == name]
    known = [remedy for engine in killed for remedy in original_remedies(node, engine, fleet)[0]]
    return tuple(
        without_repeats(
            (
                *known,
                Remedy(
                    title="Start it with a lower --gpu-memory-utilization or --mem-fraction-static",
                    steps=(
                        "read in the memory graph how much it took above its share, and when",
                        "leave at least that much available: 0.05 of the share is 6 GiB",
                        "if it was the first request: --enforce-eager (vLLM), or --disable-cuda-graph (SGLang)",
                    ),
                    cost="part of the KV cache, or speed; the time to load",
                    action="relaunch",
                ),
                Remedy(
                    title="Start it unchanged, with the guard armed again",
                    steps=(
                        "wait until memory is free",
                        f"docker start {name}",
                        "arm the guard for it",
                        "send one request first",
                    ),
                    cost="the time to load; the guard may kill it again",
                    action="safe-restart",
                ),
            )
        )
    )


@live_rule(
    "guard.failed",
    "The guard can't act, or couldn't kill its container",
    Severity.CRITICAL,
    scope="a node whose guard was armed",
    sources=_SOURCES,
    hold_s=2.0,
)
def failed(fleet: FleetState) -> Iterable[Finding]:
    """guard.failed: the guard is armed but can't protect a container, or failed to stop it."""
    for node, guard in _guards(fleet, GuardPhase.FAILED):
        name, acted = guard.container_name or "the container", guard.available_bytes is not None
        if acted and is_guard_outdated(node, guard, fleet):
            continue
        yield Finding(
            rule="guard.failed",
            severity=Severity.CRITICAL if acted else Severity.WARNING,
            title=f"The guard couldn't kill {name}" if acted else f"The guard for {name} can't act now",
            explanation=(
                f"Memory on {node.name} fell to {gib(guard.available_bytes or 0)} and the guard asked Docker to kill "
                f"{name}, but: {guard.detail}."
                if acted
                else f"It is armed on {node.name}, but until this is fixed nothing guards the memory: {guard.detail}."
            ),
            evidence=(Evidence(source=f"{node.name} guard", text=guard.detail, wall_s=guard.since_wall_s),),
            remedies=(
                Remedy(
                    title=f"Kill {name} by other means while {node.name} still answers",
                    steps=(f"docker kill {name}", "if Docker doesn't answer: kill its processes by their pids"),
                    cost="the running requests",
                    action="stop-engine",
                )
                if acted
                else Remedy(
                    title="Repair Docker on that node",
                    steps=(
                        "systemctl status docker",
                        "the user must be in the group docker",
                        "the guard retries by itself as long as it is armed",
                    ),
                    cost="nothing",
                ),
            ),
            references=_SOURCES,
            nodes=(node.name,),
            subject=name,
            brief=guard.detail[:100],
            since_wall_s=guard.since_wall_s,
        )


def _guards(fleet: FleetState, phase: GuardPhase) -> Iterator[tuple[NodeView, GuardState]]:
    for node in fleet.nodes:
        if node.guard is not None and node.guard.phase is phase:
            yield node, node.guard


def _brief(guard: GuardState) -> str:
    delay = f", killed in {guard.answered_s:.2f} s" if guard.answered_s is not None else ""
    rate = f" or {span(guard.empty_within_s)} from empty" if guard.empty_within_s else ""
    return f"armed below {gib(guard.floor_bytes)}{rate}{delay}"


def _sentence(detail: str) -> str:
    return f"{detail[:1].upper()}{detail[1:]}." if detail else ""
