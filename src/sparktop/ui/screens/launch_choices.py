"""The rows and lines of the launch screen: levers, nodes, parameters, models, engines to stop, secrets. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rich.cells import cell_len

from sparktop.dataclass import dataclass
from sparktop.documents.prospect import (
    gate_lines,
    picture_lines,
    prospect_lines,
    remedy_lines,
    verdict_lines,
    without_verdict,
)
from sparktop.documents.step_text import masked
from sparktop.model.fleet import FleetState, LinkState
from sparktop.model.prospect import Budget, Lever, OnDisk, Prospect
from sparktop.model.state import State
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.recipe import operator_secrets
from sparktop.recipe.parameters import get
from sparktop.recipe.settings import missing
from sparktop.text.lines import BLANK, Line, hanging, indented, titled, wrapped
from sparktop.text.sentences import listed
from sparktop.text.units import bare_gib, duration, size
from sparktop.ui.screens.launch_draft import (
    Draft,
    applied,
    is_share,
    node_choices,
    parameters,
    recipe_value_of,
    stoppables,
)

ROOMY_ROWS = 30
"""Screen height from which the picture of memory is explained in words."""


def head_lines(state: LaunchState, width: int, height: int) -> list[Line]:
    """Verdict and picture of memory, for a screen `height`; faded while they are outdated."""
    answer = state.answer
    if answer is None:
        nodes = listed(masked(name) for name in state.draft.nodes)
        return [Line.of(("▸ ", "info"), (f"Asking {nodes} whether it fits and what blocks it …", "strong"))]
    is_roomy = height >= ROOMY_ROWS
    is_refused = isinstance(answer, Refusal)
    reason = answer.reason if isinstance(answer, Refusal) and not answer.is_verdict else ""
    few = 4 if is_refused else 2  # a refusal's reason is shown in full
    lines = verdict_lines(answer.prospect, width, reason=reason, limit=4 if is_roomy else few)
    if answer.prospect is not None:
        picture = picture_lines(answer.prospect, width, is_brief=not is_roomy)
        lines += [*([BLANK] if is_roomy and picture else []), *picture]
    if not lines:
        lines = [Line.of(("? ", "info"), ("Whether it fits is not known", "strong"))]
    return [line.faded() for line in lines] if state.is_planning else lines


def check_lines(state: LaunchState, width: int) -> list[Line]:
    """A refusal's remedies, the gates, memory, downloads and known risks; faded while they are outdated."""
    answer = state.answer
    if answer is None:
        return []
    lines: list[Line] = []
    if isinstance(answer, Refusal):
        lines_of_remedies = [line for text in _other_remedies(state, answer) for line in remedy_lines(text, width)]
        lines += titled("To make it possible", lines_of_remedies)
    if answer.prospect is not None:
        details = prospect_lines(answer.prospect, width)
        lines += [BLANK, *details] if lines and details else details
    return [line.faded() for line in lines] if state.is_planning else lines


def failed_gate_lines(state: LaunchState, width: int) -> list[Line]:
    """The failed gates, for a narrow screen; without the one that repeats the verdict."""
    gates = state.prospect.gates if state.prospect is not None else ()
    failed = [gate for gate in without_verdict(gates, state.budget) if gate.state is State.FAILED]
    lines = titled("Blocked by", gate_lines(failed, width, names_node=len(state.draft.nodes) > 1))
    return [line.faded() for line in lines] if state.is_planning else lines


def _other_remedies(state: LaunchState, refusal: Refusal) -> list[str]:
    """The refusal's remedies that are not shown as levers or with their gates; here a setting is filled in."""
    if unset := missing(state.draft.order):
        return [f"fill in {listed(masked(name) for name in unset)} under Parameters: Enter edits a row"]
    prospect = refusal.prospect
    if prospect is None:
        return list(refusal.remedies)
    levers = prospect.budget.levers if prospect.budget is not None else ()
    shown_elsewhere = {gate.remedy for gate in prospect.gates} | {lever.text for lever in levers}
    return [text for text in refusal.remedies if text not in shown_elsewhere]


NAME_CELLS = 24
WHERE = "Where"
MAX_SHOWN_LIMIT_S = 6 * 3600.0
"""A longer time limit is that of a download, and isn't shown as an estimate."""
ON, OFF = "◉", "○"
CHECKED, UNCHECKED = "[x]", "[ ]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceRow:
    """One row of the launch screen, to choose or only to read."""

    kind: str
    lines: tuple[Line, ...]
    name: str = ""
    """With the kind, what the cursor stays on while the text changes: a parameter, a path, an engine, …"""
    verb: str = ""
    """What Enter does; empty: the row can only be read."""
    draft: Draft | None = None
    """The draft that Enter leads to, where it does no more than that."""
    heading: str = ""
    """Title above the row, where a group begins."""
    aside: str = ""
    """Text beside the heading."""

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchState:
    """The state that the launch screen is drawn from."""

    draft: Draft
    fleet: FleetState
    answer: Plan | Refusal | None
    is_planning: bool
    secrets: Mapping[str, str]
    """Secrets of the recipe: name -> where its value is from, "" when missing."""
    is_unfolded: bool = False

    @property
    def prospect(self) -> Prospect | None:
        return self.answer.prospect if self.answer is not None else None

    @property
    def budget(self) -> Budget | None:
        return self.prospect.budget if self.prospect is not None else None

    @property
    def used(self) -> Mapping[str, str]:
        """Parameters of the last plan."""
        return self.prospect.values if self.prospect is not None else {}


def name_cells(width: int) -> int:
    """Cells of a parameter's name in a row of this width, without its sign and the gap."""
    return min(NAME_CELLS, max(12, width // 2))


def levers(state: LaunchState) -> tuple[Lever, ...]:
    """What would change the verdict: levers that can be applied, then those that can only be read."""
    most_nodes = max((len(names) for names in node_choices(state.draft.recipe, state.fleet)), default=1)
    options = [
        lever if lever.nodes <= most_nodes else Lever(words=lever.text)
        for lever in (state.budget.levers if state.budget is not None else ())
    ]
    for gate in state.prospect.gates if state.prospect is not None else ():
        if gate.state is State.FAILED:
            options += [lever for lever in gate.levers if lever not in options]
    options += _on_disk_levers(state)
    return tuple(sorted(options, key=lambda option: not option.can_be_applied))


def _on_disk_levers(state: LaunchState) -> list[Lever]:
    """A lever for a suitable model that is on all nodes, where the recipe's own would be downloaded; at most one."""
    prospect = state.prospect
    if prospect is None or not any(download.kind == "model" for download in prospect.fetches):
        return []
    suitable = [model for model in prospect.on_disk if model.note and model.is_complete and not model.is_wanted]
    return [
        Lever(words=f"take {model.name}, which is on disk: no download needed", values={"model": model.setting})
        for model in suitable
        if set(prospect.nodes) <= set(model.nodes)
    ][:1]


def _download_text(state: LaunchState) -> str:
    """ "fetches 130.6 GB of model org/M, image vllm:1", those with a size first; "" without downloads."""
    downloads = sorted(state.prospect.fetches if state.prospect is not None else (), key=lambda item: not item.size)
    texts = [
        f"{item.size} of {item.kind} {item.name}" if item.size else f"{item.kind} {item.name}" for item in downloads
    ]
    return f"fetches {', '.join(dict.fromkeys(texts))}" if texts else ""


def rows(state: LaunchState, width: int) -> list[ChoiceRow]:
    """All rows, from the top; the first one opens the review."""
    groups = (
        ("Options", "press its number", _lever_rows(state, width)),
        (WHERE, "", _node_rows(state, width)),
        ("Parameters", "Enter edits", _parameter_rows(state, width)),
        ("On disk already", "Enter chooses it", _model_rows(state, width)),
        ("Stop to free memory", "Space checks", _stop_rows(state, width)),
        ("Secrets", "never shown", _secret_rows(state, width)),
    )
    choice_rows = [_review_row(state, width)]
    for heading, aside, group in groups:
        choice_rows += (
            row if number else replace(row, heading=heading, aside=aside) for number, row in enumerate(group)
        )
    return choice_rows


def _review_row(state: LaunchState, width: int) -> ChoiceRow:
    answer, stops, aside_tone = state.answer, "", "quiet"
    if state.is_planning or answer is None:
        text, tone, aside = "Review and launch", "quiet", "▸ looking …"
    elif isinstance(answer, Plan):
        count = len(answer.steps)
        longest_s = sum(step.limit_s for step in answer.steps)
        text, tone = "Review and launch", "strong"
        aside = f"{count} step{'s' if count != 1 else ''}"
        aside += f", at most {duration(longest_s)}" if longest_s < MAX_SHOWN_LIMIT_S else ""
        stopped = (
            engine
            for engine in stoppables(state.fleet, state.draft.nodes)
            if state.draft.is_stopped(engine, state.used)
        )
        stops = " and ".join(dict.fromkeys(masked(engine.name) for engine in stopped))
    else:
        text, tone, aside, aside_tone = "Review and launch", "quiet", "✖ blocked", "critical"
    line = Line.of(("▶ ", tone), (text, tone), ("   ", ""), (aside, aside_tone))
    lines = [line]  # stops and downloads are repeated here: their own rows may be out of sight
    if stops:
        warning = Line.of((f"▲ stops {stops}", "warning"))
        fits = line.width + 3 + warning.width <= width
        lines = [line + Line.of("   ") + warning] if fits else [line, Line.of("  ") + warning]
    if isinstance(answer, Plan) and (fetched := _download_text(state)):
        lines.append(Line.of("  ", ("↓ ", "info"), (masked(fetched), "")))
    return ChoiceRow(kind="review", verb="review", lines=tuple(row.cut(width) for row in lines))


def _lever_rows(state: LaunchState, width: int) -> Iterator[ChoiceRow]:
    for number, option in enumerate(levers(state), 1):  # those that can be applied come first
        if not option.can_be_applied:
            told = hanging(Line.of(("› ", "faint")), masked(option.text), width, "quiet")
            yield ChoiceRow(kind="told", lines=tuple(told))
            continue
        head = Line.of((f"{number} " if number < 10 else "  ", "key"))
        yield ChoiceRow(
            kind="lever",
            name=option.text,
            verb="set it",
            lines=tuple(hanging(head, masked(option.text), width, "value")),
            draft=applied(state.draft, option, state.fleet),
        )


def _node_rows(state: LaunchState, width: int) -> Iterator[ChoiceRow]:
    recipe = state.draft.recipe
    node_sets = node_choices(recipe, state.fleet)
    if not node_sets:
        need, have = recipe.min_nodes, len(state.fleet.nodes)
        text = f"it needs {need} nodes, and this console watches {have}: start sparktop with {need} hosts"
        lines = hanging(Line.of(("▲ ", "warning")), text, width)
        yield ChoiceRow(kind="told", lines=tuple(lines))
    for nodes in node_sets:
        is_on = nodes == state.draft.nodes
        names = [masked(name) for name in nodes]
        text = names[0] if len(names) == 1 else listed((f"{names[0]} (head)", *names[1:]))
        line = Line.of((f"{ON if is_on else OFF} ", "key" if is_on else "quiet"), (text, "value" if is_on else ""))
        views = [view for view in map(state.fleet.node, nodes) if view is not None]
        unreachable = [view for view in views if view.link.state in (LinkState.LOST, LinkState.REFUSED)]
        if unreachable:  # its last known memory is outdated
            link_text = " and ".join(f"{masked(view.name)} is {view.link.state}" for view in unreachable)
            link_text = link_text if len(nodes) > 1 else str(unreachable[0].link.state)
            line += Line.of((f"   {link_text}", "warning"))
        else:
            free = [view.sample.memory.available_bytes for view in views if view.sample is not None]
            shown = [bare_gib(size) for size in (free if len(free) < 3 else (min(free),))]
            available = f"   {'at least ' if len(free) > 2 else ''}{' and '.join(shown)} GiB" if free else ""
            room = width - line.width - cell_len(available) - len(" available")
            line += Line.of((f"{available} available" if free and room >= 0 else available, "quiet"))
        draft = replace(state.draft, nodes=nodes)
        yield ChoiceRow(kind="node", name=" ".join(nodes), verb="take it", lines=(line.cut(width),), draft=draft)


def _parameter_rows(state: LaunchState, width: int) -> Iterator[ChoiceRow]:
    main, further = parameters(state.draft)
    shown_names = (
        further if state.is_unfolded else tuple(name for name in further if get(state.draft.values, name) is not None)
    )
    for name in (*main, *shown_names):
        yield _parameter_row(state, name, width)
    hidden_count = len(further) - len(shown_names)
    if hidden_count or (state.is_unfolded and further):
        more = f"{hidden_count} more parameter{'s' if hidden_count > 1 else ''}" if hidden_count else "fewer parameters"
        verb = "fold" if state.is_unfolded else "unfold"
        yield ChoiceRow(kind="more", verb=verb, lines=(Line.of((f"… {more}", "quiet")),))


def placeholder(state: LaunchState, name: str) -> str:
    """The value that a parameter has when it is not set."""
    recipe_value = recipe_value_of(state.draft.recipe, name)
    if get(state.draft.values, name) is not None:
        return recipe_value
    budget = state.budget
    if is_share(name) and budget is not None and budget.share is not None:
        return f"{budget.share:.2f}"
    if used := [setting for setting in missing(state.draft.order) if f"{{{setting}}}" in recipe_value]:
        return f"as {listed(used)} says"
    return get(state.used, name) or recipe_value


def unknown(name: str) -> str:
    """What stands for the value of a parameter that nobody has set."""
    return "computed" if is_share(name) else "–"


def _parameter_row(state: LaunchState, name: str, width: int) -> ChoiceRow:
    value = get(state.draft.values, name)
    cells = name_cells(width)
    head = Line.of(("● " if value is not None else "  ", "key"), (masked(name), "value" if value is not None else ""))
    line = head.cut(cells + 1).fit(cells + 2)
    default = masked(placeholder(state, name))
    if value is not None:
        line += Line.of((masked(value), "strong"), (f"   recipe {default}" if default else "", "quiet"))
    elif place := state.draft.recipe.settings.get(name):
        line += Line.of(("not set", "warning"), (f"   {masked(place)} uses it", "quiet"))
    else:
        line += Line.of((default or unknown(name), "quiet"))
        source = state.budget.share_source if is_share(name) and state.budget is not None and default else ""
        line += Line.of((f"   {masked(source)}" if source else "", "quiet"))
    return ChoiceRow(kind="parameter", name=name, verb="edit", lines=(line.cut(width),))


def _model_rows(state: LaunchState, width: int) -> Iterator[ChoiceRow]:
    disks = state.prospect.on_disk if state.prospect is not None else ()
    for model in sorted(disks, key=lambda model: not model.is_wanted):
        set_model = get(state.draft.values, "model")
        is_on = set_model in (model.path, model.setting) or (model.is_wanted and set_model is None)
        status = "" if model.is_complete else "▲ not complete, "
        about = f"{model.quantisation}, " if model.quantisation else ""
        about += f"{size(model.size_bytes)}, on {' and '.join(masked(node) for node in model.nodes)}"
        tone = "quiet" if model.is_complete else "warning"
        name = Line.of((f"{ON if is_on else OFF} ", "key" if is_on else "quiet"), (masked(model.name), "value"))
        line = name + Line.of((f"   {status}{about}", tone))
        lines = [line]
        if line.width > width:
            lines = [name.cut(width), Line.of("  ", (f"{status}{about}", tone)).cut(width)]
        if model.note and not (model.is_wanted and model.is_complete):
            lines += indented(wrapped(_model_note(model), width - 2, "info"))
        draft = state.draft.set("model", "" if model.is_wanted else model.setting)
        yield ChoiceRow(kind="model", name=model.path, verb="take it", lines=tuple(lines), draft=draft)


def _model_note(model: OnDisk) -> str:
    """The model's note; its nodes are shown above, and Enter sets what it is taken by."""
    return f"{masked(model.note)}, {masked(model.setting)}" if model.is_complete else masked(model.note)


def _stop_rows(state: LaunchState, width: int) -> Iterator[ChoiceRow]:
    for engine in stoppables(state.fleet, state.draft.nodes):
        is_on = state.draft.is_stopped(engine, state.used)
        conflict = state.draft.conflict(engine, state.used)
        checkbox = Line.of((f"{CHECKED if is_on else UNCHECKED} ", "warning" if is_on else "quiet"))
        holds = ", ".join(
            f"{f'{bare_gib(amount)} GiB' if amount is not None else 'memory not known'} on {masked(node)}"
            for node, amount in engine.held_bytes.items()
        )
        line = checkbox + Line.of((masked(engine.name), "value"), (f"   {holds}", ""))
        note = f"{engine.state}" + (f", port {engine.port}" if engine.port is not None else "")
        tail = Line.of((f"   {note}", "quiet"), (f"   ▲ {conflict}" if conflict else "", "warning"))
        lines = [line + tail] if (line + tail).width <= width else [line.cut(width), (Line.of(" ") + tail).cut(width)]
        draft = state.draft.stopping(engine.name, not is_on)
        yield ChoiceRow(kind="stop", name=repr(engine.stops), verb="check", lines=tuple(lines), draft=draft)


def _secret_rows(state: LaunchState, width: int) -> Iterator[ChoiceRow]:
    needed = operator_secrets.names_required(state.draft.recipe)
    for name, source in state.secrets.items():
        is_there = bool(source)
        source_text = masked(source) or f"not set{'' if name in needed else ', optional'}: Enter asks for it"
        line = Line.of((f"{'●' if is_there else '○'} ", "key" if is_there else "quiet"))
        line += Line.of((masked(name), "value"), (f"   {source_text}", "quiet"))
        yield ChoiceRow(kind="secret", name=name, verb="type it", lines=(line.cut(width),))


def index_of(choices: Sequence[ChoiceRow], key: tuple[str, str] | None) -> int:
    """Index of the row of that key; 0, the review, where there is none."""
    return next((index for index, row in enumerate(choices) if row.key == key), 0)
