"""What the endpoint's checks say of ended runs, by what their steps have shown."""

from __future__ import annotations

from sparktop.model.engine import EngineKind
from sparktop.model.proof import Proof, Verdict
from sparktop.model.request import Request, Risk
from sparktop.model.state import State
from sparktop.operate.measure.proof_verdicts import FAILURES
from sparktop.operate.measure.proofs import Prove
from sparktop.operate.step.plan import Plan, Step
from sparktop.operate.step.run import Run, RunState, StepRun
from sparktop.operate.step.step_result import StepState

PASSED, WARNING, FAILED = State.PASSED, State.WARNING, State.FAILED


def proof_run(*shown: tuple[Proof, Verdict | None, str], kind: EngineKind = EngineKind.VLLM) -> Run:
    """A run whose steps have shown these verdicts; None: its step measured nothing."""
    runs = []
    for proof, verdict, detail in shown:
        act = Prove(engine="vllm-qwen36", kind=kind, proof=proof, limit_s=8.0, floor_bytes=1)
        step = Step(id=f"prove-{proof}", title=proof, node="spark1", act=act)
        state = StepState.DONE if verdict is not None and verdict not in FAILURES else StepState.FAILED
        figures = {} if verdict is None else {str(proof): str(verdict)}
        runs.append(StepRun(step=step, state=state, detail=detail, figures=figures))
    request = Request(action="prove-endpoint", nodes=("spark1",), target="vllm-qwen36")
    plan = Plan(request=request, title="", risk=Risk.SAFE, steps=tuple(run.step for run in runs))
    return Run(id="r", plan=plan, state=RunState.DONE, steps=tuple(runs))


HEALTHY = (Proof.HEALTH, Verdict.OK, "200")
PARSER = "start it with --enable-auto-tool-choice --tool-call-parser NAME"

ENDPOINT: tuple[tuple[str, State, str, Run], ...] = (
    # (check, state, a part of what it says, the run)
    ("endpoint.answer", PASSED, "/health 200;", proof_run(
        HEALTHY, (Proof.ANSWER, Verdict.OK, '"It warns ships of the shore.", 9 tokens in 0.6 s'))),
    ("endpoint.answer", PASSED, "content is null", proof_run(
        HEALTHY, (Proof.ANSWER, Verdict.REASONED, "192 tokens in 4.9 s; content is null: max_tokens cut it off"))),
    ("endpoint.answer", WARNING, "reasoning stands in the answer", proof_run(
        HEALTHY, (Proof.ANSWER, Verdict.THINKS_ALOUD, "80 tokens in 2.0 s; its reasoning stands in the answer"))),
    ("endpoint.answer", FAILED, "no answer within 9 s", proof_run(
        HEALTHY, (Proof.ANSWER, Verdict.SILENT, "no answer within 9 s: it hangs"))),
    ("endpoint.answer", WARNING, "needs a key", proof_run(
        HEALTHY, (Proof.ANSWER, Verdict.DENIED, "/v1/models answers status 401: it needs a key"))),
    ("endpoint.answer", FAILED, "status 503", proof_run(
        (Proof.HEALTH, Verdict.REFUSED, "127.0.0.1:8000/health answers status 503"))),
    ("endpoint.stream", PASSED, "38.2 tok/s", proof_run(
        (Proof.STREAM, Verdict.OK, "41 pieces, the first after 0.31 s, then 38.2 tok/s"))),
    ("endpoint.stream", WARNING, "only 12 pieces", proof_run(
        (Proof.STREAM, Verdict.SLOW, "only 12 pieces of the answer within 9 s"))),
    ("endpoint.stream", WARNING, "one piece", proof_run(
        (Proof.STREAM, Verdict.IN_ONE_PIECE, "the answer came in one piece: clients wait until it is complete"))),
    ("endpoint.stream", FAILED, "broke off", proof_run(
        (Proof.STREAM, Verdict.BROKEN, "the answer broke off in the middle"))),
    ("endpoint.tools", PASSED, "get_weather", proof_run((Proof.TOOL_CALL, Verdict.OK, "it calls get_weather"))),
    ("endpoint.tools", WARNING, "--tool-call-parser", proof_run(
        (Proof.TOOL_CALL, Verdict.NO_PARSER, f"it takes no tools: {PARSER}"))),
    ("endpoint.tools", WARNING, "in words instead", proof_run(
        (Proof.TOOL_CALL, Verdict.NO_CALL, 'it answers in words instead: "I cannot know."'))),
    ("endpoint.long-prompt", PASSED, "7104 tokens", proof_run(
        (Proof.LONG_PROMPT, Verdict.OK, "the word hidden in 7104 tokens is found, first token after 3.4 s"))),
    ("endpoint.long-prompt", WARNING, "too short", proof_run(
        (Proof.LONG_PROMPT, Verdict.TOO_SHORT, "its context is too short for a long prompt"))),
    ("endpoint.long-prompt", FAILED, "not found", proof_run(
        (Proof.LONG_PROMPT, Verdict.NOT_FOUND, "the word hidden in 7104 tokens is not found: it says \"calm\""))),
    ("endpoint.parallel", PASSED, "both answered", proof_run(
        (Proof.TWO_AT_ONCE, Verdict.OK, "both answered within 2.6 s"))),
    ("endpoint.parallel", FAILED, "of two at once", proof_run(
        (Proof.TWO_AT_ONCE, Verdict.UNREACHABLE, "of two at once, one failed: nothing answers on 127.0.0.1:8000"))),
    ("endpoint.key", PASSED, "401 to a wrong key", proof_run(
        (Proof.WRONG_KEY, Verdict.OK, "401 to a wrong key, 401 without one"))),
    ("endpoint.key", PASSED, "only this node", proof_run(
        (Proof.WRONG_KEY, Verdict.LOCAL, "it requires no key; only this node reaches its port"))),
    ("endpoint.key", WARNING, "no key", proof_run(
        (Proof.WRONG_KEY, Verdict.OPEN, "it requires no key, and other machines reach its port"))),
)  # fmt: skip
