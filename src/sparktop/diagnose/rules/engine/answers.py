"""Rule on how answers end: green figures say nothing of what the model writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sparktop.diagnose.rule import live_rule
from sparktop.diagnose.rules.window import of_engine
from sparktop.knowledge.card import found
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState, live_engines

CUT_SHARE = 0.9
"""So many of the last answers end at their token limit where the model no longer ends them itself."""
REPEATED = 3
"""So many that repeat themselves are no accident of one prompt."""


@live_rule("engine.answers-cut", clear_s=10.0)
def answers_cut(fleet: FleetState) -> Iterator[Finding]:
    """engine.answers-cut: of the last 20 answers or more, 90 % ended at their limit, or vLLM ended three as repeating.

    A note for the first alone: a benchmark asks for it, and short limits do too.
    """
    for node, engine in live_engines(fleet):
        rates = engine.rates
        if rates is None or not rates.answers:
            continue
        is_repeating = (rates.repeated or 0.0) >= REPEATED
        if is_repeating or (rates.cut or 0.0) >= CUT_SHARE * rates.answers:
            finding = found(
                "engine.answers-cut",
                "endless",
                {
                    "engine": engine.name,
                    "answers": rates.answers,
                    "number": rates.repeated if is_repeating else rates.cut,
                    "is_repeating": is_repeating,
                },
                severity=Severity.WARNING if is_repeating else Severity.INFO,
                nodes=(node.name,),
                subject=engine.name,
            )
            yield replace(finding, evidence=(of_engine(engine, node, finding.title, part="metrics"),))
