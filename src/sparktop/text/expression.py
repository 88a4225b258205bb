"""Regular expressions over text that others wrote: a search takes time in proportion to the text, whatever it says.

`re` tries one way to match after another. A line grown from an expression's own words makes that cubic and worse, and
whoever sends requests to an engine writes lines of its log. RE2 never tries twice, but takes longer for an ordinary
line, and memory for each expression: it is used for long texts, and for expressions that we haven't tested on such
lines. In RE2, `\\w`, `\\s`, `\\d` and `\\b` know ASCII alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from sparktop.dataclass import dataclass

SHORT_CHARS = 300
"""`re` searches texts up to this length; tests hold each of our expressions to what it may take on them."""
_MEMORY_BYTES = 1 << 19
"""The most that one expression takes in RE2; most take a fiftieth."""


class BadExpression(ValueError):
    """It is no regular expression, or none that can be searched in bounded time; says why."""


@dataclass(frozen=True, slots=True)
class Match:
    """Where an expression matched, and its named groups."""

    start: int
    end: int
    groups: Mapping[str, str | None]


class Expression:
    """A regular expression, compiled on first use."""

    __slots__ = ("_is_tested", "_linear", "_python", "source")

    def __init__(self, source: str, *, is_tested: bool) -> None:
        """`is_tested`: it is one of ours, which tests hold to a bound on short texts."""
        self.source = source
        self._is_tested = is_tested
        self._python: re.Pattern[str] | None = None
        self._linear: Any = None

    def search(self, text: str, start: int = 0, end: int | None = None) -> Match | None:
        """The first match between two positions; `^` is the text's own beginning, and `$` is `end`."""
        return next(self.finditer(text, start, end), None)

    def finditer(self, text: str, start: int = 0, end: int | None = None) -> Iterator[Match]:
        """The matches between two positions, none within another."""
        end = len(text) if end is None else min(end, len(text))
        start = min(start, end)
        if self._is_tested and (end - start <= SHORT_CHARS or not self.is_linear):
            if self._python is None:
                self._python = re.compile(self.source)
            for found in self._python.finditer(text, start, min(end, start + SHORT_CHARS)):
                yield Match(found.start(), found.end(), found.groupdict())
            return
        base = max(0, start - 1)  # `^` and `\b` look at the character before
        piece = text[base:end]
        if not piece.isascii():
            piece = piece.encode("utf-8", "replace").decode()  # a lone surrogate, from JSON, has no UTF-8
        for found in self._compiled().finditer(piece, start - base):
            yield Match(base + found.start(), base + found.end(), found.groupdict())

    def check(self) -> None:
        """Raises BadExpression if it can't be searched in bounded time."""
        self._compiled()

    @property
    def is_linear(self) -> bool:
        """Whether RE2 knows all of it. Of ours one has to be without: it is tried on the first `SHORT_CHARS`."""
        if self._linear is None:
            try:
                self._compiled()
            except BadExpression:
                self._linear = False
        return self._linear is not False

    def _compiled(self) -> Any:
        if self._linear is None:
            import re2  # late: its 3 MB and 7 ms are for the first long line, not for the first paint

            options = re2.Options()
            options.log_errors = False
            options.max_mem = _MEMORY_BYTES
            try:
                self._linear = re2.compile(self.source, options)
            except re2.error as error:
                reason = error.args[0] if error.args else ""
                words = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
                raise BadExpression(f"{words} (in RE2's syntax)") from None
        return self._linear


@cache
def expression(source: str, *, is_tested: bool = True) -> Expression:
    """The expression, shared by all who use it; one that an operator wrote isn't tested."""
    return Expression(source, is_tested=is_tested)
