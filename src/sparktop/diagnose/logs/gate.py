"""Which of several hundred fixed texts a line holds, at a cost that nearly all lines, which hold none, don't feel.

An engine that works says the same few things with other figures, so a line is looked up by its shape, the line without
its digits: what no text of ours can stand in has been found out the first time such a line came.
"""

from __future__ import annotations

from collections.abc import Iterable

_DIGITS = str.maketrans("", "", "0123456789")
SHAPES = 4096
"""How many shapes are remembered; then they are forgotten all at once, which is cheaper than knowing the oldest."""
SHAPE_CHARS = 400
"""A longer line is hardly ever like another one."""
_TELLING = 4
"""A text with fewer characters besides digits is looked for in every line."""


class Gate:
    """Finds fixed texts in lines, one line at a time."""

    __slots__ = ("_always", "_known", "_literals")

    def __init__(self, literals: Iterable[str]) -> None:
        self._literals: list[tuple[str, str]] = []
        self._always: list[str] = []
        for literal in dict.fromkeys(literals):
            shape = literal.translate(_DIGITS)
            if len(shape) < _TELLING:
                self._always.append(literal)
            else:
                self._literals.append((shape, literal))
        self._known: dict[str, tuple[str, ...]] = {}

    def hits(self, text: str) -> tuple[str, ...]:
        """The texts that stand in a line; for nearly every line none."""
        shape = text.translate(_DIGITS)
        possible = self._known.get(shape)
        if possible is None:
            possible = tuple([literal for bare, literal in self._literals if bare in shape])
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
