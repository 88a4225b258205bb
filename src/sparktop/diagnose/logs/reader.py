"""Reads a log line by line with the log rules: each rule's findings so far, root cause first.

The same reader takes 100 MB files and live logs with thousands of lines a second, so irrelevant lines cost almost
nothing (`gate`), and its memory is bounded whatever it is fed.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

from sparktop.diagnose.logs import engine_state, unwrap
from sparktop.diagnose.logs.literals import Gate
from sparktop.diagnose.logs.matches import Claim, MatchedLine, findings_of
from sparktop.diagnose.logs.names import PLACEHOLDERS
from sparktop.diagnose.logs.rule import LogRule
from sparktop.diagnose.logs.unwrap import Joiner
from sparktop.model.engine import EngineKind
from sparktop.model.finding import Finding
from sparktop.text.expression import Expression, Match, expression

SHOWN_CHARS = 2000
"""How many characters around a rule's fixed text its regular expression sees."""
PLACES = 8
"""At how many positions of one long line a rule is tried."""
NEAR_LINES = 1000
"""The furthest that any `near` looks back."""
KIND_LINES = 200
"""The engine is recognised within this many first lines; later only in lines with a fixed text."""
WITHDRAWN_LINES = 40
"""Errors this many lines before the message about the stop are part of the stop: it is logged late."""

Mask = Callable[[str], str]

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]?|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~]?)")


class Lexicon:
    """Log rules prepared for readers, which share it: which fixed texts lead to which rules."""

    __slots__ = ("by_word", "course_words", "gate", "near_lines", "numbered", "serving_words")

    def __init__(self, rules: Iterable[LogRule], extra: Iterable[str] = ()) -> None:
        """`extra`: more fixed texts that the caller wants reported as hits."""
        self.numbered = tuple(enumerate(rules))
        self.by_word: dict[str, list[tuple[int, LogRule]]] = {}
        for number, rule in self.numbered:
            for word in rule.any:
                self.by_word.setdefault(word, []).append((number, rule))
        self.course_words = frozenset(engine_state.words())
        self.serving_words = frozenset(engine_state.serving_words())
        self.gate = Gate([*self.by_word, *self.course_words, *extra])
        self.near_lines = min(NEAR_LINES, max((rule.near_lines for _, rule in self.numbered if rule.near), default=0))

    def own_text(self, text: str) -> tuple[str, tuple[str, ...]]:
        """The line without what clients and models said in it, and its fixed texts."""
        hits = self.gate.hits(text)
        own = unwrap.without_client_text(text) if hits else text
        return (text, hits) if own is text else (own, self.gate.hits(own))


@cache
def lexicon(rules: tuple[LogRule, ...]) -> Lexicon:
    """The shared Lexicon of these rules."""
    return Lexicon(rules)


def without_escapes(text: str) -> str:
    """A line without escape sequences."""
    return _ESCAPES.sub("", text) if "\x1b" in text else text


class LogReader:
    """Reads one log and collects the findings of the log rules."""

    def __init__(
        self,
        rules: Sequence[LogRule] | Lexicon,
        kind: EngineKind | None = None,
        *,
        mask: Mask = lambda text: text,
        stream: str = "",
        joined_lines: int = 0,
    ) -> None:
        """A reader for one engine's log.

        Args:
            kind: the engine if known; otherwise it is recognised from the text.
            mask: hides secrets in findings.
            stream: whose log it is, if one text holds several.
            joined_lines: within this many first lines, lines cut in two are joined again.
        """
        self._lexicon = rules if isinstance(rules, Lexicon) else lexicon(tuple(rules))
        self._kind = kind
        self._mask = mask
        self._stream = stream
        self._joined_lines = joined_lines
        self._names: Mapping[str, str] = PLACEHOLDERS
        self._recent: deque[str] = deque(maxlen=self._lexicon.near_lines + 2)
        self.reset()

    def reset(self) -> None:
        """Forget everything: another log, or a new run of the engine, begins."""
        self._count = 0
        self._run = 0
        self._serves = False
        self._stopped = False
        self._served: dict[int, int | None] = {}
        """By run that reached serving: the line that said so."""
        self._kinds: set[EngineKind] = set()
        self._claims: dict[str, Claim] = {}
        self._recent.clear()
        self._near: dict[int, tuple[int, int]] = {}
        """For each rule with `near`: the last line known to match it, and the first line not yet searched."""
        self._joiner = Joiner()
        self._pending: dict[int, LogRule] = {}
        """Rules whose fixed text is in the line being joined and that haven't matched it yet."""
        self._matched: set[int] = set()
        """Rules that have matched it."""
        self._findings_of_source: dict[str, tuple[Finding, ...]] = {}

    def name(self, names: Mapping[str, str]) -> None:
        """Take what the findings' steps call the engine, by slot."""
        if names != self._names:
            self._names = names
            self._findings_of_source = {}

    @property
    def kinds(self) -> frozenset[EngineKind]:
        """The engines whose lines were seen."""
        return frozenset(self._kinds)

    def feed(self, text: str, *, line: int | None = None, wall_s: float | None = None) -> None:
        """Read one line; escape sequences are removed, prefixes are not.

        Args:
            line: its number in the source, from 1.
            wall_s: when it was written, if known.
        """
        self.take(*self._lexicon.own_text(without_escapes(text)), line=line, wall_s=wall_s)

    def take(self, text: str, hits: tuple[str, ...], *, line: int | None = None, wall_s: float | None = None) -> None:
        """Like `feed`, for a line as `Lexicon.own_text` gives it."""
        self._count += 1
        self._recent.append(text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS])
        if (hits and not self._kinds) or self._count <= KIND_LINES:
            self._note_kind(text)
        wholes = self._joiner.add(text, line) if self._count <= self._joined_lines else ()
        if not wholes:
            self._pending.clear()
            self._matched.clear()
        if hits:
            self._read(text, hits, MatchedLine(text=text, line=line, wall_s=wall_s, index=self._count))
        for whole, seam in wholes:
            self._read_joined(
                whole, seam, MatchedLine(text=whole, line=self._joiner.line, wall_s=wall_s, index=self._count)
            )

    def _read(self, text: str, hits: tuple[str, ...], line: MatchedLine) -> None:
        lexicon = self._lexicon
        course_hits = lexicon.course_words.intersection(hits)
        # A serving engine logs traffic and statistics all day: no news.
        if course_hits and not (self._serves and not self._stopped and course_hits <= lexicon.serving_words):
            self._update_run(text[:SHOWN_CHARS], hits, line.line)
        tried: set[int] = set()
        for word in hits:
            for number, rule in lexicon.by_word.get(word, ()):
                if number not in tried and self._applies(rule):
                    tried.add(number)
                    match = _search(rule, text, hits)
                    if match is not None:
                        self._note_match(number, rule, match, line)
                    else:
                        self._pending[number] = rule

    def _read_joined(self, whole: str, seam: str, line: MatchedLine) -> None:
        """Try the rules that didn't match a part of a joined line on the whole of it."""
        lexicon = self._lexicon
        for word in lexicon.gate.hits(seam):
            for number, rule in lexicon.by_word.get(word, ()):
                self._pending[number] = rule
        for number, rule in list(self._pending.items()):
            if number not in self._matched and self._applies(rule):
                match = _search(rule, whole, rule.any)
                if match is not None:
                    self._note_match(number, rule, match, line)

    def findings(self, source: str) -> tuple[Finding, ...]:
        """The findings so far, root cause first."""
        findings = self._findings_of_source.get(source)
        if findings is None:
            findings = findings_of(self.claims(), source, mask=self._mask, names=self._names)
            self._findings_of_source = {source: findings}
        return findings

    def claims(self) -> tuple[Claim, ...]:
        """The matches so far, for callers that combine several logs."""
        for claim in self._claims.values():
            claim.served_again = next(((run, line) for run, line in self._served.items() if run > claim.run), None)
        kinds = ({self._kind} if self._kind else self._kinds) or set(EngineKind)
        return tuple(claim for claim in self._claims.values() if claim.rule.engine in (None, *kinds))

    def _note_kind(self, text: str) -> None:
        kinds = engine_state.kinds_of(text[:SHOWN_CHARS])
        if not kinds <= self._kinds:
            self._kinds |= kinds
            self._findings_of_source = {}

    def _update_run(self, text: str, hits: tuple[str, ...], line: int | None) -> None:
        """Update the run's course (begun, serving, stopped) after this line."""
        change = engine_state.run_change_of(text, hits, self._kind)
        if change is None:
            return
        if change.begins:
            self._run += 1
            self._serves = self._stopped = False
        elif change.stopping:
            if change.is_external and not self._stopped:  # errors logged just before are part of the stop
                first = self._count - WITHDRAWN_LINES
                self._withdraw(lambda claim: claim.rule.consequence and claim.index >= first)
            self._stopped = True
        elif change.serves and not self._serves:
            self._serves = True  # so a fallback caught what would have ended the start
            self._withdraw(lambda claim: claim.rule.ends_start and claim.run == self._run)
            self._served[self._run] = line
            if len(self._served) > 100:
                del self._served[next(iter(self._served))]

    def _withdraw(self, is_void: Callable[[Claim], bool]) -> None:
        self._claims = {rule_id: claim for rule_id, claim in self._claims.items() if not is_void(claim)}
        self._findings_of_source = {}

    def _applies(self, rule: LogRule) -> bool:
        if self._stopped and not rule.after_stop:
            return False
        return not rule.when or (rule.when == "serving") is self._serves

    def _note_match(self, number: int, rule: LogRule, match: Match, line: MatchedLine) -> None:
        self._matched.add(number)
        if rule.near and not self._is_near(number, rule):
            return
        claim = self._claims.get(rule.id)
        if claim is None:
            claim = self._claims[rule.id] = Claim(rule, stream=self._stream)
        claim.add(match, line, run=self._run)
        self._findings_of_source = {}

    def _is_near(self, number: int, rule: LogRule) -> bool:
        """Whether a line close enough before matches the rule's `near`; each line is searched once per rule."""
        near, newest, recent = _expression(rule, rule.near), self._count, self._recent
        reach = min(rule.near_lines, NEAR_LINES)
        seen_at, unseen_from = self._near.get(number, (-1, 0))
        start = max(unseen_from, newest - reach, newest - len(recent) + 1)
        for index in range(newest, start - 1, -1):
            if near.search(recent[index - newest - 1]):
                seen_at = index
                break
        self._near[number] = (seen_at, newest + 1)
        return seen_at >= 0 and seen_at >= newest - reach


def _expression(rule: LogRule, source: str) -> Expression:
    return expression(source, is_tested=not rule.user)


def _search(rule: LogRule, text: str, hits: Iterable[str]) -> Match | None:
    regex, unless = _expression(rule, rule.regex), _expression(rule, rule.unless) if rule.unless else None
    if len(text) <= SHOWN_CHARS:
        return None if unless is not None and unless.search(text) else regex.search(text)
    for word in rule.any:
        at = text.find(word) if word in hits else -1
        for _ in range(PLACES):
            if at < 0:
                break
            start, end = max(0, at - SHOWN_CHARS // 2), at + SHOWN_CHARS // 2
            if unless is None or not unless.search(text, start, end):
                match = regex.search(text, start, end)
                if match is not None:
                    return match
            at = text.find(word, end)
    return None
