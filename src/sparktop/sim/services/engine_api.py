"""An engine's HTTP endpoint, and the completions it streams."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

from sparktop.sim.reaction import acts
from sparktop.sim.reaction.request import PREFILL_S
from sparktop.sim.scenario.script import EngineScript
from sparktop.sim.services.http import Answer, HttpRequest, json_answer
from sparktop.sim.services.process import Machine
from sparktop.sim.spark.exposition import CONTENT_TYPE, exposition
from sparktop.sim.spark.spark import Spark


def answer(spark: Spark, engine: EngineScript, t: float, request: HttpRequest) -> Answer:
    """The answer of one engine at second `t` of its node's showing."""
    path = request.path.rstrip("/") or "/"
    if request.method != "GET":
        return json_answer({"detail": "Method Not Allowed"}, status=405)
    if path == "/metrics" and engine.metrics:
        return Answer(body=exposition(spark, engine, t), content_type=CONTENT_TYPE)
    if path == "/v1/models":
        owner = "vllm" if engine.kind == "vllm" else "sglang"
        model: dict[str, Any] = {"id": engine.model, "object": "model", "owned_by": owner, "root": engine.model}
        model |= {"created": int(spark.wall_s(t)), "parent": None, "max_model_len": engine.max_model_len}
        return json_answer({"object": "list", "data": [model]})
    if path == "/health":
        return Answer(content_type="text/plain")
    if path == "/version" and engine.kind == "vllm":
        return json_answer({"version": engine.version})
    return json_answer({"detail": "Not Found"}, status=404)


PATHS = ("/v1/chat/completions", "/v1/completions")
_WORDS = ("Ready", ".", " How", " can", " I", " help", "?")
_THOUGHT = ("12", " x", " 17", " is", " 12", " x", " 10", ",", " 120", ",", " and", " 12", " x", " 7", ",", " 84", ".")
_RESULT = ("204", ".")
_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_LOOK_S = 0.5


async def answer_completion(machine: Machine, port: int, request: HttpRequest) -> Answer:
    """The answer to a completion request to the engine on that port.

    Raises:
        ConnectionResetError: the engine exits, before the answer or within its stream.
    """
    body = json.loads(request.body)
    spark, t = machine.moment()
    engine = spark.engine_at(port, t)
    if engine is None:
        raise ConnectionResetError("the engine ended")
    if body.get("model") not in (None, engine.model):
        message = f"The model `{body.get('model')}` does not exist."
        return json_answer({"error": {"message": message, "type": "NotFoundError", "code": 404}}, status=404)
    argv = _argv(spark, engine.name)
    tool = _tool(body)
    if tool and not _takes_tools(engine.kind, argv):
        return json_answer({"error": {"message": _NO_PARSER, "type": "BadRequestError", "code": 400}}, status=400)
    words = [("tool", tool)] if tool else _answered(body, thinks="--reasoning-parser" in argv)
    machine.react(acts.complete(port=port, tokens=len(words)))
    is_chat = request.path.rstrip("/") == PATHS[0]
    if body.get("stream") is False:
        return await _whole(machine, port, body, words, is_chat=is_chat)
    pieces = _pieces(machine, port, body, words, is_chat=is_chat)
    return Answer(content_type="text/event-stream; charset=utf-8", stream=pieces)


Piece = tuple[str, str]
"""(field of the message, text)."""
_NO_PARSER = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
_WORD = re.compile(r"(?:code word is|nothing else:) ([\w-]+)")
_TOKEN_CHARS = 4


def _argv(spark: Spark, name: str) -> tuple[str, ...]:
    return next((container.argv for container in spark.script.containers if container.name == name), ())


def _takes_tools(kind: str, argv: tuple[str, ...]) -> bool:
    return "--tool-call-parser" in argv and (kind != "vllm" or "--enable-auto-tool-choice" in argv)


def _tool(body: dict[str, Any]) -> str:
    """The name of the first tool that the request offers; "" for none."""
    tools = body.get("tools") or [{}]
    return str((tools[0].get("function") or {}).get("name") or "")


def _message(words: list[Piece]) -> dict[str, Any]:
    """A message, or a part of one, that holds these pieces."""
    message: dict[str, Any] = {}
    for kind, text in words:
        if kind == "tool":
            function = {"name": text, "arguments": '{"city": "Oslo"}'}
            message["tool_calls"] = [{"index": 0, "id": "call-1", "type": "function", "function": function}]
        else:
            message[kind] = message.get(kind, "") + text
    return message


async def _whole(machine: Machine, port: int, body: dict[str, Any], words: list[Piece], *, is_chat: bool) -> Answer:
    """The answer in one piece, as long after the request as its tokens take."""
    _, pace_s = await _next(machine, port)
    await machine.rest(PREFILL_S + pace_s * len(words))
    message = {"role": "assistant", "content": None, **_message(words)}
    part = {"message": message} if is_chat else {"text": message["content"] or ""}
    choice = {"index": 0, **part, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
    head = {**_head(machine), "object": "chat.completion", "model": (await _next(machine, port))[0]}
    return json_answer({**head, "choices": [choice], "usage": _usage(body, words)})


def _head(machine: Machine) -> dict[str, Any]:
    spark, t = machine.moment()
    return {"id": f"chatcmpl-{int(t * 1000):x}", "created": int(spark.wall_s(t))}


def _usage(body: dict[str, Any], words: list[Piece]) -> dict[str, int]:
    prompt = json.dumps(body.get("messages") or body.get("prompt") or "")
    prompt_tokens = max(24, len(prompt) // _TOKEN_CHARS)
    return {
        "prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens + len(words), "completion_tokens": len(words),
    }  # fmt: skip


def _answered(body: dict[str, Any], *, thinks: bool) -> list[Piece]:
    """The answer's pieces: the result of a sum, a thought first if the model reasons; `max_tokens` of them with
    ignore_eos."""
    most = max(1, int(body.get("max_tokens") or len(_WORDS)))
    prompt = json.dumps(body.get("messages") or body.get("prompt") or "")
    thought: tuple[str, ...] = ()
    if body.get("ignore_eos") or "from one to thirty" in prompt:
        count = (most + 1) // 2 if body.get("ignore_eos") else 30
        said = tuple(piece for n in range(count) for piece in (_NUMBERS[n % len(_NUMBERS)], ", "))
    elif (word := _WORD.search(prompt)) is not None:
        return [("content", word[1]), ("content", ".")]
    elif "12*17" in prompt:
        thought, said = _THOUGHT if thinks else (), _RESULT
    else:
        said = _WORDS
    return [*(("reasoning_content", word) for word in thought), *(("content", word) for word in said)][:most]


async def _pieces(
    machine: Machine, port: int, body: dict[str, Any], words: list[Piece], *, is_chat: bool
) -> AsyncIterator[bytes]:
    head, begun_s, due_s = _head(machine), machine.moment()[1], 0.0
    await machine.rest(PREFILL_S)
    for number, (kind_of, text) in enumerate(words, 1):
        model, pace_s = await _next(machine, port)
        due_s += pace_s
        if (late := machine.moment()[1] - begun_s - PREFILL_S) < due_s:  # a rest takes longer than it should
            await machine.rest(due_s - late)
        delta = {"delta": _message([(kind_of, text)])} if is_chat else {"text": text}
        ends = "length" if body.get("ignore_eos") else "stop"
        choice = {"index": 0, **delta, "finish_reason": ends if number == len(words) else None}
        kind = "chat.completion.chunk" if is_chat else "text_completion"
        yield _event({**head, "object": kind, "model": model, "choices": [choice]})
    if (body.get("stream_options") or {}).get("include_usage"):
        yield _event({**head, "choices": [], "usage": _usage(body, words)})
    yield b"data: [DONE]\n\n"


async def _next(machine: Machine, port: int) -> tuple[str, float]:
    """(model, seconds until the next token); waits until the engine processes requests."""
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
