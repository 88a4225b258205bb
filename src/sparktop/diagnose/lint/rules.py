"""Every lint there is, and what they find in a launch configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache

from sparktop import sanitise
from sparktop.diagnose.lint import (
    accessrules,
    dockerrules,
    graphrules,
    kernelrules,
    lifetimes,
    memoryrules,
    noderules,
    rayrules,
    unitrules,
    userrules,
)
from sparktop.diagnose.lint.lintrule import Lint
from sparktop.diagnose.lint.spec import LaunchSpec, SourceKind
from sparktop.diagnose.lint.userrules import LintRule
from sparktop.diagnose.order import ordered
from sparktop.diagnose.rule import Rule
from sparktop.model.finding import Finding, Remedy

Mask = Callable[[str], str]
"""A line with its secrets replaced; sparktop.probe.remote.mask_text is the one there is."""

MASKED = "<masked>"
SHORTEST_SECRET = 6
"""A shorter one is masked in shown lines where it stands alone; in sentences it would be part of other words."""
_REFERENCE = re.compile(r"(\"?\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\})\"?)")
_MUTED = "sparktop: allow"
"""`# sparktop: allow config.enforce-eager` in a file, with a reason, keeps that lint quiet for the file."""


@cache
def lints() -> tuple[Lint, ...]:
    """All that come with sparktop."""
    modules = (
        dockerrules,
        accessrules,
        unitrules,
        lifetimes,
        noderules,
        graphrules,
        rayrules,
        memoryrules,
        kernelrules,
    )
    coded = tuple(lint for module in modules for lint in module.LINTS)
    return (*coded, *(rule.lint for rule in userrules.shipped()))


def cards() -> tuple[Rule, ...]:
    """The cards of all lints, for `sparktop rules`."""
    return tuple(lint.card for lint in lints())


def check(
    specs: Iterable[LaunchSpec], *, mask: Mask, own: Sequence[LintRule] = (), is_live: bool = False
) -> tuple[Finding, ...]:
    """What the lints find in these specifications, each thing once, worst first; secrets masked, controls taken out.

    Args:
        mask: replaces secrets in a line.
        own: the operator's own rules.
        is_live: only those that can be certain of an engine that runs.
    """
    found: dict[object, Finding] = {}
    every = (*lints(), *(rule.lint for rule in own))
    for spec in specs:
        secrets = _secrets(spec, mask)
        for lint in every:
            if (is_live and not lint.is_live) or (not is_live and spec.has_remark(f"{_MUTED} .*{lint.card.id}")):
                continue
            for finding in lint.findings(spec):
                shown = _shown(finding, secrets, mask)
                found.setdefault((shown.rule, shown.subject, shown.title, shown.evidence), shown)
    return ordered(list(found.values()))


def _secrets(spec: LaunchSpec, mask: Mask) -> tuple[str, ...]:
    """The values that the masking takes for secrets, to be masked wherever a line has them."""
    named = [(f"--{item.name} ", item) for item in spec.flags] + [(f"{item.name}=", item) for item in spec.environment]
    given = ((name, value) for name, item in named for value in (item.value or "", *item.rest))
    found = {value for name, value in given if value and "$" not in value and value not in mask(name + value)}
    return tuple(sorted(found, key=len, reverse=True))


def _shown(finding: Finding, secrets: Sequence[str], mask: Mask) -> Finding:
    def said(text: str) -> str:
        """Our own words: only values that were filled in can be secret."""
        for secret in secrets:
            text = text.replace(secret, MASKED) if len(secret) >= SHORTEST_SECRET else text
        return sanitise.line(text)

    def line(text: str) -> str:
        for secret in secrets:
            text = re.sub(rf"(?<![\w-]){re.escape(secret)}(?![\w-])", MASKED, text)
        # A reference to a variable is no secret, and shows how the secret should be given.
        parts = _REFERENCE.split(said(text))
        return "".join(part if index % 2 else mask(part) for index, part in enumerate(parts))

    return replace(
        finding,
        title=said(finding.title),
        explanation=said(finding.explanation),
        evidence=tuple(replace(each, text=line(each.text), source=said(each.source)) for each in finding.evidence),
        remedies=tuple(
            Remedy(title=said(each.title), steps=tuple(line(step) for step in each.steps), cost=each.cost)
            for each in finding.remedies
        ),
    )


def kinds() -> tuple[str, ...]:
    """What kinds of text can be checked, in words."""
    return tuple(kind.value for kind in SourceKind if kind is not SourceKind.RUNNING)
