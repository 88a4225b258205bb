"""Lets Textual's drawn lines go when others take their places."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual.strip import Strip

_divide = Strip.divide


def free_undivided_strips() -> None:
    """Keep a strip from keeping itself as its only piece, for all widgets of this process.

    Textual (8.2.8, `Strip.divide`) keeps the pieces of a strip in a cache of the strip; of one that isn't cut, that is
    the strip itself. Only a collection of garbage then frees it and its seven caches: each painted line made one of
    these, and under a flooded log the collections took 10 to 30 ms each second.
    """
    Strip.divide = _without_itself  # type: ignore[assignment,method-assign]


def _without_itself(strip: Strip, cuts: Iterable[int]) -> Sequence[Strip]:
    cuts = [cut for cut in cuts if cut <= strip.cell_length]
    return [strip] if cuts == [strip.cell_length] else _divide(strip, cuts)
