"""Plans, refusals and runs as the JSON of act and launch; acts are given as commands. Secrets are masked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparktop.documents.data import fields, fields_or_none
from sparktop.documents.plan import order_secrets
from sparktop.documents.step_text import masked, masked_data, step_lines
from sparktop.model.prospect import Budget, NodeBudget, Prospect, Slice
from sparktop.model.request import Request
from sparktop.operate.relaunch.next_try import next_try
from sparktop.operate.step.plan import Difference, Plan, Refusal, Step
from sparktop.operate.step.run import Run, RunState
from sparktop.text.units import bare_gib


def plan_data(plan: Plan) -> dict[str, Any]:
    """The plan as JSON-ready data; acts are given as commands."""
    outcome = ("outcome", "outcome_command") if plan.outcome else ()
    data = {
        **_request(plan.request),
        **fields(plan, "title", "risk", "effect", *outcome, "warnings", "equivalent"),
        **fields_or_none(plan, "typed"),
        "differences": [_difference(item, plan) for item in plan.differences],
        "steps": [_step(step, plan) for step in plan.steps],
        "way_back": [_step(step, plan) for step in plan.rollback],
        **_prospect(plan.prospect),
    }
    return masked_data(data, plan.secrets)


def refusal_data(refusal: Refusal) -> dict[str, Any]:
    """The refusal as JSON-ready data."""
    data = {**_request(refusal.request), **fields(refusal, "reason", "remedies"), **_prospect(refusal.prospect)}
    return masked_data(data, order_secrets(refusal.request))


def run_data(run: Run) -> dict[str, Any]:
    """The run as JSON-ready data; times are seconds since the epoch."""
    data = {
        **fields(run, "state", "can_go_back", "before", "after"),
        **fields_or_none(run, "message", "hint"),
        **({"outcome": run.plan.outcome} if run.plan.outcome and run.state is RunState.DONE else {}),
        "cause": _cause(run),
        "steps": [
            {
                **fields(step_run.step, "id", "node"),
                **fields(step_run, "state", "figures", "began_wall_s", "ended_wall_s"),
                **fields_or_none(step_run, "detail"),
            }
            for step_run in run.steps
        ],
    }
    return {"id": run.id, "evidence_path": run.evidence_path or None, **masked_data(data, run.plan.secrets)}


def _request(request: Request) -> dict[str, Any]:
    return {
        **fields(request, "action", "nodes"),
        **fields_or_none(request, "target"),
        "finding": request.finding.rule if request.finding is not None else None,
        **({"also": [other.rule for other in request.also]} if request.also else {}),
    }


def _difference(item: Difference, plan: Plan) -> dict[str, Any]:
    def value(text: str | None) -> str | None:
        """Masked as a pair with its name, which can show that it is a secret."""
        return None if text is None else masked(f"{item.name}={text}", plan.secrets).partition("=")[2]

    node = {"node": item.node} if item.node else {}
    return {**fields(item, "what", "name"), **node, "before": value(item.before), "after": value(item.after)}


def _step(step: Step, plan: Plan) -> dict[str, Any]:
    return {
        **fields(step, "id", "title", "node", "limit_s", "likely_s", "on_failure"),
        **fields_or_none(step, "verifies"),
        "commands": step_lines(step, plan),
        "undone_by": "; ".join(step.act.undoing()) or None,
    }


def _cause(run: Run) -> dict[str, Any] | None:
    """Why an engine didn't start, with the remedy; None where that isn't known."""
    attempt = next_try(run)
    if attempt is None:
        return None
    return {
        **fields(attempt.finding, "rule", "title"),
        "evidence": [evidence.text for evidence in attempt.finding.evidence[:1]],
        "remedy": attempt.remedy.title,
        **fields_or_none(attempt, "command"),
    }


def _prospect(prospect: Prospect | None) -> dict[str, Any]:
    """The prospect, where there is one; sizes in bytes."""
    if prospect is None:
        return {}
    data = {
        "recipe": prospect.recipe_id,
        **fields(prospect, "title", "nodes", "values", "risks"),
        "budget": _budget(prospect.budget) if prospect.budget is not None else None,
        "gates": [
            {**fields(gate, "name", "state", "detail"), **fields_or_none(gate, "node", "remedy")}
            for gate in prospect.gates
        ],
        "on_disk": [
            {
                **fields(model, "name", "path", "nodes", "size_bytes", "is_complete", "is_wanted"),
                **fields_or_none(model, "quantisation"),
                "note": model.text or None,
            }
            for model in prospect.on_disk
        ],
        "fetches": [download.text for download in prospect.fetches],
    }
    return {"prospect": data}


def _budget(budget: Budget) -> dict[str, Any]:
    return {
        **fields(budget, "fit", "sentence", "share", "context_tokens", "cache_tokens", "unknowns", "figures"),
        **fields_or_none(budget, "share_source"),
        "levers": [lever.text for lever in budget.levers],
        "nodes": [_node(node) for node in budget.nodes],
    }


def _node(node: NodeBudget) -> dict[str, Any]:
    def slices(parts: Sequence[Slice]) -> list[dict[str, Any]]:
        return [
            {
                **fields(part, "kind", "size_bytes"),
                "label": f"{part.label} {part.amount or bare_gib(part.size_bytes)}",
            }
            for part in parts
        ]

    return {
        **fields(node, "node", "fit", "sentence", "total_bytes", "available_bytes", "left_bytes"),
        "before": slices(node.before),
        "after": slices(node.after),
    }
