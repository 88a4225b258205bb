"""Reads a log line by line with the log rules: what it found so far, each rule once, root cause first.

The same reader is fed a file of 100 MB and a living engine's log at thousands of lines a second, so a line that says
nothing costs next to nothing (`gate`), and what is kept is bounded whatever is fed.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cache

from sparktop.diagnose.logs import course, echo
from sparktop.diagnose.logs.claims import Claim, Sight, in_order
from sparktop.diagnose.logs.gate import Gate
from sparktop.diagnose.logs.joining import Joiner
from sparktop.diagnose.logs.rules import LogRule
from sparktop.model.engine import EngineKind
from sparktop.model.finding import Finding

SHOWN_CHARS = 2000
"""How much of a line, around the text that a rule looks for, its regular expression gets to see."""
PLACES = 8
"""In how many places of one line a rule looks."""
NEAR_LINES = 1000
"""No `near` looks further back."""
KIND_LINES = 200
"""In so many first lines it is looked for which engine writes; later only in lines that say something."""
WITHDRAWN_LINES = 40
"""What broke within so many lines before the word to stop came, broke because of it: the word is written late."""

Mask = Callable[[str], str]

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]?|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~]?)")


class Lexicon:
    """Log rules made ready for readers, which share it: which fixed texts lead to which rules."""

    __slots__ = ("by_word", "course_words", "gate", "near_lines", "numbered", "serving_words")

    def __init__(self, rules: Iterable[LogRule], extra: Iterable[str] = ()) -> None:
        """`extra`: fixed texts that whoever feeds the readers wants to be told of too."""
        self.numbered = tuple(enumerate(rules))
        self.by_word: dict[str, list[tuple[int, LogRule]]] = {}
        for number, rule in self.numbered:
            for word in rule.any:
                self.by_word.setdefault(word, []).append((number, rule))
        self.course_words = frozenset(course.words())
        self.serving_words = frozenset(course.serving_words())
        self.gate = Gate([*self.by_word, *self.course_words, *extra])
        self.near_lines = min(NEAR_LINES, max((rule.near_lines for _, rule in self.numbered if rule.near), default=0))


@cache
def lexicon(rules: tuple[LogRule, ...]) -> Lexicon:
    """The one for these rules."""
    return Lexicon(rules)


@cache
def _compiled(regex: str) -> re.Pattern[str]:
    """Compiled on first use, and once for all readers: most never are."""
    return re.compile(regex)


def plain(text: str) -> str:
    """A line without escape sequences."""
    return _ESCAPES.sub("", text) if "\x1b" in text else text


class LogReader:
    """Takes one log in, line after line, and says what the rules make of it."""

    def __init__(
        self,
        rules: Sequence[LogRule] | Lexicon,
        kind: EngineKind | None = None,
        *,
        mask: Mask = lambda text: text,
        stream: str = "",
        joined_lines: int = 0,
    ) -> None:
        """A reader of one engine's log.

        Args:
            kind: the engine where it is known; else it is made out from the text.
            mask: hides secrets in what is shown.
            stream: whose log it is, where one text holds several.
            joined_lines: within so many first lines, lines that were cut in two are put together again.
        """
        self._lexicon = rules if isinstance(rules, Lexicon) else lexicon(tuple(rules))
        self._kind = kind
        self._mask = mask
        self._stream = stream
        self._joined_lines = joined_lines
        self._recent: deque[str] = deque(maxlen=self._lexicon.near_lines + 2)
        self.reset()

    def reset(self) -> None:
        """Forget everything: another log begins, or the engine another run of which nothing earlier is of interest."""
        self._count = 0
        self._run = 0
        self._serves = False
        self._stopped = False
        self._served: dict[int, int | None] = {}
        """Of each run that came to serve, the line that said so."""
        self._kinds: set[EngineKind] = set()
        self._claims: dict[str, Claim] = {}
        self._recent.clear()
        self._near: dict[int, tuple[int, int]] = {}
        """Of a rule, the last line that is known to have what must be near, and the first that wasn't looked at."""
        self._joiner = Joiner()
        self._open: dict[int, LogRule] = {}
        """Rules whose word stood in the line that is being put together, and that haven't spoken on it."""
        self._said: set[int] = set()
        """Rules that have."""
        self._made: dict[str, tuple[Finding, ...]] = {}

    @property
    def kinds(self) -> frozenset[EngineKind]:
        """The engines whose lines it has seen."""
        return frozenset(self._kinds)

    def feed(self, text: str, *, line: int | None = None, wall_s: float | None = None) -> None:
        """Take one line in; escape sequences are removed, prefixes are not.

        Args:
            line: its number in its source, from 1.
            wall_s: when it was written, where that is known.
        """
        text = plain(text)
        self.take(text, self._lexicon.gate.hits(text), line=line, wall_s=wall_s)

    def take(self, text: str, hits: tuple[str, ...], *, line: int | None = None, wall_s: float | None = None) -> None:
        """The same for a line without escape sequences whose fixed texts are known already."""
        if hits:
            text, hits = self._own_words(text, hits)
        self._count += 1
        self._recent.append(text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS])
        if (hits and not self._kinds) or self._count <= KIND_LINES:
            self._note_kind(text)
        wholes = self._joiner.add(text, line) if self._count <= self._joined_lines else ()
        if not wholes:
            self._open.clear()
            self._said.clear()
        if hits:
            self._read(text, hits, Sight(text=text, line=line, wall_s=wall_s, index=self._count))
        for whole, seam in wholes:
            self._read_joined(whole, seam, Sight(text=whole, line=self._joiner.line, wall_s=wall_s, index=self._count))

    def _own_words(self, text: str, hits: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        """A line without what clients and models said in it."""
        own = echo.without(text)
        return (text, hits) if own is text else (own, self._lexicon.gate.hits(own))

    def _read(self, text: str, hits: tuple[str, ...], sight: Sight) -> None:
        lexicon = self._lexicon
        told = lexicon.course_words.intersection(hits)
        # What an engine that serves writes all day tells nothing new of its course.
        if told and not (self._serves and not self._stopped and told <= lexicon.serving_words):
            self._turn(text[:SHOWN_CHARS], hits, sight.line)
        tried: set[int] = set()
        for word in hits:
            for number, rule in lexicon.by_word.get(word, ()):
                if number not in tried and self._may_speak(rule):
                    tried.add(number)
                    found = _search(rule, text, hits)
                    if found is not None:
                        self._say(number, rule, found, sight)
                    else:
                        self._open[number] = rule

    def _read_joined(self, whole: str, seam: str, sight: Sight) -> None:
        """The same for a line put together, by the rules that didn't speak on a part of it."""
        lexicon = self._lexicon
        for word in lexicon.gate.hits(seam):
            for number, rule in lexicon.by_word.get(word, ()):
                self._open[number] = rule
        for number, rule in list(self._open.items()):
            if number not in self._said and self._may_speak(rule):
                found = _search(rule, whole, rule.any)
                if found is not None:
                    self._say(number, rule, found, sight)

    def findings(self, source: str) -> tuple[Finding, ...]:
        """What was found so far, root cause first, each consequence under its cause."""
        made = self._made.get(source)
        if made is None:
            made = in_order(self.claims(), source, mask=self._mask)
            self._made = {source: made}
        return made

    def claims(self) -> tuple[Claim, ...]:
        """What was seen so far, for who puts several logs together."""
        for claim in self._claims.values():
            claim.served_again = next(((run, line) for run, line in self._served.items() if run > claim.run), None)
        return tuple(claim for claim in self._claims.values() if self._is_of(claim.rule))

    def _is_of(self, rule: LogRule) -> bool:
        kinds = {self._kind} if self._kind else self._kinds
        return rule.engine is None or not kinds or rule.engine in kinds

    def _note_kind(self, text: str) -> None:
        kinds = course.kinds_of(text[:SHOWN_CHARS])
        if not kinds <= self._kinds:
            self._kinds |= kinds
            self._made = {}

    def _turn(self, text: str, hits: tuple[str, ...], line: int | None) -> None:
        """The run's course after this line."""
        turn = course.turn_of(text, hits, self._kind)
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
            self._survived()
            self._served[self._run] = line
            if len(self._served) > 100:
                del self._served[next(iter(self._served))]
            self._made = {}

    def _survived(self) -> None:
        """It serves: what would have ended the start was caught, and was only a fallback's noise."""
        for rule_id, claim in list(self._claims.items()):
            if claim.rule.ends_start and claim.run == self._run:
                del self._claims[rule_id]

    def _withdraw(self) -> None:
        """Told to stop: what only says that something broke, and came just before, is taken back."""
        for rule_id, claim in list(self._claims.items()):
            if claim.rule.consequence and claim.index >= self._count - WITHDRAWN_LINES:
                del self._claims[rule_id]
        self._made = {}

    def _may_speak(self, rule: LogRule) -> bool:
        if self._stopped and not rule.after_stop:
            return False
        return not rule.when or (rule.when == "serving") is self._serves

    def _say(self, number: int, rule: LogRule, found: re.Match[str], sight: Sight) -> None:
        self._said.add(number)
        if rule.near and not self._is_near(number, rule):
            return
        claim = self._claims.get(rule.id)
        if claim is None:
            claim = self._claims[rule.id] = Claim(rule, stream=self._stream)
        claim.add(found, sight, run=self._run)
        self._made = {}

    def _is_near(self, number: int, rule: LogRule) -> bool:
        """Whether a line not too far before has what the rule wants near; each line is looked at once per rule."""
        near, now, recent = _compiled(rule.near), self._count, self._recent
        reach = min(rule.near_lines, NEAR_LINES)
        seen_at, unseen_from = self._near.get(number, (-1, 0))
        start = max(unseen_from, now - reach, now - len(recent) + 1)
        for index in range(now, start - 1, -1):
            if near.search(recent[index - now - 1]):
                seen_at = index
                break
        self._near[number] = (seen_at, now + 1)
        return seen_at >= 0 and seen_at >= now - reach


def _search(rule: LogRule, text: str, hits: Iterable[str]) -> re.Match[str] | None:
    regex, unless = _compiled(rule.regex), _compiled(rule.unless) if rule.unless else None
    if len(text) <= SHOWN_CHARS:
        return None if unless is not None and unless.search(text) else regex.search(text)
    for word in rule.any:
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
