"""An engine's HTTP side as tests want it: each path answers what it was told, over real sockets on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

Answer = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


def reply(body: Any, status: str = "200 OK", kind: str = "application/json") -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    return head.encode() + data


def events(*pieces: Any, done: bool = True) -> bytes:
    """A stream of server-sent events that ends with its connection."""
    body = b"".join(b"data: " + json.dumps(piece).encode() + b"\n\n" for piece in pieces)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nConnection: close\r\n\r\n"
    return head + body + (b"data: [DONE]\n\n" if done else b"")


def delta(finish: str | None = None, **said: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": said, "finish_reason": finish}]}


METRICS = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{model_name="m"}} {running}
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{model_name="m"}} {waiting}
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{{model_name="m"}} 90
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{model_name="m"}} 40
"""


def figures(running: int = 0, waiting: int = 0, *, family: str = "vllm") -> bytes:
    """An answer to /metrics."""
    text = METRICS.format(running=running, waiting=waiting)
    if family == "sglang":
        text = text.replace("num_requests_running", "num_running_reqs").replace(
            "num_requests_waiting", "num_queue_reqs"
        )
    return reply(text.replace("vllm:", f"{family}:").encode(), kind="text/plain; version=0.0.4")


MODELS = reply({"object": "list", "data": [{"id": "Qwen/Qwen3.6-35B-A3B-FP8", "max_model_len": 32768}]})
NOT_FOUND = reply({"detail": "Not Found"}, "404 Not Found")
POOLED = ("/v1/embeddings", "/v1/rerank", "/pooling")
SAID = events(
    delta(role="assistant", content=""),
    delta(content="rea"),
    delta("stop", content="dy"),
    {"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 2}},
)


class EngineStage:
    """A server whose paths can be set, and what it was asked."""

    def __init__(self, **answers: Answer) -> None:
        more = {"metrics": figures(), "health": reply(b"", kind="text/plain"), **dict.fromkeys(POOLED, NOT_FOUND)}
        self.answers: dict[str, Answer] = {"models": MODELS, "chat": SAID, "plain": SAID, **more, **answers}
        self.heads: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.aborted = asyncio.Event()
        self.asked = asyncio.Event()
        """A completion has been asked for."""
        self.port = 0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> EngineStage:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *gone: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            length = next((int(row[15:]) for row in head.split("\r\n") if row.lower().startswith("content-length:")), 0)
            if length:
                self.bodies.append(json.loads(await reader.readexactly(length)))
                self.asked.set()
            path = head.split(" ")[1].partition("?")[0]
            names = {"/v1/models": "models", "/v1/chat/completions": "chat", "/metrics": "metrics", "/health": "health"}
            name = names.get(path, path if path in POOLED else "plain")
            answer = self.answers[name]
            if callable(answer):
                watching = asyncio.ensure_future(self._watch(reader))
                try:
                    await answer(writer)
                finally:
                    watching.cancel()
            else:
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            self.aborted.set()
        finally:
            writer.close()

    async def _watch(self, reader: asyncio.StreamReader) -> None:
        if not await reader.read(1):
            self.aborted.set()


async def hang(writer: asyncio.StreamWriter) -> None:
    """Take the request, and never answer."""
    await asyncio.sleep(3600)
