"""What can be chosen when something is to be done: a finding's remedies, all actions, the ways of one. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.model.finding import Confidence, Finding, Phase, Remedy
from sparktop.model.fleet import FleetState
from sparktop.model.plan import Risk
from sparktop.operate.actions import ACTIONS, Action, action
from sparktop.operate.wishes import Selection, armed
from sparktop.ui.panes.finding_rows import SIGNS
from sparktop.ui.screens.ask import Choice
from sparktop.ui.widgets.ink import Line

NOT_HERE = Line.of(("not in a read-only console", "faint"))
RISK_SIGNS: dict[Risk, tuple[str, str]] = {
    Risk.SAFE: ("✓", "ok"),
    Risk.DISRUPTIVE: ("▲", "warning"),
    Risk.DESTRUCTIVE: ("✖", "critical"),
}


def introduction(finding: Finding) -> tuple[Line, ...]:
    """What is to be mended, and how sure that is."""
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
    """Its remedies in their order: those that sparktop can carry out here to choose, the others to read."""
    if not finding.remedies:
        return (Choice(label=Line.of(("No remedy is known; d shows all that is.", "quiet"))),)
    return tuple(_remedy(remedy, is_read_only=is_read_only) for remedy in finding.remedies)


def also(others: Sequence[Finding], *, have: int) -> tuple[Choice, ...]:
    """What else is wrong, each leading to its own remedies; `have` choices stand before them."""
    return tuple(
        Choice(
            label=Line.of((f"{SIGNS[one.severity][0]} ", SIGNS[one.severity][1]), (one.title, "value")),
            value=one,
            heading="" if number or not have else "What else is wrong",
        )
        for number, one in enumerate(others)
    )


def first_mending(offered: Sequence[Choice]) -> int:
    """Which of those that can be chosen is the first that mends: every plan that disturbs keeps the evidence itself."""
    kinds = [action(one.value.action or "") for one in offered if isinstance(one.value, Remedy)]
    return next((place for place, known in enumerate(kinds) if known is not None and not known.only_looks), 0)


def _remedy(remedy: Remedy, *, is_read_only: bool) -> Choice:
    known = action(remedy.action) if remedy.action else None
    if known is None:
        steps = tuple(Line.of(("› ", "faint"), (step, "quiet")) for step in remedy.steps)
        cost = (Line.of((f"costs {remedy.cost}", "quiet")),) if remedy.cost else ()
        return Choice(label=Line.of((remedy.title, "")), notes=(*steps, *cost, Line.of(("by hand", "faint"))))
    sign, tone = RISK_SIGNS[known.risk]
    told = Line.of((f"{sign} ", tone), (known.title.lower(), ""))
    if remedy.cost:
        told += Line.of((f"  costs {remedy.cost}", "quiet"))
    if is_read_only and not known.only_looks:
        return Choice(label=Line.of((remedy.title, "")), notes=(told, NOT_HERE))
    return Choice(label=Line.of((remedy.title, "value")), notes=(told,), value=remedy)


def actions(fleet: FleetState, at: Selection, *, is_read_only: bool = False) -> tuple[Choice, ...]:
    """All actions, by what they are done to, the selected engine's first; read-only those alone that change nothing."""
    groups: Sequence[tuple[str, tuple[str, ...]]] = (
        (f"engine  {at.engine}" if at.engine else "engine", ("engine",)),
        ("process on the GPU", ("process",)),
        ("recipe", ("recipe",)),
        (f"node  {at.node}" if at.node else "node", ("nodes", "node")),
    )
    found: list[Choice] = []
    for heading, targets in groups:
        first = True
        for one in sorted(
            (one for one in ACTIONS if one.target in targets and (one.only_looks or not is_read_only)), key=_rank
        ):
            found.append(_action(one, heading if first else "", fleet, at))
            first = False
    return tuple(found)


def _rank(one: Action) -> int:
    return (Risk.SAFE, Risk.DISRUPTIVE, Risk.DESTRUCTIVE).index(one.risk)


def _action(one: Action, heading: str, fleet: FleetState, at: Selection) -> Choice:
    sign, tone = RISK_SIGNS[one.risk]
    title = "Disarm the guard" if one.name == "guard" and armed(fleet.node(at.node)) else one.title
    label = Line.of((f"{sign} ", tone), (f"{title:<23} ", "value"))
    return Choice(label=label, aside=Line.of((one.description, "quiet")), value=one, heading=heading)


def ways(known: Action) -> tuple[Choice, ...]:
    """The choices of an action's option "way", each with its words from the option's description."""
    option = next(option for option in known.options if option.name == "way")
    said = dict(part.split(": ", 1) for part in option.description.split("; ") if ": " in part)
    return tuple(
        Choice(label=Line.of((f"{way:<10}", "value"), (said.get(way, ""), "quiet")), value=way)
        for way in option.choices
    )
