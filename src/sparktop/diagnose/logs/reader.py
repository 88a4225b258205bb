"""Reads a log line by line with the log rules: what it found so far, each rule once, root cause first.

The same reader is fed a file of 100 MB and a living engine's log at thousands of lines a second, so a line that says
nothing costs next to nothing (`gate`), and what is kept is bounded whatever is fed.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cache

from sparktop.diagnose.logs import course
from sparktop.diagnose.logs.claims import Claim, Sight, claims_in_order
from sparktop.diagnose.logs.gate import Gate
from sparktop.diagnose.logs.rules import LogRule
from sparktop.model.engine import EngineKind
from sparktop.model.finding import Finding

SHOWN_CHARS = 2000
"""How much of a line, around the text that a rule looks for, its regular expression gets to see."""
PLACES = 8
"""In how many places of one line a rule looks."""
NEAR_LINES = 1000
"""No `near` looks further back."""
WITHDRAWN_LINES = 40
"""What broke within so many lines before the word to stop came, broke because of it: the word is written late."""

Mask = Callable[[str], str]


class _Prepared:
    """A rule made ready to be tried on lines."""

    __slots__ = ("near_at", "near_from", "rule")

    def __init__(self, rule: LogRule) -> None:
        self.rule = rule
        self.forget()

    def forget(self) -> None:
        self.near_at = -1
        """The number of the last line that is known to have what must be near."""
        self.near_from = 0
        """The first line that wasn't looked at for it."""


@cache
def _compiled(regex: str) -> re.Pattern[str]:
    """Compiled on first use, and once for all readers: most never are."""
    return re.compile(regex)


class LogReader:
    """Takes one log in, line after line, and says what the rules make of it."""

    def __init__(
        self, rules: Sequence[LogRule], kind: EngineKind | None = None, *, mask: Mask = lambda text: text
    ) -> None:
        """`kind` is the engine where it is known, else it is made out from the text; `mask` hides secrets."""
        self._kind = kind
        self._mask = mask
        self._by_word: dict[str, list[_Prepared]] = {}
        prepared = [_Prepared(rule) for rule in rules]
        for one in prepared:
            for word in one.rule.any:
                self._by_word.setdefault(word, []).append(one)
        self._prepared = prepared
        self._course_words = frozenset(course.words())
        self._dull = frozenset(course.serving_words()) - self._by_word.keys()
        self._gate = Gate([*self._by_word, *self._course_words])
        longest = max((one.rule.near_lines for one in prepared if one.rule.near), default=0)
        self._recent: deque[str] = deque(maxlen=min(longest, NEAR_LINES) + 1)
        self.reset()

    def reset(self) -> None:
        """Forget everything: another log begins."""
        self._count = 0
        self._run = 0
        self._serves = False
        self._stopped = False
        self._served_runs: dict[int, int | None] = {}
        self._kinds: set[EngineKind] = set()
        self._claims: dict[str, Claim] = {}
        self._recent.clear()
        for one in self._prepared:
            one.forget()
        self._made: dict[str, tuple[Finding, ...]] = {}

    @property
    def lines(self) -> int:
        """How many lines it was fed."""
        return self._count

    @property
    def kinds(self) -> frozenset[EngineKind]:
        """The engines whose lines it has seen."""
        return frozenset(self._kinds)

    @property
    def words(self) -> tuple[str, ...]:
        """A line that holds none of these changes nothing; who looks for them anyway may `skip` such a line."""
        return tuple(dict.fromkeys([*self._by_word, *self._course_words]))

    def feed(self, text: str, *, line: int | None = None, wall_s: float | None = None) -> None:
        """Take one line in; escape sequences are removed, prefixes are not.

        Args:
            line: its number in its source, from 1.
            wall_s: when it was written, where that is known.
        """
        if "\x1b" in text:
            text = _ESCAPES.sub("", text)
        self._count += 1
        self._recent.append(text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS])
        hits = self._gate.hits(text)
        if not hits or (self._serves and not self._stopped and self._dull.issuperset(hits)):
            return
        self._turn(text, hits, line)
        tried: set[int] = set()
        for word in hits:
            for one in self._by_word.get(word, ()):
                if id(one) not in tried:
                    tried.add(id(one))
                    self._try(one, text, hits, Sight(text=text, line=line, wall_s=wall_s, index=self._count))

    def findings(self, source: str) -> tuple[Finding, ...]:
        """What was found so far, root cause first, each consequence under its cause."""
        made = self._made.get(source)
        if made is None:
            claims = [claim for claim in self._claims.values() if self._is_of(claim.rule)]
            made = claims_in_order(claims, source, served=self._served_runs, mask=self._mask)
            self._made = {source: made}
        return made

    def _is_of(self, rule: LogRule) -> bool:
        kinds = {self._kind} if self._kind else self._kinds
        return rule.engine is None or not kinds or rule.engine in kinds

    def _turn(self, text: str, hits: tuple[str, ...], line: int | None) -> None:
        """The run's course after this line."""
        if not self._course_words.isdisjoint(hits):
            if (kind := course.kind_of(hits)) is not None and kind not in self._kinds:
                self._kinds.add(kind)
                self._made = {}
            turn = course.turn_of(text[:SHOWN_CHARS], hits, self._kind)
            if turn is None:
                return
            if turn.begins:
                self._run += 1
                self._serves = self._stopped = False
            elif turn.stops:
                if turn.told and not self._stopped:
                    self._withdraw()
                self._stopped = True
            elif turn.serves and not self._serves:
                self._serves = True
                self._served_runs.setdefault(self._run, line)
                while len(self._served_runs) > 100:
                    self._served_runs.pop(next(iter(self._served_runs)))
                self._made = {}

    def _withdraw(self) -> None:
        """Told to stop: what only says that something broke, and came just before, is taken back."""
        for rule_id, claim in list(self._claims.items()):
            if claim.rule.consequence and claim.first.index >= self._count - WITHDRAWN_LINES:
                del self._claims[rule_id]
        self._made = {}

    def _try(self, one: _Prepared, text: str, hits: tuple[str, ...], sight: Sight) -> None:
        rule = one.rule
        if self._stopped and not rule.after_stop:
            return
        if rule.when and (rule.when == "serving") is not self._serves:
            return
        found = _search(one, text, hits)
        if found is None or not self._is_near(one):
            return
        claim = self._claims.get(rule.id)
        if claim is None:
            claim = self._claims[rule.id] = Claim(rule)
        claim.add(found, sight, run=self._run)
        self._made = {}

    def _is_near(self, one: _Prepared) -> bool:
        """Whether a line not too far before has what the rule wants near; each line is looked at once per rule."""
        if not one.rule.near:
            return True
        near = _compiled(one.rule.near)
        now, recent = self._count, self._recent
        reach = min(one.rule.near_lines, NEAR_LINES)
        start = max(one.near_from, now - reach, now - len(recent) + 1)
        for number in range(now, start - 1, -1):
            if near.search(recent[number - now - 1]):
                one.near_at = number
                break
        one.near_from = now + 1
        return one.near_at >= 0 and one.near_at >= now - reach


_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]?|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~]?)")


def _search(one: _Prepared, text: str, hits: Iterable[str]) -> re.Match[str] | None:
    regex, unless = _compiled(one.rule.regex), _compiled(one.rule.unless) if one.rule.unless else None
    if len(text) <= SHOWN_CHARS:
        return None if unless is not None and unless.search(text) else regex.search(text)
    for word in one.rule.any:
        at = text.find(word) if word in hits else -1
        for _ in range(PLACES):
            if at < 0:
                break
            start, end = max(0, at - SHOWN_CHARS // 2), at + SHOWN_CHARS // 2
            if unless is None or not unless.search(text, start, end):
                found = regex.search(text, start, end)
                if found is not None:
                    return found
            at = text.find(word, end)
    return None
