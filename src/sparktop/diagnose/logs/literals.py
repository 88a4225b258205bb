"""Finds which of several hundred fixed texts a line holds, at almost no cost for lines that hold none.

A working engine repeats the same messages with other numbers, so results are cached by a line's shape: the line without
its (hexadecimal) digits. For a new shape, 6-byte pieces at every fourth position are looked up among the pieces of all
texts, so the number of texts hardly matters; texts too short for that use 4-byte pieces at every second position.
Shapes are bytes because deleting characters from bytes is many times faster.
"""

from __future__ import annotations

from collections.abc import Iterable

SHAPES = 4096
"""Number of cached shapes. When full, the cache is cleared: cheaper than tracking the oldest."""
SHAPE_CHARS = 400
"""Longer lines are rarely alike and aren't cached."""

_DIGITS = b"0123456789abcdef"
_TELLING = 4
"""A text with fewer bytes besides digits is searched in every line."""
_PIECES = ((6, 4), (4, 2))
"""(piece length, step): a text whose shape has at least `length + step - 1` bytes always holds a whole piece."""


class Gate:
    """Finds fixed texts in lines."""

    __slots__ = ("_always", "_known", "_pieces", "_short")

    def __init__(self, literals: Iterable[str]) -> None:
        self._always: list[str] = []
        self._short: list[tuple[bytes, str]] = []
        """Texts too short for pieces, as (shape, text)."""
        self._pieces: list[dict[bytes, list[tuple[bytes, str]]]] = [{} for _ in _PIECES]
        """For each piece size, the (shape, text) pairs that hold the piece at one of their first `step` positions."""
        for literal in dict.fromkeys(literals):
            shape = literal.encode("utf-8", "replace").translate(None, _DIGITS)
            if len(shape) < _TELLING:
                self._always.append(literal)
                continue
            for by_piece, (length, step) in zip(self._pieces, _PIECES, strict=True):
                if len(shape) >= length + step - 1:
                    for start in range(step):
                        by_piece.setdefault(shape[start : start + length], []).append((shape, literal))
                    break
            else:
                self._short.append((shape, literal))
        self._known: dict[bytes, tuple[str, ...]] = {}

    def hits(self, text: str) -> tuple[str, ...]:
        """The fixed texts that a line holds; empty for nearly every line."""
        shape = text.encode("utf-8", "replace").translate(None, _DIGITS)
        possible = self._known.get(shape)
        if possible is None:
            possible = self._possible(shape)
            if len(shape) <= SHAPE_CHARS:
                if len(self._known) >= SHAPES:
                    self._known.clear()
                self._known[shape] = possible
        if possible:
            possible = tuple([literal for literal in possible if literal in text])
        for literal in self._always:
            if literal in text:
                possible = (*possible, literal)
        return possible

    def _possible(self, shape: bytes) -> tuple[str, ...]:
        """The texts that lines of this shape may hold."""
        possible = [literal for bare, literal in self._short if bare in shape]
        for by_piece, (length, step) in zip(self._pieces, _PIECES, strict=True):
            pieces = [shape[start : start + length] for start in range(0, len(shape) - length + 1, step)]
            for piece in by_piece.keys() & pieces:
                possible += [literal for bare, literal in by_piece[piece] if bare in shape]
        return tuple(dict.fromkeys(possible))
