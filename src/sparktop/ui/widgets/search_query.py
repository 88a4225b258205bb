"""A query as it is typed into a search line: a regular expression, or plain text where it is none. Pure."""

from __future__ import annotations

import re

from sparktop.dataclass import dataclass
from sparktop.text.expression import BadExpression, Expression

_ESCAPES = re.compile(r"\\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A search for a regular expression.

    Case matters only where the query has a capital letter (smart case).
    """

    text: str
    """As typed."""
    pattern: Expression
    needle: str | None
    """Plain text to find; None where only the pattern can tell."""
    folds_case: bool
    why_text: str = ""
    """Why it is searched as plain text; "" where it is a regular expression."""

    def found_in(self, line: str) -> bool:
        """Whether the line matches; faster than `spans`."""
        if self.needle is None:
            return any(match.end > match.start for match in self.pattern.finditer(line))
        return self.needle in (line.lower() if self.folds_case else line)

    def spans(self, line: str) -> list[tuple[int, int]]:
        """The matches in the line, as (start, stop) character offsets."""
        return [(match.start, match.end) for match in self.pattern.finditer(line) if match.end > match.start]


def parse_query(text: str) -> Query | None:
    """The query for the typed text; None for an empty one. What is no regular expression is searched as plain text."""
    if not text:
        return None
    letters = _ESCAPES.sub("", text)
    folds_case = letters == letters.lower()
    is_text = re.escape(text) == text.replace(" ", "\\ ")
    pattern = Expression(f"(?i){text}" if folds_case else text, is_tested=is_text)
    why_text = ""
    try:
        if not is_text:
            pattern.check()
    except BadExpression:
        why_text, is_text = "not a regex: as text", True
        folds_case = text == text.lower()
        pattern = Expression(f"(?i){re.escape(text)}" if folds_case else re.escape(text), is_tested=True)
    needle = None if not is_text else text.lower() if folds_case else text
    return Query(text=text, pattern=pattern, needle=needle, folds_case=folds_case, why_text=why_text)
