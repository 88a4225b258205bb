"""Counts the lines that log rules matched and turns them into findings, causes named, root causes first. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sparktop.dataclass import dataclass
from sparktop.diagnose.findings import ordered
from sparktop.diagnose.logs.last_words import shortened
from sparktop.diagnose.logs.level import level_of
from sparktop.diagnose.logs.rule import LogRule
from sparktop.diagnose.names import PLACEHOLDERS, fill, for_engine, steps_of, typed
from sparktop.model.change import Change
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding
from sparktop.sanitise import line as sanitise_line
from sparktop.text.expression import Match

SUBJECTS = 3
"""At most this many findings of one rule, if the matched lines name different things."""
EVIDENCE_CHARS = 400
TRACEBACK_LINES = 12
"""A warning this many lines away belongs to the same traceback."""
INCIDENT_LINES = 300
"""Two failures of one run this many lines apart are one incident."""


_SETTLES = "The lines before it, which say what failed first: `{log} | tail -n 200`."
"""For a rule that only tells that something broke."""
_FLAG = re.compile(r"(?<!\S)--[a-z][\w-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedLine:
    """A line that a rule matched."""

    text: str
    line: int | None
    wall_s: float | None
    index: int
    """The line's number among those the reader was fed."""

    @property
    def place(self) -> int:
        """The line's number in its source, or `index` if unknown."""
        return self.index if self.line is None else self.line


class _Subject:
    """What a rule matched with one title: first line, last line, count."""

    __slots__ = ("count", "first", "last", "run", "values")

    def __init__(self, values: Mapping[str, str], line: MatchedLine, run: int) -> None:
        self.values = values
        self.first = self.last = line
        self.run = run
        """The engine run of the last match."""
        self.count = 1


class RuleMatch:
    """Everything a rule matched in one log."""

    __slots__ = (
        *("asserts", "count", "engine", "index", "newest", "others", "place", "port"),
        *("retried", "rule", "run", "served_again", "stream", "subjects"),
    )

    def __init__(self, rule: LogRule, *, stream: str = "") -> None:
        self.rule = rule
        self.stream = stream
        self.subjects: dict[str, _Subject] = {}
        self.asserts = False
        """A line told it as more than information."""
        self.others = 0
        """Matches with further titles, which are only counted."""
        self.count = 0
        self.index = self.place = self.newest = 0
        """Position of the first match: among the lines fed, and in the source; of the newest: among the lines fed."""
        self.retried = 0
        """Matches after which the program tried again."""
        self.run = 0
        """The engine run of the last match."""
        self.engine: str | None = None
        """Whose log it is: "vllm", "sglang", or another program's name; None where that isn't known."""
        self.port = ""
        """The engine's, for the steps, where nobody knows it better."""
        self.served_again: tuple[int, int | None] | None = None
        """A later run that reached serving: its number and the line that said so."""

    def add(self, match: Match, line: MatchedLine, *, run: int) -> None:
        """Count one more matched line."""
        groups = match.groups.items()
        values = {name: sanitise_line(shortened(" ".join((value or "").split()))) for name, value in groups}
        title = fill(self.rule.title, values)
        if not self.count:
            self.index, self.place = line.index, line.place
        self.count += 1
        self.asserts = self.asserts or level_of(line.text) not in ("info", "debug")
        self.newest = line.index
        self.run = run
        subject = self.subjects.get(title)
        if subject is not None:
            subject.last, subject.run = _shortened(line, match), run
            subject.count += 1
        elif len(self.subjects) < SUBJECTS:
            self.subjects[title] = _Subject(values, _shortened(line, match), run)
        else:
            self.others += 1

    def retry(self, since: int) -> None:
        """The program tries again what it said last, if that was since that line."""
        if self.newest >= since and self.retried < self.count:
            self.retried += 1

    @property
    def is_retried(self) -> bool:
        """Each time it was tried again: a failure for good is told once more, without a retry after it."""
        return self.retried >= self.count


def findings_of(
    claims: Sequence[RuleMatch],
    source: str,
    *,
    mask: Callable[[str], str],
    names: Mapping[str, str] = PLACEHOLDERS,
) -> tuple[Finding, ...]:
    """The findings of one or several logs, root cause first.

    Args:
        mask: hides secrets.
        names: what the steps call the engine, by slot.
    """
    reported_claims = [claim for claim in claims if claim.count >= claim.rule.at_least]
    reported_claims = [
        claim for claim in reported_claims if not (claim.rule.fallback and _has_cause_nearby(claim, reported_claims))
    ]
    reported_claims.sort(key=lambda claim: (claim.rule.consequence, -claim.rule.rank, claim.place))
    causes = {id(claim): _cause_claim(claim, reported_claims) for claim in reported_claims}
    return ordered(
        [
            _finding(claim, subject, source, _root_cause_rule(claim, causes), mask, names)
            for claim in reported_claims
            for subject in claim.subjects.values()
        ]
    )


def _has_cause_nearby(claim: RuleMatch, reported: Sequence[RuleMatch]) -> bool:
    """Whether a rule that knows a cause matched near this fallback claim."""
    return any(
        not reported_claim.rule.consequence
        and reported_claim.rule.severity is not Severity.INFO
        and abs(claim.place - reported_claim.place)
        <= (INCIDENT_LINES if reported_claim.rule.severity is Severity.CRITICAL else TRACEBACK_LINES)
        for reported_claim in reported
    )


def _root_cause_rule(claim: RuleMatch, causes: Mapping[int, RuleMatch | None]) -> str | None:
    """The rule that caused a claim; for a mere consequence, the first cause of the whole chain."""
    cause = causes[id(claim)]
    if claim.rule.consequence:
        seen_ids = {id(claim)}
        while cause is not None and (earlier := causes[id(cause)]) is not None and id(cause) not in seen_ids:
            seen_ids.add(id(cause))
            cause = earlier
    return None if cause is None else cause.rule.id


def _cause_claim(claim: RuleMatch, reported: Sequence[RuleMatch]) -> RuleMatch | None:
    """What a claim follows from: a rule that it names, else the claim nearest to the root in the same incident."""
    rule = claim.rule
    other_claims = [candidate for candidate in reported if candidate.rule.id != rule.id]
    for rule_id in rule.follows:
        for candidate in other_claims:
            if candidate.rule.id == rule_id:
                return candidate
    critical = Severity.CRITICAL
    candidates = [
        candidate
        for candidate in other_claims
        if candidate.rule.severity.weight >= (rule.severity if candidate.rule.consequence else critical).weight
        and _root_rank(candidate.rule) > _root_rank(rule)
        and rule.id not in candidate.rule.follows
        and (rule.consequence or (rule.severity is critical and abs(claim.place - candidate.place) <= INCIDENT_LINES))
        and (candidate.stream != claim.stream or candidate.run == claim.run)
    ]
    return max(candidates, key=lambda candidate: (*_root_rank(candidate.rule), -candidate.place), default=None)


def _root_rank(rule: LogRule) -> tuple[bool, int]:
    return (not rule.consequence, rule.rank)


def _finding(
    claim: RuleMatch,
    subject: _Subject,
    source: str,
    cause: str | None,
    mask: Callable[[str], str],
    names: Mapping[str, str],
) -> Finding:
    rule = claim.rule
    values = {name: mask(value) for name, value in subject.values.items()}
    if claim.port and names["port"] == PLACEHOLDERS["port"]:
        names = {**names, "port": claim.port}
    in_texts = {**names, "container": names["container"] or PLACEHOLDERS["container"]}
    explanation = fill(rule.explanation, values)
    if claim.served_again is not None and subject.run < claim.served_again[0]:
        line = claim.served_again[1]
        at = "" if line is None else f" (line {line})"
        explanation += f" This was in an earlier run: the engine was started again since, and came to serve{at}."
    is_sure = rule.confidence is Confidence.CONFIRMED and claim.asserts and not (rule.consequence or rule.fallback)
    return Finding(
        rule=rule.id,
        severity=rule.severity,
        confidence=rule.confidence if is_sure else Confidence.SUSPECTED,
        title=fill(rule.title, values),
        explanation=explanation,
        distinction=tuple(fill(text, values) for text in rule.distinction),
        settles=fill(rule.settles or ("" if is_sure else _SETTLES), {**in_texts, **typed(values)}),
        evidence=_evidence(claim, subject, source, mask),
        remedies=tuple(
            replace(
                remedy,
                title=fill(remedy.title, {**in_texts, **values}),
                steps=steps_of(remedy.steps, {**names, **typed(values)}),
                change=remedy.change and _change(remedy.change, values),
            )
            for remedy in for_engine(rule.remedies, claim.engine)
        ),
        references=rule.sources,
        subject=claim.stream,
        caused_by=cause,
    )


def _change(change: Change, values: dict[str, str]) -> Change:
    def fill_table(table: Mapping[str, str | None]) -> dict[str, str | None]:
        return {
            part: value and fill(value, values)
            for name, value in table.items()
            for part in ([fill(name, values)] if "{flags}" not in name else _FLAG.findall(values.get("flags", "")))
        }

    by_engine = {name: _change(own, values) for name, own in change.by_engine.items()}
    return replace(
        change, flags=fill_table(change.flags), environment=fill_table(change.environment), by_engine=by_engine
    )


def _evidence(claim: RuleMatch, subject: _Subject, source: str, mask: Callable[[str], str]) -> tuple[Evidence, ...]:
    first, last = subject.first, subject.last
    evidence = [_line_evidence(first, source, mask(first.text))]
    if subject.count > 1:
        gap_text = f"and {subject.count - 2} between, the last: " if subject.count > 2 else ""
        evidence.append(_line_evidence(last, source, gap_text + mask(last.text)))
    if claim.others and subject is next(reversed(claim.subjects.values())):
        evidence.append(Evidence(source=source, text=f"and {claim.others} such lines that name others"))
    return tuple(evidence)


def _line_evidence(line: MatchedLine, source: str, text: str) -> Evidence:
    return Evidence(source=source, text=text, line=line.line, wall_s=line.wall_s)


def _shortened(line: MatchedLine, match: Match) -> MatchedLine:
    """The line cut to the part around the match, if it is long."""
    text = line.text
    if len(text) > EVIDENCE_CHARS:
        start = max(0, min(match.start - EVIDENCE_CHARS // 4, len(text) - EVIDENCE_CHARS))
        end = start + EVIDENCE_CHARS
        text = f"{'… ' if start else ''}{text[start:end]}{' …' if end < len(text) else ''}"
    return replace(line, text=sanitise_line(text))
