"""A completion of a simulated engine: tokens at its own pace, and none where it spins, starves or ends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from sparktop.sim.acts import Request as Asked
from sparktop.sim.answering import PREFILL_S
from sparktop.sim.begun import Machine
from sparktop.sim.http import Answer, Request, json_answer
from sparktop.sim.spark import Spark

PATHS = ("/v1/chat/completions", "/v1/completions")
_WORDS = ("Ready", ".", " How", " can", " I", " help", "?")
_THOUGHT = ("12", " x", " 17", " is", " 12", " x", " 10", ",", " 120", ",", " and", " 12", " x", " 7", ",", " 84", ".")
_RESULT = ("204", ".")
_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_LOOK_S = 0.5


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
    words = _answered(body, thinks=_thinks(spark, engine.name))
    machine.react(Asked(port=port, tokens=len(words)))
    pieces = _pieces(machine, port, body, words, is_chat=request.path.rstrip("/") == PATHS[0])
    if body.get("stream"):
        return Answer(content_type="text/event-stream; charset=utf-8", stream=pieces)
    data = b"".join([piece async for piece in pieces])
    said = [json.loads(line[6:]) for line in data.decode().splitlines() if line.startswith("data: {")]
    text = "".join(_said(one) for one in said)
    whole = {**said[0], "object": "chat.completion", "usage": {"completion_tokens": len(said)}}
    whole["choices"] = [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]
    return json_answer(whole)


Piece = tuple[str, str]
"""(field of the message, text)."""


def _thinks(spark: Spark, name: str) -> bool:
    argv = next((one.argv for one in spark.script.containers if one.name == name), ())
    return "--reasoning-parser" in argv


def _answered(body: dict[str, Any], *, thinks: bool) -> list[Piece]:
    """What it says: to the sum the result, and a thought before where it thinks; as much as is wanted where it must."""
    most = max(1, int(body.get("max_tokens") or len(_WORDS)))
    said = json.dumps(body.get("messages") or body.get("prompt") or "")
    if body.get("ignore_eos"):
        count = (most + 1) // 2
        pieces = [piece for n in range(count) for piece in (_NUMBERS[n % len(_NUMBERS)], ", ")]
        return [("content", piece) for piece in pieces[:most]]
    if "12*17" in said:
        thought = [("reasoning_content", word) for word in _THOUGHT] if thinks else []
        return [*thought, *(("content", word) for word in _RESULT)][:most]
    return [("content", word) for word in _WORDS][:most]


async def _pieces(
    machine: Machine, port: int, body: dict[str, Any], words: list[Piece], *, is_chat: bool
) -> AsyncIterator[bytes]:
    spark, t = machine.moment()
    head = {"id": f"chatcmpl-{int(t * 1000):x}", "created": int(spark.wall_s(t))}
    await machine.rest(PREFILL_S)
    begun_s, due_s = t, 0.0
    for number, (kind_of, text) in enumerate(words, 1):
        model, pace_s = await _next(machine, port)
        due_s += pace_s
        if (late := machine.moment()[1] - begun_s - PREFILL_S) < due_s:  # a rest takes longer than it should
            await machine.rest(due_s - late)
        delta = {"delta": {kind_of: text}} if is_chat else {"text": text}
        ends = "length" if body.get("ignore_eos") else "stop"
        choice = {"index": 0, **delta, "finish_reason": ends if number == len(words) else None}
        kind = "chat.completion.chunk" if is_chat else "text_completion"
        yield _event({**head, "object": kind, "model": model, "choices": [choice]})
    if (body.get("stream_options") or {}).get("include_usage"):
        yield _event({**head, "choices": [], "usage": {"completion_tokens": len(words), "prompt_tokens": 24}})
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
