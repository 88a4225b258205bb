"""A lint: its card and its check, and how a check words a claim, with the line it is about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sparktop.diagnose.lint.changes import shown
from sparktop.diagnose.lint.spec import Item, LaunchSpec, SourceKind
from sparktop.diagnose.rule import Rule, RuleKind
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Remedy

Check = Callable[[LaunchSpec, Rule], Iterable[Finding]]
"""Pure: what a specification says against what is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lint:
    """One rule over launch configurations."""

    card: Rule
    check: Check
    is_live: bool = False
    """Whether it can be certain of an engine that runs."""

    def findings(self, spec: LaunchSpec) -> tuple[Finding, ...]:
        """What it finds in one specification."""
        return tuple(self.check(spec, self.card))


def card(name: str, severity: Severity, title: str, scope: str, *sources: str) -> Rule:
    """A lint's card; `name` comes after "config."."""
    return Rule(
        id=f"config.{name}", kind=RuleKind.LINT, title=title, severity=severity, scope=scope, sources=tuple(sources)
    )


def claim(
    spec: LaunchSpec,
    rule: Rule,
    items: Item | Sequence[Item] | None,
    *,
    title: str = "",
    explanation: str,
    remedies: Sequence[Remedy] = (),
    severity: Severity | None = None,
    settles: str = "",
    distinction: Sequence[str] = (),
    subject: str = "",
    references: Sequence[str] = (),
) -> Finding:
    """A finding about these items, or (with none) about what is absent; with `settles` it is a suspicion."""
    given = (items,) if isinstance(items, Item) else tuple(items or ())
    return Finding(
        rule=rule.id,
        severity=severity or rule.severity,
        confidence=Confidence.SUSPECTED if settles else Confidence.CONFIRMED,
        title=title or rule.title,
        explanation=explanation,
        settles=settles,
        distinction=tuple(distinction),
        evidence=tuple(dict.fromkeys(line for item in given for line in evidence(spec, item))) or (whole(spec),),
        remedies=tuple(remedies),
        references=tuple(references) or rule.sources,
        scope=rule.scope,
        subject=subject,
    )


def evidence(spec: LaunchSpec, item: Item) -> tuple[Evidence, ...]:
    """The line an item stands in, and the one its value does; of what runs, the item itself."""
    span = item.span or item.value_span
    if span is None or not spec.document.text or spec.kind in (SourceKind.RUNNING, SourceKind.INSPECT):
        line = spec.line_of(item) if spec.kind is SourceKind.INSPECT and span else None
        return (Evidence(source=spec.document.name, line=line, text=shown(spec, item)),)
    offsets = [span[0], *([item.value_span[0]] if item.value_span else [])]
    numbers = dict.fromkeys(spec.document.line_of(offset) for offset in offsets)
    return tuple(
        Evidence(source=spec.document.name, line=number, text=spec.document.line(number).strip()) for number in numbers
    )


def whole(spec: LaunchSpec) -> Evidence:
    """Where the specification begins: the place of what is absent."""
    number = spec.line_of(None)
    if number is None or spec.kind is SourceKind.INSPECT:
        words = (f"{spec.engine} {spec.version or ''}".strip() if spec.engine else "", spec.model_name)
        return Evidence(source=spec.document.name, line=number, text=" ".join(filter(None, words)) or spec.name)
    return Evidence(source=spec.document.name, line=number, text=spec.document.line(number).strip())


def change(title: str, *steps: str, cost: str = "") -> Remedy:
    """A remedy whose steps are the lines that change."""
    return Remedy(title=title, steps=steps, cost=cost)
