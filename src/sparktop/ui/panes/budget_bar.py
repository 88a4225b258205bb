"""A node's memory before and after a launch, as two bars to one scale: whose is what, and what is missing. Pure.

Colour is never the only sign: every part says its name and figure, inside where there is room, else in the legend.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rich.cells import cell_len

from sparktop.model.prospect import Budget, NodeBudget, Slice, SliceKind
from sparktop.operate.wording import masked
from sparktop.ui.format import GIB, gib
from sparktop.ui.widgets.bar import SEPARATOR, shares
from sparktop.ui.widgets.ink import BLANK, Line, Run, fitting, wrapped

TONES: dict[SliceKind, tuple[str, str, str]] = {
    SliceKind.HOST: ("hold-kernel", "mark-kernel", " "),
    SliceKind.OTHERS: ("hold-processes", "mark-processes", " "),
    SliceKind.GOING: ("~hold-processes", "~mark-processes", "╌"),
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
_FIGURE = re.compile(r"(.*?)\s*(\d+\.\d+(?: of \d+\.\d+)?)")
"""A label that says its figure itself: "weights 34.6", "reserve 11.2 of 20.0"."""
WORTH_BYTES = GIB // 20
"""Less is not worth a word."""


def scale_of(budget: Budget) -> int:
    """Bytes that a bar's whole width stands for: the largest of all, so that all can be compared."""
    sums = [sum(one.size_bytes for one in side) for node in budget.nodes for side in (node.before, node.after)]
    return max([1, *sums, *(node.total_bytes for node in budget.nodes)])


def budget_lines(budget: Budget, width: int, *, is_brief: bool = False) -> list[Line]:
    """All nodes: two lines each, and what they say in words unless it is brief."""
    names = {node.node: masked(node.node) for node in budget.nodes}
    cells = min(NAME_CELLS, max((cell_len(name) for name in names.values()), default=0))
    lines: list[Line] = []
    unnamed: dict[SliceKind, Slice] = {}
    for node in budget.nodes:
        drawn, left = _node(node, names[node.node], cells, width, scale_of(budget), is_brief=is_brief)
        lines += drawn
        unnamed |= {one.kind: one for one in left if one.kind not in unnamed}
    if is_brief and unnamed:
        several = len(budget.nodes) > 1
        marks = [_mark(one, has_amount=not several) for one in sorted(unnamed.values(), key=_is_there)]
        lines.append(Line.of(" " * (cells + 7)) + fitting(marks, width - cells - 7, "  "))
    return lines


def _node(
    node: NodeBudget, name: str, cells: int, width: int, scale: int, *, is_brief: bool
) -> tuple[list[Line], list[Slice]]:
    """Its lines, and the parts whose name had no room."""
    lines: list[Line] = []
    unnamed: list[Slice] = []
    margin = Line.of(" " * (cells + 7))
    for word, side in (("now", node.before), ("then", node.after)):
        drawn, left = bar(side, scale, width - margin.width)
        head = Line.of((name if word == "now" else "", "strong")).fit(cells)
        lines.append(head + Line.of((f"  {word:<5}", "quiet")) + drawn)
        unnamed += [one for one in left if one.size_bytes >= WORTH_BYTES and one.kind not in {u.kind for u in unnamed}]
    unnamed.sort(key=_is_there)
    if is_brief:
        return lines, unnamed
    said = wrapped(masked(node.sentence), width - margin.width, "quiet", 2) if node.sentence else []
    marks = [_mark(one) for one in unnamed]
    if marks and said and said[-1].width + 3 + sum(one.width + 2 for one in marks) <= width - margin.width:
        said[-1] = said[-1] + Line.of("   ") + fitting(marks, width, "  ")
    elif marks:
        said.append(fitting(marks, width - margin.width, "  "))
    return [*lines, *(margin + line for line in said)], unnamed


def bar(slices: Iterable[Slice], scale_bytes: int, width: int) -> tuple[Line, list[Slice]]:
    """One bar of at most `width` cells, and the parts whose name had no room in it."""
    known = [one for one in slices if one.size_bytes > 0]
    runs: list[Run] = []
    unnamed: list[Slice] = []
    for one, room in zip(known, _cells(known, scale_bytes, width), strict=True):
        if not room:
            unnamed.append(one)
            continue
        tone, _, fill = TONES[one.kind]
        text = next((text for text in _texts(one) if cell_len(text) + 1 <= room), None)
        if text is None or (text == _said(one)[1] and one.kind is not SliceKind.FREE):
            unnamed.append(one)
        inside = f"{text} " if text and fill != " " else text or ""
        left = room - 1 - cell_len(inside)
        if left < 0:
            inside, left = text or "", room - 1 - cell_len(text or "")
        start = fill if one.kind is SliceKind.SHORT else SEPARATOR
        runs.append((start + inside + fill * left, tone))
    return Line(tuple(runs)), unnamed


def _cells(known: Sequence[Slice], scale_bytes: int, width: int) -> list[int]:
    """Whole cells to scale; what is missing is seen however little it is."""
    cells = shares([one.size_bytes for one in known], scale_bytes, width)
    for index, one in enumerate(known):
        if one.kind is SliceKind.SHORT and not cells[index]:
            widest = max(range(len(cells)), key=cells.__getitem__)
            cells[widest] -= 1
            cells[index] = 1
    return cells


def _said(one: Slice) -> tuple[str, str]:
    """Its name and its figure: the label's own, which of a part that is cut off by the machine's end says the whole."""
    label = masked(one.label).strip()
    found = _FIGURE.fullmatch(label)
    name, amount = (found[1], found[2]) if found else (label, gib(one.size_bytes))
    return name or str(one.kind), amount


def _texts(one: Slice) -> tuple[str, ...]:
    """From the longest to the shortest."""
    name, amount = _said(one)
    sign = "✖ " if one.kind is SliceKind.SHORT else ""
    short = SHORT_NAMES.get(one.kind, name)
    cut = [f"{name[:cells]}… {amount}" for cells in (12, 8, 5) if cell_len(name) > cells + 1]
    return (f"{sign}{name} {amount}", f"{sign}{short} {amount}", *cut, amount)


def _is_there(one: Slice) -> bool:
    """Sorts what is missing before all that is there: it is named, whatever is cut."""
    return one.kind is not SliceKind.SHORT


def _mark(one: Slice, *, has_amount: bool = True) -> Line:
    name, amount = _said(one)
    sign = "╳ " if one.kind is SliceKind.SHORT else "■ "
    return Line.of((sign, TONES[one.kind][1]), (name, "quiet"), (f" {amount}" if has_amount else "", ""))


def spaced(blocks: Iterable[Sequence[Line]]) -> list[Line]:
    """Blocks of lines with a blank one between them; empty ones leave none."""
    lines: list[Line] = []
    for block in blocks:
        if block:
            lines += [*([BLANK] if lines else []), *block]
    return lines
