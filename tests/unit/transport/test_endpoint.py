"""Endpoints that behave, and those that don't, through a local transport."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from sparktop.model.engine import EndpointState
from sparktop.transport.endpoint import EndpointClient, Reply
from sparktop.transport.local import LocalTransport

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Stage:
    """A server on loopback, a client that reaches it, and what was asked."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self.clock = Clock()
        self._closers: list[Callable[[], Awaitable[None]]] = []

    async def client(
        self, answer: bytes | Serve, *, timeout_s: float = 5.0, limit_bytes: int = 10_000
    ) -> EndpointClient:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            try:
                while True:
                    self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                    if callable(answer):
                        await answer(reader, writer)
                        return
                    writer.write(answer)
                    await writer.drain()
            except (asyncio.IncompleteReadError, OSError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        transport = LocalTransport()
        client = EndpointClient(
            transport, "127.0.0.1", port, timeout_s=timeout_s, limit_bytes=limit_bytes, clock=self.clock
        )

        async def close() -> None:
            await client.aclose()
            await transport.close()
            server.close()

        self._closers.append(close)
        return client

    async def close(self) -> None:
        for close in self._closers:
            await close()


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    yield stage
    await stage.close()


def response(body: bytes, *, status: str = "200 OK", headers: bytes = b"Content-Type: text/plain\r\n") -> bytes:
    return b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s" % (status.encode(), headers, len(body), body)


async def test_an_answer_and_what_is_never_sent(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    client = await stage.client(response(b"vllm:x 1\n"))
    reply = await client.get("/metrics")
    assert (reply.state, reply.body) == (EndpointState.OK, b"vllm:x 1\n")
    request = stage.requests[0].lower()
    assert request.startswith(b"get /metrics http/1.1\r\n")
    assert b"authorization" not in request
    assert b"cookie" not in request
    assert b"accept-encoding: identity" in request


async def test_the_connection_is_kept_and_the_interval_too(stage: Stage) -> None:
    client = await stage.client(response(b"vllm:x 1\n"))
    first = await client.get("/metrics")
    assert await client.get("/metrics") is first
    assert len(stage.requests) == 1
    stage.clock.now += 1.5
    assert (await client.get("/metrics")).asked_s == 101.5
    assert len(stage.requests) == 2
    assert stage.connections == 1


async def test_health_is_asked_every_fifteen_seconds_at_most(stage: Stage) -> None:
    client = await stage.client(response(b""))
    for _ in range(30):
        await client.get("/health")
        stage.clock.now += 1.0
    assert len(stage.requests) == 2


@pytest.mark.parametrize("path", ["/flush_cache", "/get_server_info", "/health_generate", "/v1/models", "/metrics?x"])
async def test_other_paths_are_never_asked(stage: Stage, path: str) -> None:
    client = await stage.client(response(b""))
    with pytest.raises(ValueError, match="no path of an engine"):
        await client.get(path)
    assert stage.requests == []


@pytest.mark.parametrize(
    ("answer", "state", "words"),
    [
        (
            response(b"<html>", headers=b"Content-Type: text/html; charset=utf-8\r\n"),
            EndpointState.NOT_METRICS,
            "web page",
        ),
        (response(b"", status="404 Not Found"), EndpointState.NO_METRICS, "404"),
        (response(b"", status="503 Service Unavailable"), EndpointState.LOADING, "503"),
        (response(b"", status="401 Unauthorized"), EndpointState.NOT_METRICS, "needs a key"),
        (
            response(b"", status="302 Found", headers=b"Location: http://elsewhere/[/x]\r\n"),
            EndpointState.NOT_METRICS,
            "not followed",
        ),
        (response(b"x" * 20_000), EndpointState.NOT_METRICS, "more than 10,000 bytes"),
        (response(b"", status="302 Found", headers=b"Location: http://\x1b[2J\r\n"), EndpointState.NOT_METRICS, "HTTP"),
    ],
    ids=["html", "404", "503", "401", "redirect", "large", "hostile"],
)
async def test_what_is_no_metrics(stage: Stage, answer: bytes, state: EndpointState, words: str) -> None:
    client = await stage.client(answer)
    reply = await client.get("/metrics")
    assert reply.state is state
    assert words in reply.detail
    assert "\x1b" not in reply.detail


async def test_another_protocol(stage: Stage) -> None:
    async def greets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n\r\n")
        await writer.drain()

    reply = await (await stage.client(greets)).get("/metrics")
    assert reply.state is EndpointState.NOT_METRICS
    assert "doesn't speak HTTP" in reply.detail


async def test_a_silent_and_a_dripping_endpoint_time_out(stage: Stage) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def drips(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    for serve in (silent, drips):
        client = await stage.client(serve, timeout_s=0.3)
        reply = await client.get("/metrics")
        assert reply.state is EndpointState.TIMED_OUT
        assert "0.3 s" in reply.detail


async def test_nobody_listens_and_then_somebody_does() -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    transport, clock = LocalTransport(), Clock()
    client = EndpointClient(transport, "127.0.0.1", port, clock=clock)
    reply: Reply = await client.get("/metrics")
    assert reply.state is EndpointState.REFUSED
    assert f"nothing answers on 127.0.0.1:{port}" in reply.detail

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response(b"vllm:x 1\n"))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    clock.now += 2.0
    assert (await client.get("/metrics")).state is EndpointState.OK
    await client.aclose()
    await transport.close()
    server.close()


async def test_an_engine_that_restarts_behind_a_kept_connection(stage: Stage) -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(response(b"vllm:x 1\n"))
        await writer.drain()  # and closes without saying Connection: close

    client = await stage.client(once)
    assert (await client.get("/metrics")).state is EndpointState.OK
    stage.clock.now += 2.0
    await asyncio.sleep(0.05)
    assert (await client.get("/metrics")).state is EndpointState.OK
