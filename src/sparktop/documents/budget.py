"""A node's memory before and after a launch, drawn as two bars to one scale. Pure.

Colour is never the only sign: each part's name and figure are in the bar where there is room, else in the legend.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len

from sparktop.documents.step_text import masked
from sparktop.model.prospect import Budget, NodeBudget, Slice, SliceKind
from sparktop.text.bars import SEPARATOR, shares
from sparktop.text.lines import PAGE_CELLS, Line, Run, fitting, flowed, indented, is_uncut, wrapped
from sparktop.text.sentences import listed
from sparktop.text.units import GIB, bare_gib

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
SHORT_NAMES = {
    SliceKind.CACHE: "KV",
    SliceKind.OVERHEAD: "spike",
    SliceKind.UNTOUCHED: "rest",
}
NAME_CELLS = 14
MOST_ALIKE = 2
"""Of more nodes with about the same figures one is drawn."""
ALIKE_BYTES = GIB // 2
"""Figures of idle nodes differ by less: what a kernel and its caches hold."""
WORTH_BYTES = GIB // 20
"""Smaller parts are not named."""


def scale_of(budget: Budget) -> int:
    """Bytes for a bar's whole width: the largest of all bars, so that they can be compared."""
    sums = [sum(part.size_bytes for part in side) for node in budget.nodes for side in (node.before, node.after)]
    return max([1, *sums, *(node.total_bytes for node in budget.nodes)])


def budget_lines(budget: Budget, width: int, *, is_brief: bool = False) -> list[Line]:
    """Two bars for each node, with sentence and legend; `is_brief`: one legend for all. Of many alike, one is drawn."""
    width = min(width, PAGE_CELLS) if is_uncut(width) else width
    names = {node.node: masked(node.node) for node in budget.nodes}
    cells = min(NAME_CELLS, max((cell_len(name) for name in names.values()), default=0))
    lines: list[Line] = []
    unnamed: dict[SliceKind, Slice] = {}
    alike: list[list[NodeBudget]] = []
    for node in budget.nodes:
        if (same := next((group for group in alike if _is_alike(group[0], node)), None)) is not None:
            same.append(node)
        else:
            alike.append([node])
    for group in alike:
        others = group[1:] if len(group) > MOST_ALIKE else []
        for node in group[: len(group) - len(others)]:
            head = Line.of((names[node.node], "strong")).fit(cells)
            drawn, node_unnamed = _node(node, head, width, scale_of(budget), is_brief=is_brief)
            lines += drawn
            unnamed |= {part.kind: part for part in node_unnamed if part.kind not in unnamed}
        if others:
            text = f"about the same on {listed(names[node.node] for node in others)}"
            lines += indented(wrapped(text, width - cells - 7, "quiet"), cells + 7)
    if is_brief and unnamed:
        several = len(budget.nodes) > 1
        entries = [_legend_entry(part, has_amount=not several) for part in sorted(unnamed.values(), key=_is_present)]
        lines.append(Line.of(" " * (cells + 7)) + fitting(entries, width - cells - 7, "  "))
    return lines


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
    legend_lines = wrapped(masked(node.sentence), width - margin.width, "quiet", 2) if node.sentence else []
    entries = [_legend_entry(part) for part in unnamed]
    if (
        entries
        and legend_lines
        and legend_lines[-1].width + 3 + sum(part.width + 2 for part in entries) <= width - margin.width
    ):
        legend_lines[-1] = legend_lines[-1] + Line.of("   ") + fitting(entries, width, "  ")
    else:
        legend_lines += flowed(entries, width - margin.width, "  ")
    return [*lines, *(margin + line for line in legend_lines)], unnamed


def bar(slices: Iterable[Slice], scale_bytes: int, width: int) -> tuple[Line, list[Slice]]:
    """One bar of at most `width` cells, and the parts whose name had no room."""
    parts = [part for part in slices if part.size_bytes > 0]
    runs: list[Run] = []
    unnamed: list[Slice] = []
    for part, room in zip(parts, _cells(parts, scale_bytes, width), strict=True):
        if not room:
            unnamed.append(part)
            continue
        tone, _, fill = TONES[part.kind]
        text = next((text for text in _texts_by_length(part) if cell_len(text) + 1 <= room), None)
        if text is None or (text == _name_and_figure(part)[1] and part.kind is not SliceKind.FREE):
            unnamed.append(part)
        inside = f"{text} " if text and fill != " " else text or ""
        fill_cells = room - 1 - cell_len(inside)
        if fill_cells < 0:
            inside, fill_cells = text or "", room - 1 - cell_len(text or "")
        start = fill if part.kind is SliceKind.SHORT else SEPARATOR
        runs.append((start + inside + fill * fill_cells, tone))
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
