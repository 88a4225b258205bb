"""Search in a log: the index of matching lines, and stepping from match to match."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import field

from sparktop.dataclass import dataclass
from sparktop.observe.log_ring import PausedLines
from sparktop.ui.widgets.log_paint import LogRow
from sparktop.ui.widgets.search_query import Query

SCAN_LINES = 64
"""Lines searched between two looks at the clock."""


@dataclass(slots=True)
class MatchIndex:
    """The numbers of the held lines that match, in order; `scan` extends it."""

    query: Query
    numbers: list[int] = field(default_factory=list)
    scanned_to: int | None = None
    """One past the last line searched; None before the first."""
    last_text: str = ""
    """The text of the last line searched: a progress bar may have replaced it since."""

    def is_complete(self, held: PausedLines) -> bool:
        if self.scanned_to is None or self.scanned_to < held.end:
            return False
        return held.end == held.first or held.text(held.end - 1) == self.last_text

    def scan(self, held: PausedLines, *, budget_s: float, now: Callable[[], float] = time.perf_counter) -> bool:
        """Search more lines for about `budget_s`; True when all are searched."""
        number = held.first if self.scanned_to is None else self.scanned_to
        if held.first < number <= held.end and held.text(number - 1) != self.last_text:
            number -= 1
            if self.numbers and self.numbers[-1] == number:
                self.numbers.pop()
        deadline = now() + budget_s
        found_in = self.query.found_in
        while number < held.end:
            chunk = held.entries(number, number + SCAN_LINES)
            self.numbers.extend(number + index for index, entry in enumerate(chunk) if found_in(entry[0]))
            number += len(chunk)
            if now() > deadline:
                break
        self.scanned_to = number
        self.last_text = held.text(number - 1) if number > held.first else ""
        return number >= held.end

    def after(self, number: int) -> tuple[int, bool] | None:
        """(first match after a line, whether the search wrapped at the end); None without matches."""
        if not self.numbers:
            return None
        index = bisect_right(self.numbers, number)
        return (self.numbers[index], False) if index < len(self.numbers) else (self.numbers[0], True)

    def before(self, number: int) -> tuple[int, bool] | None:
        """(last match before a line, whether the search wrapped at the start); None without matches."""
        if not self.numbers:
            return None
        index = bisect_left(self.numbers, number)
        return (self.numbers[index - 1], False) if index > 0 else (self.numbers[-1], True)

    def ordinal(self, number: int) -> int | None:
        """The ordinal of a match: 1 for the first; None for a line that doesn't match."""
        index = bisect_left(self.numbers, number)
        return index + 1 if index < len(self.numbers) and self.numbers[index] == number else None


SCAN_BUDGET_S = 0.008
"""Seconds that one slice of a search may block the event loop; a key press must not wait 20 ms."""


class Finder:
    """Searches held lines and keeps the current match; it neither scrolls nor draws."""

    def __init__(self) -> None:
        self._index: MatchIndex | None = None
        self._wrap_note = ""
        self.hit: int | None = None
        """The line number of the current match."""

    @property
    def query(self) -> Query | None:
        return self._index.query if self._index else None

    def look_for(self, query: Query | None) -> None:
        """Start a new search, or the same one over other lines; None ends it."""
        self._index = MatchIndex(query) if query else None
        self.hit = None
        self._wrap_note = ""

    def is_complete(self, held: PausedLines) -> bool:
        return self._index is None or self._index.is_complete(held)

    def scan(self, held: PausedLines) -> bool:
        """Search one slice of lines; True when all are searched."""
        return self._index is None or self._index.scan(held, budget_s=SCAN_BUDGET_S)

    def to_nearest(self, rows: Sequence[LogRow]) -> int | None:
        """The last match on the screen, else the next one above, else the log's last; None without matches."""
        return self._set_hit(self._index.before(rows[-1].number + 1), "") if self._index and rows else None

    def to_next(self, rows: Sequence[LogRow]) -> int | None:
        """The match after the current one, or below the top of the screen where the current one is out of sight."""
        if self._index is None or not rows:
            return None
        current = self._hit_on_screen(rows)
        return self._set_hit(self._index.after(rows[0].number - 1 if current is None else current), "from the top")

    def to_previous(self, rows: Sequence[LogRow]) -> int | None:
        """The match before the current one, or above the bottom of the screen where the current one is out of sight."""
        if self._index is None or not rows:
            return None
        current = self._hit_on_screen(rows)
        return self._set_hit(self._index.before(rows[-1].number + 1 if current is None else current), "from the end")

    def _hit_on_screen(self, rows: Sequence[LogRow]) -> int | None:
        return self.hit if self.hit is not None and rows[0].number <= self.hit <= rows[-1].number else None

    def _set_hit(self, match: tuple[int, bool] | None, round_words: str) -> int | None:
        if match is None:
            return None
        self.hit = match[0]
        self._wrap_note = round_words if match[1] else ""
        return self.hit

    def status(self, held: PausedLines | None) -> str:
        """ "3/41", "no match", "41 matches", or "" without a search; "…" while still counting."""
        if self._index is None or held is None:
            return ""
        is_complete = self._index.is_complete(held)
        total, more_sign = len(self._index.numbers), "" if is_complete else "…"
        if not total:
            return "no match" if is_complete else "searching…"
        ordinal = None if self.hit is None else self._index.ordinal(self.hit)
        count = (
            f"{ordinal:,}/{total:,}{more_sign}" if ordinal else f"{total:,}{more_sign} match{'es' if total > 1 else ''}"
        )
        return f"{count}  {self._wrap_note}" if self._wrap_note else count
