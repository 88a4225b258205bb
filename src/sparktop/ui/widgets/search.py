"""A query as it is typed, and a search in a log for it, stepped through from match to match. Pure."""

from __future__ import annotations

import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sparktop.dataclass import dataclass
from sparktop.text.expression import BadExpression, Expression

if TYPE_CHECKING:  # lists are filtered before there is a log
    from sparktop.observe.log_ring import Snapshot
    from sparktop.ui.widgets.log_rows import LogRow

SCAN_LINES = 64
"""Lines searched between two looks at the clock."""
SCAN_BUDGET_S = 0.008
"""Seconds that one slice of a search may block the event loop; a key press must not wait 20 ms."""
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


class LogSearch:
    """Searches lines in slices and keeps the current match; it neither scrolls nor draws."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.numbers: list[int] = []
        """The numbers of the lines that match, in order; `scan` extends them."""
        self.hit: int | None = None
        """The line number of the current match."""
        self._scanned_to: int | None = None
        """One past the last line searched; None before the first."""
        self._last_text = ""
        """The text of the last line searched: a progress bar may have replaced it since."""
        self._wrap_note = ""

    def is_complete(self, lines: Snapshot) -> bool:
        if self._scanned_to is None or self._scanned_to < lines.end:
            return False
        return lines.end == lines.first or lines.text(lines.end - 1) == self._last_text

    def scan(
        self, lines: Snapshot, *, budget_s: float = SCAN_BUDGET_S, now: Callable[[], float] = time.perf_counter
    ) -> bool:
        """Search more lines for about `budget_s`; True when all are searched."""
        number = lines.first if self._scanned_to is None else self._scanned_to
        if lines.first < number <= lines.end and lines.text(number - 1) != self._last_text:
            number -= 1
            if self.numbers and self.numbers[-1] == number:
                self.numbers.pop()
        deadline = now() + budget_s
        found_in = self.query.found_in
        while number < lines.end:
            chunk = lines.entries(number, number + SCAN_LINES)
            self.numbers.extend(number + index for index, entry in enumerate(chunk) if found_in(entry[0]))
            number += len(chunk)
            if now() > deadline:
                break
        self._scanned_to = number
        self._last_text = lines.text(number - 1) if number > lines.first else ""
        return number >= lines.end

    def to_nearest(self, rows: Sequence[LogRow]) -> int | None:
        """The last match on the screen, else the next one above, else the log's last; None without matches."""
        return self._step_to(bisect_right(self.numbers, rows[-1].number) - 1, "") if rows else None

    def to_next(self, rows: Sequence[LogRow]) -> int | None:
        """The match after the current one, or below the top of the screen where the current one is out of sight."""
        if not rows:
            return None
        return self._step_to(bisect_right(self.numbers, self._hit_in(rows, rows[0].number - 1)), "from the top")

    def to_previous(self, rows: Sequence[LogRow]) -> int | None:
        """The match before the current one, or above the bottom of the screen where the current one is out of sight."""
        if not rows:
            return None
        return self._step_to(bisect_left(self.numbers, self._hit_in(rows, rows[-1].number + 1)) - 1, "from the end")

    def _hit_in(self, rows: Sequence[LogRow], otherwise: int) -> int:
        return self.hit if self.hit is not None and rows[0].number <= self.hit <= rows[-1].number else otherwise

    def _step_to(self, index: int, wrap_note: str) -> int | None:
        """The match of this index, from the other end where there is none; None without matches."""
        if self.numbers:
            self._wrap_note = "" if 0 <= index < len(self.numbers) else wrap_note
            self.hit = self.numbers[index % len(self.numbers)]
            return self.hit
        return None

    def status(self, lines: Snapshot) -> str:
        """ "3/41", "no match", "41 matches"; "…" while still counting."""
        is_complete = self.is_complete(lines)
        total, more_sign = len(self.numbers), "" if is_complete else "…"
        if not total:
            return "no match" if is_complete else "searching…"
        index = total if self.hit is None else bisect_left(self.numbers, self.hit)
        count = f"{total:,}{more_sign}"
        if index < total and self.numbers[index] == self.hit:
            count = f"{index + 1:,}/{count}"
        else:
            count += f" match{'es' if total > 1 else ''}"
        return f"{count}  {self._wrap_note}" if self._wrap_note else count
