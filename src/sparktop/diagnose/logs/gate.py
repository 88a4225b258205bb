"""Which of several hundred fixed texts a line holds, at a cost that nearly all lines, which hold none, don't feel.

An engine that works says the same few things with other figures, so a line is looked up by its shape, the line without
its (hexadecimal) digits: what no text of ours can stand in was found out the first time such a line came. For a new
shape, pieces of it taken at every fourth place are looked up among the pieces of all texts, so that the number of texts
costs next to nothing; and smaller pieces at every second place for texts that are too short to hold one of those.
Shapes are bytes because taking characters out of those is many times faster.
"""

from __future__ import annotations

from collections.abc import Iterable

SHAPES = 4096
"""How many shapes are remembered; then they are forgotten all at once, which is cheaper than knowing the oldest."""
SHAPE_CHARS = 400
"""A longer line is hardly ever like another one."""

_DIGITS = b"0123456789abcdef"
_TELLING = 4
"""A text with fewer bytes besides digits is looked for in every line."""
_PIECES = ((6, 4), (4, 2))
"""How long a piece is, and at how many places' distance the next one of a line is looked at: a text whose shape has
`length + step - 1` bytes holds, wherever it stands, a whole one."""


class Gate:
    """Finds fixed texts in lines, one line at a time."""

    __slots__ = ("_always", "_known", "_pieces", "_short")

    def __init__(self, literals: Iterable[str]) -> None:
        self._always: list[str] = []
        self._short: list[tuple[bytes, str]] = []
        """Those too short for pieces: their shape, and as they are."""
        self._pieces: list[dict[bytes, list[tuple[bytes, str]]]] = [{} for _ in _PIECES]
        """Of each size of pieces, the texts that have it at one of their first `step` places."""
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
        """The texts that stand in a line; for nearly every line none."""
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
        """The texts that may stand in lines of a shape."""
        found = [literal for bare, literal in self._short if bare in shape]
        for by_piece, (length, step) in zip(self._pieces, _PIECES, strict=True):
            pieces = [shape[start : start + length] for start in range(0, len(shape) - length + 1, step)]
            for piece in by_piece.keys() & pieces:
                found += [literal for bare, literal in by_piece[piece] if bare in shape]
        return tuple(dict.fromkeys(found))
