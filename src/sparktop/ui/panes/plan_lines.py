"""A plan, or why there is none, as lines of a width: what the review shows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparktop.model.plan import Difference, Plan, Refusal, Risk, Step
from sparktop.operate.wording import masked, step_lines
from sparktop.ui.format import duration
from sparktop.ui.panes.prospect import compact_lines, looked_lines
from sparktop.ui.widgets.ink import BLANK, Line, broken, spread, wrapped

RISKS: dict[Risk, tuple[str, str, str]] = {
    Risk.SAFE: ("✓", "ok", "nothing that runs is disturbed"),
    Risk.DISRUPTIVE: ("▲", "warning", "what runs is interrupted"),
    Risk.DESTRUCTIVE: ("✖", "critical", "what is lost doesn't come back"),
}
"""Risk -> (sign, tone, what it means)."""


def plan_lines(plan: Plan, width: int) -> list[Line]:
    """The whole plan; of a launch, whether it fits first."""
    lines = [*compact_lines(plan.prospect, width), BLANK] if plan.prospect is not None else []
    lines += _head(plan, width)
    if plan.effect:
        lines += [BLANK, *_said(plan.effect, width, plan.secrets)]
    if plan.outcome:
        lines += _said(f"When all of it is done it {plan.outcome}.", width, plan.secrets)
    told = {gate.sentence for gate in plan.prospect.gates} if plan.prospect is not None else set()
    if warnings := [one for one in plan.warnings if one not in told]:  # those of gates stand below, with what to do
        lines += [BLANK]
        for warning in warnings:
            first, *rest = _said(warning, width - 2, plan.secrets)
            lines += [Line.of(("▲ ", "warning")) + first, *_indented(rest)]
    if plan.prospect is not None and (looked := looked_lines(plan.prospect, width)):
        lines += [BLANK, *looked]  # below what is lost by it: of that nothing may be out of sight
    if plan.differences:
        lines += [BLANK, Line.of(("What changes", "title"))]
        lines += [line for one in plan.differences for line in _difference(one, width, plan.secrets)]
    count = len(plan.steps)
    lines += [BLANK, Line.of((f"{count} steps in this order" if count > 1 else "One step", "title"))]
    for number, step in enumerate(plan.steps, 1):
        lines += _step(number, step, plan, width)
    if plan.way_back:
        lines += [BLANK, Line.of(("If it goes wrong, the way back", "title"))]
        for number, step in enumerate(plan.way_back, 1):
            lines += _step(number, step, plan, width, is_short=True)
    if plan.equivalent:
        lines += [BLANK, Line.of(("The same by hand", "title"), ("   y copies it", "quiet"))]
        for command in plan.equivalent:
            lines += _command(command, width, plan.secrets)
    if plan.outcome_command:
        lines += [BLANK, Line.of(("To ask it then", "title")), *_command(plan.outcome_command, width, plan.secrets)]
    return lines


def refusal_lines(refusal: Refusal, width: int) -> list[Line]:
    """Why not, and what would make it possible; of a launch, the picture of why."""
    if refusal.prospect is not None:
        lines = [
            *compact_lines(refusal.prospect, width, reason=refusal.reason),
            *looked_lines(refusal.prospect, width),
        ]
    else:
        lines = [Line.of(("✖ ", "critical")) + line if not n else Line.of("  ") + line
                 for n, line in enumerate(_said(refusal.reason, width - 2, (), "strong"))]  # fmt: skip
    lines += [BLANK, Line.of(("Nothing was done.", "quiet"))]
    if refusal.remedies:
        lines += [BLANK, Line.of(("What would make it possible", "title"), ("   y copies it", "quiet"))]
        for remedy in refusal.remedies:
            lines += _command(remedy, width, ())
    return lines


def plan_text(plan: Plan) -> str:
    """The equivalent commands for the clipboard; where there are none, the steps' own."""
    own = [line for step in plan.steps for line in (f"# {step.node}: {step.title}", *step_lines(step, plan))]
    lines = [*(plan.equivalent or own), *([plan.outcome_command] if plan.outcome_command else [])]
    return "\n".join(masked(line, plan.secrets) for line in lines)


def refusal_text(refusal: Refusal) -> str:
    """For the clipboard: what would make it possible, else the reason."""
    return "\n".join(masked(line) for line in (refusal.remedies or (refusal.reason,)))


def _head(plan: Plan, width: int) -> list[Line]:
    sign, tone, meaning = RISKS[plan.risk]
    nodes = " and ".join(masked(name) for name in plan.nodes)
    risk = Line.of((f"{sign} {plan.risk}", tone), (f"  {meaning}", "quiet"))
    where = Line.of(("on ", "quiet"), (nodes, "strong"), (", at most ", "quiet"), (_longest(plan.steps), ""))
    if risk.width + where.width + 3 <= width:
        return [risk + Line.of("   ") + where]
    return [risk.cut(width), where.cut(width)]


def _longest(steps: Sequence[Step]) -> str:
    """How long it may take at most."""
    return duration(sum(step.limit_s for step in steps))


def _step(number: int, step: Step, plan: Plan, width: int, *, is_short: bool = False) -> list[Line]:
    head = f"{number:>2}  "
    node = Line.of((masked(step.node), "quiet")) if len(plan.nodes) > 1 else BLANK
    room = width - len(head) - (node.width + 2 if node.runs else 0)
    first, *rest = _said(step.title, room, plan.secrets, "" if is_short else "value")
    lines = [spread(width, Line.of((head, "info")) + first, node), *_indented(rest, len(head))]
    if is_short:
        return lines
    for command in step_lines(step, plan):
        lines += _command(command, width, (), cells=len(head))
    notes = [("verified: ", step.verifies), ("undone by: ", step.undone_by)]
    for word, text in notes:
        if text:
            lines += _indented(_said(f"{word}{text}", width - len(head), plan.secrets, "quiet"), len(head))
    return lines


def _difference(one: Difference, width: int, secrets: Sequence[str]) -> list[Line]:
    """As a diff: what stands there, what will."""
    name = masked(f"{one.what} {one.name}".strip(), secrets)
    lines = []
    for sign, tone, value in (("-", "critical", one.before), ("+", "ok", one.after)):
        if value is None:
            continue
        text = masked(value, secrets)
        if one.what in ("flag", "environment"):
            joined = f"{masked(one.name)}={text}" if text else masked(one.name)
            # Masked once more as it stands together: a name can tell that its value is a secret.
            text = masked(joined, secrets)
        else:
            text = f"{name}  {text}"
        first, *rest = broken(text, width - 4)
        lines.append(Line.of((f"  {sign} {first}", tone)))
        lines += [Line.of(("    " + more, tone)) for more in rest]
    return lines


def _command(text: str, width: int, secrets: Sequence[str], *, cells: int = 2) -> list[Line]:
    """As it would be typed; a long one goes on below, indented."""
    first, *rest = broken(masked(text, secrets), width - cells - 2)
    lines = [Line.of(" " * cells, ("› ", "faint"), (first, ""))]
    return [*lines, *(Line.of(" " * (cells + 4), (line, "")) for line in rest)]


def _said(text: str, width: int, secrets: Sequence[str], tone: str = "") -> list[Line]:
    return wrapped(masked(text, secrets), max(10, width), tone)


def _indented(lines: Iterable[Line], cells: int = 2) -> list[Line]:
    return [Line.of(" " * cells) + line for line in lines]
