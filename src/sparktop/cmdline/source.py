"""Texts whose characters know their positions in a file, so that a lint can show the line that it would change."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

from sparktop.dataclass import dataclass

Span = tuple[int, int]
"""Offsets in a document's text: start, end (exclusive)."""


@dataclass(frozen=True, slots=True)
class Word:
    """A text, and for each character the offset in the document where it comes from (-1 or absent: unknown)."""

    text: str
    at: Sequence[int] = ()

    @property
    def span(self) -> Span | None:
        """Its position; None where it is in no file, empty, or composed of several places."""
        if not self.at or len(self.at) != len(self.text):
            return None
        first, last = self.at[0], self.at[-1]
        is_one_piece = 0 <= first <= last <= first + 2 * len(self.text) + 80
        return (first, last + 1) if is_one_piece and all(a < b for a, b in pairwise(self.at)) else None

    def part(self, start: int, end: int | None = None) -> Word:
        """The characters from `start` up to `end`."""
        return Word(self.text[start:end], self.at[start:end])


def joined(pieces: Iterable[Word], between: str = "") -> Word:
    """The pieces as one text; the separator has the position of what follows."""
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
    """From the start of the first to the end of the last; only the first's position where the last is elsewhere (a
    variable)."""
    first_span, last_span = first.span if first else None, last.span if last else None
    return (first_span[0], last_span[1]) if first_span and last_span and first_span[0] <= last_span[0] else first_span


@dataclass(frozen=True, slots=True)
class Document:
    """A file as read; `text` is empty for a running command, which was read from no file."""

    name: str
    text: str = ""

    @property
    def whole(self) -> Word:
        """All of its text."""
        return Word(self.text, range(len(self.text)))

    def line_of(self, offset: int) -> int:
        """The number, from 1, of the line with this offset."""
        return bisect_right(_line_starts(self.text), offset)

    def line_span(self, number: int) -> Span:
        """The start and end of a line, without its newline."""
        starts = _line_starts(self.text)
        end = starts[number] - 1 if number < len(starts) else len(self.text)
        return starts[number - 1], end

    def line(self, number: int) -> str:
        """A line's text."""
        start, end = self.line_span(number)
        return self.text[start:end].rstrip("\r")


@lru_cache(maxsize=16)
def _line_starts(text: str) -> tuple[int, ...]:
    return (0, *(index + 1 for index, char in enumerate(text) if char == "\n"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One flag, variable, Docker option or unit key, by its canonical name, with its position in the document."""

    name: str
    value: str | None = None
    """None: given without a value."""
    rest: tuple[str, ...] = ()
    """Further values of the same flag: `--served-model-name a b`."""
    spelled: str = ""
    """A flag's name as typed: `-tp`, `--gpu_memory_utilization`."""
    section: str = ""
    """The section of a unit key: "Unit", "Service"."""
    span: Span | None = None
    """Its position with its value; without the value where that is elsewhere, in a variable."""
    value_span: Span | None = None
    """The value's position."""

    @property
    def number(self) -> float | None:
        """The value as a number; None where it is not one, or a variable's."""
        try:
            number = float(self.value or "")
        except ValueError:
            return None
        return number if -1e15 < number < 1e15 else None

    @property
    def is_known(self) -> bool:
        """Whether the value is given here, and not by a variable set elsewhere."""
        return self.value is not None and "$" not in self.value and "{" not in self.value[:1]


def item_of(name: str, value: Word | None, key: Word | None = None, *, text: str | None = None) -> Item:
    """The item of this value, after its key where it has one; `text`: its value, where that isn't the word's own."""
    own_text = text if text is not None else value.text if value else None
    return Item(name=name, value=own_text, span=hull(key or value, value), value_span=value.span if value else None)
