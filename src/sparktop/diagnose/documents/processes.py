"""`docker ps` and `docker compose ps` as tables: what has exited, restarts again and again, or is unhealthy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sparktop import sanitise
from sparktop.diagnose.exits import ending_of, loop
from sparktop.diagnose.rule import Rule, RuleKind
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding

UNHEALTHY = Rule(
    id="restart.unhealthy",
    kind=RuleKind.DOCUMENT,
    title="A container is up and its health check fails",
    severity=Severity.WARNING,
    scope="docker ps, docker compose ps",
    sources=("Docker: HEALTHCHECK",),
)
CARDS = (UNHEALTHY,)

_STATUS = re.compile(
    r"\b(?:(?P<ended>Exited|Restarting) \((?P<code>\d{1,3})\)(?: (?P<ago>[^ ].{0,30}?) ago)?"
    r"|Up [^()]{1,30}\((?P<health>unhealthy)\))"
)
_OLD = re.compile(r"\b(?:\d+|a) (?:days?|weeks?|months?|years?)\b|\b(?:2[4-9]|[3-9]\d) hours\b")


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    text: str
    line: int
    code: int | None
    ended: str
    ago: str


def read(text: str, source: str) -> tuple[Finding, ...] | None:
    """What the tables say; None where the text holds none."""
    if "STATUS" not in text:
        return None
    rows: list[_Row] = []
    is_one = False
    header = ""
    for number, line in enumerate(text.splitlines(), 1):
        if _is_header(line):
            is_one, header = True, line
        elif header and line.strip():
            rows += _row(line, header, number)
        elif header and not line.strip():
            header = ""
    return tuple(finding for row in rows for finding in _said(row, source)) if is_one else None


def _is_header(line: str) -> bool:
    return "STATUS" in line and (("CONTAINER ID" in line and "NAMES" in line) or ("SERVICE" in line and "NAME" in line))


def _row(line: str, header: str, number: int) -> Iterator[_Row]:
    found = _STATUS.search(line)
    if found is None:
        return
    # compose puts the name first, docker last; a narrow terminal may have wrapped the last one away.
    words = line.split()
    name = (
        words[0] if header.lstrip().startswith("NAME") else words[-1] if found.end() < len(line.rstrip()) else words[0]
    )
    yield _Row(
        name=sanitise.name(name)[:80],
        text=sanitise.line(line.strip(), limit=300),
        line=number,
        code=int(found["code"]) if found["code"] else None,
        ended=found["ended"] or "unhealthy",
        ago=found["ago"] or "",
    )


def _said(row: _Row, source: str) -> Iterator[Finding]:
    evidence = (Evidence(source=source, line=row.line, text=row.text),)
    if row.ended == "unhealthy":
        yield Finding(
            rule=UNHEALTHY.id,
            severity=UNHEALTHY.severity,
            title=f"{row.name} is up and its health check fails",
            explanation=(
                "The container runs, and the command that checks it fails or takes too long. For vLLM that is a server "
                "that doesn't listen (yet), or an engine that died behind it; while a large model loads it is expected."
            ),
            evidence=evidence,
            references=UNHEALTHY.sources,
            subject=row.name,
        )
        return
    ending = ending_of(row.code, name=row.name)
    if row.ended == "Restarting":
        yield loop(row.name, None, evidence=evidence)
    if ending is None:
        return
    # A failed run of last week, or one whose code says nothing, is a note and no alarm.
    is_note = row.ended == "Exited" and (ending.rule == "restart.failed" or _OLD.search(row.ago) is not None)
    yield Finding(
        rule=ending.rule,
        severity=Severity.INFO if is_note else ending.severity,
        confidence=Confidence.SUSPECTED if ending.settles else Confidence.CONFIRMED,
        title=f"{row.name} {ending.says}" + (f" {row.ago} ago" if row.ago else ""),
        explanation=ending.explanation,
        settles=ending.settles,
        evidence=evidence,
        remedies=ending.remedies,
        references=ending.sources,
        subject=row.name,
    )
