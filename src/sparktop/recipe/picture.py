"""The budget as a picture: bars of exact widths for the console, and lines of plain text for a terminal. Pure.

Each kind has a fill of its own, so that colour is never the only sign. Before and after are drawn to one scale: what a
launch is short of sticks out beyond the end of the machine.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from sparktop.model.prospect import Budget, NodeBudget, Slice, SliceKind

FILLS = {
    SliceKind.HOST: "▒",
    SliceKind.OTHERS: "o",
    SliceKind.GOING: "x",
    SliceKind.WEIGHTS: "█",
    SliceKind.CACHE: "K",
    SliceKind.UNTOUCHED: "░",
    SliceKind.OVERHEAD: "^",
    SliceKind.RESERVE: "=",
    SliceKind.FREE: ".",
    SliceKind.SHORT: "!",
}
_LEAST = 20
_INDENT = "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """A run of cells of one kind."""

    kind: SliceKind
    width: int
    label: str
    """ "weights 34.6"."""


def bar(node: NodeBudget, width: int, *, is_after: bool) -> tuple[Cells, ...]:
    """The slices of a node as runs of cells whose widths sum to `width`; none is left out while there are cells."""
    slices = tuple(one for one in (node.after if is_after else node.before) if one.size_bytes > 0)
    if width <= 0 or not slices:
        return ()
    if len(slices) > width:  # the largest have to do
        kept = sorted(range(len(slices)), key=lambda index: -slices[index].size_bytes)[:width]
        slices = tuple(slices[index] for index in sorted(kept))
    return tuple(
        Cells(kind=one.kind, width=cells, label=one.label)
        for one, cells in zip(slices, _apportioned([one.size_bytes for one in slices], width), strict=True)
    )


def widths(node: NodeBudget, width: int) -> tuple[int, int]:
    """(cells of the bar before, of the bar after) where the longer one may have `width`: to one scale."""
    short = sum(one.size_bytes for one in node.after if one.kind is SliceKind.SHORT)
    if short <= 0 or width <= 0:
        return max(0, width), max(0, width)
    return max(1, min(width, round(width * node.total_bytes / (node.total_bytes + short)))), width


def lines(budget: Budget, width: int = 80) -> list[str]:
    """The verdict, a picture a node with its legend, and what was guessed; no line longer than `width`."""
    width = max(_LEAST, width)
    out = _wrapped(budget.sentence, width)
    for node in budget.nodes:
        out += ["", *_node(node, width)]
    tail: list[str] = []
    if budget.share is not None:
        tail += _wrapped(f"share {budget.share:.2f}, {budget.share_source}", width, hang=True)
    if budget.context_tokens is not None:
        held = "" if budget.cache_tokens is None else f", the cache would hold about {_tokens(budget.cache_tokens)}"
        tail += _wrapped(f"context of {_tokens(budget.context_tokens)} tokens{held}", width, hang=True)
    for note in budget.unknowns:
        tail += _wrapped(f"a guess: {note}", width, hang=True)
    for lever in budget.levers:
        tail += _wrapped(f"would change it: {lever}", width, hang=True)
    return [*out, "", *tail] if tail else out


def _node(node: NodeBudget, width: int) -> list[str]:
    out = _wrapped(f"{node.node}: {node.sentence}", width)
    room = width - len(_INDENT) - len("before ") - 2
    now, then = widths(node, room)
    for word, size, is_after in (("before ", now, False), ("after  ", then, True)):
        runs = bar(node, size, is_after=is_after)
        out.append(f"{_INDENT}{word}|{''.join(FILLS[run.kind] * run.width for run in runs)}|")
        out += _legend(node.after if is_after else node.before, width)
    return out


def _legend(slices: Sequence[Slice], width: int) -> list[str]:
    """ "█ weights 34.6  K KV cache 2.0", as many on a line as go."""
    indent = _INDENT + " " * len("before  ")
    found = [f"{FILLS[one.kind]} {one.label}" for one in slices if one.size_bytes > 0]
    out: list[str] = []
    for text in found:
        entry = _cut(text, width - len(indent))
        if out and len(out[-1]) + 3 + len(entry) <= width:
            out[-1] += f"   {entry}"
        else:
            out.append(indent + entry)
    return out


def _apportioned(sizes: Sequence[int], width: int) -> list[int]:
    """Cells by the largest remainder, one at least for each; never more sizes than cells."""
    total = sum(sizes)
    cells = [max(1, size * width // total) for size in sizes]
    by_remainder = sorted(range(len(sizes)), key=lambda index: -(sizes[index] * width % total))
    while sum(cells) < width:
        for index in by_remainder:
            if sum(cells) == width:
                break
            cells[index] += 1
    while sum(cells) > width:  # taken from whoever has the most beyond what is theirs
        index = max(
            (one for one in range(len(sizes)) if cells[one] > 1),
            key=lambda one: cells[one] * total - sizes[one] * width,
        )
        cells[index] -= 1
    return cells


def _wrapped(text: str, width: int, *, hang: bool = False) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=_INDENT if hang else "", break_on_hyphens=False) or [""]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def _tokens(count: int) -> str:
    return f"{count:,}"
