"""Bars to scale: who holds a node's memory, and how far a counted phase is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.cells import cell_len

from sparktop.model.fleet import Holder, Ledger
from sparktop.ui.format import gib
from sparktop.ui.widgets.ink import Line, Run, fitting

_TONES = {"shared": "kernel", "huge": "kernel"}
"""Kinds drawn in another kind's colour."""
_SHORT = {
    "engine": "engine",
    "gpu": "gpu",
    "desktop": "desktop",
    "processes": "other",
    "shared": "shared",
    "huge": "huge",
    "kernel": "kernel",
    "unaccounted": "unacc.",
    "cache": "cache",
    "free": "free",
}
_REST = "rest, held by what can't be seen"
SEPARATOR = "▏"


def shares(weights: Sequence[float], total: float, width: int) -> list[int]:
    """Whole cells for parts of a total, by largest remainder: never more than `width` in all, nothing negative."""
    if total <= 0 or width <= 0:
        return [0] * len(weights)
    exact = [max(0.0, weight) / total * width for weight in weights]
    cells = [int(part) for part in exact]
    spare = min(width, round(sum(exact))) - sum(cells)
    for index in sorted(range(len(exact)), key=lambda i: cells[i] - exact[i])[: max(0, spare)]:
        cells[index] += 1
    return cells


def memory_bar(ledger: Ledger, width: int) -> tuple[Line, list[Holder]]:
    """The bar of all of a node's memory, and the holders whose part had no room for its name."""
    cells = shares([holder.held_bytes for holder in ledger.holders], ledger.total_bytes, width)
    runs: list[Run] = []
    unnamed: list[Holder] = []
    for holder, room in zip(ledger.holders, cells, strict=True):
        text = _inside(holder, room)
        if text is None:
            text = SEPARATOR + " " * (room - 1) if room else ""
            if holder.held_bytes > 0:
                unnamed.append(holder)
        if text:
            runs.append((text, f"hold-{_tone(holder)}"))
    return Line(tuple(runs)), unnamed


def _inside(holder: Holder, room: int) -> str | None:
    amount = _amount(holder)
    short = "rest" if _is_rest(holder) else _SHORT.get(holder.kind, holder.label)
    for text in (f"{holder.label if holder.kind == 'engine' else short} {amount}", f"{short} {amount}"):
        if cell_len(text) + 1 <= room:
            return SEPARATOR + text + " " * (room - 1 - cell_len(text))
    return None


def _is_rest(holder: Holder) -> bool:
    """What no one is known to hold where not everyone could be asked: no accusation, only the rest of the sum."""
    return holder.kind == "unaccounted" and holder.estimated


def _amount(holder: Holder) -> str:
    return ("~" if holder.estimated and not _is_rest(holder) else "") + gib(holder.held_bytes)


def _tone(holder: Holder) -> str:
    return "kernel" if _is_rest(holder) else _TONES.get(holder.kind, holder.kind)


def legend(holders: Sequence[Holder], width: int, lines: int) -> list[Line]:
    """Names and amounts, largest first, in at most so many lines; less than 0.05 GiB is not worth a word."""
    worth = sorted((h for h in holders if h.held_bytes >= 0.05 * 1024**3), key=lambda h: -h.held_bytes)
    items = [
        Line.of(
            ("■ ", f"mark-{_tone(holder)}"),
            (f"{_REST if _is_rest(holder) else holder.label} ", "quiet"),
            (_amount(holder), ""),
        )
        for holder in worth
    ]
    found: list[Line] = []
    while items and len(found) < lines:
        taken = 0
        used = 0
        for item in items:
            extra = item.width + (2 if taken else 0)
            if taken and used + extra > width:
                break
            used += extra
            taken += 1
        found.append(fitting(items[:taken], width, "  ") if taken > 1 else items[0].cut(width))
        items = items[taken:]
    return found


def progress(done: int, total: int, width: int) -> str:
    """A small bar of full and empty blocks: "▰▰▰▱▱"."""
    full = 0 if total <= 0 else min(width, done * width // total)
    return "▰" * full + "▱" * (width - full)


def merged(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Neighbouring runs of one tone as one."""
    return tuple(("".join(text for text, _ in group), tone) for tone, group in groupby(runs, key=lambda run: run[1]))
