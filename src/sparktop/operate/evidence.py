"""Collect evidence, as an action of its own: nothing is changed on any node. Pure; `operate.collect` does it."""

from __future__ import annotations

from sparktop import sanitise
from sparktop.model.fleet import FleetState, LinkState
from sparktop.model.plan import CollectEvidence, Plan, Refusal, Request, Risk, Step
from sparktop.operate.machine import EVIDENCE_LIMIT_S
from sparktop.operate.survey import Ask, Survey


def asks(request: Request, picture: FleetState, survey: Survey) -> tuple[Ask, ...]:
    return ()


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan | Refusal:
    """One step for all nodes: what they did at the same moment belongs together."""
    views = [(name, picture.node(name)) for name in request.nodes]
    unknown = [name for name, view in views if view is None]
    if unknown or not views:
        return Refusal(
            request=request,
            reason=f"{unknown[0]} is not one of the nodes watched here" if unknown else "no node is named",
            remedies=tuple(f"there is {node.name}" for node in picture.nodes),
        )
    if request.target and not any(
        engine.name == request.target for _, view in views if view is not None for engine in view.engines
    ):
        return Refusal(
            request=request,
            reason=f"no engine named {sanitise.name(request.target)} is known there",
            remedies=tuple(
                f"there is {engine.name} on {view.name}" for _, view in views if view for engine in view.engines
            ),
        )
    silent = [name for name, view in views if view is not None and view.link.state is not LinkState.LIVE]
    where = " and ".join(request.nodes)
    return Plan(
        request=request,
        title=f"Collect evidence of {where}",
        risk=Risk.SAFE,
        steps=(
            Step(
                id="evidence",
                title=f"Collect evidence of {where}",
                node=request.nodes[0],
                act=CollectEvidence(nodes=tuple(request.nodes), engines=(request.target,) if request.target else ()),
                limit_s=EVIDENCE_LIMIT_S,
                verifies="the archive is written, and says what is missing",
            ),
        ),
        effect="One .tar.gz on this machine, readable by you alone: the engines' logs and metrics, the kernel's log of "
        "this boot and the one before, `docker inspect`, tables of memory, processes and network, and the findings. "
        "Secrets are removed before anything is written, and a report counts them.",
        warnings=tuple(f"{name} does not answer: only what was last seen of it is put in." for name in silent),
        seen_monotonic_s=picture.monotonic_s,
    )
