"""Texts grown from an expression: lines on which a search that goes back is slow, and lines that it must find.

Both walk the tree of `re`'s own parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

REQUEST = 'INFO:     172.17.0.1:40404 - "GET /'
"""How a client gets its words into an engine's log."""
_PLAIN = ("x", " ", "1", "/", "-", "A", ":", "_", ".", '"', "|", "\t", "=", ",", "[", "(", "é")
_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)
_CATEGORIES = {
    op.CATEGORY_DIGIT: r"\d",
    op.CATEGORY_NOT_DIGIT: r"\D",
    op.CATEGORY_SPACE: r"\s",
    op.CATEGORY_NOT_SPACE: r"\S",
    op.CATEGORY_WORD: r"\w",
    op.CATEGORY_NOT_WORD: r"\W",
}


def hostile(source: str, length: int, words: Sequence[str] = ()) -> list[str]:
    """Texts of a length: beginnings of what would match, repeated and padded, and the words in a request's path."""
    grown: list[str] = []

    def add(begin: str, padding: str = "") -> None:
        grown.append((begin + (padding or begin) * (length // len(padding or begin) + 1))[:length])

    for pieces, fillers in _variants(parser.parse(source)):
        beginnings = ["".join(pieces[:count]) for count in range(1, len(pieces) + 1)]
        for beginning in _spread([text for text in beginnings if text], 5):
            add(beginning)
            for filler in _spread(list(dict.fromkeys(filler for filler in fillers if filler)), 3):
                add(beginning + filler * 12)
                add(beginning, filler)
                add(beginning * (length // 2 // len(beginning) + 1), filler)
    for word in words:
        add(word)
        add(word + " ")
        add(REQUEST, word + "/")
    return list(dict.fromkeys(grown))


def matching(source: str) -> list[str]:
    """Short texts that the expression finds: each alternative, and what may be left out given and left out."""
    found: dict[str, None] = {}
    for is_full in (False, True):
        for pieces, _ in _variants(parser.parse(source), is_full=is_full):
            text = "".join(pieces)
            if re.search(source, text):
                found[text] = None
    return list(found)


def _spread(values: list[str], count: int) -> list[str]:
    return values if len(values) <= count else [values[at * (len(values) - 1) // (count - 1)] for at in range(count)]


def _variants(tree: Any, *, is_full: bool = True) -> Iterator[tuple[list[str], list[str]]]:
    """Texts that match, in pieces, and what their repetitions repeat; each alternative is in one of them."""
    for number in range(_width(tree)):
        fillers: list[str] = []
        yield _pieces(tree, number, fillers, is_full), fillers


def _width(tree: Any) -> int:
    """How many variants show every alternative once."""
    return max([1, *(sum(map(_width, branches)) for branches in map(_branches, tree) if branches)])


def _branches(node: tuple[Any, Any]) -> list[Any]:
    """The alternatives in a node; one for a group or a repetition, none for a character."""
    code, value = node
    if code is op.BRANCH:
        return list(value[1])
    if code is op.SUBPATTERN:
        return [value[3]]
    if code in _REPEATS:
        return [value[2]]
    if code is op.ATOMIC_GROUP:
        return [value]
    if code is op.ASSERT and value[0] > 0:
        return [value[1]]
    return []


def _pieces(tree: Any, number: int, fillers: list[str], is_full: bool) -> list[str]:
    pieces: list[str] = []
    for node in tree:
        code, value = node
        if code is op.LITERAL:
            pieces.append(chr(value))
        elif code is op.NOT_LITERAL:
            pieces.append("x" if chr(value) != "x" else "y")
        elif code is op.ANY:
            pieces.append("x")
        elif code is op.IN:
            pieces.append(_one_of(value))
        elif branches := _branches(node):
            widths = [_width(branch) for branch in branches]
            at = number % sum(widths)
            while at >= widths[0]:
                at -= widths.pop(0)
                branches.pop(0)
            inner = _pieces(branches[0], at, fillers, is_full)
            if code in _REPEATS:
                least, most, _ = value
                if most > 3:
                    fillers.append("".join(inner))
                inner *= max(least, 1) if is_full else least
            pieces += inner
    return pieces


def _one_of(members: Any) -> str:
    """A character of a class, a plain one where it has one."""
    is_negated = members[0][0] is op.NEGATE
    for char in _PLAIN:
        if any(_holds(member, char) for member in members) is not is_negated:
            return char
    code, value = members[0]
    return chr(value if code is op.LITERAL else value[0])


def _holds(member: Any, char: str) -> bool:
    code, value = member
    if code is op.LITERAL:
        return chr(value) == char
    if code is op.RANGE:
        return bool(value[0] <= ord(char) <= value[1])
    return code is op.CATEGORY and re.match(_CATEGORIES[value], char) is not None
