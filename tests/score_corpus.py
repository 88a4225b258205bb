"""Scores `sparktop explain` on labelled log excerpts: python -m tests.score_corpus [--file PART] [--findings].

The rules of scoring are those of ../shared/corpus/README.md. It prints what is missed, what comes first and isn't the
root, false alarms, and findings that say what would be wrong.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.carriers import ANY, PROGRAM

from sparktop.diagnose.explain import Explanation
from sparktop.diagnose.logs.rule import shipped
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Finding

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus" / "open"
_WEIGHT = {"none": 0, "info": 1, "warning": 2, "error": 3}
_SAYS = {Severity.INFO: 1, Severity.WARNING: 2, Severity.CRITICAL: 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How one excerpt was explained."""

    file: str
    label: str
    severity: str
    found: bool
    first: bool
    alarm: str
    """On a healthy text: what was claimed."""
    forbidden: tuple[str, ...]
    findings: tuple[Finding, ...]
    wanted: tuple[str, ...]

    @property
    def is_problem(self) -> bool:
        return self.severity != "none"


def rows(folder: Path = CORPUS) -> list[dict[str, Any]]:
    """The labels, one per excerpt."""
    return [json.loads(line) for line in (folder / "corpus.jsonl").read_text("utf-8").splitlines() if line.strip()]


def explained(data: bytes) -> tuple[Finding, ...]:
    """What `sparktop explain -` finds in a text."""
    explanation = Explanation("stdin", shipped())
    explanation.feed(data)
    return explanation.finish()


def said(finding: Finding) -> str:
    """What counts of a finding: its title, explanation and remedies; echoed lines don't."""
    words = [finding.title, finding.explanation]
    for remedy in finding.remedies:
        words += [remedy.title, *remedy.steps]
    return "\n".join(words).lower()


def score(row: dict[str, Any], findings: Sequence[Finding]) -> Score:
    """One excerpt's score, by the corpus's README."""
    weight = _WEIGHT[row["severity"]]
    loud = [one for one in findings if _SAYS[one.severity] >= max(weight, 1)]
    hits = [one for one in loud if _hits(row, one)]
    worst = [one for one in findings if _SAYS[one.severity] >= 2]
    return Score(
        file=row["file"],
        label=row["label"],
        severity=row["severity"],
        found=bool(hits),
        first=bool(findings) and findings[0] in hits,
        alarm="; ".join(one.rule for one in worst) if row["severity"] == "none" else "",
        forbidden=tuple(
            f"{one.rule} says {word!r}" for one in findings for word in row["must_not"] if word in said(one)
        ),
        findings=tuple(findings),
        wanted=tuple(row["expect_any"]),
    )


def _hits(row: dict[str, Any], finding: Finding) -> bool:
    text = said(finding)
    return any(word in text for word in row["expect_any"]) and not any(word in text for word in row["must_not"])


def scores(folder: Path = CORPUS, part: str = "") -> list[Score]:
    """Every excerpt's score."""
    return [score(row, explained((folder / row["file"]).read_bytes())) for row in rows(folder) if part in row["file"]]


def table(results: Iterable[Score]) -> str:
    """The figures, and each thing that is not as it should be."""
    results = list(results)
    problems = [one for one in results if one.is_problem]
    healthy = [one for one in results if not one.is_problem]
    lines = [
        f"found       {sum(one.found for one in problems):3} of {len(problems)}",
        f"root first  {sum(one.first for one in problems):3} of {len(problems)}",
        f"quiet       {sum(not one.alarm for one in healthy):3} of {len(healthy)} healthy",
    ]
    for one in results:
        rules = ", ".join(f"{each.rule} ({each.severity.value})" for each in one.findings[:4]) or "nothing"
        if one.is_problem and not one.found:
            lines.append(f"MISSED      {one.file}  [{one.label}, {one.severity}]  says {rules}; wants {one.wanted}")
        elif one.is_problem and not one.first:
            lines.append(f"NOT FIRST   {one.file}  [{one.label}, {one.severity}]  says {rules}; wants {one.wanted}")
        if one.alarm:
            lines.append(f"FALSE ALARM {one.file}  [{one.label}]  {one.alarm}")
        lines += [f"MUST NOT    {one.file}  [{one.label}]  {each}" for each in one.forbidden]
    return "\n".join(lines)


HEALTHY = tuple(
    f"{{}} worker[{77 + number % 5}]: batch {number} done in {number % 90} ms, 0 errors" for number in range(400)
)
"""What another program of the machine says meanwhile."""


def _last(text: str, lines: int) -> str:
    return "\n".join(text.splitlines()[-lines:])


def _interleaved(text: str) -> str:
    stamp = "Mar 03 10:00:00 spark1"
    lines = text.splitlines()
    return "\n".join(
        part
        for number, line in enumerate(lines)
        for part in (f"{stamp} vllm[4711]: {line}", HEALTHY[number % len(HEALTHY)].format(stamp))
    )


def _elsewhere(text: str) -> str:
    """From another Python, folder and minor version."""
    for pattern, other in (
        (r"/usr/(?:local/)?lib/python3[.\d]*/(?:dist|site)-packages", "/srv/run/venv/lib/python3.13/site-packages"),
        (r"\.py:\d+\]", r".py:9\]"),
        (r"(pid=)\d+", r"\g<1>31415"),
        (r"line \d+", "line 8"),
    ):
        text = re.sub(pattern, other, text)
    return text


CHANGED: Mapping[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "its last 60 lines": lambda text: _last(text, 60),
    "its last 20 lines": lambda text: _last(text, 20),
    "without its last fifth": lambda text: text[: len(text) * 4 // 5],
    "another Python, folder and line numbers": _elsewhere,
    "between the lines of another program": _interleaved,
    **{
        name: lambda text, carried=carried: "\n".join(map(carried, text.splitlines()))
        for name, carried in {**ANY, **PROGRAM}.items()
        if name != "bare"
    },
}


def robustness(folder: Path) -> str:
    """A table in Markdown: what is found where each text comes in another form."""
    known = rows(folder)
    texts = {row["file"]: (folder / row["file"]).read_text("utf-8", "replace") for row in known}
    lines = ["| the texts | found | root first | quiet |", "| --- | --- | --- | --- |"]
    for name, change in CHANGED.items():
        results = [score(row, explained(change(texts[row["file"]]).encode())) for row in known]
        problems = [one for one in results if one.is_problem]
        healthy = [one for one in results if not one.is_problem]
        counts = (sum(one.found for one in problems), sum(one.first for one in problems))
        quiet = sum(not one.alarm for one in healthy)
        lines.append(f"| {name} | {counts[0]} of {len(problems)} | {counts[1]} | {quiet} of {len(healthy)} |")
    return "\n".join(lines)


def calibration(results: Iterable[Score]) -> str:
    """A table in Markdown: of what comes first, how much is right, by how sure it says it is."""
    lines = ["| says | first | right |", "| --- | --- | --- |"]
    firsts = [(one, next((each for each in one.findings if _SAYS[each.severity] >= 2), None)) for one in results]
    for confidence in Confidence:
        own = [(one, each) for one, each in firsts if each is not None and each.confidence is confidence]
        right = sum(one.is_problem and any(word in said(each) for word in one.wanted) for one, each in own)
        lines.append(f"| {confidence.value} | {len(own)} | {right} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.score_corpus", description=__doc__)
    parser.add_argument("--folder", type=Path, default=CORPUS)
    parser.add_argument("--file", default="", help="only files whose name has this")
    parser.add_argument("--findings", action="store_true", help="print each file's findings with their lines")
    parser.add_argument("--tables", action="store_true", help="print the tables of docs/diagnosis.md instead")
    options = parser.parse_args()
    if not options.folder.is_dir():
        print(f"no corpus at {options.folder}", file=sys.stderr)
        return 2
    if options.tables:
        print(robustness(options.folder), calibration(scores(options.folder)), sep="\n\n")
        return 0
    results = scores(options.folder, options.file)
    if options.findings:
        for one in results:
            print(f"== {one.file}  [{one.label}, {one.severity}]")
            for each in one.findings:
                under = f"  <- {each.caused_by}" if each.caused_by else ""
                print(f"   {each.severity.value:8} {each.rule}{under}: {each.title}")
                for evidence in each.evidence:
                    print(f"            {evidence.line}: {evidence.text[:140]}")
    print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
