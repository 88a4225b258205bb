"""Query an engine's own endpoint through the connection to its node; every outcome is a value.

What may be asked, and how often, stands here: SGLang's /health makes the model generate a token, /flush_cache answers
a GET and empties the cache, /get_server_info writes a warning each time (docs/facts/engines.md sections 3.1, 3.2). No
redirect is followed, no key is sent, no proxy setting of the operator's is read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from sparktop import sanitise
from sparktop.dataclass import dataclass
from sparktop.errors import TransportError
from sparktop.model.engine import EndpointState
from sparktop.transport.base import Transport
from sparktop.transport.lean import import_lean
from sparktop.transport.threads import in_thread

if TYPE_CHECKING:
    import httpx

MIN_INTERVAL_S: Mapping[str, float] = {"/metrics": 1.0, "/version": 60.0, "/health": 15.0}
"""The paths that any engine may be asked, with their least interval; an engine's own file has more. /health may
generate a token: it is asked by itself only where that file says that it is free."""
LIMIT_BYTES = 2 * 1024 * 1024
TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The endpoint's answer to one request."""

    state: EndpointState
    detail: str = ""
    body: bytes = b""
    asked_s: float = 0.0
    """Monotonic clock; a reply repeated within the interval keeps its time."""
    needs_key: bool = False


class EndpointClient:
    """One engine's endpoint over a connection that stays open; create a new one for each new Transport."""

    def __init__(
        self,
        transport: Transport,
        host: str,
        port: int,
        *,
        asks: Mapping[str, float] = MIN_INTERVAL_S,
        timeout_s: float = TIMEOUT_S,
        limit_bytes: int = LIMIT_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = transport
        self._host = host
        self._port = port
        self._asks = asks
        self._timeout_s = timeout_s
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._stack = AsyncExitStack()
        self._client: httpx.AsyncClient | None = None
        self._last: dict[str, Reply] = {}
        self._asking = asyncio.Lock()

    async def get(self, path: str) -> Reply:
        """Request the path; within the path's interval, return the last reply again.

        Raises:
            ValueError: the path is neither in MIN_INTERVAL_S nor in `asks` (a bug in the caller).
        """
        interval_s = MIN_INTERVAL_S.get(path, self._asks.get(path))
        if interval_s is None:
            raise ValueError(f"{path} is no path of an engine")
        async with self._asking:
            last = self._last.get(path)
            now_s = self._clock()
            if last is not None and now_s - last.asked_s < interval_s:
                return last
            self._last[path] = reply = replace(await self._ask(path), asked_s=now_s)
            return reply

    async def aclose(self) -> None:
        """Close the connection and the forwarded socket."""
        await self._stack.aclose()
        self._client = None

    async def _ask(self, path: str) -> Reply:
        httpx = await in_thread(import_httpx)
        where = f"{self._host}:{self._port}"
        try:
            async with asyncio.timeout(self._timeout_s):
                if self._client is None:
                    self._client = await open_client(
                        self._stack, self._transport, self._host, self._port, timeout=self._timeout_s
                    )
                return await self._read(self._client, path)
        except (TimeoutError, httpx.TimeoutException):
            detail = f"{where} has not answered within {self._timeout_s:g} s"
            return Reply(state=EndpointState.TIMED_OUT, detail=detail)
        except TransportError as error:
            return Reply(state=EndpointState.REFUSED, detail=error.message)
        except (httpx.RemoteProtocolError, httpx.NetworkError, OSError) as error:
            if "without sending" in str(error) or isinstance(error, httpx.NetworkError | OSError):
                # a forwarded socket can only close where the node refused the connection
                return Reply(state=EndpointState.REFUSED, detail=f"nothing answers on {where} (yet)")
            detail = f"{where} doesn't speak HTTP ({sanitise.line(str(error), limit=80)})"
            return Reply(state=EndpointState.NOT_METRICS, detail=detail)
        except httpx.HTTPError as error:
            detail = f"{where}: {sanitise.line(f'{type(error).__name__}: {error}', limit=120)}"
            return Reply(state=EndpointState.NOT_METRICS, detail=detail)

    async def _read(self, client: httpx.AsyncClient, path: str) -> Reply:
        where = f"{self._host}:{self._port}{path}"
        async with client.stream("GET", path) as response:
            status = response.status_code
            content_type = sanitise.name(response.headers.get("content-type", ""))
            body = b""
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > self._limit_bytes:
                    detail = f"{where} answers more than {self._limit_bytes:,} bytes: left unread"
                    return Reply(state=EndpointState.NOT_METRICS, detail=detail)
        if status == 404:
            return Reply(state=EndpointState.NO_METRICS, detail=f"{where} is not there (404)", body=body)
        if status == 503:
            return Reply(
                state=EndpointState.LOADING, detail=f"{where} answers status 503: it can't serve yet", body=body
            )
        if 300 <= status < 400:
            target = sanitise.line(response.headers.get("location", "?"), limit=80)
            detail = f"{where} redirects to {target}: not followed"
        elif status in (401, 403):
            detail = f"{where} needs a key ({status}); none is sent"
        elif status != 200:
            detail = f"{where} answers status {status}"
        elif content_type.startswith("text/html"):
            detail = f"{where} answers a web page"
        else:
            return Reply(state=EndpointState.OK, body=body)
        return Reply(state=EndpointState.NOT_METRICS, detail=detail, body=body, needs_key=status in (401, 403))


async def open_client(
    stack: AsyncExitStack, transport: Transport, host: str, port: int, *, timeout: float | httpx.Timeout
) -> httpx.AsyncClient:
    """A client whose only connection is forwarded to host:port as the node sees it; closed with the stack.

    Raises:
        TransportError: the connection can't forward.
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
    """Import httpx, and what its first request would import; off the event loop, as it takes 90 ms."""
    httpx = import_lean("httpx")
    for name in ("httpcore", "anyio._backends._asyncio"):
        with suppress(ImportError):  # of another version: then the first request imports what it needs
            import_module(name)
    return httpx
