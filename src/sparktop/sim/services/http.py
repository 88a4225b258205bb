"""A small HTTP/1.1 server over one forwarded channel: requests by h11, answers whole or as a chunked stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncssh
import h11
from asyncssh import SSHReader, SSHWriter

from sparktop.dataclass import dataclass

_BODY_BYTES = 1 << 20
_ENDED = (OSError, EOFError, asyncssh.Error)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """One HTTP request; `query` has the last value of each parameter."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes = b""
    key: str = ""
    """What follows "Bearer" in its Authorization."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One HTTP answer: `body`, or a chunked `stream` until it ends or the client disconnects."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    stream: AsyncIterator[bytes] | None = None


def json_answer(value: Any, status: int = 200) -> Answer:
    """An answer with a JSON body."""
    return Answer(status=status, body=json.dumps(value, separators=(",", ":")).encode() + b"\n")


async def serve(
    reader: SSHReader[bytes],
    writer: SSHWriter[bytes],
    handle: Callable[[HttpRequest], Awaitable[Answer]],
    *,
    server: str,
) -> None:
    """Answer requests on one channel until the client closes it; never raises for what a client does."""
    connection = h11.Connection(h11.SERVER)
    try:
        while (request := await _next_request(connection, reader)) is not None:
            answer = await handle(request)
            _write(connection, writer, _head(answer, server))
            if answer.stream is None:
                _write(connection, writer, h11.Data(data=answer.body), h11.EndOfMessage())
                await writer.drain()
            else:
                await _until_either(_stream(connection, writer, answer.stream), reader.read(1))
            if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                break
            connection.start_next_cycle()
    except h11.RemoteProtocolError as error:
        if connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer = Answer(status=error.error_status_hint, body=f"{error}\n".encode(), content_type="text/plain")
            _write(connection, writer, _head(answer, server), h11.Data(data=answer.body))
    except _ENDED:
        pass  # the client or its connection went away
    finally:
        writer.close()


async def _next_request(connection: h11.Connection, reader: SSHReader[bytes]) -> HttpRequest | None:
    request, body = None, bytearray()
    while not isinstance(event := connection.next_event(), h11.EndOfMessage) or request is None:
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(65536))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += event.data
        if isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED or len(body) > _BODY_BYTES:
            return None
    target = urlsplit(request.target.decode("ascii", "replace"))
    return HttpRequest(
        method=request.method.decode(),
        path=target.path,
        query={key: values[-1] for key, values in parse_qs(target.query, keep_blank_values=True).items()},
        body=bytes(body),
        key=dict(request.headers).get(b"authorization", b"").decode("latin-1").removeprefix("Bearer "),
    )


async def _until_either(streaming: Any, leaving: Any) -> None:
    """Stream until the end, or until the client says anything: a follower has nothing more to say than its end."""
    tasks = [asyncio.ensure_future(streaming), asyncio.ensure_future(leaving)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _stream(connection: h11.Connection, writer: SSHWriter[bytes], chunks: AsyncIterator[bytes]) -> None:
    async for chunk in chunks:
        _write(connection, writer, h11.Data(data=chunk))
        await writer.drain()
    _write(connection, writer, h11.EndOfMessage())
    await writer.drain()


def _head(answer: Answer, server: str) -> h11.Response:
    length = ("Transfer-Encoding", "chunked") if answer.stream else ("Content-Length", str(len(answer.body)))
    headers = [("Content-Type", answer.content_type), ("Server", server), length]
    return h11.Response(status_code=answer.status, headers=headers, reason=HTTPStatus(answer.status).phrase)


def _write(connection: h11.Connection, writer: SSHWriter[bytes], *events: Any) -> None:
    writer.write(b"".join(connection.send(event) or b"" for event in events))
