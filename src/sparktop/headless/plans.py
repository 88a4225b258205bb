"""A plan, a refusal and a run as data and as plain words: what `sparktop act` prints. Secrets are masked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparktop.headless.prospects import prose, prospect_data, prospect_text
from sparktop.model.plan import Plan, Refusal, Request, Run, RunState, Step, StepRun
from sparktop.operate.asked import short_detail
from sparktop.operate.beforeafter import ending, told
from sparktop.operate.privilege import SUDOERS_FILE
from sparktop.operate.wording import masked, step_lines

JSON_VERSION = 1
RISK_MARKS = {"safe": "✓", "disruptive": "▲", "destructive": "✖"}
STEP_MARKS = {"done": "✓", "failed": "✖", "running": "▸", "unknown": "?", "skipped": "–", "waiting": "·"}


def plan_data(plan: Plan) -> dict[str, Any]:
    """The plan as JSON-ready data; acts stand as the commands they are."""

    def said(text: str) -> str:
        return masked(text, plan.secrets)

    return {
        **_request(plan.request),
        "title": said(plan.title),
        "risk": str(plan.risk),
        "typed": plan.typed or None,
        "effect": said(plan.effect),
        **({"outcome": said(plan.outcome), "outcome_command": said(plan.outcome_command)} if plan.outcome else {}),
        "warnings": [said(one) for one in plan.warnings],
        "differences": [
            {
                "what": one.what,
                "name": said(one.name),
                "before": None if one.before is None else _value(one.name, one.before, plan),
                "after": None if one.after is None else _value(one.name, one.after, plan),
            }
            for one in plan.differences
        ],
        "steps": [_step(step, plan) for step in plan.steps],
        "way_back": [_step(step, plan) for step in plan.way_back],
        "equivalent": [said(one) for one in plan.equivalent],
        **({"prospect": prospect_data(plan.prospect, plan.secrets)} if plan.prospect is not None else {}),
    }


def _value(name: str, value: str, plan: Plan) -> str:
    """A value masked as it stands beside its name, which may tell that it is a secret."""
    return masked(f"{name}={value}", plan.secrets).partition("=")[2]


def _request(request: Request) -> dict[str, Any]:
    return {
        "action": request.action,
        "nodes": list(request.nodes),
        "target": masked(request.target) or None,
        "finding": request.finding.rule if request.finding is not None else None,
    }


def _step(step: Step, plan: Plan) -> dict[str, Any]:
    return {
        "id": step.id,
        "title": masked(step.title, plan.secrets),
        "node": masked(step.node),
        "commands": list(step_lines(step, plan)),
        "limit_s": step.limit_s,
        "verifies": masked(step.verifies, plan.secrets) or None,
        "undone_by": masked(step.undone_by, plan.secrets) or None,
        "on_failure": str(step.on_failure),
    }


def refusal_data(refusal: Refusal) -> dict[str, Any]:
    """Why not, as JSON-ready data."""
    remedies = [masked(one) for one in refusal.remedies]
    found: dict[str, Any] = {**_request(refusal.request), "reason": masked(refusal.reason), "remedies": remedies}
    if refusal.prospect is not None:
        found["prospect"] = prospect_data(refusal.prospect, _given(refusal.request))
    return found


def _given(request: Request) -> tuple[str, ...]:
    """The secrets that came with it."""
    return tuple(value for value in request.order.secrets.values() if value) if request.order is not None else ()


def run_data(run: Run) -> dict[str, Any]:
    """The run as JSON-ready data; times are seconds since the epoch."""

    def said(text: str) -> str | None:
        return masked(text, run.plan.secrets) or None

    return {
        "id": run.id,
        "state": str(run.state),
        "message": said(run.message),
        "hint": said(run.hint),
        **({"outcome": said(run.plan.outcome)} if run.plan.outcome and run.state is RunState.DONE else {}),
        "can_go_back": run.can_go_back,
        "evidence_path": run.evidence_path or None,
        "steps": [
            {
                "id": one.step.id,
                "node": masked(one.step.node),
                "state": str(one.state),
                "detail": said(one.detail),
                "began_wall_s": one.began_wall_s,
                "ended_wall_s": one.ended_wall_s,
            }
            for one in run.steps
        ],
        "before": {node: dict(figures) for node, figures in run.before.items()},
        "after": {node: dict(figures) for node, figures in run.after.items()},
    }


def plan_text(plan: Plan) -> list[str]:
    """The plan in plain words; commands are never broken."""

    def said(text: str, indent: int = 0) -> list[str]:
        return prose(masked(text, plan.secrets), indent)

    lines = said(plan.title)
    lines += said(f"{RISK_MARKS[plan.risk]} {plan.risk}, on {' and '.join(plan.nodes)}", 2)
    lines += said(plan.effect, 2) if plan.effect else []
    for warning in plan.warnings:
        if warning in _of_gates(plan):
            continue
        text, *to_paste = _apart(warning)
        lines += [*said(f"▲ {text}", 2), *(f"      {masked(line, plan.secrets)}" for line in to_paste)]
    lines += prospect_text(plan.prospect, plan.secrets) if plan.prospect is not None else []
    lines += ["", "what changes"] if plan.differences else []
    for one in plan.differences:
        for sign, value in (("-", one.before), ("+", one.after)):
            if value is not None:
                lines.append(f"  {sign} {one.what} {masked(one.name, plan.secrets)} {_value(one.name, value, plan)}")
    lines += ["", "steps", *_steps(plan.steps, plan)]
    if plan.way_back:
        lines += ["", "the way back, if it goes wrong", *_steps(plan.way_back, plan)]
    if plan.equivalent:
        lines += ["", "the same by hand", *(f"  {masked(one, plan.secrets)}" for one in plan.equivalent)]
    if plan.outcome:
        lines += ["", "when it is done", *_outcome(plan)]
    return lines


def _of_gates(plan: Plan) -> set[str]:
    """What stands among the gates already, with what to do about it."""
    gates = plan.prospect.gates if plan.prospect is not None else ()
    return {gate.sentence for gate in gates}


def _steps(steps: Sequence[Step], plan: Plan) -> list[str]:
    lines: list[str] = []
    for number, step in enumerate(steps, 1):
        where = f"  [{masked(step.node)}]" if len(plan.nodes) > 1 else ""
        lines.append(f"{number:>3}  {masked(step.title, plan.secrets)}{where}")
        lines += [f"       {command}" for command in step_lines(step, plan)]
        lines += [f"       verified: {masked(step.verifies, plan.secrets)}"] if step.verifies else []
    return lines


def refusal_text(refusal: Refusal) -> list[str]:
    """Why not, and what would make it possible."""
    lines = prose(f"✖ not possible: {masked(refusal.reason, _given(refusal.request))}", 0)
    lines += [f"  → {masked(one)}" for one in refusal.remedies]
    if refusal.prospect is not None:
        lines += prospect_text(refusal.prospect, _given(refusal.request))
    return lines


def run_text(run: Run) -> list[str]:
    """How it ended."""

    def said(text: str, indent: int = 2) -> list[str]:
        return prose(masked(text, run.plan.secrets), indent)

    mark = "✓" if run.state is RunState.DONE else "▲" if run.state is RunState.NO_HELP else "✖"
    done = sum(one.state == "done" for one in run.steps)
    lines = said(f"{mark} {run.plan.title}: {run.state}, {done} of {len(run.steps)} steps done", 0)
    lines += said(ending(run)) if run.message else []
    lines += _outcome(run.plan) if run.plan.outcome and run.state is RunState.DONE else []
    lines += said(run.hint) if run.hint else []
    for node, before in run.before.items():
        pairs = told(before, run.after.get(node, {}))
        lines += said(f"{node}: {pairs}") if pairs else []
    if run.evidence_path:
        lines.append(f"  evidence: {run.evidence_path}")
    return lines


def _outcome(plan: Plan) -> list[str]:
    """What is there when all has gone well, and the line that shows it: neither is broken, so both can be pasted."""
    lines = [f"  {masked(plan.outcome, plan.secrets)}"]
    return [*lines, f"  {masked(plan.outcome_command, plan.secrets)}"] if plan.outcome_command else lines


def step_line(number: int, count: int, one: StepRun, run: Run) -> str:
    """ "✓ 3/8 Stop vllm-qwen36, 60 s grace: exited with 0"."""
    detail = short_detail(one)
    detail = f": {detail}" if detail else ""
    text = f"{STEP_MARKS[one.state]} {number}/{count} {one.step.title}{detail}"
    return masked(text, run.plan.secrets)


def _apart(warning: str) -> list[str]:
    """A warning, and lines for sudoers in it by themselves: broken, they could not be pasted."""
    text, mark, rest = warning.partition(f"{SUDOERS_FILE}: ")
    return [text + mark.rstrip(), *rest.split("; ")] if mark else [warning]
