"""Scores `sparktop explain` on labelled log excerpts: python -m tests.score_corpus [--file PART] [--findings].

The rules of scoring are those of ../shared/corpus/README.md. It prints what is missed, what comes first and isn't the
root, false alarms, and findings that say what would be wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparktop.diagnose.explain import Explanation
from sparktop.diagnose.logs.rule import shipped
from sparktop.model.event import Severity
from sparktop.model.finding import Finding

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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.score_corpus", description=__doc__)
    parser.add_argument("--folder", type=Path, default=CORPUS)
    parser.add_argument("--file", default="", help="only files whose name has this")
    parser.add_argument("--findings", action="store_true", help="print each file's findings with their lines")
    options = parser.parse_args()
    if not options.folder.is_dir():
        print(f"no corpus at {options.folder}", file=sys.stderr)
        return 2
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
