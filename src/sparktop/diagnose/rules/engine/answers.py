"""Rule on how answers end: green figures say nothing of what the model writes."""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.diagnose.rule import live_rule
from sparktop.diagnose.rules.window import of_engine
from sparktop.model.engine import Engine
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Finding, Remedy
from sparktop.model.fleet import FleetState, NodeView, live_engines

CUT_SHARE = 0.9
"""So many of the last answers end at their token limit where the model no longer ends them itself."""
REPEATED = 3
"""So many that repeat themselves are no accident of one prompt."""


@live_rule(
    "engine.answers-cut",
    "Nearly all answers end at their token limit, or repeat themselves",
    Severity.WARNING,
    scope="vLLM, which counts how its answers end",
    sources=("vLLM v1/metrics: request_success by finished_reason", "reports of garbled answers of DGX Spark owners"),
    clear_s=10.0,
)
def answers_cut(fleet: FleetState) -> Iterator[Finding]:
    """engine.answers-cut: of the last 20 answers or more, 90 % ended at their limit, or vLLM ended three as repeating.

    A note for the first alone: a benchmark asks for it, and short limits do too.
    """
    for node, engine in live_engines(fleet):
        rates = engine.rates
        if rates is None or not rates.answers:
            continue
        if (rates.repeated or 0.0) >= REPEATED:
            what = f"{rates.repeated:.0f} of the last {rates.answers:.0f} answers of {engine.name} repeat themselves"
            yield _finding(node, engine, what, Severity.WARNING)
        elif (rates.cut or 0.0) >= CUT_SHARE * rates.answers:
            what = f"{rates.cut:.0f} of the last {rates.answers:.0f} answers of {engine.name} end at their token limit"
            yield _finding(node, engine, what, Severity.INFO)


def _finding(node: NodeView, engine: Engine, what: str, severity: Severity) -> Finding:
    return Finding(
        rule="engine.answers-cut",
        severity=severity,
        confidence=Confidence.SUSPECTED,
        title=what,
        explanation=(
            "A benchmark asks for that (--ignore-eos), and a small max_tokens does too. Where people or agents ask, "
            "the model may no longer end its answers: it repeats itself or writes one token for ever, while latency "
            "and throughput look healthy."
        ),
        settles="One prompt with a short answer, at temperature 0: it ends by itself, with finish_reason stop.",
        evidence=(of_engine(engine, node, what, part="metrics"),),
        remedies=(
            Remedy(
                title="Read one answer; if it is garbled, restart the engine",
                cost="the running requests; the time to load",
                action="safe-restart",
            ),
            Remedy(
                title="If it comes again, change one thing at a time: KV cache type, draft model, CUDA graphs",
                steps=("--kv-cache-dtype auto", "without --speculative-config", "-cc.cudagraph_mode=NONE"),
                cost="the time to load, for each",
            ),
        ),
        references=("vLLM v1/metrics: request_success by finished_reason",),
        nodes=(node.name,),
        subject=engine.name,
        brief=what,
    )
