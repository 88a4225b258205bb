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
            await _send(connection, reader, writer, await handle(request), server)
            if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                break
            connection.start_next_cycle()
    except h11.RemoteProtocolError as error:
        if connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer = Answer(status=error.error_status_hint, body=f"{error}\n".encode(), content_type="text/plain")
            writer.write(_head(connection, answer, server) + connection.send(h11.Data(data=answer.body)))
    except _ENDED:
        pass  # the client or its connection went away
    finally:
        writer.close()


async def _next_request(connection: h11.Connection, reader: SSHReader[bytes]) -> HttpRequest | None:
    request: h11.Request | None = None
    body = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(65536))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > _BODY_BYTES:
                return None
        elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
            return None
        elif isinstance(event, h11.EndOfMessage) and request is not None:
            return _request(request, bytes(body))


def _request(event: h11.Request, body: bytes) -> HttpRequest:
    target = urlsplit(event.target.decode("ascii", "replace"))
    return HttpRequest(
        method=event.method.decode(),
        path=target.path,
        query={key: values[-1] for key, values in parse_qs(target.query, keep_blank_values=True).items()},
        body=body,
        key=_key(event),
    )


def _key(event: h11.Request) -> str:
    sent = next((value.decode("latin-1") for name, value in event.headers if name == b"authorization"), "")
    return sent.removeprefix("Bearer ")


async def _send(
    connection: h11.Connection,
    reader: SSHReader[bytes],
    writer: SSHWriter[bytes],
    answer: Answer,
    server: str,
) -> None:
    head = _head(connection, answer, server)
    if answer.stream is None:
        writer.write(head + (connection.send(h11.Data(data=answer.body)) or b""))
        writer.write(connection.send(h11.EndOfMessage()) or b"")
        await writer.drain()
        return
    writer.write(head)
    sending = asyncio.ensure_future(_stream(connection, writer, answer.stream))
    leaving = asyncio.ensure_future(reader.read(1))
    try:  # a follower has nothing more to say: what comes from it is its end
        await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
    finally:
        for task in (sending, leaving):
            task.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)


async def _stream(connection: h11.Connection, writer: SSHWriter[bytes], chunks: AsyncIterator[bytes]) -> None:
    async for chunk in chunks:
        writer.write(connection.send(h11.Data(data=chunk)) or b"")
        await writer.drain()
    writer.write(connection.send(h11.EndOfMessage()) or b"")
    await writer.drain()


def _head(connection: h11.Connection, answer: Answer, server: str) -> bytes:
    length = ("Transfer-Encoding", "chunked") if answer.stream else ("Content-Length", str(len(answer.body)))
    headers = [("Content-Type", answer.content_type), ("Server", server), length]
    return (
        connection.send(
            h11.Response(status_code=answer.status, headers=headers, reason=HTTPStatus(answer.status).phrase)
        )
        or b""
    )
