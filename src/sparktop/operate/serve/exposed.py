"""What a reverse proxy lets through: a key is required, /v1/ and /health alone are there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from sparktop.model.plan import CheckExposed
from sparktop.operate.run.run_context import Picture, Progress, RequestResult
from sparktop.operate.runner.api import NodeLine
from sparktop.transport.exposed import statuses

WRONG_KEY = "sparktop-asks-with-a-wrong-key"
_REFUSED = (401, 403)
_REDIRECTS = (301, 302, 307, 308)
TRIES = 10
TRY_AGAIN_S = 1.0
"""The proxy loads its files after it has said that it will."""


async def exposed(
    line: NodeLine, picture: Picture, node: str, check: CheckExposed, *, progress: Progress
) -> RequestResult:
    """Ask it on its own machine, through the connection there."""
    progress("asking with and without the key", None)
    for attempt in range(TRIES):
        await asyncio.sleep(TRY_AGAIN_S if attempt else 0.0)
        asked = questions(check.api_key)
        answers = await statuses("", asked, over=line.transport, port=check.port, name=check.name)
        result = judged(answers, check.name)
        if result.ok:
            break
    return result


async def exposed_here(name: str, port: int, key: str) -> RequestResult:
    """Ask it from this machine, by its name; by HTTPS where it redirects there.

    The key goes over HTTPS alone, to who has a certificate of that name: by plain HTTP a name that points elsewhere
    would give the key to a stranger.
    """
    host = name if port == 80 else f"{name}:{port}"
    answers = await statuses(f"http://{host}", [(path, asked) for path, asked in questions(key) if asked != key])
    if isinstance(answers, tuple) and all(status in _REDIRECTS for status in answers):
        return judged(await statuses(f"https://{name}", questions(key)), name)
    if isinstance(answers, str):
        return judged(answers, name)
    without, wrong, health = answers
    result = judged((without, wrong, 200, 404, health), name)
    return replace(result, detail=f"{without} without a key, {wrong} with a wrong one") if result.ok else result


def questions(key: str) -> tuple[tuple[str, str], ...]:
    """(path, key) of each request."""
    return (("/v1/models", ""), ("/v1/models", WRONG_KEY), ("/v1/models", key), ("/metrics", key), ("/health", ""))


def judged(answers: Sequence[int] | str, name: str) -> RequestResult:
    """What the answers say, as a sentence."""
    if isinstance(answers, str):
        return RequestResult(ok=False, detail=f"{name} doesn't answer: {answers}")
    without, wrong, right, outside, health = answers
    if without not in _REFUSED or wrong not in _REFUSED:
        who = "nobody's key" if without not in _REFUSED else "a wrong key"
        status = without if without not in _REFUSED else wrong
        return RequestResult(ok=False, detail=f"{name} answers {status} to {who}: whoever reaches it can use it")
    if right in _REFUSED:
        return RequestResult(
            ok=False, detail=f"{name} answers {right} to your key: the engine itself has another one (VLLM_API_KEY)"
        )
    if right != 200:
        why = ": the proxy does not reach the engine" if right in (502, 503, 504) else ""
        return RequestResult(ok=False, detail=f"{name} answers {right} to your key{why}")
    if outside != 404:
        return RequestResult(ok=False, detail=f"{name} answers {outside} to /metrics: more than /v1/ is exposed")
    note = "" if health == 200 else f"; /health answers {health}"
    return RequestResult(
        ok=True, detail=f"{without} without a key, {wrong} with a wrong one, 200 with yours, 404 outside /v1/{note}"
    )
