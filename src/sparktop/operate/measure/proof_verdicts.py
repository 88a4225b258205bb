"""What the answers to an endpoint's proofs show. Pure."""

from __future__ import annotations

from dataclasses import replace

from sparktop.engines.questions import TOOL
from sparktop.model.engine import EngineKind
from sparktop.model.proof import ProofRequest, Verdict
from sparktop.operate.acts.request import pooled, rate, why_not
from sparktop.operate.step.step_result import Figures, RequestResult
from sparktop.transport.completion import Completion, CompletionState

ENDS = (Verdict.SILENT, Verdict.UNREACHABLE, Verdict.DENIED, Verdict.LOW_MEMORY)
"""After these no further proof can pass."""
_DENIALS = (401, 403)


def result(act: ProofRequest, verdict: Verdict, detail: str, **figures: float | str) -> RequestResult:
    """The result whose figure says the verdict; a warning lets the run go on as done."""
    shown: Figures = {str(act.proof): str(verdict), **figures}
    return RequestResult(ok=verdict not in FAILURES, detail=detail, figures=shown, is_last=verdict in ENDS)


FAILURES = (
    Verdict.EMPTY,
    Verdict.SILENT,
    Verdict.UNREACHABLE,
    Verdict.BROKEN,
    Verdict.REFUSED,
    Verdict.DENIED,
    Verdict.LOW_MEMORY,
    Verdict.NOT_FOUND,
)
_OF_STATE = {
    CompletionState.UNREACHABLE: Verdict.UNREACHABLE,
    CompletionState.DENIED: Verdict.DENIED,
    CompletionState.REFUSED: Verdict.REFUSED,
    CompletionState.HANGS: Verdict.SILENT,
    CompletionState.BROKEN: Verdict.BROKEN,
    CompletionState.EMPTY: Verdict.EMPTY,
}


def _failure(act: ProofRequest, answer: Completion) -> RequestResult | None:
    """The result of a request without an answer."""
    if answer.state is not CompletionState.OK:
        return result(act, _OF_STATE[answer.state], why_not(answer))
    if not (answer.numbers or answer.has_content or answer.has_reasoning or answer.tool_names):
        return result(act, Verdict.EMPTY, f"it answered {answer.tokens} tokens without any text")
    return None


def judged_answer(act: ProofRequest, answer: Completion) -> RequestResult:
    """A whole answer: has it content, and where does its reasoning stand?"""
    if (failure := _failure(act, answer)) is not None:
        return failure
    if answer.numbers:
        return result(act, Verdict.OK, f"{pooled(answer)} in {answer.seconds:.1f} s")
    took = f"{answer.tokens} tokens in {answer.seconds:.1f} s"
    if answer.thinks_aloud:
        return result(
            act, Verdict.THINKS_ALOUD, f"{took}; its reasoning stands in the answer: start it with --reasoning-parser"
        )
    if not answer.has_content:
        return result(act, Verdict.REASONED, f"{took}; {_reasoned(answer)}")
    reasoning = ", after reasoning in a field of its own" if answer.has_reasoning else ""
    return result(act, Verdict.OK, f'"{answer.text[:60]}", {took}{reasoning}')


def _reasoned(answer: Completion) -> str:
    why = "max_tokens cut it off while it reasoned" if answer.finish_reason == "length" else "it only reasoned"
    return f"content is null: {why}. It serves; clients must allow more tokens"


def judged_stream(act: ProofRequest, answer: Completion) -> RequestResult:
    """A streamed answer, with its time to the first token and its rate."""
    if (failure := _failure(act, answer)) is not None:
        return failure
    figures: dict[str, float | str] = {}
    if answer.first_token_s is not None:
        figures["first_token_ms"] = round(1000 * answer.first_token_s)
    if (speed := rate(answer)) is not None:
        figures["decode_tps"] = round(speed, 1)
    if answer.pieces < 2:
        return result(
            act, Verdict.IN_ONE_PIECE, "the answer came in one piece: clients wait until it is complete", **figures
        )
    speed_text = f", then {speed:.1f} tok/s" if speed is not None else ""
    first_text = f", the first after {answer.first_token_s:.2f} s" if answer.first_token_s is not None else ""
    note = "" if answer.has_content else f"; {_reasoned(answer)}"
    verdict = Verdict.OK if answer.has_content else Verdict.REASONED
    return result(act, verdict, f"{answer.pieces} pieces{first_text}{speed_text}{note}", **figures)


def judged_tool_call(act: ProofRequest, answer: Completion) -> RequestResult:
    """A request with tools: the answer names the tool, or why it can't."""
    flags = tool_flags(act.kind)
    if answer.state is CompletionState.REFUSED and answer.status is not None and answer.status < 500:
        return result(act, Verdict.NO_PARSER, f"it takes no tools: start it with {flags}. {answer.detail}")
    if (failure := _failure(act, answer)) is not None:
        return failure
    if TOOL in answer.tool_names:
        return result(act, Verdict.OK, f"it calls {TOOL}")
    if TOOL in answer.text:
        return result(act, Verdict.NO_PARSER, f"it writes the call into its text: start it with {flags}")
    if not answer.has_content and answer.finish_reason == "length":
        return result(act, Verdict.NO_CALL, "it reasoned until its tokens were used up, before any call")
    return result(act, Verdict.NO_CALL, f'it answers in words instead: "{answer.text[:60]}"')


def tool_flags(kind: EngineKind) -> str:
    """The flags with which an engine parses tool calls (docs/facts/engines.md section 3)."""
    return kind.traits.tool_flags


def judged_long_prompt(act: ProofRequest, answer: Completion, *, has_room: bool) -> RequestResult:
    """A word hidden in a long prompt: found again, or not."""
    if not has_room:
        return result(act, Verdict.TOO_SHORT, "its context is too short for a long prompt")
    if (failure := _failure(act, answer)) is not None:
        return failure
    figures: dict[str, float | str] = {}
    if answer.prompt_tokens is not None:
        figures["long_prompt_tokens"] = answer.prompt_tokens
    if answer.first_token_s is not None:
        figures["long_first_token_s"] = round(answer.first_token_s, 2)
    length = f"{answer.prompt_tokens} tokens" if answer.prompt_tokens is not None else "a long prompt"
    first = f", first token after {answer.first_token_s:.1f} s" if answer.first_token_s is not None else ""
    if answer.has_found:
        return result(act, Verdict.OK, f"the word hidden in {length} is found{first}", **figures)
    if not answer.has_content:
        return result(act, Verdict.REASONED, f"{length}{first}; {_reasoned(answer)}", **figures)
    said = f'"{answer.text[:40]}"'
    return result(act, Verdict.NOT_FOUND, f"the word hidden in {length} is not found: it says {said}", **figures)


def judged_two(act: ProofRequest, first: Completion, second: Completion) -> RequestResult:
    """Two requests at once."""
    for answer in (first, second):
        if (failure := _failure(act, answer)) is not None:
            return replace(failure, detail=f"of two at once, one failed: {failure.detail}")
    seconds = max(first.seconds, second.seconds)
    return result(act, Verdict.OK, f"both answered within {seconds:.1f} s", two_at_once_s=round(seconds, 2))


def judged_key(act: ProofRequest, answers: tuple[int, ...] | str) -> RequestResult:
    """What a wrong key, and none, are answered."""
    if isinstance(answers, str):
        return result(act, Verdict.SILENT, answers)
    wrong, without = answers
    if wrong in _DENIALS and without in _DENIALS:
        return result(act, Verdict.OK, f"{wrong} to a wrong key, {without} without one")
    if wrong >= 500 or without >= 500:
        return result(act, Verdict.REFUSED, f"{wrong} to a wrong key, {without} without one")
    if act.is_open:
        return result(act, Verdict.OPEN, "it requires no key, and other machines reach its port")
    return result(act, Verdict.LOCAL, "it requires no key; only this node reaches its port")
