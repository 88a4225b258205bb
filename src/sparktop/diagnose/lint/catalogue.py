"""All shipped lints, and the check of launch specifications with them, secrets masked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial

from sparktop import sanitise
from sparktop.diagnose.findings import ordered
from sparktop.diagnose.lint import containers, engine, lifetimes, systemd, two_nodes, user_rules
from sparktop.diagnose.lint.lint import Lint
from sparktop.diagnose.lint.user_rules import LintRule
from sparktop.diagnose.rule import Rule
from sparktop.launchspec.spec import LaunchSpec
from sparktop.model.finding import Finding

Mask = Callable[[str], str]
"""Replaces the secrets in a line (sparktop.masking.mask_text)."""
MASKED = "<masked>"
SHORTEST_SECRET = 6
"""Shorter secrets are masked only as separate words in shown lines; in sentences they could be part of other words."""
MAX_SECRETS = 50
"""A line with more of them is masked whole."""
_REFERENCE = re.compile(r"(\"?\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\})\"?)")
_SILENCER = "sparktop: allow"
"""The comment `# sparktop: allow config.enforce-eager` with a reason switches that lint off for the file."""
_SPARK = re.compile(r"(?i)\bspark|gb10|sm[ _]?12\.?1")
_OTHER = re.compile(r"(?i)dgx[ _-]?station|gb300|\bb300\b|sm[ _]?10\.?3")
"""A DGX Station, as a file for one says: what is known of Sparks doesn't hold there."""
_MODULES = (containers, systemd, lifetimes, two_nodes, engine)


@cache
def lints() -> tuple[Lint, ...]:
    """The lints that ship with sparktop."""
    coded = (each for module in _MODULES for each in vars(module).values() if isinstance(each, Lint))
    return (*coded, *(rule.lint for rule in user_rules.shipped()))


def cards() -> tuple[Rule, ...]:
    """The cards of all lints, for `sparktop rules`."""
    return tuple(lint.card for lint in lints())


def check(
    specs: Iterable[LaunchSpec], *, mask: Mask, own: Sequence[LintRule] = (), is_live: bool = False
) -> tuple[Finding, ...]:
    """The findings of the lints in these specifications, one for all engines of a file, worst first, secrets masked.

    Args:
        mask: replaces the secrets in a line.
        own: the operator's own lint rules.
        is_live: use only lints that can be certain about a running engine.
    """
    findings: dict[object, Finding] = {}
    all_lints = (*lints(), *(rule.lint for rule in own))
    for spec in specs:
        secrets = _secrets(spec, mask)
        mask_line = cache(partial(_masked_line, secrets=secrets, mask=mask))  # each of its findings may show a long one
        is_elsewhere = not is_live and _OTHER.search(spec.document.text) and not _SPARK.search(spec.document.text)
        for lint in all_lints:
            if is_elsewhere and _SPARK.search(f"{lint.card.title} {lint.card.scope}"):
                continue
            if (is_live and not lint.is_live) or (not is_live and spec.has_remark(f"{_SILENCER} .*{lint.id}")):
                continue
            for finding in lint.findings(spec):
                masked = _masked(finding, secrets, mask_line)
                key = (spec.document.name, masked.rule, masked.subject, masked.title, masked.severity, masked.settles)
                findings[key] = _together(findings[key], masked) if key in findings else masked
    return ordered(list(findings.values()))


def _together(finding: Finding, again: Finding) -> Finding:
    """One finding for two engines of a file."""
    remedies = tuple(
        replace(one, steps=tuple(dict.fromkeys((*one.steps, *other.steps))))
        for one, other in zip(finding.remedies, again.remedies, strict=False)
    )
    evidence = tuple(dict.fromkeys((*finding.evidence, *again.evidence)))
    return replace(finding, evidence=evidence, remedies=remedies or finding.remedies)


def _secrets(spec: LaunchSpec, mask: Mask) -> tuple[str, ...]:
    """Values that `mask` treats as secrets, to be masked wherever they appear."""
    prefixed_items = [(f"--{item.name} ", item) for item in spec.flags] + [
        (f"{item.name}=", item) for item in spec.environment
    ]
    prefixed_values = ((name, value) for name, item in prefixed_items for value in (item.value or "", *item.rest))
    secret_values = {
        value for name, value in prefixed_values if value and "$" not in value and value not in mask(name + value)
    }
    return tuple(sorted(secret_values, key=len, reverse=True))


def _masked_text(text: str, secrets: Sequence[str]) -> str:
    """One of our own sentences: only values that were filled in can be secret."""
    for secret in secrets:
        text = text.replace(secret, MASKED) if len(secret) >= SHORTEST_SECRET else text
    return sanitise.line(text)


def _masked_line(text: str, secrets: Sequence[str], mask: Mask) -> str:
    shown = [secret for secret in secrets if secret in text]
    if len(shown) > MAX_SECRETS:
        return MASKED
    for secret in shown:
        text = re.sub(rf"(?<![\w-]){re.escape(secret)}(?![\w-])", MASKED, text)
    # A reference to a variable is no secret; it shows how the secret should be passed.
    parts = _REFERENCE.split(_masked_text(text, secrets))
    return "".join(piece if index % 2 else mask(piece) for index, piece in enumerate(parts))


def _masked(finding: Finding, secrets: Sequence[str], line: Mask) -> Finding:
    own_text = partial(_masked_text, secrets=secrets)
    return replace(
        finding,
        title=own_text(finding.title),
        explanation=own_text(finding.explanation),
        settles=own_text(finding.settles),
        evidence=tuple(
            replace(evidence, text=line(evidence.text), source=own_text(evidence.source))
            for evidence in finding.evidence
        ),
        remedies=tuple(
            replace(remedy, title=own_text(remedy.title), steps=tuple(line(step) for step in remedy.steps))
            for remedy in finding.remedies
        ),
    )
