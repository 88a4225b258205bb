"""Finds which of some thousand fixed texts a line holds, in one pass: the number of texts hardly matters."""

from __future__ import annotations

from collections.abc import Iterable

from ahocorasick_rs import AhoCorasick, Implementation


class Gate:
    """Finds fixed texts in lines."""

    __slots__ = ("_automaton", "_literals")

    def __init__(self, literals: Iterable[str]) -> None:
        self._literals = tuple(dict.fromkeys(literals))
        self._automaton = AhoCorasick(self._literals, implementation=Implementation.ContiguousNFA)

    def hits(self, text: str) -> tuple[str, ...]:
        """The fixed texts that a line holds, in the order in which they were given; empty for nearly every line."""
        try:
            found = self._automaton.find_matches_as_indexes(text, overlapping=True)
        except UnicodeEncodeError:  # a lone surrogate, from JSON
            return self.hits(text.encode("utf-8", "replace").decode())
        return tuple([self._literals[number] for number in sorted({number for number, _, _ in found})]) if found else ()
