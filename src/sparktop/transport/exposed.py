"""What a proxy or an engine answers, asked as a client would, with and without a key; every outcome is a value."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from sparktop import sanitise
from sparktop.transport.base import Transport
from sparktop.transport.endpoint import import_httpx, open_client
from sparktop.transport.threads import in_thread

if TYPE_CHECKING:
    import httpx

TIMEOUT_S = 10.0


async def statuses(
    url: str,
    questions: Sequence[tuple[str, str]],
    *,
    over: Transport | None = None,
    host: str = "127.0.0.1",
    port: int = 80,
    name: str = "",
) -> tuple[int, ...] | str:
    """The HTTP status of each (path, key; "" for none), or why there is none.

    Args:
        url: the proxy as this machine reaches it.
        over: a connection to its machine; it is asked on `host` and `port` as seen there, by its `name`.
    """
    httpx = await in_thread(import_httpx)
    try:
        async with asyncio.timeout(TIMEOUT_S * 2), AsyncExitStack() as stack:
            if over is not None:
                client = await open_client(stack, over, host, port, timeout=TIMEOUT_S)
            else:
                client = await stack.enter_async_context(
                    httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, trust_env=False, follow_redirects=False)
                )
            headers = {"Host": name if port == 80 else f"{name}:{port}"} if name else {}
            return tuple([await _status(client, path, key, headers) for path, key in questions])
    except TimeoutError:
        return f"no answer within {TIMEOUT_S * 2:.0f} s"
    except (httpx.HTTPError, OSError) as error:
        return sanitise.line(f"{type(error).__name__}: {error}", limit=200)


async def _status(client: httpx.AsyncClient, path: str, key: str, headers: dict[str, str]) -> int:
    authorization = {"Authorization": f"Bearer {key}"} if key else {}
    async with client.stream("GET", path, headers={**headers, **authorization}) as response:
        return response.status_code
