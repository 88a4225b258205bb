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


def choices(finding: Finding) -> tuple[Choice, ...]:
    """Its remedies in their order: those that sparktop can carry out to choose, the others to read."""
    if not finding.remedies:
        return (Choice(label=Line.of(("No remedy is known; d shows all that is.", "quiet"))),)
    return tuple(_remedy(remedy) for remedy in finding.remedies)


def _remedy(remedy: Remedy) -> Choice:
    known = action(remedy.action) if remedy.action else None
    if known is None:
        steps = tuple(Line.of(("› ", "faint"), (step, "quiet")) for step in remedy.steps)
        cost = (Line.of((f"costs {remedy.cost}", "quiet")),) if remedy.cost else ()
        return Choice(label=Line.of((remedy.title, "")), notes=(*steps, *cost, Line.of(("by hand", "faint"))))
    sign, tone = RISK_SIGNS[known.risk]
    told = Line.of((f"{sign} ", tone), (known.title.lower(), ""))
    if remedy.cost:
        told += Line.of((f"  costs {remedy.cost}", "quiet"))
    return Choice(label=Line.of((remedy.title, "value")), notes=(told,), value=remedy)


def actions(fleet: FleetState, at: Selection) -> tuple[Choice, ...]:
    """All actions, by what they are done to; the selected engine's first."""
    groups: Sequence[tuple[str, tuple[str, ...]]] = (
        (f"engine  {at.engine}" if at.engine else "engine", ("engine",)),
        ("process on the GPU", ("process",)),
        (f"node  {at.node}" if at.node else "node", ("nodes", "node")),
    )
    found: list[Choice] = []
    for heading, targets in groups:
        first = True
        for one in sorted((one for one in ACTIONS if one.target in targets), key=_rank):
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
