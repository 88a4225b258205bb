"""Reads a log line by line with the log rules: each rule's findings so far, root cause first.

The same reader takes 100 MB files and live logs with thousands of lines a second, so irrelevant lines cost almost
nothing (`gate`), and its memory is bounded whatever it is fed.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from sparktop.diagnose.logs import engine_state, unwrap
from sparktop.diagnose.logs.advice import advice_of
from sparktop.diagnose.logs.head import head_of
from sparktop.diagnose.logs.last_words import ALL_CHARS, TRACEBACK, last_line, last_words
from sparktop.diagnose.logs.level import level_of
from sparktop.diagnose.logs.literals import Gate
from sparktop.diagnose.logs.matches import MatchedLine, RuleMatch, findings_of
from sparktop.diagnose.logs.rule import LogRule
from sparktop.diagnose.logs.unwrap import Joiner
from sparktop.diagnose.names import PLACEHOLDERS
from sparktop.model.engine import VERSIONED, EngineKind
from sparktop.model.event import Severity
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
LAST_LINES = 400
"""An engine's last words stand within so many last lines: above them come the tracebacks of its other processes."""
WITHDRAWN_LINES = 40
"""Errors this many lines before the message about the stop are part of the stop: it is logged late."""

Mask = Callable[[str], str]

_CODE = re.compile(r"(?:^|[\])] ) {4,}(?:raise|return|await|yield|assert|async with|with|if|for|except)\b")
"""A line of source that a traceback shows: it holds an error's words, and says nothing of what happened."""
_RETRIES = re.compile(
    r"\b[Rr]etrying\b|\b[Ww]ill (?:be )?retr(?:y|ied)\b|\b[Rr]etry \d+ ?(?:/|of) ?\d"
    r"|\b[Aa]ttempt \d+ ?(?:/|of) ?\d+ failed|, skipping\b|^Falling back to "
)
"""A program tries again what failed, or goes on without it: nothing is known to be wrong yet."""
_RETRY_WORDS = frozenset(("Falling back to ", ", skipping", "etrying", "ill retry", "be retried", "etry ", "ttempt "))
_FETCHED = re.compile(r"(?:[Ff]etching|[Dd]ownload)[^|\n]{0,80}: 100%\|[^|]{0,80}\| (\S+)/\1 ")
"""A progress bar at its end: whatever failed on the way, the files are there."""
_FETCHED_WORD = ": 100%|"
RETRY_LINES = 2
"""A retry is told at most so many lines after what failed."""
_REFUSAL = expression(r"^[\w.-]{1,40}: error: ")
"""argparse's, of flags that can't be."""
_FINISHED = frozenset(("Application shutdown complete", "Finished server process"))
"""What a server says last as it stops: a traceback after it is of another run."""
_QUOTED = re.compile(r"\s*\S.*[<`|] ?(?:\w+\.)*[A-Z]\w*(?:Error|Exception)\b")
"""An exception in brackets or a cell, with words before it: a row or a sentence that tells of somebody else's."""
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]?|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~]?)")


class Lexicon:
    """Log rules prepared for readers, which share it: which fixed texts lead to which rules."""

    __slots__ = ("by_word", "course_words", "gate", "last_words", "near_lines", "numbered", "serving_words")

    def __init__(self, rules: Iterable[LogRule], extra: Iterable[str] = ()) -> None:
        """`extra`: more fixed texts that the caller wants reported as hits."""
        self.numbered = tuple(enumerate(rules))
        self.by_word: dict[str, list[tuple[int, LogRule]]] = {}
        self.last_words = next((rule for _, rule in self.numbered if rule.last_words), None)
        """The rule for what no other knows."""
        for number, rule in self.numbered:
            for word in () if rule.last_words else rule.any:
                self.by_word.setdefault(word, []).append((number, rule))
        self.course_words = frozenset(engine_state.words())
        self.serving_words = frozenset(engine_state.serving_words())
        self.gate = Gate([*self.by_word, *self.course_words, TRACEBACK, *_RETRY_WORDS, _FETCHED_WORD, *extra])
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
        self._recent: deque[tuple[str, int | None, float | None]] = deque(
            maxlen=max(self._lexicon.near_lines + 2, LAST_LINES)
        )
        """The last lines: text, number and time."""
        self.reset()

    def reset(self) -> None:
        """Forget everything: another log, or a new run of the engine, begins."""
        self._count = 0
        self._run = 0
        self._ended_as, self._is_container = "", False
        """What systemd or Docker call the program, as they say that it ended with an error."""
        self._port = ""
        """On which the newest run listens, by its own word."""
        self._serves = False
        self._stopped = self._has_finished = False
        self._served: dict[int, int | None] = {}
        """By run that reached serving: the line that said so."""
        self._kinds: set[EngineKind] = set()
        self._other: str | None = None
        """Another program that runs models."""
        self._claims: dict[str, RuleMatch] = {}
        self._recent.clear()
        self._traced_run: int | None = None
        """The newest run in which a traceback was seen."""
        self._open: dict[int, _Open] = {}
        """By rule that takes several lines: those so far."""
        self._near: dict[int, tuple[int, int]] = {}
        """For each rule with `near`: the last line known to match it, and the first line not yet searched."""
        self._joiner = Joiner()
        self._pending: dict[int, LogRule] = {}
        """Rules whose fixed text is in the line being joined and that haven't matched it yet."""
        self._matched: set[int] = set()
        """Rules that have matched it."""
        self._findings_of_state: dict[tuple[str, bool, int], tuple[Finding, ...]] = {}
        """The newest, by source and what else they depend on."""

    def begin_run(self) -> None:
        """A new run of the engine begins, whether a line or somebody else (Docker's StartedAt) says so."""
        unknown = self._last_words()
        if unknown is not None:
            self._claims[unknown.rule.id] = unknown
        self._recent.clear()
        self._run += 1
        self._serves = self._stopped = self._has_finished = False

    def end(self, name: str, *, is_container: bool) -> None:
        """systemd or Docker says that the program of this name has ended with an error: what it said last tells why."""
        self._ended_as, self._is_container = name, is_container
        self.begin_run()
        self._ended_as, self._is_container = "", False

    def name(self, names: Mapping[str, str]) -> None:
        """Take what the findings' steps call the engine, by slot."""
        if names != self._names:
            self._names = names
            self._findings_of_state = {}

    @property
    def kinds(self) -> frozenset[EngineKind]:
        """The engines whose lines were seen."""
        return frozenset(self._kinds)

    @property
    def is_known(self) -> bool:
        """Whether a program that runs models wrote this log."""
        return bool(self._kinds) or self._other is not None

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
        self._recent.append((text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS], line, wall_s))
        if self._open:
            self._read_on(text)
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
        if self._has_finished and (TRACEBACK in hits or _REFUSAL.search(text, 0, SHOWN_CHARS)):
            # Of a run that fails before it says that it begins.
            own = self._recent.pop()
            self.begin_run()
            self._recent.append(own)
        if TRACEBACK in hits:
            self._traced_run = self._run
        self._has_finished = self._has_finished or not _FINISHED.isdisjoint(hits)
        if _FETCHED_WORD in hits and _FETCHED.search(text, 0, SHOWN_CHARS):
            self._withdraw(lambda claim: claim.rule.id.startswith("hub."))
        if not _RETRY_WORDS.isdisjoint(hits) and _RETRIES.search(text, 0, SHOWN_CHARS):
            for claim in self._claims.values():
                claim.retry(self._count - RETRY_LINES)
        tried: set[int] = set()
        for word in hits:
            for number, rule in lexicon.by_word.get(word, ()):
                if number not in tried and self._applies(rule):
                    tried.add(number)
                    if rule.lines:
                        self._matched.add(number)
                        self._open.setdefault(number, _Open(rule, line))
                    elif (match := _search(rule, text, hits)) is not None:
                        self._note_match(number, rule, match, line)
                    else:
                        self._pending[number] = rule

    def _read_on(self, text: str) -> None:
        """One more line for the rules that take several."""
        for number, opened in list(self._open.items()):
            opened.texts.append(text[head_of(text).stop :][:SHOWN_CHARS])
            if len(opened.texts) > opened.rule.lines:
                self._close(number)

    def _close(self, number: int) -> None:
        opened = self._open.pop(number)
        match = _search(opened.rule, "\n".join(opened.texts)[:SHOWN_CHARS], opened.rule.any)
        if match is not None:
            line = replace(opened.line, text=" / ".join(text.strip() for text in opened.texts if text.strip()))
            self._note_match(number, opened.rule, match, line)

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

    def findings(self, source: str, *, is_over: bool = False) -> tuple[Finding, ...]:
        """The findings so far, root cause first; `is_over`: the program has ended."""
        state = (source, is_over, self._count if is_over or self._may_be_dying else 0)
        if self._open or state not in self._findings_of_state:
            findings = findings_of(self.claims(is_over=is_over), source, mask=self._mask, names=self._names)
            self._findings_of_state = {state: findings}
        return self._findings_of_state[state]

    @property
    def _may_be_dying(self) -> bool:
        """Whether a traceback may be what ends it: before it serves, or where its engine is said to have died."""
        return self._traced_run == self._run and not self._stopped and (not self._serves or self._has_died)

    @property
    def _has_died(self) -> bool:
        return any(
            claim.run == self._run and claim.rule.consequence and claim.rule.severity is Severity.CRITICAL
            for claim in self._claims.values()
        )

    def claims(self, *, is_over: bool = False) -> tuple[RuleMatch, ...]:
        """The matches so far, for callers that combine several logs; `is_over`: the program has ended."""
        for number in list(self._open):
            self._close(number)
        unknown = self._last_words(is_over=is_over) if is_over or self._may_be_dying else None
        for claim in self._claims.values():
            claim.port = self._port
            claim.engine = self._engine
            claim.served_again = next(((run, line) for run, line in self._served.items() if run > claim.run), None)
        kinds = ({self._kind} if self._kind else self._kinds) or set(EngineKind)
        claims = [
            claim for claim in self._claims.values() if claim.rule.engine in (None, *kinds) and not claim.is_retried
        ]
        if unknown is None:
            return tuple(claims)
        return (*(claim for claim in claims if claim.rule.id != unknown.rule.id), unknown)

    @property
    def _engine(self) -> str | None:
        """Whose log it is, where one engine's lines were seen, or another program's that has none of their flags."""
        kinds = {self._kind} if self._kind else self._kinds
        if len(kinds) == 1:
            return next(iter(kinds)).value
        return self._other if not kinds else None

    def _last_words(self, *, is_over: bool = True) -> RuleMatch | None:
        """The error that ended the program, where it doesn't serve and nobody stopped it."""
        rule = self._lexicon.last_words
        if rule is None or self._stopped or (self._serves and not self._has_died):
            return None
        recent = list(self._recent)[-LAST_LINES:]
        texts = [text for text, _, _ in recent]
        words = last_words(texts, _expression(rule, rule.unless), is_over=is_over)
        if words is None and self._ended_as:
            words = last_line(texts)
        if words is None:
            return None
        text, line, wall_s = recent[words.index]
        who = words_of_kinds({self._kind} if self._kind else self._kinds) or self._other or ""
        advice = advice_of(f"{words.words}. {words.hints}"[:ALL_CHARS], words.file, self._engine or "")
        concerns = rule.near and any(
            map(
                _expression(rule, rule.near).search,
                (words.words, words.file, self._ended_as, *texts[words.index : words.index + 3]),
            )
        )
        is_loud = bool(who) or self._is_container or (bool(concerns) and (words.is_last or words.is_crash))
        file = words.file.rpartition("/")[2]
        rule = replace(
            rule,
            explanation=rule.explanation
            + (f" It was raised in {advice.part} ({file})." if advice.part and file else ""),
            severity=rule.severity if is_loud else Severity.WARNING if concerns or words.is_fatal else Severity.INFO,
            remedies=(*advice.remedies, *rule.remedies),
        )
        who = who or self._ended_as
        claim = RuleMatch(rule, stream=self._stream)
        claim.engine = self._engine
        claim.add(
            Match(0, len(text), {"who": who or "The program", "said": words.said, **advice.values}),
            MatchedLine(text=text, line=line, wall_s=wall_s, index=self._count - len(recent) + words.index + 1),
            run=self._run,
        )
        return claim

    def _note_kind(self, text: str) -> None:
        kinds = engine_state.kinds_of(text[:SHOWN_CHARS], is_known=bool(self._kinds or self._other))
        self._other = self._other or (None if kinds else engine_state.other_of(text[:SHOWN_CHARS]))
        if not kinds <= self._kinds:
            surer = kinds & set(VERSIONED)  # others are told by single words, which these may write
            self._kinds = (self._kinds & set(VERSIONED) if surer else self._kinds) | kinds
            self._findings_of_state = {}

    def _update_run(self, text: str, hits: tuple[str, ...], line: int | None) -> None:
        """Update the run's course (begun, serving, stopped) after this line."""
        change = engine_state.run_change_of(text, hits, self._kind)
        if change is None:
            return
        if change.begins:
            self._recent.pop()  # the line itself is of the new run
            self.begin_run()
            self._port = str(change.port) if change.port else self._port
        elif change.stopping:
            own = None if change.is_external or self._stopped else self._last_words()
            if own is not None:  # it stops for an error of its own
                self._claims[own.rule.id] = own
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

    def _withdraw(self, is_void: Callable[[RuleMatch], bool]) -> None:
        self._claims = {rule_id: claim for rule_id, claim in self._claims.items() if not is_void(claim)}
        self._findings_of_state = {}

    def _applies(self, rule: LogRule) -> bool:
        if self._stopped and not rule.after_stop:
            return False
        return not rule.when or (rule.when == "serving") is self._serves

    def _note_match(self, number: int, rule: LogRule, match: Match, line: MatchedLine) -> None:
        self._matched.add(number)
        if _CODE.search(line.text, 0, SHOWN_CHARS) or (rule.near and not self._is_near(number, rule)):
            return
        quoted = _QUOTED.match(line.text, 0, SHOWN_CHARS)
        if quoted is not None and quoted.end() <= match.end and level_of(line.text) is None:
            return
        claim = self._claims.get(rule.id)
        if claim is None:
            claim = self._claims[rule.id] = RuleMatch(rule, stream=self._stream)
        claim.add(match, line, run=self._run)
        self._findings_of_state = {}

    def _is_near(self, number: int, rule: LogRule) -> bool:
        """Whether a line close enough before matches the rule's `near`; each line is searched once per rule."""
        near, newest, recent = _expression(rule, rule.near), self._count, self._recent
        reach = min(rule.near_lines, NEAR_LINES)
        seen_at, unseen_from = self._near.get(number, (-1, 0))
        start = max(unseen_from, newest - reach, newest - len(recent) + 1)
        for index in range(newest, start - 1, -1):
            if near.search(recent[index - newest - 1][0]):
                seen_at = index
                break
        self._near[number] = (seen_at, newest + 1)
        return seen_at >= 0 and seen_at >= newest - reach


def words_of_kinds(kinds: Iterable[EngineKind]) -> str:
    """ "vLLM", for a sentence; empty for none, or several."""
    names = [kind.traits.name for kind in kinds]
    return names[0] if len(names) == 1 else ""


class _Open:
    """A line with a rule's fixed text, and the lines after it that belong to it."""

    __slots__ = ("line", "rule", "texts")

    def __init__(self, rule: LogRule, line: MatchedLine) -> None:
        self.rule = rule
        self.line = line
        self.texts = [line.text]


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
