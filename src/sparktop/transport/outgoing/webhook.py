"""A webhook. Its URL is a secret: whoever has it can post, so that no outcome has more of it than scheme and host."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from sparktop import sanitise
from sparktop.bounds import number_in
from sparktop.transport.endpoint import import_httpx
from sparktop.transport.outgoing.outcome import Outcome
from sparktop.transport.threads import in_thread

TIMEOUT_S = 15.0
LONGEST_WAIT_S = 3600.0
ANSWER_BYTES = 300
_REFUSED = (400, 413, 415, 422)
"""Statuses that are about the message; any other may be over once the target is up or its URL is right."""


def shown_url(url: str) -> str:
    """Scheme and host."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}"


async def post(url: str, data: object, *, token: str = "") -> Outcome:
    """Post JSON, with `token` as the bearer's; no redirect is followed."""
    httpx = await in_thread(import_httpx)
    where = shown_url(url)
    headers = {"User-Agent": "sparktop", "Accept-Encoding": "identity"} | (
        {"Authorization": f"Bearer {token}"} if token else {}
    )
    try:
        async with (
            asyncio.timeout(TIMEOUT_S),
            httpx.AsyncClient(timeout=TIMEOUT_S, follow_redirects=False) as client,
            client.stream("POST", url, json=data, headers=headers) as response,
        ):
            status = response.status_code
            answer = sanitise.line(f"{status} {response.reason_phrase}", limit=80)
            if response.is_success:  # at once: a watcher that is killed before it is kept as sent sends it again
                return Outcome(answer=answer)
            wait, body = number_in(response.headers.get("retry-after", "")), b""
            async for chunk in response.aiter_raw(ANSWER_BYTES):
                body += chunk
                if len(body) >= ANSWER_BYTES:
                    break
    except (TimeoutError, httpx.TimeoutException):
        return Outcome(problem=f"{where}: no answer within {TIMEOUT_S:g} s")
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        reason = sanitise.line(str(error), limit=100) if isinstance(error, httpx.ConnectError) else ""
        return Outcome(problem=f"{where}: {type(error).__name__}{f', {reason}' if reason else ''}")
    said = sanitise.line(body[:ANSWER_BYTES].replace(b"\n", b" ")).strip()
    for secret in (url, token, urlsplit(url).path, urlsplit(url).query):
        said = said.replace(secret, "…") if len(secret) > 1 else said
    return Outcome(
        problem=f"{where}: {answer}{f', {said}' if said else ''}",
        is_refused=status in _REFUSED,
        wait_s=min(max(wait or 0.0, 0.0), LONGEST_WAIT_S),
    )
