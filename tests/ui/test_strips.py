"""Textual's drawn lines: each goes when nothing shows it any more, and is cut as Textual cuts it."""

from __future__ import annotations

import gc
import weakref

from rich.segment import Segment
from tests.table import over
from textual.strip import Strip

from sparktop.ui.strips import _divide, free_undivided_strips


class Watched(Strip):
    """A strip of which it can be known that it is gone."""

    __slots__ = ("__weakref__",)


@over("cuts", [[6], [6, 9], [2, 6], [3]])
def test_a_divided_strip_goes_without_a_collection(cuts: list[int]) -> None:
    free_undivided_strips()
    gc.disable()
    try:
        strip = Watched([Segment("spark1")], 6)
        assert [piece.text for piece in strip.divide(cuts)] == [piece.text for piece in _divide(strip.crop(0), cuts)]
        strip._divide_cache.clear()  # what Textual's own, called just now on the same strip, keeps
        strip.divide(cuts)
        gone = weakref.ref(strip)
        del strip
        assert gone() is None
    finally:
        gc.enable()


def test_textual_still_keeps_one() -> None:
    """Where this fails, Textual has mended it: `sparktop.ui.strips` can go."""
    gc.disable()
    try:
        strip = Watched([Segment("spark1")], 6)
        _divide(strip, [6])
        kept = weakref.ref(strip)
        del strip
        assert kept() is not None
    finally:
        gc.enable()
