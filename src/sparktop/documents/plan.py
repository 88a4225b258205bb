"""A plan or a refusal as lines of a width, for the review and for `act` and `launch`; as text for the clipboard. Pure.

`is_printed` is the plan of the command line: with its title and all of a launch's prospect, for there is no screen
before it, and with each command on one line, to be pasted. What decides (verdict, risk, warnings) comes last, where the
question is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from sparktop.documents.prospect import compact_lines, masked_prospect, plan_gate_lines, prospect_lines, verdict_lines
from sparktop.documents.step_text import creates_container, masked, step_lines, typed_lines
from sparktop.model.prospect import Lever, Prospect
from sparktop.model.request import Request, Risk
from sparktop.operate.actions import REQUESTS_AT_RISK, action
from sparktop.operate.plan.likely import likely
from sparktop.operate.step.plan import Difference, OnFailure, Plan, Refusal, Step
from sparktop.text.lines import BLANK, Line, broken, indented, signed, spaced, spread, titled, wrapped
from sparktop.text.sentences import listed, phrases
from sparktop.text.units import duration

RISKS: dict[Risk, tuple[str, str, str]] = {
    Risk.SAFE: ("✓", "ok", "interrupts nothing"),
    Risk.DISRUPTIVE: ("▲", "warning", ""),
    Risk.DESTRUCTIVE: ("✖", "critical", "can't be undone"),
}
"""Risk -> (sign, tone, what it means); a disruptive plan's meaning is its action's."""


LONG = 24
"""Lines from which a launch's verdict is told again at the end."""


def plan_lines(plan: Plan, width: int, *, is_printed: bool = False, is_exact: bool = False) -> list[Line]:
    """The whole plan without its closing_lines, which printed are its end; a launch begins with whether it fits.

    `is_exact`: with every call and check, else with what a person would type.
    """
    prospect = masked_prospect(plan.prospect, plan.secrets) if plan.prospect is not None else None
    head = _wrapped_masked(plan.title, width, plan.secrets, "title") if is_printed else []
    about = _wrapped_masked(plan.effect, width, plan.secrets) if plan.effect else []
    about += _wrapped_masked(f"Result: {plan.outcome}.", width, plan.secrets) if plan.outcome else []
    if prospect is None:
        blocks = [[*head, *about]]
    else:  # the checks come after the effect, which must not scroll out of sight
        levers = prospect.budget.levers if prospect.budget is not None else ()
        checks = _checks(prospect, width, is_printed=is_printed, levers=levers)
        blocks = [[*head, *compact_lines(prospect, width, is_printed=is_printed)], about, checks]
    count = len(plan.steps)
    steps = _steps(plan.steps, plan, width, is_printed=is_printed, is_exact=is_exact)
    rollback = _steps(plan.rollback, plan, width, is_short=not is_exact, is_printed=is_printed, is_exact=is_exact)
    blocks += [
        titled("What changes", _differences(plan, width)),
        titled(f"{count} steps in this order" if count > 1 else "One step", steps),
        titled(_rollback_title(plan), rollback),
    ]
    if is_exact or is_printed or creates_container(plan):
        blocks.append(_commands("The same by hand", plan.equivalent, width, plan.secrets, is_printed=is_printed))
    if plan.outcome_command:
        ask = _command(plan.outcome_command, width, plan.secrets, is_printed=is_printed)
        blocks.append(titled("To ask it then", ask))
    lines = spaced(blocks)
    return [*lines, BLANK, *closing_lines(plan, width, is_long=len(lines) > LONG)] if is_printed else lines


def _checks(prospect: Prospect, width: int, *, is_printed: bool, levers: Sequence[Lever] = ()) -> list[Line]:
    if is_printed:
        return prospect_lines(prospect, width, is_printed=True, levers=levers)
    return plan_gate_lines(prospect, width)


def _differences(plan: Plan, width: int) -> list[Line]:
    """What changes, by node and file."""
    lines: list[Line] = []
    node = ""
    for (where, what, name), items in groupby(plan.differences, key=lambda item: (item.node, item.what, item.name)):
        if where != node:
            node = where
            lines.append(Line.of((f"  on {masked(where)} alone", "quiet")).cut(width))
        if what == "file":
            lines.append(Line.of((f"  {masked(name, plan.secrets)}", "quiet")).cut(width))
        lines += [line for item in items for line in _difference(item, width, plan.secrets)]
    return lines


def _rollback_title(plan: Plan) -> str:
    """When the rollback runs: by itself, or only where the operator takes it once a step has failed."""
    is_automatic = plan.is_all_or_nothing or any(step.on_failure is OnFailure.ROLL_BACK for step in plan.steps)
    return "Rollback, if it fails" if is_automatic else "Rollback, offered if a step fails"


def closing_lines(plan: Plan, width: int, *, is_long: bool = False) -> list[Line]:
    """What decides: risk, nodes and time, then the warnings.

    `is_long`: also a launch's verdict, which a long plan has scrolled out of sight.
    """
    prospect = masked_prospect(plan.prospect, plan.secrets) if plan.prospect is not None and is_long else None
    lines = [*verdict_lines(prospect, width), *_head(plan, width)]
    # The gates' own warnings stand with their remedies.
    gate_sentences = {gate.sentence for gate in plan.prospect.gates} if plan.prospect is not None else set()
    for warning in plan.warnings:
        if warning not in gate_sentences:
            lines += signed("▲", "warning", masked(warning, plan.secrets), width)
    return lines


def refusal_lines(refusal: Refusal, width: int, *, is_printed: bool = False) -> list[Line]:
    """The reason and the remedies of a refusal; a launch also shows verdict, memory and gates."""
    secrets = order_secrets(refusal.request)
    reason = masked(refusal.reason, secrets)
    nothing = [Line.of(("Nothing was done.", "quiet"))]
    remedies = _commands("To make it possible", refusal.remedies, width, secrets, is_printed=is_printed)
    if refusal.prospect is None:
        return spaced([signed("✖", "critical", reason, width, "strong"), nothing, remedies])
    prospect = masked_prospect(refusal.prospect, secrets)
    verdict = compact_lines(prospect, width, reason="" if refusal.is_verdict else reason, is_printed=is_printed)
    checks = _checks(prospect, width, is_printed=is_printed)
    return spaced([*([verdict, checks] if is_printed else [[*verdict, *checks]]), nothing, remedies])


def order_secrets(request: Request) -> tuple[str, ...]:
    """The secrets of a request's launch order; empty without one."""
    return tuple(value for value in request.order.secrets.values() if value) if request.order is not None else ()


def plan_text(plan: Plan) -> str:
    """The equivalent commands for the clipboard; without any, the commands of the steps."""
    step_commands = [line for step in plan.steps for line in (f"# {step.node}: {step.title}", *step_lines(step, plan))]
    lines = [*(plan.equivalent or step_commands), *([plan.outcome_command] if plan.outcome_command else [])]
    return "\n".join(masked(line, plan.secrets) for line in lines)


def refusal_text(refusal: Refusal) -> str:
    """The remedies of a refusal for the clipboard; without any, its reason."""
    return "\n".join(masked(line) for line in (refusal.remedies or (refusal.reason,)))


def _head(plan: Plan, width: int) -> list[Line]:
    sign, tone, meaning = RISKS[plan.risk]
    nodes = listed(masked(name) for name in plan.nodes)
    if plan.risk is Risk.DISRUPTIVE:
        chosen = action(plan.request.action)
        meaning = chosen.at_risk if chosen is not None else REQUESTS_AT_RISK
    risk = Line.of((f"{sign} {plan.risk}", tone), (f"  {meaning}", "quiet"))
    nodes_and_time = Line.of(("on ", "quiet"), (nodes, "strong"), (f", {time_text(plan.steps)}", "quiet"))
    if risk.width + nodes_and_time.width + 3 <= width:
        return [risk + Line.of("   ") + nodes_and_time]
    fits = nodes_and_time.width <= width
    return [risk.cut(width), *([nodes_and_time] if fits else wrapped(nodes_and_time.plain, width, "quiet"))]


def time_text(steps: Sequence[Step]) -> str:
    """ "about 2 min; gives up after 52 min"; "at most 52 min" where nothing tells how long it is likely to take."""
    longest = duration(sum(step.limit_s for step in steps))
    if (known := likely(steps)) is None:
        return f"at most {longest}"
    return f"{'about' if known.is_whole else 'over'} {duration(known.seconds)}; gives up after {longest}"


def _steps(
    steps: Sequence[Step], plan: Plan, width: int, *, is_printed: bool, is_exact: bool, is_short: bool = False
) -> list[Line]:
    lines: list[Line] = []
    for number, step in enumerate(steps, 1):
        head = Line.of((f"{number:>2}  ", "info"))
        node = Line.of((masked(step.node), "quiet")) if len(plan.nodes) > 1 else BLANK
        room = width - head.width - (node.width + 2 if node.runs else 0)
        first, *rest = _wrapped_masked(step.title, room, plan.secrets, "" if is_short else "value")
        lines += [spread(width, head + first, node), *indented(rest, head.width)]
        if is_short:
            continue
        for command in step_lines(step, plan) if is_exact else typed_lines(step, plan):
            lines += _command(command, width, (), cells=head.width, is_printed=is_printed)
        notes = phrases(("verified: {}", step.verifies), ("undone by: {}", "; ".join(step.act.undoing())))
        for note in notes if is_exact else ():
            lines += indented(_wrapped_masked(note, width - head.width, plan.secrets, "quiet"), head.width)
    return lines


def _difference(difference: Difference, width: int, secrets: Sequence[str]) -> list[Line]:
    """A difference as in a diff: "-" for the value before, "+" for the value after."""
    name = masked(f"{difference.what} {difference.name}".strip(), secrets)
    lines = []
    for sign, tone, value in (("-", "critical", difference.before), ("+", "ok", difference.after)):
        if value is None:
            continue
        text = masked(value, secrets)
        if difference.what in ("flag", "environment"):
            joined = f"{masked(difference.name)}={text}" if text else masked(difference.name)
            # Masked again as a pair: the name can show that the value is a secret.
            text = masked(joined, secrets)
        elif difference.what != "file":
            text = f"{name}  {text}"
        first, *rest = broken(text, width - 4)
        lines.append(Line.of((f"  {sign} {first}", tone)))
        lines += [Line.of(("    " + more, tone)) for more in rest]
    return lines


def _commands(
    title: str, commands: Sequence[str], width: int, secrets: Sequence[str], *, is_printed: bool
) -> list[Line]:
    lines = [line for command in commands for line in _command(command, width, secrets, is_printed=is_printed)]
    return titled(title, lines, aside="" if is_printed else "y copies it")


def _command(text: str, width: int, secrets: Sequence[str], *, cells: int = 2, is_printed: bool = False) -> list[Line]:
    """A command as it would be typed; a long one continues on indented lines, or when printed stays whole."""
    if is_printed:
        return [Line.of(" " * cells, (masked(text, secrets), ""))]
    first, *rest = broken(masked(text, secrets), width - cells - 2)
    lines = [Line.of(" " * cells, ("› ", "faint"), (first, ""))]
    return [*lines, *(Line.of(" " * (cells + 4), (line, "")) for line in rest)]


def _wrapped_masked(text: str, width: int, secrets: Sequence[str], tone: str = "") -> list[Line]:
    return wrapped(masked(text, secrets), max(10, width), tone)
