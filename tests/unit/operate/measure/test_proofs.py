"""The proofs of an endpoint: what each answer shows, over real sockets and by tables."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests import pictures_support as made
from tests.completion_support import NOT_FOUND, EngineStage, delta, events, figures, hang, reply
from tests.table import over

from sparktop.errors import LinkLost
from sparktop.model.engine import EngineKind
from sparktop.model.fleet import FleetState
from sparktop.model.proof import LONG_TOKENS, POOLING, Proof, Verdict
from sparktop.operate.measure import proofs as module
from sparktop.operate.measure.proof_verdicts import (
    FAILURES,
    judged_answer,
    judged_key,
    judged_long_prompt,
    judged_stream,
    judged_tool_call,
    judged_two,
)
from sparktop.operate.measure.proofs import TOKENS_PER_LINE, Prove, long_prompt, prove
from sparktop.operate.step.step_result import RequestResult
from sparktop.transport.completion import Completion, CompletionState
from sparktop.transport.local import LocalTransport

KEY = "sk-canary-4f2a9c77"
CALL = delta("tool_calls", tool_calls=[{"index": 0, "function": {"name": "get_weather", "arguments": "{}"}}])
NO_PARSER = reply(
    {"error": {"message": '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'}},
    "400 Bad Request",
)
DENIED = reply({"error": "Unauthorized"}, "401 Unauthorized")


@dataclass
class Line:
    """As much of a NodeLine as is wanted."""

    transport: Any
    node: str = "spark1"


def act(proof: Proof, **more: Any) -> Prove:
    options = {"kind": EngineKind.VLLM, "limit_s": 10.0, "floor_bytes": 4 * made.GIB, **more}
    return Prove(engine="vllm-qwen36", proof=proof, **options)


def pictured(port: int, available_gib: float = 27.0) -> FleetState:
    engine = made.engine()
    assert engine.endpoint is not None
    node = made.node(engines=(replace(engine, endpoint=replace(engine.endpoint, port=port)),))
    assert node.sample is not None
    return made.picture(replace(node, sample=replace(node.sample, memory=made.memory(available_gib))))


async def proven(proof: Proof, stage: EngineStage, *, available_gib: float = 27.0, **more: Any) -> RequestResult:
    transport = LocalTransport()
    try:
        async with asyncio.timeout(30):
            return await prove(
                Line(transport),  # type: ignore[arg-type]
                lambda: pictured(stage.port, available_gib),
                "spark1",
                act(proof, **more),
                progress=lambda detail, ratio: None,
            )
    finally:
        await transport.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_AGAIN_S", 0.01)
    monkeypatch.setattr("sparktop.operate.acts.request.LOOK_S", 0.01)
    monkeypatch.setattr("sparktop.operate.acts.request.LOST_WITHIN_S", 0.01)
    monkeypatch.setattr("sparktop.transport.endpoint.MIN_INTERVAL_S", {"/metrics": 0.0, "/health": 0.0})


def shown(result: RequestResult) -> str:
    return next((str(value) for name, value in result.figures.items() if name in list(Proof)), "")


# --- over real sockets


WHOLE = reply({
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "It warns ships."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 12, "completion_tokens": 4},
})  # fmt: skip
COUNTED = events(
    *(
        delta(content=f"{word}, ")
        for word in ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    ),
    {"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 20}},
)


@pytest.mark.parametrize(
    ("proof", "answers", "verdict", "said"),
    [
        (Proof.HEALTH, {}, Verdict.OK, "200"),
        (Proof.HEALTH, {"health": reply(b"", "503 Service Unavailable")}, Verdict.REFUSED, "answers status 503"),
        (Proof.ANSWER, {"chat": WHOLE}, Verdict.OK, '"It warns ships.", 4 tokens'),
        (Proof.ANSWER, {"chat": hang}, Verdict.SILENT, "no answer within 0.4 s"),
        (Proof.ANSWER, {"chat": DENIED}, Verdict.DENIED, "SPARKTOP_API_KEY"),
        (Proof.ANSWER, {"models": DENIED}, Verdict.DENIED, "SPARKTOP_API_KEY"),
        (Proof.STREAM, {"chat": COUNTED}, Verdict.OK, "10 pieces, the first after"),
        (Proof.STREAM, {"chat": WHOLE}, Verdict.IN_ONE_PIECE, "one piece"),
        (Proof.STREAM, {"chat": events(delta(content="one"), done=False)}, Verdict.BROKEN, "broke off"),
        (Proof.TOOL_CALL, {"chat": events(CALL)}, Verdict.OK, "it calls get_weather"),
        (Proof.TOOL_CALL, {"chat": NO_PARSER}, Verdict.NO_PARSER, "--enable-auto-tool-choice --tool-call-parser NAME"),
        (Proof.TOOL_CALL, {"chat": reply({"message": "dead"}, "500 No")}, Verdict.REFUSED, "status 500: dead"),
        (Proof.LONG_PROMPT, {"chat": COUNTED}, Verdict.NOT_FOUND, "is not found"),
        (Proof.TWO_AT_ONCE, {"chat": COUNTED}, Verdict.OK, "both answered within"),
        (Proof.TWO_AT_ONCE, {"chat": events({"error": {"message": "no"}})}, Verdict.BROKEN, "of two at once"),
        (Proof.WRONG_KEY, {}, Verdict.LOCAL, "only this node"),
        (Proof.WRONG_KEY, {"models": DENIED}, Verdict.OK, "401 to a wrong key, 401 without"),
    ],
)
async def test_each_proof(proof: Proof, answers: dict[str, Any], verdict: Verdict, said: str) -> None:
    limit_s = 0.4 if verdict is Verdict.SILENT else 10.0
    async with EngineStage(**answers) as stage:
        result = await proven(proof, stage, limit_s=limit_s)
    assert (shown(result), said in result.detail) == (verdict, True), result.detail
    assert result.ok is (verdict not in FAILURES)


@over("proof", [Proof.ANSWER, Proof.TWO_AT_ONCE])
async def test_a_model_that_ranks_is_proven_by_a_score(proof: Proof) -> None:
    async with EngineStage(**{"/v1/rerank": reply({"results": [{"relevance_score": 0.9}]})}) as stage:
        found = await proven(proof, stage, is_pooling=True)
    assert (found.ok, shown(found)) == (True, Verdict.OK)
    assert proof is not Proof.ANSWER or found.detail.startswith("1 number from /v1/rerank in ")


@over("chat", [NOT_FOUND, reply({"error": {"message": "The model does not support Chat Completions API"}}, "400 No")])
@over("proof", [Proof.ANSWER, Proof.STREAM, Proof.TOOL_CALL, Proof.LONG_PROMPT, Proof.TWO_AT_ONCE])
async def test_a_model_that_embeds_without_a_flag_is_proven_by_its_embedding(proof: Proof, chat: bytes) -> None:
    embedding = reply({"data": [{"embedding": [0.5, 1.0]}]})
    models = reply({"data": [{"id": "m", "max_model_len": 512}]})
    async with EngineStage(models=models, chat=chat, plain=NOT_FOUND, **{"/v1/embeddings": embedding}) as stage:
        found = await proven(proof, stage)
    assert (found.ok, shown(found)) == (True, Verdict.OK if proof in POOLING else Verdict.NO_TEXT), found.detail
    assert proof in POOLING or found.detail == "it writes no text: it serves 2 numbers from /v1/embeddings"


async def test_nothing_listens() -> None:
    async with EngineStage() as stage:
        pass
    result = await proven(Proof.ANSWER, stage)
    assert (result.figures, result.is_last) == ({}, True), "is not known"


async def test_an_empty_answer_fails() -> None:
    empty = events(delta(content=""), {"choices": [], "usage": {"completion_tokens": 3}})
    async with EngineStage(chat=empty) as stage:
        result = await proven(Proof.STREAM, stage)
    assert (shown(result), result.ok) == (Verdict.EMPTY, False)


async def test_figures_come_with_the_stream() -> None:
    async def paced(writer: asyncio.StreamWriter) -> None:
        head, _, rest = COUNTED.partition(b"\r\n\r\n")
        writer.write(head + b"\r\n\r\n")
        for piece in rest.split(b"\n\n"):
            writer.write(piece + b"\n\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with EngineStage(chat=paced) as stage:
        result = await proven(Proof.STREAM, stage)
        (body,) = stage.bodies
    assert set(result.figures) == {"stream", "first_token_ms", "decode_tps"}
    assert 20 < float(result.figures["decode_tps"]) < 2000
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})


async def test_a_refused_tool_is_not_asked_again_without_it() -> None:
    async with EngineStage(chat=NO_PARSER, plain=NO_PARSER) as stage:
        await proven(Proof.TOOL_CALL, stage)
    assert [("tools" in body, body["tool_choice"]) for body in stage.bodies] == [(True, "auto")] * 2
    assert ["reasoning_effort" in body for body in stage.bodies] == [True, False]


async def test_a_slow_answer_is_slow_and_not_silent() -> None:
    async def slow(writer: asyncio.StreamWriter) -> None:
        head, _, rest = COUNTED.partition(b"\r\n\r\n")
        pieces = rest.split(b"\n\n")
        writer.write(head + b"\r\n\r\n" + b"\n\n".join(pieces[:2]) + b"\n\n")
        await writer.drain()
        await hang(writer)

    async with EngineStage(chat=slow) as stage:
        result = await proven(Proof.STREAM, stage, limit_s=0.5)
    assert (shown(result), result.ok, result.is_last) == (Verdict.SLOW, True, False)
    assert "only 2 pieces of the answer within 0.5 s" in result.detail


async def test_the_hidden_word_is_found_whatever_else_is_said() -> None:
    async def answers(writer: asyncio.StreamWriter) -> None:
        word = re.search(r"code word is (\S+)\.", stage.bodies[0]["messages"][0]["content"])
        assert word is not None
        pieces = ("It is ", word[1][:4], word[1][4:], ".")
        writer.write(events(*(delta(content=piece) for piece in pieces), {"usage": {"prompt_tokens": 7100}}))

    async with EngineStage(chat=answers) as stage:
        result = await proven(Proof.LONG_PROMPT, stage)
    assert shown(result) == Verdict.OK
    assert result.figures["long_prompt_tokens"] == 7100


@pytest.mark.parametrize(("context", "verdict"), [(2048, Verdict.NOT_FOUND), (700, Verdict.TOO_SHORT)])
async def test_a_long_prompt_fits_the_context(context: int, verdict: Verdict) -> None:
    models = reply({"data": [{"id": "m", "max_model_len": context}]})
    async with EngineStage(models=models, chat=COUNTED) as stage:
        result = await proven(Proof.LONG_PROMPT, stage)
    prompt = stage.bodies[0]["messages"][0]["content"]
    assert shown(result) == verdict
    assert len(prompt.split()) * 1.4 < context, "some 1.4 tokens a word"


def test_a_long_prompt_is_long() -> None:
    prompt = long_prompt("heron-1", LONG_TOKENS // TOKENS_PER_LINE)
    assert 6500 < len(prompt.split()) * 1.25 < 9000, "some 1.25 tokens a word"
    assert prompt.count("heron-1") == 1


async def test_the_key_goes_into_a_header_alone_and_the_wrong_one_is_another() -> None:
    async with EngineStage(chat=reply({"message": f"no {KEY}"}, "500 No")) as stage:
        result = await proven(Proof.ANSWER, stage, api_key=KEY)
        assert sum(KEY in head for head in stage.heads) == 2
        assert KEY not in result.detail
        stage.heads.clear()
        await proven(Proof.WRONG_KEY, stage, api_key=KEY)
    sent = [re.search(r"(?i)authorization: bearer (\S+)", head) for head in stage.heads if "/v1/" in head]
    assert [found[1] if found else "" for found in sent] == ["sparktop-asks-with-a-wrong-key", ""]


async def test_memory_below_the_floor_ends_it() -> None:
    async with EngineStage(chat=hang) as stage:
        result = await proven(Proof.LONG_PROMPT, stage, available_gib=2.0)
    assert (shown(result), result.is_last) == (Verdict.LOW_MEMORY, True)
    assert "below the floor" in result.detail


async def test_a_connection_that_ends_says_nothing_of_the_engine() -> None:
    class Ended(LocalTransport):
        async def wait_closed(self) -> str:
            return "the connection ended"

    async with EngineStage(chat=hang) as stage:
        with pytest.raises(LinkLost):
            await prove(
                Line(Ended()),  # type: ignore[arg-type]
                lambda: pictured(stage.port),
                "spark1",
                act(Proof.ANSWER, limit_s=0.2),
                progress=lambda detail, ratio: None,
            )


# --- only while nobody else's request runs


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        (figures(1), "vllm-qwen36 holds 1 request"),
        (figures(0, 2), "vllm-qwen36 holds 2 requests"),
        (figures(family="other"), "is not known"),
        (reply(b"<html>", kind="text/html"), "is not known"),
        (reply(b"", "404 Not Found"), "is not known"),
    ],
)
async def test_a_busy_engine_is_left_alone_and_nothing_is_measured(metrics: bytes, said: str) -> None:
    async with EngineStage(metrics=metrics) as stage:
        result = await proven(Proof.ANSWER, stage)
    assert (result.ok, result.is_last, result.figures, stage.bodies) == (False, True, {}, [])
    assert said in result.detail


async def test_figures_that_lag_are_looked_at_again() -> None:
    looks = 0

    async def lagging(writer: asyncio.StreamWriter) -> None:
        nonlocal looks
        looks += 1
        writer.write(figures(1 if looks < 3 else 0))

    async with EngineStage(metrics=lagging, chat=WHOLE) as stage:
        assert (await proven(Proof.ANSWER, stage)).ok


@pytest.mark.parametrize(("own", "running", "is_ours"), [(1, 1, True), (0, 1, False), (1, 2, False)])
async def test_a_gauge_of_sglang_that_stands_is_our_own_last_request(own: int, running: int, is_ours: bool) -> None:
    async with EngineStage(metrics=figures(running, family="sglang"), chat=WHOLE) as stage:
        result = await proven(Proof.ANSWER, stage, kind=EngineKind.SGLANG, own_requests=own)
    assert result.ok is is_ours


# --- what an answer shows


ANSWER = Completion(state=CompletionState.OK, text="Hi.", has_content=True, tokens=4, pieces=4, seconds=0.5)


@over(
    "result, verdict",
    [
        (judged_answer(act(Proof.ANSWER), ANSWER), Verdict.OK),
        (judged_answer(act(Proof.ANSWER), replace(ANSWER, has_content=False, has_reasoning=True)), Verdict.REASONED),
        (judged_answer(act(Proof.ANSWER), replace(ANSWER, thinks_aloud=True)), Verdict.THINKS_ALOUD),
        (judged_answer(act(Proof.ANSWER), replace(ANSWER, has_content=False)), Verdict.EMPTY),
        (judged_stream(act(Proof.STREAM), replace(ANSWER, has_content=False, has_reasoning=True)), Verdict.REASONED),
        (judged_tool_call(act(Proof.TOOL_CALL), ANSWER), Verdict.NO_CALL),
        (
            judged_tool_call(act(Proof.TOOL_CALL), replace(ANSWER, text='<tool_call>{"name": "get_weather"}')),
            Verdict.NO_PARSER,
        ),
        (
            judged_tool_call(
                act(Proof.TOOL_CALL),
                replace(ANSWER, has_content=False, has_reasoning=True, finish_reason="length"),
            ),
            Verdict.NO_CALL,
        ),
        (judged_long_prompt(act(Proof.LONG_PROMPT), replace(ANSWER, has_found=True), has_room=True), Verdict.OK),
        (
            judged_long_prompt(
                act(Proof.LONG_PROMPT), replace(ANSWER, has_content=False, has_reasoning=True), has_room=True
            ),
            Verdict.REASONED,
        ),
        (judged_two(act(Proof.TWO_AT_ONCE), ANSWER, ANSWER), Verdict.OK),
        (judged_key(act(Proof.WRONG_KEY, is_open=True), (200, 200)), Verdict.OPEN),
        (judged_key(act(Proof.WRONG_KEY), (401, 200)), Verdict.LOCAL),
        (judged_key(act(Proof.WRONG_KEY), (500, 500)), Verdict.REFUSED),
        (judged_key(act(Proof.WRONG_KEY), "no answer"), Verdict.SILENT),
    ],
)
def test_what_it_shows(result: RequestResult, verdict: Verdict) -> None:
    assert shown(result) == verdict
    assert "null" in result.detail or verdict is not Verdict.REASONED


def test_every_state_of_an_answer_has_a_verdict() -> None:
    for state in CompletionState:
        result = judged_two(act(Proof.TWO_AT_ONCE), ANSWER, replace(ANSWER, state=state))
        assert (shown(result) == Verdict.OK) is (state is CompletionState.OK)
    assert json.dumps(dict(judged_two(act(Proof.TWO_AT_ONCE), ANSWER, ANSWER).figures))
