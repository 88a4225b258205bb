"""The prospect of a launch as lines of a width: verdict, picture of memory, gates, downloads, risks. Pure.

The picture has a node's memory before and after the launch, drawn as two bars to one scale. Colour is never the only
sign: each part's name and figure are in the bar where there is room, else in the legend.

Shown by the launch screen while parameters change, by the review above the steps, by the run's screen on request, and
by `sparktop launch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from rich.cells import cell_len

from sparktop.documents.step_text import masked, masked_data
from sparktop.model.prospect import (
    Budget,
    Download,
    Fit,
    Gate,
    Lever,
    NodeBudget,
    OnDisk,
    Prospect,
    Slice,
    SliceKind,
)
from sparktop.model.state import State
from sparktop.text.bars import SEPARATOR, shares
from sparktop.text.lines import (
    PAGE_CELLS,
    UNCUT,
    Line,
    Run,
    broken,
    fitting,
    flowed,
    hanging,
    indented,
    is_uncut,
    joined,
    noted,
    signed,
    spaced,
    titled,
    wrapped,
)
from sparktop.text.sentences import listed
from sparktop.text.units import GIB, bare_gib, size

FIT_SIGNS: dict[Fit, tuple[str, str]] = {
    Fit.FITS: ("✔", "ok"),
    Fit.TIGHT: ("▲", "warning"),
    Fit.NO: ("✖", "critical"),
    Fit.UNKNOWN: ("?", "info"),
}
"""Fit -> (sign, tone)."""
SIGNS: Mapping[State, tuple[str, str]] = {
    State.FAILED: ("✖", "critical"),
    State.WARNING: ("▲", "warning"),
    State.UNREACHED: ("?", "warning"),
    State.UNKNOWN: ("?", "info"),
    State.SKIPPED: ("–", "quiet"),
    State.PASSED: ("✔", "ok"),
}
"""State of a gate or a row of the bring-up -> (sign, tone), in the order of display."""
_LOUD = {"ok": "verdict-ok", "warning": "warning", "critical": "critical", "info": "verdict-info"}
"""A verdict's tone -> the bold tone of the same colour."""
ON_DISK_AT_MOST = 8
TONES: dict[SliceKind, tuple[str, str, str]] = {
    SliceKind.HOST: ("hold-kernel", "mark-kernel", " "),
    SliceKind.OTHERS: ("hold-processes", "mark-processes", " "),
    SliceKind.TO_BE_STOPPED: ("~hold-processes", "~mark-processes", "╌"),
    SliceKind.WEIGHTS: ("hold-engine", "mark-engine", " "),
    SliceKind.CACHE: ("hold-gpu", "mark-gpu", " "),
    SliceKind.OVERHEAD: ("hold-desktop", "mark-desktop", " "),
    SliceKind.UNTOUCHED: ("~hold-engine", "~mark-engine", " "),
    SliceKind.RESERVE: ("hold-free", "mark-free", "·"),
    SliceKind.FREE: ("hold-free", "mark-free", " "),
    SliceKind.SHORT: ("hold-unaccounted", "critical", "╳"),
}
"""Kind -> (tone of the bar, tone of its mark in the legend, what fills it)."""
SHORT_NAMES = {SliceKind.CACHE: "KV", SliceKind.OVERHEAD: "spike", SliceKind.UNTOUCHED: "rest"}
NAME_CELLS = 14
MOST_ALIKE = 2
"""Of more nodes with about the same figures one is drawn."""
ALIKE_BYTES = GIB // 2
"""Figures of idle nodes differ by less: what a kernel and its caches hold."""
WORTH_BYTES = GIB // 20
"""Smaller parts are not named."""
T = TypeVar("T")


def verdict_lines(prospect: Prospect | None, width: int, *, reason: str = "", limit: int = 3) -> list[Line]:
    """The verdict, its first words in bold, in at most `limit` lines (0: any number); a refusal's `reason`, where it is
    not the verdict, comes first."""
    lines = signed("✖", "critical", masked(reason), width, "strong", limit) if reason else []
    budget = prospect.budget if prospect is not None else None
    if budget is None:
        return lines
    sign, tone = FIT_SIGNS[budget.fit]
    room = max(1, limit - len(lines)) if limit else 0
    first, *rest = signed(sign, tone, masked(budget.sentence), width, "value", room)
    head = f"{sign} {budget.fit.words}"
    if first.width > len(head):  # else it is too narrow for them
        first = Line.of((head, _LOUD[tone]), (first.plain[len(head) :], "value"))
    return [*lines, first, *rest]


def picture_lines(prospect: Prospect, width: int, *, is_brief: bool) -> list[Line]:
    """Each node's memory before and after the launch; empty where the budget is not known."""
    return budget_lines(prospect.budget, width, is_brief=is_brief) if prospect.budget is not None else []


def gate_lines(gates: Sequence[Gate], width: int, *, names_node: bool = True, is_printed: bool = False) -> list[Line]:
    """Gates that failed, warn or could not be checked, each with its remedy; those that passed in one line.

    `is_printed`: those that passed with their details too.
    """
    lines: list[Line] = []
    for state, (sign, tone) in SIGNS.items():
        if state is State.PASSED and not is_printed:
            continue
        alike: dict[tuple[str, ...], list[Gate]] = {}
        for gate in (other for other in gates if other.state is state):
            texts = (gate.name, gate.detail, *gate.steps)
            alike.setdefault(tuple(text.replace(gate.node or "\n", "\n") for text in texts), []).append(gate)
        for group in alike.values():
            shown, others = _few(group)
            for gate in shown:
                lines += _gate(gate, sign, tone, width, names_node=names_node, is_printed=is_printed)
            if others:
                text = f"the same on {listed(masked(gate.node) for gate in others)}"
                lines += indented(wrapped(text, width - 2, "quiet"))
    passed = [gate for gate in gates if gate.state is State.PASSED]
    if passed and not is_printed:
        sign, tone = SIGNS[State.PASSED]
        count = "1 gate passed" if len(passed) == 1 else f"{len(passed)} gates passed"
        names = ", ".join(dict.fromkeys(masked(gate.name) for gate in passed))
        lines.append(Line.of((f"{sign} ", tone), (count, ""), (f"  {names}", "quiet")).cut(width))
    return lines


def without_verdict(gates: Sequence[Gate], budget: Budget | None) -> list[Gate]:
    """The gates without the memory gate that repeats the verdict: does not fit, or tight."""
    verdict_state = {Fit.NO: State.FAILED, Fit.TIGHT: State.WARNING}.get(budget.fit) if budget is not None else None
    return [gate for gate in gates if gate.name != "memory" or gate.state is not verdict_state]


def _gate(gate: Gate, sign: str, tone: str, width: int, *, names_node: bool, is_printed: bool) -> list[Line]:
    name = masked(gate.name)
    place = f" on {masked(gate.node)}" if gate.node and names_node else ""
    is_said = gate.state is not State.UNKNOWN or "not known" in gate.detail
    state = "" if is_said else "not known: "
    head = Line.of((f"{sign} ", tone), (f"{name}{place}", "value"), ("  ", ""))
    detail = f"{state}{masked(gate.detail)}"
    if head.width + len(detail) <= width:
        lines = [head + Line.of((detail, ""))]
    else:
        lines = [head.cut(width), *indented(wrapped(detail, width - 2))]
    remedy = "" if gate.state is State.PASSED else gate.remedy
    return [*lines, *remedy_lines(remedy, width, is_printed=is_printed)]


def remedy_lines(text: str, width: int, *, is_printed: bool = False) -> list[Line]:
    """A remedy as it would be typed, never cut; `is_printed`: on one line, to be pasted."""
    if not text:
        return []
    first, *rest = broken(masked(text), UNCUT if is_printed else max(10, width - 4))
    return [Line.of("  ", ("› ", "key"), (first, "quiet")), *(Line.of("    ", (line, "quiet")) for line in rest)]


def fetch_lines(prospect: Prospect, width: int) -> list[Line]:
    """The downloads needed before the launch."""
    nodes: dict[Download, list[str]] = {}
    for download in prospect.fetches:
        nodes.setdefault(replace(download, node=""), []).append(download.node)
    texts = (replace(download, node=listed(names)).text for download, names in nodes.items())
    return noted("↓", "info", map(masked, texts), width)


def _figure_lines(budget: Budget | None, width: int) -> list[Line]:
    """Whose the figures are that the budget didn't compute."""
    return noted("✔", "ok", map(masked, budget.figures), width) if budget is not None else []


def _memory_lines(budget: Budget | None, width: int) -> list[Line]:
    """The engine's share of memory with its source, how many tokens its cache holds, and what was not computed."""
    if budget is None:
        return []
    lines: list[Line] = []
    if budget.share is not None:
        head = Line.of(("share  ", "quiet"), (f"{budget.share:.2f}  ", "value"))
        lines += hanging(head, masked(budget.share_source), width, "quiet")
    if budget.cache_tokens is not None:
        line = Line.of(("cache  ", "quiet"), (f"{budget.cache_tokens:,} tokens", "value"))
        if budget.context_tokens:
            line += Line.of((f"  for a context of {budget.context_tokens:,}", "quiet"))
        lines.append(line.cut(width))
    return [*lines, *_figure_lines(budget, width), *noted("~", "info", map(masked, budget.unknowns), width)]


def prospect_lines(
    prospect: Prospect, width: int, *, is_printed: bool = False, levers: Sequence[Lever] = ()
) -> list[Line]:
    """All but the verdict and the picture; `is_printed`: for the command line, also the models on disk."""
    gates = titled("Gates", _shown_gates(prospect, width, is_printed=is_printed))
    lever_lines = [line for lever in levers for line in remedy_lines(lever.text, width, is_printed=True)]
    blocks = [
        titled("Memory", _memory_lines(prospect.budget, width)),
        titled("Options", lever_lines),
        titled("On disk already", _on_disk_lines(prospect.on_disk, width) if is_printed else ()),
        titled("Would be fetched first", fetch_lines(prospect, width)),
        titled("Known risks", noted("▲", "warning", map(masked, prospect.risks), width)),
    ]
    return spaced([*blocks, gates] if is_printed else [gates, *blocks])


def _shown_gates(prospect: Prospect, width: int, *, is_printed: bool = False) -> list[Line]:
    gates = without_verdict(prospect.gates, prospect.budget)
    return gate_lines(gates, width, names_node=len(prospect.nodes) > 1, is_printed=is_printed)


def _on_disk_lines(models: Sequence[OnDisk], width: int) -> list[Line]:
    lines: list[Line] = []
    for model in models[:ON_DISK_AT_MOST]:
        sign, tone = ("✔", "ok") if model.is_wanted and model.is_complete else ("·", "faint")
        about = ", ".join(filter(None, (size(model.size_bytes), masked(model.quantisation))))
        lines += signed(sign, tone, f"{masked(model.name)} ({about}): {masked(model.text)}", width)
    hidden_count = len(models) - ON_DISK_AT_MOST
    return [*lines, Line.of((f"  and {hidden_count} more", "quiet"))] if hidden_count > 0 else lines


def masked_prospect(prospect: Prospect, secrets: Sequence[str]) -> Prospect:
    """The prospect without these secrets in what is shown of it; its files name secrets and hold none."""
    return replace(masked_data(prospect, secrets), files=prospect.files)


def compact_lines(prospect: Prospect, width: int, *, reason: str = "", is_printed: bool = False) -> list[Line]:
    """Verdict and picture, for above a plan's steps."""
    return [
        *verdict_lines(prospect, width, reason=reason, limit=0 if is_printed else 3),
        *picture_lines(prospect, width, is_brief=width < 90 and not is_printed),
    ]


def plan_gate_lines(prospect: Prospect, width: int) -> list[Line]:
    """Whose figures the verdict is by, and the gates, for below a plan's effect and warnings."""
    return [*_figure_lines(prospect.budget, width), *_shown_gates(prospect, width)]


# --- the picture of memory


def scale_of(budget: Budget) -> int:
    """Bytes for a bar's whole width: the largest of all bars, so that they can be compared."""
    sums = [sum(part.size_bytes for part in side) for node in budget.nodes for side in (node.before, node.after)]
    return max([1, *sums, *(node.total_bytes for node in budget.nodes)])


def budget_lines(budget: Budget, width: int, *, is_brief: bool = False) -> list[Line]:
    """Two bars for each node, with sentence and legend; `is_brief`: one legend for all. Of many alike, one is drawn."""
    width = min(width, PAGE_CELLS) if is_uncut(width) else width
    names = {node.node: masked(node.node) for node in budget.nodes}
    cells = min(NAME_CELLS, max(map(cell_len, names.values()), default=0))
    lines: list[Line] = []
    unnamed: dict[SliceKind, Slice] = {}
    alike: list[list[NodeBudget]] = []
    for node in budget.nodes:
        if (same := next((group for group in alike if _is_alike(group[0], node)), None)) is not None:
            same.append(node)
        else:
            alike.append([node])
    for group in alike:
        drawn, others = _few(group)
        for node in drawn:
            head = Line.of((names[node.node], "strong")).fit(cells)
            node_lines, node_unnamed = _node(node, head, width, scale_of(budget), is_brief=is_brief)
            lines += node_lines
            unnamed |= {part.kind: part for part in node_unnamed if part.kind not in unnamed}
        if others:
            text = f"about the same on {listed(names[node.node] for node in others)}"
            lines += indented(wrapped(text, width - cells - 7, "quiet"), cells + 7)
    if is_brief and unnamed:
        several = len(budget.nodes) > 1
        entries = [_legend_entry(part, has_amount=not several) for part in sorted(unnamed.values(), key=_is_present)]
        lines.append(Line.of(" " * (cells + 7)) + fitting(entries, width - cells - 7, "  "))
    return lines


def _few(alike: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """(those to be shown, the others), of what would be shown alike."""
    return (alike, ()) if len(alike) <= MOST_ALIKE else (alike[:1], alike[1:])


def _is_alike(one: NodeBudget, other: NodeBudget) -> bool:
    """Whether one picture does for both nodes."""
    for sides in ((one.before, other.before), (one.after, other.after)):
        sizes, others = ({(part.kind, part.label): part.size_bytes for part in side} for side in sides)
        if any(abs(sizes.get(key, 0) - others.get(key, 0)) > ALIKE_BYTES for key in sizes | others):
            return False
    return one.fit is other.fit


def _node(node: NodeBudget, name: Line, width: int, scale: int, *, is_brief: bool) -> tuple[list[Line], list[Slice]]:
    """The node's lines, and the parts whose name had no room in the bars."""
    lines: list[Line] = []
    unnamed: list[Slice] = []
    margin = Line.of(" " * (name.width + 7))
    for word, side in (("now", node.before), ("then", node.after)):
        drawn, side_unnamed = bar(side, scale, width - margin.width)
        head = name if word == "now" else Line.of(" " * name.width)
        lines.append(head + Line.of((f"  {word:<5}", "quiet")) + drawn)
        unnamed += [
            part
            for part in side_unnamed
            if part.size_bytes >= WORTH_BYTES and part.kind not in {u.kind for u in unnamed}
        ]
    unnamed.sort(key=_is_present)
    if is_brief:
        return lines, unnamed
    room = width - margin.width
    legend_lines = wrapped(masked(node.sentence), room, "quiet", 2) if node.sentence else []
    entries = joined([_legend_entry(part) for part in unnamed], "  ")
    if entries.runs and legend_lines and legend_lines[-1].width + 5 + entries.width <= room:
        legend_lines[-1] += Line.of("   ") + entries
    else:
        legend_lines += flowed(map(_legend_entry, unnamed), room, "  ")
    return [*lines, *(margin + line for line in legend_lines)], unnamed


def bar(slices: Iterable[Slice], scale_bytes: int, width: int) -> tuple[Line, list[Slice]]:
    """One bar of at most `width` cells, and the parts whose name had no room."""
    parts = [part for part in slices if part.size_bytes > 0]
    runs: list[Run] = []
    unnamed: list[Slice] = []
    for part, room in zip(parts, _cells(parts, scale_bytes, width), strict=True):
        tone, _, fill = TONES[part.kind]
        text = next((text for text in _texts_by_length(part) if cell_len(text) < room), "")
        if not text or (text == _name_and_figure(part)[1] and part.kind is not SliceKind.FREE):
            unnamed.append(part)
        if room:
            start = fill if part.kind is SliceKind.SHORT else SEPARATOR
            inside = f"{text} " if text and fill != " " and cell_len(text) < room - 1 else text
            runs.append((start + inside + fill * (room - 1 - cell_len(inside)), tone))
    return Line(tuple(runs)), unnamed


def _cells(parts: Sequence[Slice], scale_bytes: int, width: int) -> list[int]:
    """Whole cells of each part, to scale; missing memory gets at least one."""
    cells = shares([part.size_bytes for part in parts], scale_bytes, width)
    for index, part in enumerate(parts):
        if part.kind is SliceKind.SHORT and not cells[index] and max(cells) > 1:
            widest = max(range(len(cells)), key=cells.__getitem__)
            cells[widest] -= 1
            cells[index] = 1
    return cells


def _name_and_figure(part: Slice) -> tuple[str, str]:
    """(name, figure in GiB) of a part."""
    return masked(part.label).strip() or str(part.kind), part.amount or bare_gib(part.size_bytes)


def _texts_by_length(part: Slice) -> tuple[str, ...]:
    """The texts for a part, from the longest to the shortest."""
    name, amount = _name_and_figure(part)
    sign = "✖ " if part.kind is SliceKind.SHORT else ""
    short = SHORT_NAMES.get(part.kind, name)
    cut = [f"{name[:cells]}… {amount}" for cells in (12, 8, 5) if cell_len(name) > cells + 1]
    return (f"{sign}{name} {amount}", f"{sign}{short} {amount}", *cut, amount)


def _is_present(part: Slice) -> bool:
    """False for missing memory: sorts it first, so that its name is never cut."""
    return part.kind is not SliceKind.SHORT


def _legend_entry(part: Slice, *, has_amount: bool = True) -> Line:
    name, amount = _name_and_figure(part)
    sign = "╳ " if part.kind is SliceKind.SHORT else "■ "
    return Line.of((sign, TONES[part.kind][1]), (name, "quiet"), (f" {amount}" if has_amount else "", ""))
