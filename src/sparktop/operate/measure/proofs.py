"""Carries out the proofs of an endpoint: `/health` lies, a request with content does not (docs/facts/bringup.md)."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from sparktop.dataclass import dataclass
from sparktop.engines.metrics import NotMetrics, parse
from sparktop.engines.questions import (
    BRIEFLY,
    LEAST_LINES,
    TOKENS_PER_LINE,
    TOOL_PROMPT,
    TOOLS,
    lines_in,
    long_prompt,
)
from sparktop.model.engine import Endpoint, EndpointState, EngineKind, EngineMetrics
from sparktop.model.fleet import FleetState
from sparktop.model.proof import ANSWER_TOKENS, LONG_TOKENS, POOLING, Proof, ProofRequest, Verdict
from sparktop.operate.acts.checks import WRONG_KEY
from sparktop.operate.acts.readiness import failure_cause
from sparktop.operate.acts.request import (
    POOLED,
    MemoryWatch,
    nodes_of,
    pooled,
    seen_engine,
    unless_lost,
    watched_request,
)
from sparktop.operate.measure.busy import held_reason
from sparktop.operate.measure.proof_verdicts import (
    judged_answer,
    judged_key,
    judged_long_prompt,
    judged_stream,
    judged_tool_call,
    judged_two,
    result,
)
from sparktop.operate.runner.api import NodeLine
from sparktop.operate.step.act import Act
from sparktop.operate.step.hands import Hands
from sparktop.operate.step.run_context import Picture, Progress
from sparktop.operate.step.step_result import Cause, RequestResult, StepResult
from sparktop.text.units import gib
from sparktop.transport.completion import MODELS_PATH, Completion, CompletionState
from sparktop.transport.endpoint import EndpointClient
from sparktop.transport.exposed import statuses

IDLE_LOOKS = 3
LOOK_AGAIN_S = 1.1
"""An engine's figures may lag its last answer; they are asked for once a second at most."""
_PROOFS: Mapping[Proof, str] = {
    Proof.HEALTH: "GET /health",
    Proof.ANSWER: "POST /v1/chat/completions",
    Proof.STREAM: "POST /v1/chat/completions, streamed",
    Proof.TOOL_CALL: "POST /v1/chat/completions with one tool, get_weather",
    Proof.LONG_PROMPT: f"POST /v1/chat/completions, streamed, with some {LONG_TOKENS:,} tokens",
    Proof.TWO_AT_ONCE: "POST /v1/chat/completions, twice at once",
    Proof.WRONG_KEY: "GET /v1/models?client=sparktop with a wrong key, and without one",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prove(ProofRequest, Act):
    """One proof from the operator's side, refused while others' requests run or wait."""

    changes: ClassVar[bool] = True

    async def perform(self, hands: Hands) -> StepResult:
        """Prove once; without the connection nothing is proven, and nothing disproved."""
        return await hands.ask(
            lambda line, progress: prove(line, hands.picture, hands.node, self, progress=progress), is_last=True
        )

    def text(self) -> Iterator[str]:
        yield f"GET /metrics of {self.engine}: no request runs or waits"
        tokens = ANSWER_TOKENS.get(self.proof)
        bounds = (
            ""
            if tokens is None
            else f", {tokens} tokens at most; fails when less than {gib(self.floor_bytes)} are available"
        )
        question = _PROOFS[self.proof]
        if self.is_pooling:
            question = question.replace("/v1/chat/completions", POOLED.removesuffix(","))
        yield f"{question}: within {self.limit_s:g} s{bounds}"

    def cause(self, node: str, picture: FleetState) -> Cause | None:
        return failure_cause(((node, self.engine),), picture)


async def prove(line: NodeLine, picture: Picture, node: str, act: ProofRequest, *, progress: Progress) -> RequestResult:
    """Carry out one proof, once nobody else's request runs or waits.

    Raises:
        LinkLost: the connection to the node ended.
    """
    engine = await seen_engine(picture, node, act.engine)
    endpoint = engine.endpoint if engine is not None else None
    if endpoint is None:
        return RequestResult(ok=False, detail=f"no endpoint of {act.engine} is seen on {node}", is_last=True)
    progress("asking whether it is idle", None)
    if busy := await _busy(line, endpoint, act):
        return RequestResult(ok=False, detail=f"{busy}: nothing was measured", is_last=True)
    watch = MemoryWatch(picture, nodes_of(picture(), node, act.engine), act.floor_bytes)
    trial = _Trial(line=line, endpoint=endpoint, act=act, watch=watch, progress=progress)
    try:
        async with asyncio.timeout(act.limit_s):
            return await trial.carried_out()
    except TimeoutError:
        await unless_lost(line)
        if trial.pieces:
            return result(act, Verdict.SLOW, f"only {trial.pieces} pieces of the answer within {act.limit_s:g} s")
        detail = f"no answer within {act.limit_s:g} s: it hangs, or still compiles kernels for its first requests"
        return result(act, Verdict.SILENT, detail)


# --- whether it is idle


async def _busy(line: NodeLine, endpoint: Endpoint, act: ProofRequest) -> str:
    """Why the engine counts as busy, or "": what can't be told counts as busy, too."""
    before: EngineMetrics | None = None
    why = ""
    client = EndpointClient(line.transport, endpoint.host, endpoint.port)
    try:
        for look in range(IDLE_LOOKS):
            await asyncio.sleep(LOOK_AGAIN_S if look else 0.0)
            reply = await client.get("/metrics")
            if reply.state is EndpointState.REFUSED:
                await unless_lost(line)
            read = parse(reply.body, act.kind, time.time()) if reply.state is EndpointState.OK else None
            if not isinstance(read, EngineMetrics):
                gap = read.reason if isinstance(read, NotMetrics) else reply.detail
                why = f"whether {act.engine} holds requests is not known: {gap}"
                continue
            if not (why := held_reason(act.engine, read)) or _is_own(read, before, act):
                return ""
            before = read
    finally:
        await client.aclose()
    return why


def _is_own(now: EngineMetrics, before: EngineMetrics | None, act: ProofRequest) -> bool:
    """Whether a standing gauge is our own last request's: SGLang renews it with its next report only."""
    if act.kind is not EngineKind.SGLANG or before is None or now.waiting or (now.running or 0) > act.own_requests:
        return False
    return (now.prompt_tokens, now.generation_tokens) == (before.prompt_tokens, before.generation_tokens)


# --- the proofs


class _Trial:
    """One proof under way."""

    def __init__(
        self, *, line: NodeLine, endpoint: Endpoint, act: ProofRequest, watch: MemoryWatch, progress: Progress
    ) -> None:
        self._line = line
        self._endpoint = endpoint
        self._act = act
        self._watch = watch
        self._progress = progress
        self.pieces = 0
        """Pieces of the newest answer."""

    async def carried_out(self) -> RequestResult:
        match self._act.proof:
            case Proof.HEALTH:
                return await self._health()
            case Proof.ANSWER:
                return await self._answer()
            case Proof.STREAM:
                return await self._stream()
            case Proof.TOOL_CALL:
                return await self._tool_call()
            case Proof.LONG_PROMPT:
                return await self._long_prompt()
            case Proof.TWO_AT_ONCE:
                return await self._two_at_once()
            case Proof.WRONG_KEY:
                return await self._wrong_key()

    async def _ask(self, **words: Any) -> Completion | RequestResult:
        """An answer, or why the request was given up."""
        answer = await watched_request(
            self._line,
            self._endpoint,
            self._watch,
            self._tell,
            api_key=self._act.api_key,
            max_tokens=ANSWER_TOKENS[self._act.proof],
            is_pooling=self._act.is_pooling or None,  # a model may embed without being told
            **words,
        )
        if isinstance(answer, RequestResult):
            return result(self._act, Verdict.LOW_MEMORY, answer.detail)
        if answer.numbers and self._act.proof not in POOLING:
            return result(self._act, Verdict.NO_TEXT, f"it writes no text: it serves {pooled(answer)}")
        return answer

    def _tell(self, pieces: int) -> None:
        self.pieces = pieces
        self._progress(f"{pieces} pieces of the answer" if pieces else "asked; no token yet", None)

    async def _health(self) -> RequestResult:
        client = EndpointClient(self._line.transport, self._endpoint.host, self._endpoint.port)
        try:
            reply = await client.get("/health")
        finally:
            await client.aclose()
        if reply.state is EndpointState.OK:
            return result(self._act, Verdict.OK, "200")
        if reply.state in (EndpointState.REFUSED, EndpointState.TIMED_OUT):
            await unless_lost(self._line)
            verdict = Verdict.SILENT if reply.state is EndpointState.TIMED_OUT else Verdict.UNREACHABLE
            return result(self._act, verdict, reply.detail)
        return result(self._act, Verdict.REFUSED, reply.detail)

    async def _answer(self) -> RequestResult:
        answer = await self._ask(prompt="In one short sentence: what is a lighthouse for?", is_streamed=False)
        return answer if isinstance(answer, RequestResult) else judged_answer(self._act, answer)

    async def _stream(self) -> RequestResult:
        answer = await self._ask(prompt="Count from one to thirty in words, with commas between.")
        return answer if isinstance(answer, RequestResult) else judged_stream(self._act, answer)

    async def _tool_call(self) -> RequestResult:
        answer = await self._ask(
            prompt=TOOL_PROMPT,
            more={**TOOLS, **BRIEFLY},
            is_strict=True,
        )
        if isinstance(answer, Completion) and answer.state is CompletionState.REFUSED:  # it may be for that alone
            answer = await self._ask(prompt=TOOL_PROMPT, more=TOOLS, is_strict=True)
        return answer if isinstance(answer, RequestResult) else judged_tool_call(self._act, answer)

    async def _long_prompt(self) -> RequestResult:
        word = f"heron-{secrets.token_hex(3)}"
        has_room = True

        def prompt(context_tokens: int | None) -> str:
            nonlocal has_room
            lines = lines_in(context_tokens, LONG_TOKENS // TOKENS_PER_LINE)
            has_room = lines >= LEAST_LINES
            return long_prompt(word, lines)

        answer = await self._ask(prompt=prompt, more=BRIEFLY, seeks=word)
        if isinstance(answer, RequestResult):
            return answer
        return judged_long_prompt(self._act, answer, has_room=has_room)

    async def _two_at_once(self) -> RequestResult:
        prompts = ("Name three rivers.", "Name three mountains.")
        first, second = await asyncio.gather(*(self._ask(prompt=prompt) for prompt in prompts))
        if isinstance(first, RequestResult):
            return first
        if isinstance(second, RequestResult):
            return second
        return judged_two(self._act, first, second)

    async def _wrong_key(self) -> RequestResult:
        questions = ((MODELS_PATH, WRONG_KEY), (MODELS_PATH, ""))
        host, port = self._endpoint.host, self._endpoint.port
        answers = await statuses("", questions, over=self._line.transport, host=host, port=port)
        if isinstance(answers, str):
            await unless_lost(self._line)
        return judged_key(self._act, answers)
