"""Bars to one scale, legends, progress bars and large digits, as text and toned lines. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.cells import cell_len, set_cell_size

from sparktop.model.fleet import Holder, Ledger
from sparktop.text.lines import Line, Run, flowed, merged
from sparktop.text.units import bare_gib

_TONES = dict.fromkeys(("gpu", "desktop", "shared", "huge", "kernel"), "processes")
"""Kinds that share another kind's colour: that of their part of a stack."""


_SHORT = {"processes": "other", "unaccounted": "unacc."}
"""Kinds whose short name isn't their own."""


_REST = "rest, held by what can't be seen"


SEPARATOR = "▏"


TEXTURES = {"engine": "▓", "processes": "▒", "unaccounted": "╳", "cache": "░", "kernel": "·", "free": " "}
"""What tells the parts of memory apart where there is no colour."""


OWN_PART = 12
"""A process that holds one of so many parts of the memory is named in its legend."""


def shares(weights: Sequence[float], total: float, width: int) -> list[int]:
    """Cells for each part of a total, by largest remainder; at most `width` in all, none negative."""
    if total <= 0 or width <= 0:
        return [0] * len(weights)
    exact = [max(0.0, weight) / total * width for weight in weights]
    cells = [int(cell_share) for cell_share in exact]
    spare = min(width, round(sum(exact))) - sum(cells)
    for index in sorted(range(len(exact)), key=lambda i: cells[i] - exact[i])[: max(0, spare)]:
        cells[index] += 1
    return cells


def memory_bar(ledger: Ledger, width: int) -> tuple[Line, list[Holder]]:
    """(the bar of a node's memory, the holders whose name had no room in it)."""
    cells = shares([holder.held_bytes for holder in ledger.holders], ledger.total_bytes, width)
    runs: list[Run] = []
    unnamed: list[Holder] = []
    for holder, room in zip(ledger.holders, cells, strict=True):
        text = next((text for text in _texts(holder) if cell_len(text) < room), "")
        if room:
            runs.append((SEPARATOR + set_cell_size(text, room - 1), f"hold-{_tone(holder)}"))
        if not text and holder.held_bytes > 0:
            unnamed.append(holder)
    return Line(tuple(runs)), unnamed


def _texts(holder: Holder) -> tuple[str, ...]:
    """What may stand in a holder's part of a bar, the longest first."""
    amount = _amount(holder)
    short = "rest" if _is_rest(holder) else _SHORT.get(holder.kind, holder.kind)
    return (*((f"{holder.label} {amount}",) if holder.kind == "engine" else ()), f"{short} {amount}")


def _is_rest(holder: Holder) -> bool:
    """Whether unaccounted memory is only a remainder, because not every holder could be read."""
    return holder.kind == "unaccounted" and holder.estimated


def _amount(holder: Holder) -> str:
    return ("~" if holder.estimated and not _is_rest(holder) else "") + bare_gib(holder.held_bytes)


def _tone(holder: Holder) -> str:
    return "processes" if _is_rest(holder) else _TONES.get(holder.kind, holder.kind)


def legend(holders: Sequence[Holder], width: int, lines: int, *, has_colour: bool = True) -> list[Line]:
    """Names and amounts in at most `lines` lines, with squares or TEXTURES; less than 0.05 GiB is left out."""
    worth = [holder for holder in holders if holder.held_bytes >= 0.05 * 1024**3]
    items = [
        Line.of(
            ("■ " if has_colour else f"{TEXTURES[_tone(holder)] * 2} ", f"mark-{_tone(holder)}"),
            (f"{_REST if _is_rest(holder) else holder.label} ", "quiet"),
            (_amount(holder), ""),
        )
        for holder in worth
    ]
    return flowed(items, width, "  ", lines) if lines else []


def by_part(ledger: Ledger) -> list[Holder]:
    """The holders as a stack draws them, from below: those that share a colour are one, save what holds a lot."""
    parts: dict[str, Holder] = {}
    for holder in ledger.holders:
        is_small = _tone(holder) == "processes" and holder.held_bytes * OWN_PART < ledger.total_bytes
        label = "other" if is_small else holder.label
        before = parts.get(label)
        parts[label] = replace(
            holder,
            kind="processes" if is_small else holder.kind,
            label=label,
            held_bytes=holder.held_bytes + (before.held_bytes if before else 0),
            estimated=holder.estimated or bool(before and before.estimated),
        )
    return list(parts.values())


def progress(done: int, total: int, width: int) -> str:
    """A small bar of full and empty blocks: "▰▰▰▱▱"."""
    full = 0 if total <= 0 else min(width, done * width // total)
    return "▰" * full + "▱" * (width - full)


def gauge(value: float, healthy: tuple[float, float], full: float, width: int, tone: str) -> Line:
    """A bar of a figure from 0 to `full`, with the healthy range marked where the bar doesn't reach it."""
    if full <= 0 or width <= 0:
        return Line()
    filled = min(width, max(1, round(value / full * width)))
    low, high = (round(end / full * width) for end in healthy)
    marked = range(min(low, width - 1), min(width, max(high, low + 1)))
    rest = "".join("▒" if cell in marked else "·" for cell in range(filled, width))
    return Line(merged((("█" * filled, tone), *((cell, "ok" if cell == "▒" else "quiet") for cell in rest))))


_GLYPHS = {
    "0": ("┏━┓", "┃ ┃", "┗━┛"),
    "1": ("╺┓ ", " ┃ ", "╺┻╸"),
    "2": ("╺━┓", "┏━┛", "┗━╸"),
    "3": ("╺━┓", " ━┫", "╺━┛"),
    "4": ("╻ ╻", "┗━┫", "  ╹"),
    "5": ("┏━╸", "┗━┓", "╺━┛"),
    "6": ("┏━╸", "┣━┓", "┗━┛"),
    "7": ("╺━┓", "  ┃", "  ╹"),
    "8": ("┏━┓", "┣━┫", "┗━┛"),
    "9": ("┏━┓", "┗━┫", "╺━┛"),
    ".": (" ", " ", "."),
    " ": ("   ", "   ", "   "),
}


def large(text: str) -> tuple[str, str, str]:
    """Digits, points and spaces in large type, three lines high; other characters are on the last line as they are."""
    columns = [_GLYPHS.get(char, (" ", " ", char)) for char in text]
    top, middle, bottom = ("".join(column[row] for column in columns) for row in range(3))
    return top, middle, bottom
