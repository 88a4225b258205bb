"""Texts that know where in a file each of their characters stands, so that a lint can show the line it would change."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

Span = tuple[int, int]
"""Offsets in a document's text: from, up to."""


@dataclass(frozen=True, slots=True)
class Word:
    """A text, and for each character the offset in the document of what stands for it (none: known nowhere)."""

    text: str
    at: Sequence[int] = ()
    is_quoted: bool = False
    is_operator: bool = False

    @property
    def span(self) -> Span | None:
        """Where it stands; None where it is in no file, empty, or put together from several places."""
        if not self.at or len(self.at) != len(self.text):
            return None
        first, last = self.at[0], self.at[-1]
        is_one_piece = 0 <= first <= last <= first + 2 * len(self.text) + 80
        return (first, last + 1) if is_one_piece and all(a < b for a, b in pairwise(self.at)) else None

    def part(self, start: int, end: int | None = None) -> Word:
        """The characters from `start` up to `end`."""
        return Word(self.text[start:end], self.at[start:end], self.is_quoted)


def joined(pieces: Iterable[Word], between: str = "") -> Word:
    """The pieces as one text; what stands between them has the place of what follows."""
    text: list[str] = []
    at: list[int] = []
    for piece in pieces:
        if text and between:
            text.append(between)
            at += [piece.at[0] if piece.at else -1] * len(between)
        text.append(piece.text)
        at += piece.at if len(piece.at) == len(piece.text) else [-1] * len(piece.text)
    return Word("".join(text), () if -1 in at else at)


def hull(first: Word | None, last: Word | None) -> Span | None:
    """From the one's begin to the other's end; only the first's place where the other stands elsewhere (a variable)."""
    one, other = first.span if first else None, last.span if last else None
    return (one[0], other[1]) if one and other and one[0] <= other[0] else one


@dataclass(frozen=True, slots=True)
class Document:
    """A file as it was read; `text` is empty for what runs and was read from no file."""

    name: str
    text: str = ""

    @property
    def whole(self) -> Word:
        """All of it."""
        return Word(self.text, range(len(self.text)))

    def line_of(self, offset: int) -> int:
        """The number, from 1, of the line an offset is in."""
        return bisect_right(_line_starts(self.text), offset)

    def line_span(self, number: int) -> Span:
        """Where a line begins and ends, its newline left out."""
        starts = _line_starts(self.text)
        end = starts[number] - 1 if number < len(starts) else len(self.text)
        return starts[number - 1], end

    def line(self, number: int) -> str:
        """A line's text as it stands."""
        start, end = self.line_span(number)
        return self.text[start:end].rstrip("\r")


@lru_cache(maxsize=16)
def _line_starts(text: str) -> tuple[int, ...]:
    return (0, *(index + 1 for index, char in enumerate(text) if char == "\n"))
