"""What log rules saw, counted, and made into findings: each rule once, causes named, root first. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sparktop.diagnose.logs.rules import LogRule
from sparktop.diagnose.order import WORST_FIRST, ordered
from sparktop.model.change import Change
from sparktop.model.event import Severity
from sparktop.model.finding import Evidence, Finding
from sparktop.sanitise import line as sanitised

SUBJECTS = 3
"""So many findings of one rule at most, where what it names differs from line to line."""
EVIDENCE_CHARS = 400
VALUE_CHARS = 120
TRACEBACK_LINES = 12
"""A warning so near is of the same traceback."""
INCIDENT_LINES = 300
"""Two failures of one run within so many lines are one incident."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One line that a rule read."""

    text: str
    line: int | None
    wall_s: float | None
    index: int
    """Its number among the lines that the reader was fed."""

    @property
    def place(self) -> int:
        """Where it stands among the lines of its source."""
        return self.index if self.line is None else self.line


class _Subject:
    """What a rule saw of one thing: the first line, the last one, and how many."""

    __slots__ = ("count", "first", "last", "run", "said")

    def __init__(self, said: Mapping[str, str], sight: Sight, run: int) -> None:
        self.said = said
        self.first = self.last = sight
        self.run = run
        """The run in which it was last seen."""
        self.count = 1


class Claim:
    """What a rule saw in one log."""

    __slots__ = ("count", "index", "others", "place", "rule", "run", "served_again", "stream", "subjects")

    def __init__(self, rule: LogRule, *, stream: str = "") -> None:
        self.rule = rule
        self.stream = stream
        self.subjects: dict[str, _Subject] = {}
        self.others = 0
        """Lines of further subjects, which are only counted."""
        self.count = 0
        self.index = self.place = 0
        """Where its first line stands: among those the reader was fed, and in the source."""
        self.run = 0
        """The run in which it was last seen."""
        self.served_again: tuple[int, int | None] | None = None
        """A later run that came to serve, and the line that said so."""

    def add(self, found: re.Match[str], sight: Sight, *, run: int) -> None:
        """One more line."""
        said = {name: _value(value) for name, value in found.groupdict().items()}
        title = filled(self.rule.title, said)
        if not self.count:
            self.index, self.place = sight.index, sight.place
        self.count += 1
        self.run = run
        subject = self.subjects.get(title)
        if subject is not None:
            subject.last, subject.run = _cut(sight, found), run
            subject.count += 1
        elif len(self.subjects) < SUBJECTS:
            self.subjects[title] = _Subject(said, _cut(sight, found), run)
        else:
            self.others += 1


def in_order(claims: Sequence[Claim], source: str, *, mask: Callable[[str], str]) -> tuple[Finding, ...]:
    """The findings of one log, or of several in one text, root cause first; `mask` hides secrets."""
    spoken = [claim for claim in claims if claim.count >= claim.rule.at_least]
    spoken = [claim for claim in spoken if not (claim.rule.fallback and _is_known(claim, spoken))]
    spoken.sort(key=lambda claim: (claim.rule.consequence, -claim.rule.rank, claim.place))
    causes = {id(claim): _cause(claim, spoken) for claim in spoken}
    return ordered(
        [
            _finding(claim, subject, source, _rooted(claim, causes), mask)
            for claim in spoken
            for subject in claim.subjects.values()
        ]
    )


def filled(template: str, said: Mapping[str, str]) -> str:
    """A template with what the line said in its places; braces that name no group stay."""
    return re.sub(r"\{(\w+)\}", lambda slot: said.get(slot[1], slot[0]), template) if "{" in template else template


def _is_known(claim: Claim, spoken: Sequence[Claim]) -> bool:
    """Whether a rule that knows a cause speaks near a claim that knows none."""
    return any(
        not other.rule.consequence
        and other.rule.severity is not Severity.INFO
        and abs(claim.place - other.place)
        <= (INCIDENT_LINES if other.rule.severity is Severity.CRITICAL else TRACEBACK_LINES)
        for other in spoken
    )


def _rooted(claim: Claim, causes: Mapping[int, Claim | None]) -> str | None:
    """The rule that a claim follows from; what only tells of an end follows from the first cause of all."""
    cause = causes[id(claim)]
    if claim.rule.consequence:
        seen = {id(claim)}
        while cause is not None and (deeper := causes[id(cause)]) is not None and id(cause) not in seen:
            seen.add(id(cause))
            cause = deeper
    return None if cause is None else cause.rule.id


def _cause(claim: Claim, spoken: Sequence[Claim]) -> Claim | None:
    """What this follows from: a rule it names, else, in the same incident, the one nearest to the root."""
    rule = claim.rule
    others = [other for other in spoken if other.rule.id != rule.id]
    for named in rule.follows:
        for other in others:
            if other.rule.id == named:
                return other
    worst = WORST_FIRST[rule.severity]
    better = [
        other
        for other in others
        if WORST_FIRST[other.rule.severity] <= (worst if other.rule.consequence else 0)
        and _standing(other.rule) > _standing(rule)
        and rule.id not in other.rule.follows
        and (rule.consequence or (worst == 0 and abs(claim.place - other.place) <= INCIDENT_LINES))
        and (other.stream != claim.stream or other.run == claim.run)
    ]
    return max(better, key=lambda other: (*_standing(other.rule), -other.place), default=None)


def _standing(rule: LogRule) -> tuple[bool, int]:
    return (not rule.consequence, rule.rank)


def _finding(claim: Claim, subject: _Subject, source: str, cause: str | None, mask: Callable[[str], str]) -> Finding:
    rule = claim.rule
    said = {name: mask(value) for name, value in subject.said.items()}
    explanation = filled(rule.explanation, said)
    if claim.served_again is not None and subject.run < claim.served_again[0]:
        line = claim.served_again[1]
        at = "" if line is None else f" (line {line})"
        explanation += f" This was in an earlier run: the engine was started again since, and came to serve{at}."
    return Finding(
        rule=rule.id,
        severity=rule.severity,
        confidence=rule.confidence,
        title=filled(rule.title, said),
        explanation=explanation,
        distinction=tuple(filled(text, said) for text in rule.distinction),
        settles=filled(rule.settles, said),
        evidence=_evidence(claim, subject, source, mask),
        remedies=tuple(
            replace(
                remedy,
                title=filled(remedy.title, said),
                steps=tuple(filled(step, said) for step in remedy.steps),
                change=remedy.change and _change(remedy.change, said),
            )
            for remedy in rule.remedies
        ),
        references=rule.sources,
        subject=claim.stream,
        caused_by=cause,
    )


def _change(change: Change, said: dict[str, str]) -> Change:
    def each(values: Mapping[str, str | None]) -> dict[str, str | None]:
        return {filled(name, said): value and filled(value, said) for name, value in values.items()}

    by_engine = {name: _change(own, said) for name, own in change.by_engine.items()}
    return replace(change, flags=each(change.flags), environment=each(change.environment), by_engine=by_engine)


def _evidence(claim: Claim, subject: _Subject, source: str, mask: Callable[[str], str]) -> tuple[Evidence, ...]:
    first, last = subject.first, subject.last
    shown = [_seen(first, source, mask(first.text))]
    if subject.count > 1:
        more = f"and {subject.count - 2} between, the last: " if subject.count > 2 else ""
        shown.append(_seen(last, source, more + mask(last.text)))
    if claim.others and subject is next(reversed(claim.subjects.values())):
        shown.append(Evidence(source=source, text=f"and {claim.others} such lines that name others"))
    return tuple(shown)


def _seen(sight: Sight, source: str, text: str) -> Evidence:
    return Evidence(source=source, text=text, line=sight.line, wall_s=sight.wall_s)


def _value(value: str | None) -> str:
    return sanitised(value or "", limit=VALUE_CHARS).strip()


def _cut(sight: Sight, found: re.Match[str]) -> Sight:
    """Of a long line, the part around what was found."""
    text = sight.text
    if len(text) > EVIDENCE_CHARS:
        start = max(0, min(found.start() - EVIDENCE_CHARS // 4, len(text) - EVIDENCE_CHARS))
        end = start + EVIDENCE_CHARS
        text = f"{'… ' if start else ''}{text[start:end]}{' …' if end < len(text) else ''}"
    return Sight(text=sanitised(text), line=sight.line, wall_s=sight.wall_s, index=sight.index)
