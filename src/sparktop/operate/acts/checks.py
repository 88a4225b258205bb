"""Checks of what a plan has set up: a login with a new key, and what a reverse proxy lets through."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import field, replace

from sparktop.dataclass import dataclass
from sparktop.errors import TransportError
from sparktop.model.survey import PublicKey
from sparktop.operate.runner.api import NodeLine
from sparktop.operate.step.act import Act
from sparktop.operate.step.hands import Hands
from sparktop.operate.step.run_context import Progress
from sparktop.operate.step.step_result import RequestResult, StepResult, StepState
from sparktop.transport.exposed import statuses


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckLogin(Act):
    """Log in at the node again, on a connection of its own and with this key alone."""

    key: PublicKey

    async def perform(self, hands: Hands) -> StepResult:
        connector = hands.context.connectors.get(hands.node)
        if connector is None:
            return StepResult(state=StepState.FAILED, detail=f"nothing is known here of a login at {hands.node}")
        hands.progress(f"logging in with {self.key.fingerprint}", None)
        try:
            await hands.abort.unless(connector.log_in_with(self.key))
        except TransportError as error:
            detail = f"{error.message}. {error.hint}" if error.hint else error.message
            return StepResult(state=StepState.FAILED, detail=detail)
        return StepResult(state=StepState.DONE, detail=f"logged in with {self.key.fingerprint}, without a password")

    def text(self) -> Iterator[str]:
        yield f"a new connection from here, with the key {self.key.fingerprint} alone: no password is tried"


WRONG_KEY = "sparktop-asks-with-a-wrong-key"
_REFUSED = (401, 403)
_REDIRECTS = (301, 302, 307, 308)
TRIES = 10
TRY_AGAIN_S = 1.0
"""The proxy loads its files after it has said that it will."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckExposed(Act):
    """Ask a reverse proxy as a client does: it must refuse who has no key, and serve who has it, and only that."""

    name: str
    """The host name that it serves."""
    port: int = 80
    api_key: str = field(default="", repr=False)

    async def perform(self, hands: Hands) -> StepResult:
        return await hands.ask(self.request, unknown=f"what {self.name} answers is not known")

    def text(self) -> Iterator[str]:
        yield f"GET /v1/models of {self.name}: refused without the key and with a wrong one, answered with it"
        yield f"GET /metrics of {self.name}: not found"

    async def request(self, line: NodeLine, progress: Progress) -> RequestResult:
        """Ask it on its own machine, through the connection there."""
        progress("asking with and without the key", None)
        for attempt in range(TRIES):
            await asyncio.sleep(TRY_AGAIN_S if attempt else 0.0)
            asked = questions(self.api_key)
            answers = await statuses("", asked, over=line.transport, port=self.port, name=self.name)
            result = judged(answers, self.name)
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
