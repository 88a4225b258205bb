"""Plans, refusals and runs as the JSON of act and launch; acts are given as commands. Secrets are masked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparktop.documents.plan import order_secrets
from sparktop.documents.prospect import masked_prospect
from sparktop.documents.step_text import masked, step_lines
from sparktop.model.prospect import Budget, NodeBudget, Prospect, Slice
from sparktop.model.request import Request
from sparktop.operate.relaunch.next_try import next_try
from sparktop.operate.step.plan import Plan, Refusal, Step
from sparktop.operate.step.run import Run, RunState
from sparktop.text.units import bare_gib

JSON_VERSION = 1


def plan_data(plan: Plan) -> dict[str, Any]:
    """The plan as JSON-ready data; acts are given as commands."""

    def masked_text(text: str) -> str:
        return masked(text, plan.secrets)

    return {
        **_request(plan.request),
        "title": masked_text(plan.title),
        "risk": str(plan.risk),
        "typed": plan.typed or None,
        "effect": masked_text(plan.effect),
        **(
            {"outcome": masked_text(plan.outcome), "outcome_command": masked_text(plan.outcome_command)}
            if plan.outcome
            else {}
        ),
        "warnings": [masked_text(item) for item in plan.warnings],
        "differences": [
            {
                "what": item.what,
                "name": masked_text(item.name),
                **({"node": item.node} if item.node else {}),
                "before": None if item.before is None else _value(item.name, item.before, plan),
                "after": None if item.after is None else _value(item.name, item.after, plan),
            }
            for item in plan.differences
        ],
        "steps": [_step(step, plan) for step in plan.steps],
        "way_back": [_step(step, plan) for step in plan.way_back],
        "equivalent": [masked_text(item) for item in plan.equivalent],
        **({"prospect": _prospect(plan.prospect, plan.secrets)} if plan.prospect is not None else {}),
    }


def _value(name: str, value: str, plan: Plan) -> str:
    """The value, masked as a pair with its name, which can show that it is a secret."""
    return masked(f"{name}={value}", plan.secrets).partition("=")[2]


def _request(request: Request) -> dict[str, Any]:
    return {
        "action": request.action,
        "nodes": list(request.nodes),
        "target": masked(request.target) or None,
        "finding": request.finding.rule if request.finding is not None else None,
        **({"also": [other.rule for other in request.also]} if request.also else {}),
    }


def _step(step: Step, plan: Plan) -> dict[str, Any]:
    return {
        "id": step.id,
        "title": masked(step.title, plan.secrets),
        "node": masked(step.node),
        "commands": list(step_lines(step, plan)),
        "limit_s": step.limit_s,
        "likely_s": step.likely_s,
        "verifies": masked(step.verifies, plan.secrets) or None,
        "undone_by": masked("; ".join(step.act.undoing()), plan.secrets) or None,
        "on_failure": str(step.on_failure),
    }


def refusal_data(refusal: Refusal) -> dict[str, Any]:
    """The refusal as JSON-ready data."""
    remedies = [masked(remedy) for remedy in refusal.remedies]
    data: dict[str, Any] = {**_request(refusal.request), "reason": masked(refusal.reason), "remedies": remedies}
    if refusal.prospect is not None:
        data["prospect"] = _prospect(refusal.prospect, order_secrets(refusal.request))
    return data


def run_data(run: Run) -> dict[str, Any]:
    """The run as JSON-ready data; times are seconds since the epoch."""

    def masked_or_none(text: str) -> str | None:
        return masked(text, run.plan.secrets) or None

    return {
        "id": run.id,
        "state": str(run.state),
        "message": masked_or_none(run.message),
        "hint": masked_or_none(run.hint),
        **({"outcome": masked_or_none(run.plan.outcome)} if run.plan.outcome and run.state is RunState.DONE else {}),
        "cause": _cause(run),
        "can_go_back": run.can_go_back,
        "evidence_path": run.evidence_path or None,
        "steps": [
            {
                "id": step_run.step.id,
                "node": masked(step_run.step.node),
                "state": str(step_run.state),
                "detail": masked_or_none(step_run.detail),
                "figures": dict(step_run.figures),
                "began_wall_s": step_run.began_wall_s,
                "ended_wall_s": step_run.ended_wall_s,
            }
            for step_run in run.steps
        ],
        "before": {node: dict(figures) for node, figures in run.before.items()},
        "after": {node: dict(figures) for node, figures in run.after.items()},
    }


def _cause(run: Run) -> dict[str, Any] | None:
    """Why an engine didn't start, with the remedy; None where that isn't known."""
    attempt = next_try(run)
    if attempt is None:
        return None
    secrets = run.plan.secrets
    return {
        "rule": attempt.finding.rule,
        "title": masked(attempt.finding.title, secrets),
        "evidence": [masked(evidence.text, secrets) for evidence in attempt.finding.evidence[:1]],
        "remedy": masked(attempt.remedy.title, secrets),
        "command": masked(attempt.command, secrets) or None,
    }


def _prospect(prospect: Prospect, secrets: Sequence[str]) -> dict[str, Any]:
    """The prospect as JSON-ready data; sizes in bytes."""
    prospect = masked_prospect(prospect, secrets)
    return {
        "recipe": prospect.recipe_id,
        "title": prospect.title,
        "nodes": list(prospect.nodes),
        "values": dict(prospect.values),
        "budget": _budget(prospect.budget) if prospect.budget is not None else None,
        "gates": [
            {
                "name": gate.name,
                "node": gate.node or None,
                "state": str(gate.state),
                "detail": gate.detail,
                "remedy": gate.remedy or None,
            }
            for gate in prospect.gates
        ],
        "on_disk": [
            {
                "name": model.name,
                "path": model.path,
                "nodes": list(model.nodes),
                "size_bytes": model.size_bytes,
                "quantisation": model.quantisation or None,
                "is_complete": model.is_complete,
                "is_wanted": model.is_wanted,
                "note": model.text or None,
            }
            for model in prospect.on_disk
        ],
        "fetches": [download.text for download in prospect.fetches],
        "risks": list(prospect.risks),
    }


def _budget(budget: Budget) -> dict[str, Any]:
    return {
        "fit": str(budget.fit),
        "sentence": budget.sentence,
        "share": budget.share,
        "share_source": budget.share_source or None,
        "context_tokens": budget.context_tokens,
        "cache_tokens": budget.cache_tokens,
        "levers": [lever.text for lever in budget.levers],
        "unknowns": list(budget.unknowns),
        "figures": list(budget.figures),
        "nodes": [_node(node) for node in budget.nodes],
    }


def _node(node: NodeBudget) -> dict[str, Any]:
    def slices(parts: Sequence[Slice]) -> list[dict[str, Any]]:
        return [
            {
                "kind": str(part.kind),
                "label": f"{masked(part.label)} {part.amount or bare_gib(part.size_bytes)}",
                "size_bytes": part.size_bytes,
            }
            for part in parts
        ]

    return {
        "node": node.node,
        "fit": str(node.fit),
        "sentence": masked(node.sentence),
        "total_bytes": node.total_bytes,
        "available_bytes": node.available_bytes,
        "left_bytes": node.left_bytes,
        "before": slices(node.before),
        "after": slices(node.after),
    }
