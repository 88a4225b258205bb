"""Asks an engine's own endpoint, through the connection to its node; every outcome is a value.

What may be asked, and how often, stands here: SGLang's /health makes the model generate a token, /flush_cache answers
a GET and empties the cache, /get_server_info writes a warning each time (facts/engines.md sections 3.1, 3.2). No
redirect is followed, no key is sent, no proxy setting of the operator's is read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from sparktop import sanitise
from sparktop.errors import TransportError
from sparktop.model.engine import EndpointState
from sparktop.transport.base import Transport
from sparktop.transport.threads import in_thread

if TYPE_CHECKING:
    import httpx

MIN_INTERVAL_S: Mapping[str, float] = {"/metrics": 1.0, "/version": 60.0, "/health": 15.0}
"""The only paths there are. Of these /health may generate a token: nothing asks for it by itself."""
LIMIT_BYTES = 2 * 1024 * 1024
TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What an endpoint did when asked once."""

    state: EndpointState
    detail: str = ""
    status: int | None = None
    content_type: str = ""
    body: bytes = b""
    asked_s: float = 0.0
    """Monotonic clock; a reply that is given out again because the interval isn't over keeps its time."""


class EndpointClient:
    """One engine's endpoint with its connection kept open; make a new one with each new Transport."""

    def __init__(
        self,
        transport: Transport,
        host: str,
        port: int,
        *,
        timeout_s: float = TIMEOUT_S,
        limit_bytes: int = LIMIT_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = transport
        self._host = host
        self._port = port
        self._timeout_s = timeout_s
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._stack = AsyncExitStack()
        self._client: httpx.AsyncClient | None = None
        self._last: dict[str, Reply] = {}
        self._asking = asyncio.Lock()

    async def get(self, path: str) -> Reply:
        """Ask, unless it was asked within the path's interval: then the last reply again.

        Raises:
            ValueError: the path is none of MIN_INTERVAL_S, a mistake of the caller's.
        """
        interval_s = MIN_INTERVAL_S.get(path)
        if interval_s is None:
            raise ValueError(f"{path} is nothing to ask an engine")
        async with self._asking:
            last = self._last.get(path)
            now_s = self._clock()
            if last is not None and now_s - last.asked_s < interval_s:
                return last
            reply = await self._ask(path, now_s)
            self._last[path] = reply
            return reply

    async def aclose(self) -> None:
        """Close the connection and let the forwarded socket go."""
        await self._stack.aclose()
        self._client = None

    async def _ask(self, path: str, now_s: float) -> Reply:
        httpx = await in_thread(import_httpx)
        where = f"{self._host}:{self._port}"
        try:
            async with asyncio.timeout(self._timeout_s):
                client = self._client or await self._open()
                return await self._read(client, path, now_s)
        except (TimeoutError, httpx.TimeoutException):
            detail = f"{where} has not answered within {self._timeout_s:g} s"
            return Reply(state=EndpointState.TIMED_OUT, detail=detail, asked_s=now_s)
        except TransportError as error:
            return Reply(state=EndpointState.REFUSED, detail=error.message, asked_s=now_s)
        except (httpx.RemoteProtocolError, httpx.NetworkError, OSError) as error:
            if "without sending" in str(error) or isinstance(error, httpx.NetworkError | OSError):
                # a forwarded socket can only close where the node refused the connection
                detail = f"nothing answers on {where} (yet)"
                return Reply(state=EndpointState.REFUSED, detail=detail, asked_s=now_s)
            detail = f"{where} doesn't speak HTTP ({sanitise.line(str(error), limit=80)})"
            return Reply(state=EndpointState.NOT_METRICS, detail=detail, asked_s=now_s)
        except httpx.HTTPError as error:
            detail = f"{where}: {sanitise.line(f'{type(error).__name__}: {error}', limit=120)}"
            return Reply(state=EndpointState.NOT_METRICS, detail=detail, asked_s=now_s)

    async def _open(self) -> httpx.AsyncClient:
        made = await open_client(self._stack, self._transport, self._host, self._port, timeout=self._timeout_s)
        self._client = made
        return made

    async def _read(self, client: httpx.AsyncClient, path: str, now_s: float) -> Reply:
        where = f"{self._host}:{self._port}{path}"
        async with client.stream("GET", path) as response:
            status = response.status_code
            content_type = sanitise.name(response.headers.get("content-type", ""))
            body = b""
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > self._limit_bytes:
                    return Reply(
                        state=EndpointState.NOT_METRICS,
                        detail=f"{where} answers more than {self._limit_bytes:,} bytes: left unread",
                        status=status,
                        asked_s=now_s,
                    )
        state, detail = EndpointState.OK, ""
        if status == 404:
            state, detail = EndpointState.NO_METRICS, f"{where} is not there (404)"
        elif 300 <= status < 400:
            target = sanitise.line(response.headers.get("location", "?"), limit=80)
            state, detail = EndpointState.NOT_METRICS, f"{where} redirects to {target}: not followed"
        elif status in (401, 403):
            state, detail = EndpointState.NOT_METRICS, f"{where} wants a key ({status}); none is sent"
        elif status != 200:
            state, detail = EndpointState.NOT_METRICS, f"{where} answers status {status}"
        elif content_type.startswith("text/html"):
            state, detail = EndpointState.NOT_METRICS, f"{where} answers a web page"
        return Reply(state=state, detail=detail, status=status, content_type=content_type, body=body, asked_s=now_s)


async def open_client(
    stack: AsyncExitStack, transport: Transport, host: str, port: int, *, timeout: float | httpx.Timeout
) -> httpx.AsyncClient:
    """A client whose one connection is forwarded to host:port as the node sees it; closed with the stack.

    Raises:
        TransportError: the connection gives no forward.
    """
    await in_thread(import_httpx)
    import httpx

    path = await stack.enter_async_context(transport.tcp_socket(host, port))
    shown = f"[{host}]" if ":" in host else host
    client = httpx.AsyncClient(
        # Nothing is verified because nothing is TLS; reading the authorities' certificates would take 20 ms.
        transport=httpx.AsyncHTTPTransport(uds=str(path), limits=httpx.Limits(max_connections=1), verify=False),
        base_url=f"http://{shown}:{port}",
        headers={"User-Agent": "sparktop", "Accept-Encoding": "identity", "Accept": "text/plain, */*;q=0.1"},
        follow_redirects=False,
        trust_env=False,
        timeout=timeout,
    )
    return await stack.enter_async_context(client)


def import_httpx() -> ModuleType:
    """60 ms, so off the loop."""
    import httpx

    return httpx
