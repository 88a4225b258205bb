"""What tests of lint share: a text or a case file through the reader and the rules, as it comes out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sparktop.diagnose.lint.catalogue import check
from sparktop.launchspec.read.configuration import read
from sparktop.launchspec.spec import LaunchSpec
from sparktop.masking import mask_text
from sparktop.model.event import Severity
from sparktop.model.finding import Finding

CASES = Path(__file__).parent / "cases" / "lint"
WORSE = (Severity.WARNING, Severity.CRITICAL)


def linted(text: str, name: str = "stdin") -> tuple[Finding, ...]:
    """What is found in a text."""
    return check(read(text, name).specs, mask=mask_text)


def case(name: str) -> tuple[Finding, ...]:
    """What is found in a case file."""
    return linted((CASES / name).read_text(), name)


def only(text: str) -> LaunchSpec:
    """The one engine that a text starts."""
    (spec,) = read(text, "stdin").specs
    return spec


def severities(findings: tuple[Finding, ...]) -> Mapping[str, Severity]:
    """Of each rule what it said last."""
    return {finding.rule.removeprefix("config."): finding.severity for finding in findings}


def worse(findings: tuple[Finding, ...]) -> set[str]:
    """The rules that spoke at warning or above."""
    return {finding.rule.removeprefix("config.") for finding in findings if finding.severity in WORSE}


def lines(finding: Finding) -> list[str]:
    """The changed lines of its first remedy."""
    return [step for step in finding.remedies[0].steps if step[:2] in ("- ", "+ ")] if finding.remedies else []
