"""The state of a search in one log: what is looked for, the hits so far, and which of them is the current one."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.ui.widgets.log_held import Held
from sparktop.ui.widgets.log_paint import Row
from sparktop.ui.widgets.log_search import MatchIndex, Query

SCAN_BUDGET_S = 0.008
"""How long one slice of a search may keep the loop; a key press must not wait 20 ms."""


class Finder:
    """Finds over held lines; it moves nothing and draws nothing."""

    def __init__(self) -> None:
        self._index: MatchIndex | None = None
        self._went_round = ""
        self.hit: int | None = None
        """The number of the current hit's line."""

    @property
    def query(self) -> Query | None:
        return self._index.query if self._index else None

    def look_for(self, query: Query | None) -> None:
        """Begin anew, or with the same query over other lines."""
        self._index = MatchIndex(query) if query else None
        self.hit = None
        self._went_round = ""

    def is_complete(self, held: Held) -> bool:
        return self._index is None or self._index.is_complete(held)

    def scan(self, held: Held) -> bool:
        """Look at more lines for a short while; True when all have been looked at."""
        return self._index is None or self._index.scan(held, budget_s=SCAN_BUDGET_S)

    def to_nearest(self, shown: Sequence[Row]) -> int | None:
        """The last hit on the screen, else the next one above it, else the log's last; None without any."""
        return self._take(self._index.before(shown[-1].number + 1), "") if self._index and shown else None

    def to_next(self, shown: Sequence[Row]) -> int | None:
        """The hit after the current one, or from the top of the screen where that is out of sight."""
        if self._index is None or not shown:
            return None
        current = self._on_screen(shown)
        return self._take(self._index.after(shown[0].number - 1 if current is None else current), "from the top")

    def to_previous(self, shown: Sequence[Row]) -> int | None:
        """The hit before the current one, or from the bottom of the screen where that is out of sight."""
        if self._index is None or not shown:
            return None
        current = self._on_screen(shown)
        return self._take(self._index.before(shown[-1].number + 1 if current is None else current), "from the end")

    def _on_screen(self, shown: Sequence[Row]) -> int | None:
        return self.hit if self.hit is not None and shown[0].number <= self.hit <= shown[-1].number else None

    def _take(self, found: tuple[int, bool] | None, round_words: str) -> int | None:
        if found is None:
            return None
        self.hit = found[0]
        self._went_round = round_words if found[1] else ""
        return self.hit

    def status(self, held: Held | None) -> str:
        """ "3/41", "no match", "41 matches", or "" without a search; "…" while still counting."""
        if self._index is None or held is None:
            return ""
        is_complete = self._index.is_complete(held)
        total, more = len(self._index.numbers), "" if is_complete else "…"
        if not total:
            return "no match" if is_complete else "searching…"
        place = None if self.hit is None else self._index.place(self.hit)
        count = f"{place:,}/{total:,}{more}" if place else f"{total:,}{more} match{'es' if total > 1 else ''}"
        return f"{count}  {self._went_round}" if self._went_round else count
