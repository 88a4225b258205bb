"""The recipes as a table: one line each under headings, no wider than the terminal. Pure but for the terminal's width.

A file or a pipe gets all of every cell; a terminal the columns cut to what goes, ids and engines last of all.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from typing import TextIO

from rich.cells import cell_len, set_cell_size

from sparktop import sanitise
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Recipe
from sparktop.recipe.shelf import Entry

ENGINES = {EngineKind.VLLM: "vLLM", EngineKind.SGLANG: "SGLang"}
HEADINGS = ("RECIPE", "ENGINE", "SPARKS", "MODEL", "TITLE", "FROM")
_LEAST = (30, 6, 6, 12, 12, 8)
"""Cells that a column keeps while another has more than its own."""
_MODEL = HEADINGS.index("MODEL")
_GAP = "  "
_NARROWEST = 40


def width_of(out: TextIO) -> int | None:
    """The terminal's cells; None where it is none, and nothing is cut."""
    return max(_NARROWEST, shutil.get_terminal_size().columns) if out.isatty() else None


def table(found: Sequence[Entry], width: int | None) -> list[str]:
    """A line of headings and one a recipe; of one that can't be read its first problem."""
    rows = [(one, _cells(one)) for one in found]
    good = [HEADINGS, *(cells for one, cells in rows if one.recipe is not None)]
    # What a model is called says more than whose it is.
    if width is not None and sum(_natural(good)) + len(_GAP) * (len(HEADINGS) - 1) > width:
        rows = [
            (one, _without_owner(cells)) for one, cells in rows
        ]  # what a model is called says more than whose it is
        good = [HEADINGS, *(cells for one, cells in rows if one.recipe is not None)]
    broken = max((cell_len(cells[0]) for one, cells in rows if one.recipe is None), default=0)
    sizes = _natural(good)
    sizes[0] = max(sizes[0], broken)
    sizes = _fitted(sizes, width)
    lines = [_line(HEADINGS, sizes)]
    for one, cells in rows:
        whole = cells if one.recipe is not None else (cells[0], _GAP.join(cells[1:]))
        lines.append(_line(whole, sizes if one.recipe is not None else [sizes[0], cell_len(whole[1])]))
    return lines if width is None else [_cut(line, width) for line in lines]


def nodes_of(recipe: Recipe) -> str:
    """ "1", "2", "1-2"."""
    low, high = recipe.min_nodes, recipe.max_nodes
    return str(low) if low == high else f"{low}-{high}"


def _cells(one: Entry) -> tuple[str, ...]:
    recipe = one.recipe
    whose = "yours, in place of sparktop's" if one.covers else one.origin.value
    if recipe is None:
        first, *others = one.reading.errors
        more = f" (and {len(others)} more)" if others else ""
        return one.id, f"✖ line {first.line}: {first.key + ': ' if first.key else ''}{first.sentence}{more}", whose
    texts = (ENGINES[recipe.engine], nodes_of(recipe), recipe.model, recipe.title, whose)
    return (one.id, *(sanitise.line(text[:20_000]) for text in texts))


def _without_owner(cells: tuple[str, ...]) -> tuple[str, ...]:
    if len(cells) < len(HEADINGS) or cells[_MODEL].startswith("/"):
        return cells
    return (*cells[:_MODEL], cells[_MODEL].rpartition("/")[2], *cells[_MODEL + 1 :])


def _natural(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(cell_len(row[column]) for row in rows) for column in range(len(HEADINGS))]


def _fitted(sizes: list[int], width: int | None) -> list[int]:
    """Cells are taken from whatever column has the most beyond its least."""
    sizes = list(sizes)
    over = 0 if width is None else sum(sizes) + len(_GAP) * (len(sizes) - 1) - width
    for _ in range(max(0, over)):
        column = max(range(len(sizes)), key=lambda index: sizes[index] - _LEAST[index])
        if sizes[column] <= _LEAST[column]:
            break
        sizes[column] -= 1
    return sizes


def _line(cells: Sequence[str], sizes: Sequence[int]) -> str:
    return _GAP.join(_padded(cells, sizes)).rstrip()


def _padded(cells: Sequence[str], sizes: Sequence[int]) -> Iterator[str]:
    for text, size in zip(cells, sizes, strict=True):
        yield set_cell_size(_cut(text, size), size)


def _cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)) + "…"
