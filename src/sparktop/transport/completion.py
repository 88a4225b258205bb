"""Request one completion from an engine, streamed or whole."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from sparktop import sanitise
from sparktop.bounds import json_of, whole_or_none
from sparktop.dataclass import dataclass
from sparktop.errors import LinkLost, TransportError
from sparktop.sanitise import items, mapping
from sparktop.transport.base import Transport
from sparktop.transport.endpoint import import_httpx, open_client
from sparktop.transport.threads import in_thread

if TYPE_CHECKING:
    import httpx

KEY_VARIABLE = "SPARKTOP_API_KEY"
"""In the operator's own environment: the engine's API key, where its container doesn't show it."""
LINE_LIMIT_BYTES = 1 << 20


class EventReader:
    """Parses server-sent events; a line longer than LINE_LIMIT_BYTES is skipped, and no input raises."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[str] = []
        self._skipping = False

    def feed(self, chunk: bytes) -> list[str]:
        """The data of the events completed by this chunk."""
        out: list[str] = []
        *lines, partial = (self._rest + chunk).replace(b"\r\n", b"\n").split(b"\n")
        for line in lines:
            if self._skipping:
                self._skipping = False
                continue
            self._take(line.rstrip(b"\r"), out)
        if len(partial) > LINE_LIMIT_BYTES:
            partial, self._skipping = b"", True
        self._rest = b"" if self._skipping else partial
        return out

    def end(self) -> list[str]:
        """The data of an event without its closing blank line, at the end of the stream."""
        out: list[str] = []
        if not self._skipping and self._rest:
            self._take(self._rest.rstrip(b"\r"), out)
        self._rest = b""
        self._take(b"", out)
        return out

    def _take(self, line: bytes, out: list[str]) -> None:
        if not line:
            if self._data:
                out.append("\n".join(self._data))
                self._data = []
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" ").decode("utf-8", "replace"))


IDLE_S = 300.0
"""Seconds without a byte after which the engine counts as hung; a first request may compile kernels that long."""


MODELS_S = 20.0


ANSWER_LIMIT_BYTES = 4 * 1024 * 1024


TEXT_CHARS = 400


class CompletionState(StrEnum):
    OK = "ok"
    UNREACHABLE = "unreachable"
    """Nothing listens, forwarding is not permitted, or the engine closed the connection."""
    DENIED = "denied"
    """The engine requires a key, or another one."""
    REFUSED = "refused"
    """The engine answered with an error."""
    HANGS = "hangs"
    BROKEN = "broken"
    """The answer broke off, or is none."""
    EMPTY = "empty"
    """The engine answered without a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The result of one completion."""

    state: CompletionState
    detail: str = ""
    """Why, sanitised."""
    status: int | None = None
    """The HTTP status of an answer that refuses."""
    path: str = ""
    model: str = ""
    text: str = ""
    """The beginning of the answer, sanitised."""
    has_content: bool = False
    has_reasoning: bool = False
    has_found: bool = False
    """What `seeks` names stands in the answer or in its reasoning."""
    thinks_aloud: bool = False
    """Its reasoning stands in the answer, between <think> marks."""
    tool_names: tuple[str, ...] = ()
    """The tools that it calls, sanitised."""
    tokens: int | None = None
    """By the engine's own count, else the number of pieces received."""
    prompt_tokens: int | None = None
    """By the engine's own count."""
    finish_reason: str = ""
    first_token_s: float | None = None
    """Seconds from the request to the first token."""
    last_token_s: float | None = None
    pieces: int = 0
    numbers: int = 0
    """How many an embedding has, or a ranking's scores."""
    seconds: float = 0.0
    """Duration of all of it, including the request for the model's name."""


ProgressCallback = Callable[[int], None]
"""Called with the number of pieces so far."""


Prompt = str | Callable[[int | None], str]
"""A text, or the text for an engine whose context has so many tokens (None: it doesn't say)."""
_NOTHING: Mapping[str, Any] = {}
_USAGE: Mapping[str, Any] = {"stream_options": {"include_usage": True}}
"""A stream's own count of tokens: a piece may be several, and a token that is no text comes in no piece."""
_THINKING = "<think>"
_POOLING = ("/v1/embeddings", "/v1/rerank", "/pooling")
"""Paths that answer numbers."""
_POOLED = ("embedding", "relevance_score", "score", "data")
"""What holds the numbers of an entry of /v1/embeddings, /v1/rerank, /pooling."""
_UNREADABLE = (400, 422)
_NOT_ITS_MODELS = (400, 404, 405, 422, 501)
"""Answers of a path that is for other models."""
_NO_TEXT = ("does not support chat completions", "does not support completions")
"""vLLM's and llama.cpp's words for a model that embeds or ranks, where they know the path."""
MODELS_PATH = "/v1/models?client=sparktop"
"""The access logs of vLLM and SGLang name the path with its query, and no User-Agent: a 401 of ours is told by it."""


async def complete(
    transport: Transport,
    host: str,
    port: int,
    *,
    prompt: Prompt,
    max_tokens: int,
    api_key: str = "",
    progress: ProgressCallback = lambda count: None,
    idle_s: float = IDLE_S,
    more: Mapping[str, Any] = _NOTHING,
    is_strict: bool = False,
    is_streamed: bool = True,
    is_pooling: bool | None = False,
    seeks: str = "",
) -> Completion:
    """Request one completion.

    Args:
        more: further request fields; dropped where the engine refuses them.
        is_strict: ask for text by exactly this chat request: where it is refused, that is the answer.
        is_streamed: False: ask for the answer in one piece.
        is_pooling: True: ask for an embedding or a score in its place; None: do so where it generates no text.
        seeks: a word to look for in the answer.

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
            words = _Words(
                prompt=prompt,
                max_tokens=max_tokens,
                more=more,
                is_strict=is_strict,
                is_streamed=is_streamed,
                is_pooling=is_pooling,
            )
            result = await _ask(client, words, progress, seeks)
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
                reason = sanitise.line(str(error), limit=80)
                result = _failed(CompletionState.BROKEN, f"{where} doesn't speak HTTP ({reason})")
        except (httpx.NetworkError, OSError):
            result = _failed(CompletionState.UNREACHABLE, f"nothing answers on {where}, or it closed the connection")
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            result = _failed(CompletionState.BROKEN, f"{where}: {type(error).__name__}")
    return _without(replace(result, seconds=time.monotonic() - began_s), api_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """What is asked for; the fields as in `complete`."""

    prompt: Prompt
    max_tokens: int
    more: Mapping[str, Any]
    is_strict: bool
    is_streamed: bool
    is_pooling: bool | None


async def _ask(client: httpx.AsyncClient, words: _Words, progress: ProgressCallback, seeks: str) -> Completion:
    served = await _served(client)
    if isinstance(served, Completion):
        return served
    model, longest = served
    prompt = words.prompt if isinstance(words.prompt, str) else words.prompt(longest)
    if words.is_pooling:
        return replace(await _pooled(client, model, prompt, progress), model=sanitise.line(model, limit=128))
    more = words.more if words.is_strict or not words.is_streamed else {**_USAGE, **words.more}
    common: dict[str, Any] = {"max_tokens": words.max_tokens, "temperature": 0, "stream": words.is_streamed}
    if model:
        common["model"] = model
    chat = {**common, "messages": [{"role": "user", "content": prompt}]}
    result = await _post(client, "/v1/chat/completions", {**chat, **more}, progress, seeks)
    if result.state is not CompletionState.REFUSED:
        pass
    elif _has_no_chat(result.detail):
        if not words.is_strict:
            result = await _post(client, "/v1/completions", {**common, **more, "prompt": prompt}, progress, seeks)
        if words.is_pooling is None and result.state is CompletionState.REFUSED:
            pooled = await _pooled(client, model, prompt, progress)
            result = result if pooled.state is CompletionState.REFUSED else pooled
    elif more and not words.is_strict and result.status in _UNREADABLE:
        result = await _post(client, "/v1/chat/completions", chat, progress, seeks)
    return replace(result, model=sanitise.line(model, limit=128))


async def _pooled(client: httpx.AsyncClient, model: str, prompt: str, progress: ProgressCallback) -> Completion:
    """The answer of the first of these that its model has; the first refusal where it has none."""
    served = {"model": model} if model else {}
    refusals = []
    for path in _POOLING:
        body = {"query": prompt, "documents": [prompt]} if path == "/v1/rerank" else {"input": prompt}
        result = await _post(client, path, {**served, **body}, progress, "")
        if result.state is CompletionState.EMPTY:
            return replace(result, state=CompletionState.BROKEN, detail=f"{path} answers without a number")
        if result.status not in _NOT_ITS_MODELS:
            return result
        refusals.append(result)
    return refusals[0]


async def _served(client: httpx.AsyncClient) -> tuple[str, int | None] | Completion:
    """The name under which the first model is served ("" where unknown), and its context in tokens."""
    async with asyncio.timeout(MODELS_S), client.stream("GET", MODELS_PATH) as response:
        body = await _body(response)
        if response.status_code in (401, 403):
            return _denied(response.status_code, "/v1/models")
        if response.status_code != 200:
            return "", None
    models = mapping(_parsed(body)).get("data")
    first = mapping(models[0]) if isinstance(models, list) and models else {}
    name, longest = first.get("id"), whole_or_none(first.get("max_model_len"))
    return (name if isinstance(name, str) else ""), (longest if longest and longest > 0 else None)


async def _post(
    client: httpx.AsyncClient, path: str, body: Mapping[str, Any], progress: ProgressCallback, seeks: str
) -> Completion:
    began_s = time.monotonic()
    async with client.stream("POST", path, json=body, headers={"Accept": "text/event-stream"}) as response:
        status = response.status_code
        if status in (401, 403):
            return _denied(status, path)
        if status != 200:
            refusal = _failed(CompletionState.REFUSED, _error_of(status, path, await _body(response)), path=path)
            return replace(refusal, status=status)
        answer = _Answer(path, began_s, seeks)
        if "event-stream" not in response.headers.get("content-type", ""):
            answer.take(_parsed(await _body(response)))
            return answer.result(is_whole=True)
        events, size = EventReader(), 0
        async for chunk in response.aiter_raw():
            size += len(chunk)
            for data in events.feed(chunk):
                answer.event(data)
            progress(answer.pieces)
            if answer.is_done or size > ANSWER_LIMIT_BYTES:
                break
        else:
            for data in events.end():
                answer.event(data)
        return answer.result(is_whole=answer.is_done or bool(answer.finish_reason))


class _Answer:
    """The parts of an answer received so far."""

    def __init__(self, path: str, began_s: float, seeks: str = "") -> None:
        self.path = path
        self._seeks = seeks
        self._said: list[str] = []
        """Answer and reasoning, whole: `ANSWER_LIMIT_BYTES` bounds them."""
        self._tools: list[str] = []
        self._prompt_tokens: int | None = None
        self.pieces = 0
        self.is_done = False
        self.finish_reason = ""
        self._began_s = began_s
        self._first_s: float | None = None
        self._last_s: float | None = None
        self._text = ""
        self._has_content = self._has_reasoning = False
        self._counted: int | None = None
        self._numbers = 0
        self._error = ""

    def event(self, data: str) -> None:
        if data.strip() == "[DONE]":
            self.is_done = True
        elif data.strip():
            self.take(_parsed(data.encode()))

    def take(self, raw: Any) -> None:
        """Add one piece of a stream, or a whole answer."""
        message_part = mapping(raw)
        if message_part.get("error") and not message_part.get("choices"):
            self._error = _message(message_part) or "an error without a message"
            return
        usage = mapping(message_part.get("usage"))
        self._counted = _count(usage.get("completion_tokens"), self._counted)
        self._prompt_tokens = _count(usage.get("prompt_tokens"), self._prompt_tokens)
        self._numbers += _numbers(raw) if self.path in _POOLING else 0
        choices = message_part.get("choices")
        choice = mapping(choices[0]) if isinstance(choices, list) and choices else {}
        delta = mapping(choice.get("delta") or choice.get("message"))
        content = delta.get("content") or choice.get("text")
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(choice.get("finish_reason"), str):
            self.finish_reason = sanitise.name(choice["finish_reason"])
        is_content, is_thought = isinstance(content, str) and content != "", isinstance(thought, str) and thought != ""
        calls = items(delta.get("tool_calls"))
        if not (is_content or is_thought or calls):
            return
        names = (mapping(mapping(call).get("function")).get("name") for call in calls)
        self._tools += [sanitise.name(name) for name in names if isinstance(name, str) and name]
        self._said += [text for text in (content, thought) if isinstance(text, str)]
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
        completion = Completion(
            state=CompletionState.OK,
            path=self.path,
            text=sanitise.line(self._text.strip(), limit=TEXT_CHARS),
            has_content=self._has_content,
            has_reasoning=self._has_reasoning,
            has_found=bool(self._seeks) and self._seeks in "".join(self._said),
            thinks_aloud=_THINKING in self._text,
            tool_names=tuple(dict.fromkeys(self._tools)),
            tokens=tokens,
            prompt_tokens=self._prompt_tokens,
            finish_reason=self.finish_reason,
            first_token_s=self._first_s,
            last_token_s=self._last_s,
            pieces=self.pieces,
            numbers=self._numbers,
        )
        if self._error:
            reason = sanitise.line(self._error, limit=200)
            return replace(
                completion, state=CompletionState.BROKEN, detail=f"an error came in place of tokens: {reason}"
            )
        if not is_whole:
            return replace(completion, state=CompletionState.BROKEN, detail="the answer broke off in the middle")
        if self.path in _POOLING:
            return completion if self._numbers else replace(completion, state=CompletionState.EMPTY)
        if not tokens and self.finish_reason != "length":  # it generated all that was asked for, and counts none
            return replace(completion, state=CompletionState.EMPTY, detail="it answered without a token")
        return completion


def _numbers(raw: Any) -> int:
    """How many numbers an embedding has, or the scores of a ranking: vLLM and SGLang name them differently."""
    entries = items(raw) or items(mapping(raw).get("data")) or items(mapping(raw).get("results"))
    found = [value for entry in map(mapping, entries[:1]) for key in _POOLED if (value := entry.get(key)) is not None]
    flat = [number for value in found for row in (items(value) or [value]) for number in (items(row) or [row])]
    return len(flat) if all(type(number) in (float, int) for number in flat) else 0


def _count(value: Any, before: int | None) -> int | None:
    """A count of tokens, or the one from before where it is none."""
    number = whole_or_none(value)
    return before if number is None or number < 0 else number


def _has_no_chat(detail: str) -> bool:
    """No such path, or a model without a chat template: then a plain completion may do. Not where the model's name is
    what is unknown."""
    words = detail.lower()
    is_without = any(text in words for text in ("chat template", "chat_template", *_NO_TEXT))
    return is_without or ("status 404" in words and "model" not in words)


def _error_of(status: int, path: str, body: bytes) -> str:
    text = _message(mapping(_parsed(body)))
    return f"{path} answers status {status}{f': {sanitise.line(text, limit=200)}' if text else ''}"


def _message(raw: Mapping[str, Any]) -> str:
    """The error's text: vLLM puts it under error.message (0.10 and later) or message, SGLang under message or
    detail."""
    error = raw.get("error")
    inner = error.get("message") if isinstance(error, Mapping) else error
    for text in (inner, raw.get("message"), raw.get("detail")):
        if isinstance(text, str) and text:
            return text
    return ""


def _denied(status: int, path: str) -> Completion:
    return _failed(
        CompletionState.DENIED, f"{path} answers status {status}: it needs a key, or a different one", path=path
    )


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
        return json_of(body)
    except ValueError:
        return None


def _without(result: Completion, api_key: str) -> Completion:
    """The text without the key: an engine may repeat the key in its error, or its model may."""
    if not api_key:
        return result
    return replace(
        result, detail=result.detail.replace(api_key, "<masked>"), text=result.text.replace(api_key, "<masked>")
    )
