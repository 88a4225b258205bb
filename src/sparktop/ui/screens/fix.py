"""The choices for the keys f and x: a finding's remedies, all actions, the ways to do one. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from sparktop.diagnose.findings import cause_of, without_repeats
from sparktop.documents.finding_tree import SIGNS, nodes_text
from sparktop.documents.plan import RISKS
from sparktop.engines.ranks import is_alive, ranks
from sparktop.model.change import Change
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Finding, Phase, Remedy
from sparktop.model.fleet import FleetState
from sparktop.operate.actions import ACTIONS, Action, action
from sparktop.operate.run.gate import request_refusal, unreachable_refusal
from sparktop.operate.targets import Selection, armed, selected
from sparktop.text.lines import Line
from sparktop.ui.dialogs.dialog import Choice

_VERBS = {"relaunch": "shows its change", "launch": "shows the recipes"}
"""What Enter does on an action that shows something else before the plan."""
NOT_HERE = Line.of(("not in a read-only console", "faint"))


def introduction(finding: Finding, fleet: Sequence[str] = ()) -> tuple[Line, ...]:
    """The finding to be fixed, and how sure it is; `fleet` are the names of all watched nodes."""
    is_resolved = finding.phase is Phase.RESOLVED
    is_suspected = finding.confidence is Confidence.SUSPECTED and not (is_resolved or finding.is_clearing)
    told = {
        (finding.figures, ""): not is_resolved,
        ("it is resolved: there may be nothing left to fix", "quiet"): is_resolved,
        ("its signs are gone: it is over if they stay away", "quiet"): finding.is_clearing and not is_resolved,
        ("only suspected", "warning"): is_suspected,
        (finding.settles and f"to be sure: {finding.settles}", "quiet"): is_suspected,
        ("as last seen: its node doesn't answer", "warning"): finding.is_unseen,
    }
    lines = [
        Line.of(("▲ " if tone == "warning" else "  ", tone), (text, tone))
        for (text, tone), is_so in told.items()
        if text and is_so
    ]
    return (_named(finding, fleet, "strong"), *lines)


class Offer(NamedTuple):
    """A remedy, and what is expected of it."""

    remedy: Remedy
    expected_failure: str = ""
    """Why its plan is expected to fail now."""

    @property
    def can_help(self) -> bool:
        """Whether sparktop can carry it out, it changes something, and nothing speaks against it."""
        offered = action(self.remedy.action or "")
        return offered is not None and not offered.only_looks and not self.expected_failure


def choices(
    finding: Finding, offers: Sequence[Offer], *, is_read_only: bool = False, is_down: bool = False
) -> tuple[Choice, ...]:
    """The remedies in their order, those expected to fail last; what sparktop can't carry out here can only be read.
    `is_down`: the finding's engine doesn't run, so that a restart costs no requests."""
    if not offers:
        return (Choice(label=Line.of((_why_none(finding), "quiet"))),)
    return tuple(
        _remedy_choice(offer, is_read_only=is_read_only, is_down=is_down)
        for offer in sorted(offers, key=lambda offer: bool(offer.expected_failure))
    )


def _why_none(finding: Finding) -> str:
    if finding.phase is Phase.RESOLVED:
        return "Nothing is left to do."
    if finding.severity is Severity.INFO:
        return "A note: there is nothing to fix. Esc, then d, shows what is known."
    return "No known remedy. Esc, then d, shows what is known."


def all_in_one(finding: Finding, fleet: FleetState) -> Remedy | None:
    """One relaunch that fixes every firing problem of this server that a change fixes; None where that is only one.

    A finding whose change contradicts an earlier one's is left out: the order is that of the top line. The remedy names
    it, like every other finding that neither a change nor a restart fixes.
    """
    change, fixed, left = Change(), list[Finding](), list[Finding]()
    for other in _of_server(finding, fleet):
        if other.severity is Severity.INFO and other.key != finding.key:
            continue  # a note is no fault: nobody asked for its change
        first = next((remedy for remedy in other.remedies if remedy.action), Remedy(title=""))
        own_change = first.change if first.action == "relaunch" else None
        merged = change.joined(own_change) if own_change is not None else None
        if merged is not None:
            change = merged
            fixed.append(other)
        elif first.action != "safe-restart":
            left.append(other)
    if len(fixed) < 2 or all(other.key != finding.key for other in fixed):
        return None
    left = [other for other in left if cause_of(other, fleet.findings) not in (*fixed, *left)]
    count = f"{len(fixed)} faults" if left else f"all {len(fixed)}"
    return Remedy(
        title=f"Fix {count} in one relaunch",
        steps=tuple(other.title for other in fixed),
        cost="the time to load, once for all",
        action="relaunch",
        change=change,
        also_fixes=tuple(other.key for other in fixed if other.key != finding.key),
        leaves=tuple(other.title for other in left),
    )


def _of_server(finding: Finding, fleet: FleetState) -> list[Finding]:
    """The firing findings of the engine that a finding is about, and of its other ranks."""
    name = finding.engine or finding.subject
    team = ranks(name, next(iter(finding.nodes), ""), fleet) if name else ()
    places = {*((rank.node.name, rank.engine.name) for rank in team), *((node, name) for node in finding.nodes if name)}
    return [
        other
        for other in fleet.findings
        if other.phase is not Phase.RESOLVED
        and any((node, engine) in places for node in other.nodes for engine in (other.engine, other.subject))
    ]


def with_consequences(finding: Finding, findings: Sequence[Finding]) -> tuple[Remedy, ...]:
    """The finding's remedies; where its own relaunch leaves the change to the operator, the literal ones of what it
    caused come first."""
    if not any(remedy.action == "relaunch" and remedy.change is None for remedy in finding.remedies):
        return finding.remedies
    literal = (
        remedy
        for other in findings
        if other.phase is Phase.FIRING and cause_of(other, findings) is finding
        for remedy in other.remedies
        if remedy.action == "relaunch" and remedy.change is not None
    )
    return tuple(without_repeats((*literal, *finding.remedies)))


def _named(finding: Finding, fleet: Sequence[str], title_tone: str) -> Line:
    """Sign, nodes (unless the title names them) and title."""
    glyph, tone = SIGNS[finding.severity]
    nodes = nodes_text(finding, fleet)
    return Line.of((f"{glyph} ", tone), (f"{nodes}  " if nodes else "", tone), (finding.title, title_tone))


def other_finding_choices(
    other_findings: Sequence[Finding], fleet: Sequence[str] = (), *, count_above: int
) -> tuple[Choice, ...]:
    """The other findings, each leading to its own remedies; `count_above` is the number of choices above them."""
    return tuple(
        Choice(
            label=_named(finding, fleet, "value"),
            value=finding,
            heading="What else is wrong" if count_above else "",
            verb="shows its remedies",
        )
        for finding in other_findings
    )


def first_applicable(offered_choices: Sequence[Choice], *, instead: Finding | None = None) -> int:
    """Index, among the choices that can be chosen, of the first remedy that can help; without one that of `instead`,
    which is to be fixed first, or of the first choice without a doubt."""
    values = [choice.value for choice in offered_choices if choice.value is not None]
    helping = [index for index, value in enumerate(values) if isinstance(value, Offer) and value.can_help]
    first = [index for index, value in enumerate(values) if value is instead]
    others = [index for index, value in enumerate(values) if not (isinstance(value, Offer) and value.expected_failure)]
    return next(iter((*helping, *first, *others)), 0)


def _remedy_choice(offer: Offer, *, is_read_only: bool, is_down: bool) -> Choice:
    remedy, expected_failure = offer
    cost = "the time to load" if is_down and remedy.action == "safe-restart" else remedy.cost
    remedy_action = action(remedy.action or "")
    if remedy_action is None:
        steps = tuple(Line.of(("› ", "faint"), (step, "quiet")) for step in remedy.steps)
        costs = (Line.of((f"costs {cost}", "quiet")),) if cost else ()
        return Choice(label=Line.of((remedy.title, "")), notes=(*steps, *costs, Line.of(("by hand", "faint"))))
    sign, tone, _ = RISKS[remedy_action.risk]
    action_line = Line.of((f"{sign} ", tone), (remedy_action.phrase, ""))
    if cost:
        action_line += Line.of((f"  costs {cost}", "quiet"))
    if is_read_only and not remedy_action.only_looks:
        return Choice(label=Line.of((remedy.title, "")), notes=(action_line, NOT_HERE))
    left = (Line.of(("not fixed: ", "quiet"), ("; ".join(remedy.leaves), "")),) if remedy.leaves else ()
    verb = _VERBS.get(remedy_action.name, "")
    if expected_failure:
        warning = Line.of(("▲ ", "warning"), (f"expected to fail now: {expected_failure}", "warning"))
        return Choice(label=Line.of((remedy.title, "")), notes=(action_line, *left, warning), value=offer, verb=verb)
    return Choice(label=Line.of((remedy.title, "value")), notes=(action_line, *left), value=offer, verb=verb)


def actions(
    fleet: FleetState, selection: Selection, *, is_read_only: bool = False, protected: Collection[str] = ()
) -> tuple[Choice, ...]:
    """All actions by subject, that under the cursor first; when read-only, those that change nothing. In each group
    what can be done stands before what can't, which can only be read, with the reason."""
    groups = {
        "engine": (f"engine  {selection.engine}" if selection.engine else "engine", ("engine",)),
        "process": ("process on the GPU", ("process",)),
        "recipe": ("recipe", ("recipe",)),
        "node": (f"node  {selection.node}" if selection.node else "node", ("nodes", "node")),
    }
    ordered: list[list[Choice]] = []
    for subject in sorted(groups, key=lambda name: name != selection.subject):
        heading, targets = groups[subject]
        offered = [item for item in ACTIONS if item.target in targets and (item.only_looks or not is_read_only)]
        whys = {item.name: _why_not(item, fleet, selection, protected) for item in offered}
        offered.sort(key=lambda item: (bool(whys[item.name]), list(RISKS).index(item.risk)))
        ordered.append([_action_choice(item, whys[item.name], heading, fleet, selection) for item in offered])
    ordered.sort(key=lambda rows: all(row.value is None for row in rows))
    return tuple(row for rows in ordered for row in rows)


def _why_not(action: Action, fleet: FleetState, selection: Selection, protected: Collection[str]) -> str:
    """Why it can't be done at the selection, as far as the picture tells; empty: it may be."""
    if action.target == "recipe":
        return ""
    targets = selected(action, fleet, selection)
    if not targets:
        none = {"engine": "there is no engine", "process": "no process holds the GPU"}
        return none.get(action.target, f"takes {action.least_nodes} Sparks")
    reasons = []
    for request in (target.request for target in targets):
        is_off = armed(fleet.node(request.nodes[0])) and action.name == "guard"
        engines = [one for view in fleet.nodes for one in view.engines if one.name == request.target]
        if barred := request_refusal(request, is_read_only=False, protected=protected):
            reasons.append(str(barred))
        elif lost := [node for node in request.nodes if unreachable_refusal(replace(request, nodes=(node,)), fleet)]:
            reasons.append(f"{' and '.join(lost)} can't be reached")
        else:
            is_down = action.needs_running and not is_off and not any(map(is_alive, engines))
            reasons.append(f"{request.target} doesn't run" if is_down else "")
    return reasons[0] if all(reasons) else ""


def _action_choice(action: Action, why_not: str, heading: str, fleet: FleetState, selection: Selection) -> Choice:
    sign, tone, _ = RISKS[action.risk]
    is_disarm = action.name == "guard" and armed(fleet.node(selection.node))
    title = "Disarm the guard" if is_disarm else action.title
    words = "It kills nothing any more." if is_disarm else action.description
    if why_not:
        return Choice(label=Line.of((f"{sign} {title:<26} ", "faint"), (why_not, "faint")), heading=heading)
    label = Line.of((f"{sign} ", tone), (f"{title:<26} ", "value"))
    aside = Line.of((words, "quiet"))
    return Choice(label=label, aside=aside, value=action, heading=heading, verb=_VERBS.get(action.name, ""))


def ways(action: Action) -> tuple[Choice, ...]:
    """The choices of an action's option "way", each with its meaning."""
    option = next(option for option in action.options if option.name == "way")
    return tuple(
        Choice(label=Line.of((f"{way:<10}", "value"), (meaning, "quiet")), value=way)
        for way, meaning in zip(option.choices, option.meanings, strict=True)
    )
