"""Rules on what answers are like: green figures say nothing of what the model writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sparktop.diagnose.rule import live_rule
from sparktop.diagnose.rules.window import of_engine
from sparktop.engines.cuda_graphs import without_graphs
from sparktop.knowledge.card import found
from sparktop.model.engine import Engine
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Finding
from sparktop.model.fleet import FleetState, live_engines
from sparktop.model.proof import Canary, Proof

CUT_SHARE = 0.9
"""So many of the last answers end at their token limit where the model no longer ends them itself."""
REPEATED = 3
"""So many that repeat themselves are no accident of one prompt."""
WRONG = 2
"""Wrong answers in a row to one question, by when chance is left out."""
ONE_TOKEN_CHARS = 12
_ASKED = {
    Proof.ANSWER: "one word, to be repeated",
    Proof.LONG_PROMPT: "a word in a long prompt",
    Proof.TOOL_CALL: "a tool call",
}


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


@live_rule("engine.wrong-answers")
def wrong_answers(fleet: FleetState) -> Iterator[Finding]:
    """engine.wrong-answers: the canary's question, once answered right in this run, is answered wrongly twice in a row.

    A second question that turned wrong, or one token written for ever, is the second sign that makes it sure.
    """
    for node, engine in live_engines(fleet):
        wrong = {proof: last for proof in _ASKED if (last := _turned_wrong(engine.canaries, proof)) is not None}
        if not wrong:
            continue
        worst = next((one for one in wrong.values() if is_one_token(one.text)), [*wrong.values()][-1])
        is_sure = len(wrong) > 1 or is_one_token(worst.text)
        finding = found(
            "engine.wrong-answers",
            "turned",
            {
                "engine": engine.name,
                "asked": ", and ".join(_ASKED[proof] for proof in wrong),
                "answer": worst.text,
                "silence": worst.why,
                **_levers(engine),
            },
            severity=Severity.CRITICAL if is_sure else Severity.WARNING,
            confidence=Confidence.CONFIRMED if is_sure else Confidence.SUSPECTED,
            nodes=(node.name,),
            subject=engine.name,
        )
        said = [f"{_ASKED[proof]}: {one.text or one.why or 'nothing'}" for proof, one in wrong.items()]
        yield replace(
            finding,
            evidence=tuple(of_engine(engine, node, text, part="metrics", wall_s=worst.wall_s) for text in said),
        )


def _turned_wrong(canaries: tuple[Canary, ...], proof: Proof) -> Canary | None:
    """The last answer, where this question was answered right once and is no longer."""
    asked = [one for one in canaries if one.proof is proof and one.is_right is not None][-WRONG:]
    is_wrong = len(asked) == WRONG and not any(one.is_right for one in asked) and asked[-1].was_right
    return asked[-1] if is_wrong else None


def is_one_token(text: str) -> bool:
    """Whether an answer is one token for ever: "!!!!!!!!!!!!", "the the the the the"."""
    words = text.split()
    return len(text) >= ONE_TOKEN_CHARS and (len(set(text)) == 1 or (len(words) > 3 and len(set(words)) == 1))


def _levers(engine: Engine) -> dict[str, object]:
    """What of its command may garble answers, as figures of the card."""
    command = engine.command
    kv_type = command.flags.get("kv-cache-dtype", "")
    return {
        "kv_type": kv_type if kv_type not in ("", "auto") else None,
        "drafter": "--speculative-config" if command.has("speculative-config") else None,
        **without_graphs(engine),
    }
