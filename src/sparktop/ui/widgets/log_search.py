"""Searching a log: what to look for, and an index of the lines that have it, built in slices."""

from __future__ import annotations

import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

from sparktop.ui.widgets.log_held import Held

REGEX_PREFIX = "re:"
SCAN_LINES = 64
"""After so many lines the clock is looked at."""
_ESCAPES = re.compile(r"\\.")


class BadPattern(ValueError):
    """A regular expression that can't be one, in words for the search line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Something to look for: plain text, or a regular expression after "re:".

    Case counts only where the query has a capital letter (smart case).
    """

    text: str
    """As typed."""
    pattern: re.Pattern[str]
    needle: str | None
    """Plain text to find; None for a regular expression."""
    folds_case: bool

    def found_in(self, line: str) -> bool:
        """Whether the line has it, as cheaply as can be said."""
        if self.needle is None:
            return any(match.end() > match.start() for match in self.pattern.finditer(line))
        return self.needle in (line.lower() if self.folds_case else line)

    def spans(self, line: str) -> list[tuple[int, int]]:
        """Where in the line, as character offsets."""
        return [match.span() for match in self.pattern.finditer(line) if match.end() > match.start()]


def parse_query(text: str) -> Query | None:
    """What was typed as a query; None where that is nothing yet.

    Raises:
        BadPattern: the part after "re:" is no regular expression.
    """
    is_regex = text.startswith(REGEX_PREFIX)
    wanted = text.removeprefix(REGEX_PREFIX) if is_regex else text
    if not wanted:
        return None
    letters = _ESCAPES.sub("", wanted) if is_regex else wanted
    folds_case = letters == letters.lower()
    try:
        pattern = re.compile(wanted if is_regex else re.escape(wanted), re.IGNORECASE if folds_case else 0)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadPattern(f"not a regular expression: {error}") from None
    needle = None if is_regex else wanted.lower() if folds_case else wanted
    return Query(text=text, pattern=pattern, needle=needle, folds_case=folds_case)


@dataclass(slots=True)
class MatchIndex:
    """The numbers of the held lines that match, in order; grows as `scan` is called."""

    query: Query
    numbers: list[int] = field(default_factory=list)
    scanned_to: int | None = None
    """One past the last line looked at; None before the first."""
    last_text: str = ""
    """The text of the last line looked at: a progress bar may have replaced it since."""

    def is_complete(self, held: Held) -> bool:
        if self.scanned_to is None or self.scanned_to < held.end:
            return False
        return held.end == held.first or held.text(held.end - 1) == self.last_text

    def scan(self, held: Held, *, budget_s: float, now: Callable[[], float] = time.perf_counter) -> bool:
        """Look at more lines for at most about `budget_s`; True when all have been looked at."""
        number = held.first if self.scanned_to is None else self.scanned_to
        if held.first < number <= held.end and held.text(number - 1) != self.last_text:
            number -= 1
            if self.numbers and self.numbers[-1] == number:
                self.numbers.pop()
        deadline = now() + budget_s
        found_in = self.query.found_in
        while number < held.end:
            chunk = held.entries(number, number + SCAN_LINES)
            self.numbers.extend(number + at for at, entry in enumerate(chunk) if found_in(entry[0]))
            number += len(chunk)
            if now() > deadline:
                break
        self.scanned_to = number
        self.last_text = held.text(number - 1) if number > held.first else ""
        return number >= held.end

    def after(self, number: int) -> tuple[int, bool] | None:
        """The first match after a line, and whether it took going round the end; None without any."""
        if not self.numbers:
            return None
        at = bisect_right(self.numbers, number)
        return (self.numbers[at], False) if at < len(self.numbers) else (self.numbers[0], True)

    def before(self, number: int) -> tuple[int, bool] | None:
        """The last match before a line, and whether it took going round the start; None without any."""
        if not self.numbers:
            return None
        at = bisect_left(self.numbers, number)
        return (self.numbers[at - 1], False) if at > 0 else (self.numbers[-1], True)

    def place(self, number: int) -> int | None:
        """1 for the first match, 2 for the second ...; None for a line that is none."""
        at = bisect_left(self.numbers, number)
        return at + 1 if at < len(self.numbers) and self.numbers[at] == number else None
