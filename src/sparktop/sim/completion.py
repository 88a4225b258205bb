"""A completion of a simulated engine: tokens at its own pace, and none where it spins, starves or ends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from sparktop.sim.acts import Request as Asked
from sparktop.sim.http import Answer, Request, json_answer
from sparktop.sim.steps import Machine

PATHS = ("/v1/chat/completions", "/v1/completions")
_WORDS = ("Ready", ".", " How", " can", " I", " help", "?")
_LOOK_S = 0.5
_PREFILL_S = 0.4


async def answer(machine: Machine, port: int, request: Request) -> Answer:
    """The answer to a request for one, of the engine on that port.

    Raises:
        ConnectionResetError: from here or from its stream, when the engine ends.
    """
    try:
        body = json.loads(request.body or b"{}")
    except ValueError:
        body = None
    if not isinstance(body, dict):
        return json_answer({"error": {"message": "the body is no JSON object", "type": "BadRequestError"}}, status=400)
    spark, t = machine.moment()
    engine = spark.engine_at(port, t)
    if engine is None:
        raise ConnectionResetError("the engine ended")
    if body.get("model") not in (None, engine.model):
        message = f"The model `{body.get('model')}` does not exist."
        return json_answer({"error": {"message": message, "type": "NotFoundError", "code": 404}}, status=404)
    machine.react(Asked(port=port))
    pieces = _pieces(machine, port, body, is_chat=request.path.rstrip("/") == PATHS[0])
    if body.get("stream"):
        return Answer(content_type="text/event-stream; charset=utf-8", stream=pieces)
    text = b"".join([piece async for piece in pieces])
    said = [json.loads(line[6:]) for line in text.decode().splitlines() if line.startswith("data: {")]
    words = "".join(_said(one) for one in said)
    whole = {**said[0], "object": "chat.completion", "usage": {"completion_tokens": len(said)}}
    whole["choices"] = [{"index": 0, "message": {"role": "assistant", "content": words}, "finish_reason": "stop"}]
    return json_answer(whole)


async def _pieces(machine: Machine, port: int, body: dict[str, Any], *, is_chat: bool) -> AsyncIterator[bytes]:
    wanted = min(len(_WORDS), int(body.get("max_tokens") or len(_WORDS)))
    spark, t = machine.moment()
    head = {"id": f"chatcmpl-{int(t * 1000):x}", "created": int(spark.wall_s(t))}
    await machine.rest(_PREFILL_S)
    for number in range(wanted):
        model, pace_s = await _next(machine, port)
        await machine.rest(pace_s)
        delta = {"delta": {"content": _WORDS[number]}} if is_chat else {"text": _WORDS[number]}
        choice = {"index": 0, **delta, "finish_reason": "stop" if number == wanted - 1 else None}
        kind = "chat.completion.chunk" if is_chat else "text_completion"
        yield _event({**head, "object": kind, "model": model, "choices": [choice]})
    if (body.get("stream_options") or {}).get("include_usage"):
        yield _event({**head, "choices": [], "usage": {"completion_tokens": wanted, "prompt_tokens": 14}})
    yield b"data: [DONE]\n\n"


async def _next(machine: Machine, port: int) -> tuple[str, float]:
    """(model, seconds until the next token), as soon as the engine works on anything."""
    while True:
        spark, t = machine.moment()
        engine = spark.engine_at(port, t)
        if engine is None:
            raise ConnectionResetError("the engine ended")
        holds, gives = engine.tracks["running"].at(t) > 0, engine.tracks["gen_tps"].at(t)
        if gives > 0 or not holds:
            return engine.model, engine.tracks["itl_s"].at(t)
        await machine.rest(_LOOK_S)


def _event(words: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(words).encode() + b"\n\n"


def _said(words: dict[str, Any]) -> str:
    choice = words["choices"][0] if words.get("choices") else {}
    return str(choice.get("delta", {}).get("content") or choice.get("text") or "")
