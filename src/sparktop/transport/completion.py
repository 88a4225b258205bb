"""One short completion of an engine, asked through the connection to its node; every outcome is a value.

What an engine's client would send (OpenAI's API as vLLM and SGLang serve it): the model's name from /v1/models, then
/v1/chat/completions, or /v1/completions where the model has no chat template. The answer is streamed, so that the time
to the first token is seen. A key is sent in the Authorization header and stands in no result and no detail.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from sparktop import sanitise
from sparktop.errors import LinkLost, TransportError
from sparktop.transport.base import Transport
from sparktop.transport.http import import_httpx, open_client
from sparktop.transport.sse import EventReader
from sparktop.transport.threads import in_thread

if TYPE_CHECKING:
    import httpx

IDLE_S = 300.0
"""Without a byte for so long it hangs; a first request may compile kernels that long."""
MODELS_S = 20.0
ANSWER_LIMIT_BYTES = 4 * 1024 * 1024
TEXT_CHARS = 400


class CompletionState(StrEnum):
    OK = "ok"
    UNREACHABLE = "unreachable"
    """Nothing listens, the forward is not permitted, or the engine closed the connection."""
    DENIED = "denied"
    """It wants a key, or another one."""
    REFUSED = "refused"
    """It answered with an error."""
    HANGS = "hangs"
    BROKEN = "broken"
    """The answer ended in the middle, or is none."""
    EMPTY = "empty"
    """It answered, without a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """How it went."""

    state: CompletionState
    detail: str = ""
    """Why, sanitised."""
    path: str = ""
    model: str = ""
    text: str = ""
    """The beginning of what it said, sanitised."""
    has_content: bool = False
    has_reasoning: bool = False
    tokens: int | None = None
    """By its own count, else by the pieces that came."""
    finish_reason: str = ""
    first_token_s: float | None = None
    """From the request."""
    last_token_s: float | None = None
    pieces: int = 0
    seconds: float = 0.0
    """Of all of it, the question for the model's name too."""


Told = Callable[[int], None]
"""Called with the number of pieces so far."""
_NOTHING: Mapping[str, Any] = {}


async def complete(
    transport: Transport,
    host: str,
    port: int,
    *,
    prompt: str,
    max_tokens: int,
    api_key: str = "",
    told: Told = lambda count: None,
    idle_s: float = IDLE_S,
    more: Mapping[str, Any] = _NOTHING,
) -> Completion:
    """Ask once; `more` are further fields of the request, left out again where the engine refuses them.

    Raises:
        LinkLost: the connection to the node ended.
    """
    httpx = await in_thread(import_httpx)
    where = f"{host}:{port}"
    began_s = time.monotonic()
    result: Completion
    async with AsyncExitStack() as stack:
        try:
            timeout = httpx.Timeout(idle_s, connect=15.0)
            client = await open_client(stack, transport, host, port, timeout=timeout)
            if api_key:
                client.headers["Authorization"] = f"Bearer {api_key}"
            result = await _ask(client, prompt, max_tokens, told, more)
        except LinkLost:
            raise
        except (TimeoutError, httpx.TimeoutException):
            result = _failed(CompletionState.HANGS, f"{where} has sent nothing for {idle_s:g} s")
        except TransportError as error:
            result = _failed(CompletionState.UNREACHABLE, error.message)
        except httpx.RemoteProtocolError as error:
            if "without sending" in str(error):
                result = _failed(CompletionState.UNREACHABLE, f"{where} closed the connection without an answer")
            else:
                said = sanitise.line(str(error), limit=80)
                result = _failed(CompletionState.BROKEN, f"{where} doesn't speak HTTP ({said})")
        except (httpx.NetworkError, OSError):
            result = _failed(CompletionState.UNREACHABLE, f"nothing answers on {where}, or it closed the connection")
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            result = _failed(CompletionState.BROKEN, f"{where}: {type(error).__name__}")
    return _without(replace(result, seconds=time.monotonic() - began_s), api_key)


async def _ask(
    client: httpx.AsyncClient, prompt: str, max_tokens: int, told: Told, more: Mapping[str, Any]
) -> Completion:
    model = await _model(client)
    if isinstance(model, Completion):
        return model
    common: dict[str, Any] = {"max_tokens": max_tokens, "temperature": 0, "stream": True}
    if model:
        common["model"] = model
    chat = {**common, "messages": [{"role": "user", "content": prompt}]}
    result = await _post(client, "/v1/chat/completions", {**chat, **more}, told)
    if result.state is CompletionState.REFUSED and _has_no_chat(result.detail):
        result = await _post(client, "/v1/completions", {**common, **more, "prompt": prompt}, told)
    elif more and result.state is CompletionState.REFUSED:
        result = await _post(client, "/v1/chat/completions", chat, told)
    return replace(result, model=sanitise.line(model, limit=128))


async def _model(client: httpx.AsyncClient) -> str | Completion:
    """The name under which the first model is served; empty where it isn't told."""
    async with asyncio.timeout(MODELS_S), client.stream("GET", "/v1/models") as response:
        body = await _body(response)
        if response.status_code in (401, 403):
            return _denied(response.status_code, "/v1/models")
        if response.status_code != 200:
            return ""
    models = _mapping(_parsed(body)).get("data")
    first = _mapping(models[0]).get("id") if isinstance(models, list) and models else None
    return first if isinstance(first, str) else ""


async def _post(client: httpx.AsyncClient, path: str, body: Mapping[str, Any], told: Told) -> Completion:
    began_s = time.monotonic()
    async with client.stream("POST", path, json=body, headers={"Accept": "text/event-stream"}) as response:
        status = response.status_code
        if status in (401, 403):
            return _denied(status, path)
        if status != 200:
            return _failed(CompletionState.REFUSED, _error_of(status, path, await _body(response)), path=path)
        answer = _Answer(path, began_s)
        if "event-stream" not in response.headers.get("content-type", ""):
            answer.take(_parsed(await _body(response)))
            return answer.result(is_whole=True)
        events, size = EventReader(), 0
        async for chunk in response.aiter_raw():
            size += len(chunk)
            for data in events.feed(chunk):
                answer.event(data)
            told(answer.pieces)
            if answer.is_done or size > ANSWER_LIMIT_BYTES:
                break
        else:
            for data in events.end():
                answer.event(data)
        return answer.result(is_whole=answer.is_done or bool(answer.finish_reason))


class _Answer:
    """What has come of an answer so far."""

    def __init__(self, path: str, began_s: float) -> None:
        self.path = path
        self.pieces = 0
        self.is_done = False
        self.finish_reason = ""
        self._began_s = began_s
        self._first_s: float | None = None
        self._last_s: float | None = None
        self._text = ""
        self._has_content = self._has_reasoning = False
        self._counted: int | None = None
        self._error = ""

    def event(self, data: str) -> None:
        if data.strip() == "[DONE]":
            self.is_done = True
        elif data.strip():
            self.take(_parsed(data.encode()))

    def take(self, raw: Any) -> None:
        """One piece of a stream, or a whole answer."""
        part = _mapping(raw)
        if part.get("error") and not part.get("choices"):
            self._error = _message(part) or "an error without words"
            return
        used = _mapping(part.get("usage")).get("completion_tokens")
        if isinstance(used, int) and not isinstance(used, bool) and used >= 0:
            self._counted = used
        choices = part.get("choices")
        choice = _mapping(choices[0]) if isinstance(choices, list) and choices else {}
        said = _mapping(choice.get("delta") or choice.get("message"))
        content = said.get("content") or choice.get("text")
        thought = said.get("reasoning_content") or said.get("reasoning")
        if isinstance(choice.get("finish_reason"), str):
            self.finish_reason = sanitise.name(choice["finish_reason"])
        is_content, is_thought = isinstance(content, str) and content != "", isinstance(thought, str) and thought != ""
        if not (is_content or is_thought or said.get("tool_calls")):
            return
        self.pieces += 1
        self._has_content |= is_content
        self._has_reasoning |= is_thought
        self._last_s = time.monotonic() - self._began_s
        if self._first_s is None:
            self._first_s = self._last_s
        if is_content and len(self._text) < TEXT_CHARS:
            self._text += str(content)[:TEXT_CHARS]

    def result(self, *, is_whole: bool) -> Completion:
        tokens = self._counted if self._counted is not None else self.pieces or None
        made = Completion(
            state=CompletionState.OK,
            path=self.path,
            text=sanitise.line(self._text.strip(), limit=TEXT_CHARS),
            has_content=self._has_content,
            has_reasoning=self._has_reasoning,
            tokens=tokens,
            finish_reason=self.finish_reason,
            first_token_s=self._first_s,
            last_token_s=self._last_s,
            pieces=self.pieces,
        )
        if self._error:
            said = sanitise.line(self._error, limit=200)
            return replace(made, state=CompletionState.BROKEN, detail=f"an error came in place of tokens: {said}")
        if not is_whole:
            return replace(made, state=CompletionState.BROKEN, detail="the answer broke off in the middle")
        if not tokens:
            return replace(made, state=CompletionState.EMPTY, detail="it answered without a token")
        return made


def _has_no_chat(detail: str) -> bool:
    """No such path, or a model without a chat template: then a plain completion may do. Not where the model's name is
    what is unknown."""
    words = detail.lower()
    return "chat template" in words or "chat_template" in words or ("status 404" in words and "model" not in words)


def _error_of(status: int, path: str, body: bytes) -> str:
    said = _message(_mapping(_parsed(body)))
    return f"{path} answers status {status}{f': {sanitise.line(said, limit=200)}' if said else ''}"


def _message(raw: Mapping[str, Any]) -> str:
    """vLLM puts it under error.message (0.10 and later) or message, SGLang under message or detail."""
    error = raw.get("error")
    inner = error.get("message") if isinstance(error, Mapping) else error
    for found in (inner, raw.get("message"), raw.get("detail")):
        if isinstance(found, str) and found:
            return found
    return ""


def _denied(status: int, path: str) -> Completion:
    return _failed(CompletionState.DENIED, f"{path} answers status {status}: it wants a key, or another one", path=path)


def _failed(state: CompletionState, detail: str, path: str = "") -> Completion:
    return Completion(state=state, detail=detail, path=path)


async def _body(response: httpx.Response) -> bytes:
    body = b""
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > ANSWER_LIMIT_BYTES:
            break
    return body


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _mapping(raw: Any) -> Mapping[str, Any]:
    return raw if isinstance(raw, Mapping) else {}


def _without(result: Completion, api_key: str) -> Completion:
    """An engine may put the key it got into its error's text, or its model may repeat it."""
    if not api_key:
        return result
    return replace(
        result, detail=result.detail.replace(api_key, "<masked>"), text=result.text.replace(api_key, "<masked>")
    )
