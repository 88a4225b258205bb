"""The planner of collect-evidence. Pure."""

from __future__ import annotations

from sparktop import sanitise
from sparktop.model.fleet import FleetState, LinkState
from sparktop.model.request import Request, Risk
from sparktop.model.survey import Question, Survey
from sparktop.operate.evidence.collect import CollectEvidence
from sparktop.operate.plan.common_steps import EVIDENCE_LIMIT_S
from sparktop.operate.refused import Refused
from sparktop.operate.step.plan import Plan, Step


def questions(request: Request, picture: FleetState, survey: Survey) -> tuple[Question, ...]:
    return ()


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """One step for all nodes: what they did at the same moment belongs together."""
    views = [(name, picture.node(name)) for name in request.nodes]
    unknown = [name for name, view in views if view is None]
    if unknown or not views:
        raise Refused(
            f"{unknown[0]} is not one of the nodes watched here" if unknown else "no node is named",
            tuple(f"there is {node.name}" for node in picture.nodes),
        )
    if request.target and not any(
        engine.name == request.target for _, view in views if view is not None for engine in view.engines
    ):
        raise Refused(
            f"no engine named {sanitise.name(request.target)} is known there",
            tuple(f"there is {engine.name} on {view.name}" for _, view in views if view for engine in view.engines),
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
        warnings=tuple(f"{name} does not answer: the archive has only what was last seen." for name in silent),
    )
