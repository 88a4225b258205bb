"""What can be chosen of a launch, as rows for a cursor: levers, nodes, parameters, models on disk, engines. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len

from sparktop.model.fleet import FleetState, LinkState, NodeView
from sparktop.model.plan import Plan, Refusal
from sparktop.model.prospect import Budget, GateState, OnDisk, Prospect
from sparktop.operate.wording import masked
from sparktop.recipe import ownsecrets
from sparktop.recipe.alternatives import use
from sparktop.recipe.parameters import get
from sparktop.ui.format import duration, gib, size
from sparktop.ui.screens.launch_draft import (
    Draft,
    Lever,
    Stoppable,
    is_share,
    lever,
    own_value,
    parameters,
    places,
    stoppables,
)
from sparktop.ui.widgets.ink import Line, wrapped

Kind = Literal["review", "lever", "node", "parameter", "more", "model", "stop", "secret", "told"]
NAME_CELLS = 24
WHERE = "Where"
FORETOLD_S = 6 * 3600.0
"""A longest time that is longer is a download's, and says nothing of this one."""
_SIZED = re.compile(r"(.+?),? \(?(?:about )?([\d.]+ [kKMGT]i?B)\)?,?")
ON, OFF = "◉", "○"
CHECKED, UNCHECKED = "[x]", "[ ]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing that can be chosen, or only read."""

    kind: Kind
    lines: tuple[Line, ...]
    value: object = None
    heading: str = ""
    """Stands above it, where a group begins."""
    aside: str = ""
    """Beside the heading."""

    @property
    def can_be_chosen(self) -> bool:
        return self.kind != "told"

    @property
    def key(self) -> tuple[str, str]:
        """What it is, whatever it says at the moment: the cursor stays on it."""
        value = self.value
        if isinstance(value, Stoppable):
            return (self.kind, repr(value.stops))
        return (self.kind, value.path if isinstance(value, OnDisk) else repr(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the rows are made of."""

    draft: Draft
    fleet: FleetState
    answer: Plan | Refusal | None
    is_looking: bool
    secrets: Mapping[str, str]
    """Names the recipe wants or may want, and where each came from; empty: it is missing."""
    is_unfolded: bool = False

    @property
    def prospect(self) -> Prospect | None:
        return self.answer.prospect if self.answer is not None else None

    @property
    def budget(self) -> Budget | None:
        return self.prospect.budget if self.prospect is not None else None

    @property
    def used(self) -> Mapping[str, str]:
        """Parameters as they were planned."""
        return self.prospect.values if self.prospect is not None else {}


def name_cells(width: int) -> int:
    """Where a parameter's value begins in a row of that width, its sign and the gap left out."""
    return min(NAME_CELLS, max(12, width // 2))


def levers(known: Known) -> tuple[Lever, ...]:
    """Those of the budget that can be applied here and those that open a gate, then those that can only be read."""
    most = max((len(place) for place in places(known.draft.recipe, known.fleet)), default=1)
    found = [lever(text, most_nodes=most) for text in (known.budget.levers if known.budget is not None else ())]
    gates = known.prospect.gates if known.prospect is not None else ()
    shut = [gate.remedy for gate in gates if gate.state is GateState.FAILED]
    opening = [lever(text, most_nodes=most) for remedy in shut for text in remedy.split(", or ")]
    for one in opening:
        if one.can_be_applied and one not in found:
            found.append(one)
    found += _sparing(known)
    return tuple(sorted(found, key=lambda one: not one.can_be_applied))


def _sparing(known: Known) -> list[Lever]:
    """What lies on every one of the nodes and would do, where the recipe's own would be fetched."""
    prospect = known.prospect
    if prospect is None or not any(text.startswith("model ") for text in prospect.fetches):
        return []
    alike = [one for one in prospect.on_disk if one.note and one.is_complete and not one.is_wanted]
    return [
        Lever(text=f"take {one.name}, which is on disk: it spares the download", values={"model": use(one)})
        for one in alike
        if set(prospect.nodes) <= set(one.nodes)
    ][:1]


def _fetched(known: Known) -> str:
    """ "fetches 130.6 GB of model org/M, image vllm:1 first": what has a size before what has none."""
    found: list[str] = []
    for text in known.prospect.fetches if known.prospect is not None else ():
        name, _, _ = text.partition(" on ")
        sized = _SIZED.fullmatch(name)
        found.append(f"{sized[2]} of {sized[1]}" if sized else name)
    return f"fetches {', '.join(dict.fromkeys(sorted(found, key=lambda one: ' of ' not in one)))}" if found else ""


def rows(known: Known, width: int) -> list[Row]:
    """All of them, from the top; the first is the way to the review."""
    return [
        _review(known, width),
        *_levers(known, width),
        *_nodes(known, width),
        *_parameters(known, width),
        *_models(known, width),
        *_stops(known, width),
        *_secrets(known, width),
    ]


def _review(known: Known, width: int) -> Row:
    answer, stops = known.answer, ""
    if known.is_looking or answer is None:
        text, tone, beside = "Review and launch", "quiet", "▸ looking …"
    elif isinstance(answer, Plan):
        count = len(answer.steps)
        longest_s = sum(step.limit_s for step in answer.steps)
        text, tone = "Review and launch", "strong"
        beside = f"{count} step{'s' if count != 1 else ''}"
        beside += f", at most {duration(longest_s)}" if longest_s < FORETOLD_S else ""
        found = (one for one in stoppables(known.fleet, known.draft.nodes) if known.draft.is_stopped(one, known.used))
        stops = " and ".join(dict.fromkeys(masked(one.name) for one in found))
    else:
        text, tone, beside = "Review and launch", "quiet", "✖ not as it stands"
    told = "critical" if beside.startswith("✖") else "quiet"
    line = Line.of(("▶ ", tone), (text, tone), ("   ", ""), (beside, told))
    lines = [line]  # below, where it is told or chosen, both may be out of sight
    if stops:
        warned = Line.of((f"▲ stops {stops}", "warning"))
        fits = line.width + 3 + warned.width <= width
        lines = [line + Line.of("   ") + warned] if fits else [line, Line.of("  ") + warned]
    if isinstance(answer, Plan) and (fetched := _fetched(known)):
        lines.append(Line.of("  ", ("↓ ", "info"), (masked(fetched), "")))
    return Row(kind="review", lines=tuple(one.cut(width) for one in lines))


def _levers(known: Known, width: int) -> list[Row]:
    found: list[Row] = []
    number = 0
    for one in levers(known):
        head = Line.of(("› ", "faint"))
        if one.can_be_applied:
            number += 1
            head = Line.of((f"{number} " if number < 10 else "  ", "key"))
        first, *rest = wrapped(masked(one.text), width - 2, "value" if one.can_be_applied else "quiet")
        found.append(
            Row(
                kind="lever" if one.can_be_applied else "told",
                lines=(head + first, *(Line.of("  ") + line for line in rest)),
                value=one,
                heading="" if found else "What would change it",
                aside="" if found else "its digit sets it",
            )
        )
    return found


def _nodes(known: Known, width: int) -> list[Row]:
    recipe = known.draft.recipe
    found: list[Row] = []
    offered = places(recipe, known.fleet)
    if not offered:
        need, have = recipe.min_nodes, len(known.fleet.nodes)
        text = f"it needs {need} nodes, and this console watches {have}: start sparktop with {need} hosts"
        lines = tuple(Line.of(("▲ " if not n else "  ", "warning")) + line
                      for n, line in enumerate(wrapped(text, width - 2)))  # fmt: skip
        return [Row(kind="told", lines=lines, heading=WHERE)]
    for place in offered:
        is_on = place == known.draft.nodes
        names = [masked(name) for name in place]
        text = names[0] if len(names) == 1 else f"{names[0]} (head) and {' and '.join(names[1:])}"
        line = Line.of((f"{ON if is_on else OFF} ", "key" if is_on else "quiet"), (text, "value" if is_on else ""))
        free = [
            gib(view.sample.memory.available_bytes)
            for name in place
            if (view := known.fleet.node(name)) is not None and view.sample is not None
        ]
        gone = [view for name in place if (view := known.fleet.node(name)) is not None and _is_gone(view)]
        if gone:  # what it had is no more what it has
            said = " and ".join(f"{masked(view.name)} is {view.link.state}" for view in gone)
            said = said if len(place) > 1 else str(gone[0].link.state)
            line += Line.of((f"   {said}", "warning"))
            found.append(Row(kind="node", lines=(line.cut(width),), value=place, heading="" if found else WHERE))
            continue
        told = f"   {' and '.join(free)} GiB" if free else ""
        room = width - line.width - cell_len(told) - len(" available")
        line += Line.of((f"{told} available" if free and room >= 0 else told, "quiet"))
        found.append(Row(kind="node", lines=(line.cut(width),), value=place, heading="" if found else WHERE))
    return found


def _is_gone(view: NodeView) -> bool:
    return view.link.state in (LinkState.LOST, LinkState.REFUSED)


def _parameters(known: Known, width: int) -> list[Row]:
    first, others = parameters(known.draft)
    found = [_parameter(known, name, width) for name in first]
    shown = others if known.is_unfolded else tuple(name for name in others if get(known.draft.values, name) is not None)
    found += [_parameter(known, name, width) for name in shown]
    if left := len(others) - len(shown):
        line = Line.of(("… ", "quiet"), (f"{left} more parameter{'s' if left > 1 else ''}", "quiet"))
        found.append(Row(kind="more", lines=(line,), value="more"))
    elif known.is_unfolded and others:
        found.append(Row(kind="more", lines=(Line.of(("… ", "quiet"), ("fewer parameters", "quiet")),), value="more"))
    head = found[0]
    found[0] = Row(kind=head.kind, lines=head.lines, value=head.value, heading="Parameters", aside="Enter edits")
    return found


def placeholder(known: Known, name: str) -> str:
    """What a parameter is unless it is set."""
    own = own_value(known.draft.recipe, name)
    if get(known.draft.values, name) is not None:
        return own
    budget = known.budget
    if is_share(name) and budget is not None and budget.share is not None:
        return f"{budget.share:.2f}"
    return get(known.used, name) or own


def _parameter(known: Known, name: str, width: int) -> Row:
    given = get(known.draft.values, name)
    cells = name_cells(width)
    head = Line.of(("● " if given is not None else "  ", "key"), (masked(name), "value" if given is not None else ""))
    line = head.cut(cells + 1).fit(cells + 2)
    own = masked(placeholder(known, name))
    if given is not None:
        line += Line.of((masked(given), "strong"), (f"   recipe {own}" if own else "", "quiet"))
    else:
        line += Line.of((own or ("computed" if is_share(name) else "–"), "quiet"))
        source = known.budget.share_source if is_share(name) and known.budget is not None and own else ""
        line += Line.of((f"   {masked(source)}" if source else "", "quiet"))
    return Row(kind="parameter", lines=(line.cut(width),), value=name)


def _models(known: Known, width: int) -> list[Row]:
    found: list[Row] = []
    disks = known.prospect.on_disk if known.prospect is not None else ()
    for one in sorted(disks, key=lambda one: not one.is_wanted):
        given = get(known.draft.values, "model")
        is_on = given in (one.path, use(one)) or (one.is_wanted and given is None)
        state = "" if one.is_complete else "▲ not complete, "
        about = f"{one.quantisation}, " if one.quantisation else ""
        about += f"{size(one.size_bytes)}, on {' and '.join(masked(node) for node in one.nodes)}"
        tone = "quiet" if one.is_complete else "warning"
        name = Line.of((f"{ON if is_on else OFF} ", "key" if is_on else "quiet"), (masked(one.name), "value"))
        beside = name + Line.of((f"   {state}{about}", tone))
        lines = [beside]
        if beside.width > width:
            lines = [name.cut(width), Line.of("  ", (f"{state}{about}", tone)).cut(width)]
        if one.note and not (one.is_wanted and one.is_complete):
            lines += [Line.of("  ") + line for line in wrapped(_note(one), width - 2, "info")]
        found.append(
            Row(kind="model", lines=tuple(lines), value=one, heading="" if found else "On disk already",
                aside="" if found else "Enter takes it")
        )  # fmt: skip
    return found


def _note(one: OnDisk) -> str:
    """Without the nodes, which stand above it, and how it would be typed: Enter takes it. Where it lies is said."""
    note = masked(one.note).replace(f", on {' and '.join(masked(node) for node in one.nodes)}", "", 1)
    said, mark, _ = note.partition(": --set model=")
    return f"{said}, {masked(use(one))}" if mark else note


def _stops(known: Known, width: int) -> list[Row]:
    found: list[Row] = []
    for one in stoppables(known.fleet, known.draft.nodes):
        is_on = known.draft.is_stopped(one, known.used)
        way = known.draft.in_the_way(one, known.used)
        box = Line.of((f"{CHECKED if is_on else UNCHECKED} ", "warning" if is_on else "quiet"))
        holds = ", ".join(
            f"{f'{gib(amount)} GiB' if amount is not None else 'memory not known'} on {masked(node)}"
            for node, amount in one.held_bytes.items()
        )
        line = box + Line.of((masked(one.name), "value"), (f"   {holds}", ""))
        note = f"{one.state}" + (f", port {one.port}" if one.port is not None else "")
        tail = Line.of((f"   {note}", "quiet"), (f"   ▲ {way}" if way else "", "warning"))
        lines = [line + tail] if (line + tail).width <= width else [line.cut(width), (Line.of(" ") + tail).cut(width)]
        found.append(
            Row(kind="stop", lines=tuple(lines), value=one, heading="" if found else "Stop to make room",
                aside="" if found else "Space checks")
        )  # fmt: skip
    return found


def _secrets(known: Known, width: int) -> list[Row]:
    found: list[Row] = []
    needed = ownsecrets.needed(known.draft.recipe)
    for name, source in known.secrets.items():
        is_there = bool(source)
        told = masked(source) or f"not set{'' if name in needed else ', optional'}: Enter asks for it"
        line = Line.of((f"{'●' if is_there else '○'} ", "key" if is_there else "quiet"))
        line += Line.of((masked(name), "value"), (f"   {told}", "quiet"))
        found.append(Row(kind="secret", lines=(line.cut(width),), value=name, heading="" if found else "Secrets",
                         aside="" if found else "never shown"))  # fmt: skip
    return found


def index_of(made: Sequence[Row], key: tuple[str, str] | None) -> int:
    """Where the row of that key stands; 0, the review, where it has gone."""
    return next((index for index, row in enumerate(made) if row.key == key), 0)
