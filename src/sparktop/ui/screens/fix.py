"""The choices for the keys f and x: a finding's remedies, all actions, the ways to do one. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.documents.finding_tree import SIGNS
from sparktop.documents.plan import RISKS
from sparktop.model.finding import Confidence, Finding, Phase, Remedy
from sparktop.model.fleet import FleetState
from sparktop.operate.actions import ACTIONS, Action, action
from sparktop.operate.targets import Selection, armed
from sparktop.text.lines import Line
from sparktop.ui.dialogs.dialog import Choice

NOT_HERE = Line.of(("not in a read-only console", "faint"))


def introduction(finding: Finding) -> tuple[Line, ...]:
    """The finding to be fixed, and how sure it is."""
    glyph, tone = SIGNS[finding.severity]
    lines = [Line.of((f"{glyph} ", tone), (finding.title, "strong"))]
    if finding.figures:
        lines.append(Line.of(("  ", ""), (finding.figures, "")))
    if finding.phase is Phase.RESOLVED:
        lines.append(Line.of(("  ", ""), ("it has resolved by itself: there may be nothing left to mend", "quiet")))
    elif finding.confidence is Confidence.SUSPECTED:
        lines.append(Line.of(("▲ ", "warning"), ("only suspected", "warning")))
        if finding.settles:
            lines.append(Line.of(("  ", ""), (f"to be sure: {finding.settles}", "quiet")))
    if finding.is_unseen:
        lines.append(Line.of(("▲ ", "warning"), ("as last seen: its node doesn't answer", "warning")))
    return tuple(lines)


def choices(finding: Finding, *, is_read_only: bool = False) -> tuple[Choice, ...]:
    """The finding's remedies in their order; those that sparktop can't carry out here can only be read."""
    if not finding.remedies:
        return (Choice(label=Line.of(("No remedy is known; d shows all that is.", "quiet"))),)
    return tuple(_remedy_choice(remedy, is_read_only=is_read_only) for remedy in finding.remedies)


def other_finding_choices(other_findings: Sequence[Finding], *, count_above: int) -> tuple[Choice, ...]:
    """The other findings, each leading to its own remedies; `count_above` is the number of choices above them."""
    return tuple(
        Choice(
            label=Line.of((f"{SIGNS[finding.severity][0]} ", SIGNS[finding.severity][1]), (finding.title, "value")),
            value=finding,
            heading="" if number or not count_above else "What else is wrong",
        )
        for number, finding in enumerate(other_findings)
    )


def first_mending(offered_choices: Sequence[Choice]) -> int:
    """Index, among the choices that can be chosen, of the first remedy that changes something; 0 where none does."""
    offered_actions = [
        action(choice.value.action or "") for choice in offered_choices if isinstance(choice.value, Remedy)
    ]
    return next(
        (index for index, offered in enumerate(offered_actions) if offered is not None and not offered.only_looks), 0
    )


def _remedy_choice(remedy: Remedy, *, is_read_only: bool) -> Choice:
    remedy_action = action(remedy.action) if remedy.action else None
    if remedy_action is None:
        steps = tuple(Line.of(("› ", "faint"), (step, "quiet")) for step in remedy.steps)
        cost = (Line.of((f"costs {remedy.cost}", "quiet")),) if remedy.cost else ()
        return Choice(label=Line.of((remedy.title, "")), notes=(*steps, *cost, Line.of(("by hand", "faint"))))
    sign, tone, _ = RISKS[remedy_action.risk]
    action_line = Line.of((f"{sign} ", tone), (remedy_action.title.lower(), ""))
    if remedy.cost:
        action_line += Line.of((f"  costs {remedy.cost}", "quiet"))
    if is_read_only and not remedy_action.only_looks:
        return Choice(label=Line.of((remedy.title, "")), notes=(action_line, NOT_HERE))
    return Choice(label=Line.of((remedy.title, "value")), notes=(action_line,), value=remedy)


def actions(fleet: FleetState, selection: Selection, *, is_read_only: bool = False) -> tuple[Choice, ...]:
    """All actions, grouped by target, the selected engine's first; when read-only, those that change nothing."""
    groups: Sequence[tuple[str, tuple[str, ...]]] = (
        (f"engine  {selection.engine}" if selection.engine else "engine", ("engine",)),
        ("process on the GPU", ("process",)),
        ("recipe", ("recipe",)),
        (f"node  {selection.node}" if selection.node else "node", ("nodes", "node")),
    )
    rows: list[Choice] = []
    for heading, targets in groups:
        offered = [item for item in ACTIONS if item.target in targets and (item.only_looks or not is_read_only)]
        offered.sort(key=lambda item: list(RISKS).index(item.risk))
        for number, candidate in enumerate(offered):
            rows.append(_action_choice(candidate, "" if number else heading, fleet, selection))
    return tuple(rows)


def _action_choice(action: Action, heading: str, fleet: FleetState, selection: Selection) -> Choice:
    sign, tone, _ = RISKS[action.risk]
    title = "Disarm the guard" if action.name == "guard" and armed(fleet.node(selection.node)) else action.title
    label = Line.of((f"{sign} ", tone), (f"{title:<23} ", "value"))
    return Choice(label=label, aside=Line.of((action.description, "quiet")), value=action, heading=heading)


def ways(action: Action) -> tuple[Choice, ...]:
    """The choices of an action's option "way", each with its meaning."""
    option = next(option for option in action.options if option.name == "way")
    return tuple(
        Choice(label=Line.of((f"{way:<10}", "value"), (meaning, "quiet")), value=way)
        for way, meaning in zip(option.choices, option.meanings, strict=True)
    )
