"""What the guard did, or couldn't: the probe's own word for it, so nothing here is suspected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sparktop.diagnose.live.window import gib, node_wall_s, seen, span
from sparktop.diagnose.rule import LiveRule, Rule, RuleKind
from sparktop.model.engine import Engine
from sparktop.model.event import Severity
from sparktop.model.finding import Evidence, Finding, Remedy
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.guard import GuardPhase, GuardState

TOLD_S = 3600.0
"""It is told for an hour, or until the container runs again."""
SAME_END_S = 30.0
_SOURCES = ("field report 001",)


def ended_by_guard(node: NodeView, engine: Engine) -> bool:
    """Whether this engine's end is the guard's doing, which has a finding of its own."""
    guard, box, ended_s = node.guard, engine.container, engine.exited_wall_s
    if guard is None or guard.phase is not GuardPhase.FIRED or box is None or ended_s is None:
        return False
    return box.container_id == guard.container_id and abs(ended_s - (guard.since_wall_s or ended_s)) < SAME_END_S


def fired(fleet: FleetState) -> Iterable[Finding]:
    """guard.fired: it has ended a container, which doesn't run again yet."""
    for node, guard in _guards(fleet, GuardPhase.FIRED):
        if guard.available_bytes is None or _is_over(node, guard, fleet):
            continue
        name, left = guard.container_name, gib(guard.available_bytes)
        took = f"; Docker had ended it {guard.answered_s:.2f} s later" if guard.answered_s is not None else ""
        yield Finding(
            rule="guard.fired",
            severity=Severity.CRITICAL,
            title=f"The guard ended {name} at {left} available"
            if guard.answered_s is not None
            else f"The guard is ending {name} at {left} available: Docker hasn't answered yet",
            explanation=(
                f"It was armed on {node.name} to end {name} below {gib(guard.floor_bytes)}"
                + (f", or {guard.empty_within_s:g} s from empty" if guard.empty_within_s else "")
                + f". {_sentence(guard.detail)} The probe sent the request itself, without waiting for the network"
                f"{took}. Without that the host would most likely have hung. It does so once: it is off now. Docker "
                "does not start the container again by itself, because it was told to end it."
            ),
            distinction=(
                "Neither a crash nor the kernel's OOM killer: exit code 137 is the guard's SIGKILL.",
                "Every other container was left alone.",
            ),
            evidence=(
                Evidence(
                    source=f"{node.name} guard", text=guard.detail or f"fired at {left}", wall_s=guard.since_wall_s
                ),
                *(
                    (seen(node, "memory", f"available {gib(node.sample.memory.available_bytes)} now"),)
                    if node.sample
                    else ()
                ),
            ),
            remedies=(
                Remedy(
                    title="Start it with room for what it took: a lower --gpu-memory-utilization or "
                    "--mem-fraction-static",
                    steps=(
                        "look at the memory graph: how much it took beyond its share, and when",
                        "leave at least as much available: 0.05 of the share is 6 GiB",
                        "if it was the first request: --enforce-eager (vLLM), or --disable-cuda-graph (SGLang)",
                    ),
                    cost="part of the KV cache, or speed; the time to load",
                    action="relaunch",
                ),
                Remedy(
                    title="Start it as it was, with the guard armed again",
                    steps=(
                        "wait until memory is back",
                        f"docker start {name}",
                        "arm the guard over it",
                        "and let one request in first",
                    ),
                    cost="the time to load; it may be ended again",
                    action="safe-restart",
                ),
            ),
            references=_SOURCES,
            nodes=(node.name,),
            subject=name,
            brief=_brief(guard),
            since_wall_s=guard.since_wall_s,
        )


def failed(fleet: FleetState) -> Iterable[Finding]:
    """guard.failed: it is wanted and can't see to it; or it had to act, and couldn't."""
    for node, guard in _guards(fleet, GuardPhase.FAILED):
        name, acted = guard.container_name or "the container", guard.available_bytes is not None
        if acted and _is_over(node, guard, fleet):
            continue
        yield Finding(
            rule="guard.failed",
            severity=Severity.CRITICAL if acted else Severity.WARNING,
            title=f"The guard could not end {name}" if acted else f"The guard over {name} can't act at the moment",
            explanation=(
                f"Memory on {node.name} fell to {gib(guard.available_bytes or 0)} and the guard asked Docker to end "
                f"{name}, but: {guard.detail}."
                if acted
                else f"It is wanted on {node.name}, and until this is mended memory is not guarded: {guard.detail}."
            ),
            evidence=(Evidence(source=f"{node.name} guard", text=guard.detail, wall_s=guard.since_wall_s),),
            remedies=(
                Remedy(
                    title=f"End {name} by other means, while {node.name} still answers",
                    steps=(f"docker kill {name}", "if Docker doesn't answer: end its processes by their pids"),
                    cost="the running requests",
                    action="stop-engine",
                )
                if acted
                else Remedy(
                    title="See to Docker on that node",
                    steps=(
                        "systemctl status docker",
                        "the user must be in the group docker",
                        "the guard tries again by itself as long as it is armed",
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


def _is_over(node: NodeView, guard: GuardState, fleet: FleetState) -> bool:
    """Whether the container runs again, by its name, since a relaunch gives it another id; or it is long ago."""
    since_s, now_s = guard.since_wall_s, node_wall_s(node, fleet)
    if since_s is None:
        return False
    if now_s is not None and now_s - since_s > TOLD_S:
        return True
    return any(
        box.name == guard.container_name and box.status == "running" and (box.started_wall_s or 0.0) > since_s
        for box in node.containers.containers
    )


def _brief(guard: GuardState) -> str:
    took = f", ended in {guard.answered_s:.2f} s" if guard.answered_s is not None else ""
    rate = f" or {span(guard.empty_within_s)} from empty" if guard.empty_within_s else ""
    return f"armed below {gib(guard.floor_bytes)}{rate}{took}"


def _sentence(detail: str) -> str:
    return f"{detail[:1].upper()}{detail[1:]}." if detail else ""


def _rule(name: str, title: str, severity: Severity) -> Rule:
    return Rule(
        id=f"guard.{name}",
        kind=RuleKind.LIVE,
        title=title,
        severity=severity,
        scope="a node whose guard was armed",
        sources=_SOURCES,
    )


RULES: tuple[LiveRule, ...] = (
    LiveRule(
        card=_rule("fired", "The guard has ended a container before memory was gone", Severity.CRITICAL),
        check=fired,
        clear_s=0.0,
        follows=("memory.first-request-spike", "memory.falling"),
    ),
    LiveRule(
        card=_rule("failed", "The guard is wanted and can't act, or could not end its container", Severity.CRITICAL),
        check=failed,
        hold_s=2.0,
    ),
)
