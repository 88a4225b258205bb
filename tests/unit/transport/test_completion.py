"""One completion, from engines that serve and engines that don't, over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.completion_support import NOT_FOUND, SAID, Answer, EngineStage, delta, events, hang, reply
from tests.table import over

from sparktop.transport.completion import LINE_LIMIT_BYTES, Completion, CompletionState, EventReader, complete
from sparktop.transport.local import LocalTransport

NO_TEMPLATE = reply(
    {"error": {"message": "default chat template is no longer allowed, so you must provide a chat template"}},
    "400 Bad Request",
)


@pytest.fixture
async def transport() -> AsyncIterator[LocalTransport]:
    made = LocalTransport()
    yield made
    await made.close()


async def ask(transport: LocalTransport, stage: EngineStage, **more: Any) -> Completion:
    async with asyncio.timeout(20):
        return await complete(
            transport, "127.0.0.1", stage.port, prompt="Say: ready", max_tokens=16, **{"idle_s": 10.0, **more}
        )


async def asked(
    transport: LocalTransport, *, key: str = "", words: dict[str, Any] | None = None, **answers: Answer
) -> Completion:
    async with EngineStage(**answers) as stage:
        return await ask(transport, stage, api_key=key, **(words or {}))


async def test_an_answer_comes_in_pieces(transport: LocalTransport) -> None:
    told: list[int] = []
    async with EngineStage() as stage:
        found = await ask(transport, stage, progress=told.append)
        assert stage.bodies == [
            {
                "max_tokens": 16,
                "temperature": 0,
                "stream": True,
                "model": "Qwen/Qwen3.6-35B-A3B-FP8",
                "messages": [{"role": "user", "content": "Say: ready"}],
                "stream_options": {"include_usage": True},
            }
        ]
        assert all("authorization" not in head.lower() for head in stage.heads)
    assert found.state is CompletionState.OK
    assert (found.text, found.tokens, found.finish_reason) == ("ready", 2, "stop")
    assert found.first_token_s is not None
    assert 0 <= found.first_token_s <= found.seconds
    assert told[-1] == 2


NO_EMBEDDINGS = reply({"error": {"message": "The model does not support Embeddings API"}}, "400 Bad Request")
NO_CHAT = reply({"error": {"message": "The model does not support Chat Completions API"}}, "400 Bad Request")
EMBEDDED = reply(
    {"object": "list", "data": [{"index": 0, "embedding": [0.5, -1, 2e-3]}], "usage": {"prompt_tokens": 3}}
)
RANKED = reply({"results": [{"index": 0, "relevance_score": 0.93}]})
SGLANG_RANKED = reply([{"index": 0, "score": 0.93, "document": "x"}])
POOLED = reply({"data": [{"index": 0, "data": [[0.5, 1.0], [0.5, 1.0]]}]})


@over(
    "is_pooling, answers, path, numbers",
    [
        (True, {"/v1/embeddings": EMBEDDED}, "/v1/embeddings", 3),
        (True, {"/v1/embeddings": NO_EMBEDDINGS, "/v1/rerank": RANKED}, "/v1/rerank", 1),
        (True, {"/v1/rerank": SGLANG_RANKED}, "/v1/rerank", 1),
        (True, {"/pooling": POOLED}, "/pooling", 4),
        (None, {"/v1/embeddings": EMBEDDED, "chat": NOT_FOUND, "plain": NOT_FOUND}, "/v1/embeddings", 3),
        (None, {"/v1/embeddings": EMBEDDED, "chat": NO_CHAT, "plain": NOT_FOUND}, "/v1/embeddings", 3),
        (None, {"/v1/embeddings": EMBEDDED}, "/v1/chat/completions", 0),
    ],
)
async def test_what_writes_no_text_is_asked_for_what_it_serves(
    transport: LocalTransport, is_pooling: bool | None, answers: dict[str, Answer], path: str, numbers: int
) -> None:
    found = await asked(transport, words={"is_pooling": is_pooling}, **answers)
    assert (found.state, found.path, found.numbers) == (CompletionState.OK, path, numbers)


@over(
    "is_pooling, answers, state, why",
    [
        (False, {"/v1/embeddings": EMBEDDED, "chat": NOT_FOUND, "plain": NOT_FOUND}, "refused", "/v1/completions"),
        (None, {"chat": NOT_FOUND, "plain": NOT_FOUND}, "refused", "/v1/completions answers status 404"),
        (False, {"chat": EMBEDDED}, "empty", "it answered without a token"),
        (True, {}, "refused", "/v1/embeddings answers status 404"),
        (True, {"/v1/embeddings": reply(b"", "500 Internal Server Error")}, "refused", "/v1/embeddings answers"),
        (
            True,
            {"/v1/embeddings": reply(b'{"data": [{"embedding": [NaN]}]}')},
            "broken",
            "/v1/embeddings answers without a number",
        ),
        (
            True,
            {
                "/v1/embeddings": reply(
                    {"choices": [{"message": {"content": "hello"}}], "data": [{"embedding": [True]}]}
                )
            },
            "broken",
            "/v1/embeddings answers without a number",
        ),
        (
            True,
            {"/v1/embeddings": reply({"data": [{"embedding": [None, "x"]}]})},
            "broken",
            "/v1/embeddings answers without a number",
        ),
    ],
)
async def test_an_answer_without_numbers_proves_nothing(
    transport: LocalTransport, is_pooling: bool | None, answers: dict[str, Answer], state: str, why: str
) -> None:
    found = await asked(transport, words={"is_pooling": is_pooling}, **answers)
    assert found.state == state
    assert why in found.detail


async def test_first_token_is_not_the_role(transport: LocalTransport) -> None:
    gate = asyncio.Event()
    told: list[int] = []

    async def slow(writer: asyncio.StreamWriter) -> None:
        whole = events(delta(role="assistant", content=""), done=False)
        writer.write(whole)
        await writer.drain()
        await gate.wait()
        writer.write(events(delta("stop", content="x")).split(b"\r\n\r\n", 1)[1])
        await writer.drain()

    def tell(count: int) -> None:
        told.append(count)
        gate.set()

    async with EngineStage(chat=slow) as stage:
        found = await ask(transport, stage, progress=tell)
    assert told[0] == 0
    assert found.tokens == 1


async def test_reasoning_alone_is_an_answer(transport: LocalTransport) -> None:
    for name in ("reasoning_content", "reasoning"):
        found = await asked(transport, chat=events(delta(**{name: "hm"}), delta("length", content=None)))
        assert found.state is CompletionState.OK
        assert (found.has_content, found.has_reasoning, found.finish_reason) == (False, True, "length")


@pytest.mark.parametrize(
    ("file", "kind", "tokens"), [("stream.txt", "text/event-stream", 4), ("chat.json", "application/json", 8)]
)
async def test_what_a_real_vllm_answers_is_read(transport: LocalTransport, file: str, kind: str, tokens: int) -> None:
    body = (Path(__file__).parents[2] / "real/captures/vllm-0.32.0" / file).read_bytes()
    found = await asked(transport, chat=reply(body, kind=kind))
    assert (found.state, found.tokens, found.finish_reason) == (CompletionState.OK, tokens, "length")


async def test_without_a_chat_template_a_plain_completion_is_asked(transport: LocalTransport) -> None:
    plain = events({"choices": [{"text": "ready", "finish_reason": "stop"}]})
    for refused in (NO_TEMPLATE, reply({"detail": "Not Found"}, "404 Not Found"), reply(b"", "404 Not Found")):
        async with EngineStage(chat=refused, plain=plain) as stage:
            found = await ask(transport, stage)
            assert stage.bodies[1]["prompt"] == "Say: ready"
            assert "messages" not in stage.bodies[1]
        assert (found.state, found.text, found.path) == (CompletionState.OK, "ready", "/v1/completions")


async def test_model_that_is_unknown_is_no_missing_path(transport: LocalTransport) -> None:
    words = {"error": {"message": "The model `x` does not exist.", "code": 404}}
    async with EngineStage(chat=reply(words, "404 Not Found")) as stage:
        found = await ask(transport, stage)
        assert len(stage.bodies) == 1
    assert found.state is CompletionState.REFUSED
    assert "model `x`" in found.detail


async def test_whole_answer_in_place_of_a_stream_is_read(transport: LocalTransport) -> None:
    body = {"choices": [{"message": {"content": "ready"}, "finish_reason": "stop"}], "usage": {"completion_tokens": 1}}
    found = await asked(transport, chat=reply(body))
    assert (found.state, found.text, found.tokens) == (CompletionState.OK, "ready", 1)


async def test_key_is_sent_and_stands_in_no_result(transport: LocalTransport) -> None:
    said = reply({"error": {"message": "Incorrect API key provided: sk-canary"}}, "400 Bad Request")
    async with EngineStage(chat=said) as stage:
        found = await ask(transport, stage, api_key="sk-canary")
        assert all("authorization: bearer sk-canary" in head.lower() for head in stage.heads)
    assert "canary" not in repr(found)
    repeated = await asked(transport, key="sk-canary", chat=events(delta("stop", content="sk-canary")))
    assert "canary" not in repr(repeated)


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden"])
async def test_key_that_is_missing_is_told(transport: LocalTransport, status: str) -> None:
    assert (await asked(transport, models=reply({"error": "Unauthorized"}, status))).state is CompletionState.DENIED
    assert (await asked(transport, chat=reply({"error": "Unauthorized"}, status))).state is CompletionState.DENIED


async def test_error_of_the_engine_is_told(transport: LocalTransport) -> None:
    found = await asked(transport, chat=reply({"error": {"message": "EngineCore died"}}, "500 Internal Server Error"))
    assert (found.state, found.detail) == (
        CompletionState.REFUSED,
        "/v1/chat/completions answers status 500: EngineCore died",
    )


async def test_error_in_the_stream_is_told(transport: LocalTransport) -> None:
    found = await asked(transport, chat=events(delta(content="re"), {"error": {"message": "EngineCore died"}}))
    assert found.state is CompletionState.BROKEN
    assert "EngineCore died" in found.detail


async def test_answer_that_breaks_off_is_none(transport: LocalTransport) -> None:
    found = await asked(transport, chat=events(delta(content="re"), done=False))
    assert (found.state, found.text) == (CompletionState.BROKEN, "re")
    cut = SAID.replace(b"Connection: close", b"Content-Length: 99999")
    assert (await asked(transport, chat=cut)).state is CompletionState.OK  # all of it came, whatever the length said


@pytest.mark.parametrize(
    ("pieces", "state", "tokens"),
    [
        ((delta("stop", content=""),), CompletionState.EMPTY, None),
        ((delta("length", content=""),), CompletionState.OK, None),
        ((delta("length", content=""), {"choices": [], "usage": {"completion_tokens": 16}}), CompletionState.OK, 16),
        ((delta("stop", content=""), {"choices": [], "usage": {"completion_tokens": 0}}), CompletionState.EMPTY, 0),
    ],
)
async def test_tokens_count_where_none_of_them_is_text(
    transport: LocalTransport, pieces: tuple[Any, ...], state: CompletionState, tokens: int | None
) -> None:
    found = await asked(transport, chat=events(*pieces))
    assert (found.state, found.tokens, found.has_content) == (state, tokens, False)


async def test_an_engine_that_refuses_to_count_is_asked_without(transport: LocalTransport) -> None:
    async def picky(writer: asyncio.StreamWriter) -> None:
        refused = "stream_options" in stage.bodies[-1]
        writer.write(reply({"error": {"message": "extra fields"}}, "400 Bad Request") if refused else SAID)

    async with EngineStage(chat=picky) as stage:
        assert (await ask(transport, stage)).state is CompletionState.OK


async def test_engine_that_hangs_is_told(transport: LocalTransport) -> None:
    async with EngineStage(chat=hang) as stage:
        found = await ask(transport, stage, idle_s=0.3)
    assert found.state is CompletionState.HANGS


async def test_nobody_there_is_told(transport: LocalTransport) -> None:
    async with EngineStage() as stage:
        port = stage.port
    found = await complete(transport, "127.0.0.1", port, prompt="x", max_tokens=1)
    assert found.state is CompletionState.UNREACHABLE


async def test_what_is_no_http_is_told(transport: LocalTransport) -> None:
    found = await asked(transport, models=b"\x15\x03\x03\x00\x02\x02\x16 not http\r\n\r\n")
    assert found.state in (CompletionState.BROKEN, CompletionState.UNREACHABLE)


async def test_giving_up_ends_the_request(transport: LocalTransport) -> None:
    """vLLM and SGLang abort a request whose connection is closed."""
    async with EngineStage(chat=hang) as stage:
        asking = asyncio.ensure_future(ask(transport, stage))
        async with asyncio.timeout(10):
            await stage.asked.wait()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await stage.aborted.wait()


@pytest.mark.parametrize(
    "body", [b"null", b"[]", b"[" * 100_000, b"\xff\xfe", b'{"choices":[[]]}', b'{"choices":"x","usage":7}', b"data: x"]
)
async def test_answers_of_another_shape_are_told(transport: LocalTransport, body: bytes) -> None:
    assert (await asked(transport, chat=reply(body))).state is CompletionState.EMPTY
    stream = events(done=True).replace(b"data: [DONE]", b"data: " + body.replace(b"\n", b" ") + b"\n\ndata: [DONE]")
    assert (await asked(transport, chat=stream)).state is CompletionState.EMPTY
    assert (await asked(transport, models=reply(body))).state is CompletionState.OK


async def test_model_s_name_and_text_are_data(transport: LocalTransport) -> None:
    models = reply({"data": [{"id": "a\x1b]52;c;aGk=\x07b\nc"}]})
    found = await asked(transport, models=models, chat=events(delta("stop", content="\x1b[31mred\x07")))
    for text in (found.model, found.text, found.detail):
        assert text.isprintable()
    assert "red" in found.text


# --- the events


def test_events_are_read_across_any_cut() -> None:
    raw = b": hello\r\ndata: one\r\n\r\nevent: x\ndata: two\ndata:three\n\ndata: open"
    for size in range(1, len(raw) + 1):
        reader = EventReader()
        out = [data for at in range(0, len(raw), size) for data in reader.feed(raw[at : at + size])]
        assert out == ["one", "two\nthree"]
        assert reader.end() == ["open"]


def test_line_without_an_end_is_left_out() -> None:
    reader = EventReader()
    assert reader.feed(b"data: " + b"x" * LINE_LIMIT_BYTES * 2) == []
    assert reader.feed(b"yyy\n\ndata: after\n\n") == ["after"]


@given(st.lists(st.binary(max_size=200), max_size=10))
def test_any_bytes_are_read(chunks: list[bytes]) -> None:
    reader = EventReader()
    for chunk in chunks:
        assert all(isinstance(data, str) for data in reader.feed(chunk))
    reader.end()


@given(st.lists(st.text(alphabet=st.characters(blacklist_characters="\r\n", blacklist_categories=["Cs"])), max_size=8))
def test_what_was_written_is_read(texts: list[str]) -> None:
    reader = EventReader()
    raw = b"".join(b"data: " + json.dumps(text).encode() + b"\n\n" for text in texts)
    assert [json.loads(data) for data in reader.feed(raw)] == texts
