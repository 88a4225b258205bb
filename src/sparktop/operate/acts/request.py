"""The first request to a started engine, and the measurement of its speed.

"It loaded" is not "it serves" (field report 001): the first forward pass may hang, crash, or take all memory within
seconds. The probe samples faster as memory falls, and its guard kills the engine without us; here the request is
given up when memory falls below the floor, and the result says what was seen.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any

from sparktop.dataclass import dataclass
from sparktop.engines.ranks import find, ranks
from sparktop.errors import LinkLost, TransportError
from sparktop.model.engine import Endpoint, EndpointState, Engine
from sparktop.model.fleet import FleetState, LinkState
from sparktop.model.guard import GuardPhase
from sparktop.model.recipe import Expected
from sparktop.operate.acts.readiness import failure_cause
from sparktop.operate.runner.api import NodeLine
from sparktop.operate.step.act import Act
from sparktop.operate.step.hands import Hands
from sparktop.operate.step.run_context import Picture, Progress
from sparktop.operate.step.step_result import Cause, RequestResult, StepResult, StepState
from sparktop.operate.step.wait import Aborted, Since, WaitStatus, WaitVerdict
from sparktop.text.units import GIB, gib
from sparktop.transport.completion import KEY_VARIABLE, Completion, CompletionState, complete
from sparktop.transport.endpoint import EndpointClient, Reply

LOOK_S = 0.1
AFTER_S = 2.0
"""Memory is watched for so long after the answer: samples arrive later than tokens."""
SILENT_S = 20.0
"""A node that sends no sample for so long during its first request counts as starved."""
LOST_WITHIN_S = 1.0
"""A connection's end is known at most so long after the request over it broke off."""
FIND_S = 20.0
"""How long to wait for the engine's endpoint to appear in the picture."""


POOLED = "/v1/embeddings, else /v1/rerank, else /pooling,"
"""What is asked of an engine that writes no text: its model has one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeTest(Act):
    """One short completion from the operator's side, with fast memory samples: a loaded engine may still fail to
    serve (field report 001)."""

    engine: str
    """The container's or engine's name."""
    floor_bytes: int
    """The test fails if available memory drops below this."""
    prompt: str = "Reply with the single word: ready"
    max_tokens: int = 64
    is_pooling: bool = False
    """It is told to serve embeddings or scores: one of those is asked for."""
    api_key: str = field(default="", repr=False)
    """The engine's key; sent in a header over the forwarded connection, never written."""

    async def perform(self, hands: Hands) -> StepResult:
        """Send the request; again only where the connection broke and the engine has survived that."""
        unknown = "whether the engine serves is not known"
        is_broken = False

        async def request(line: NodeLine, progress: Progress) -> RequestResult:
            nonlocal is_broken
            is_broken = False
            try:
                return await self.request(line, hands.picture, hands.node, progress)
            except TransportError as error:
                is_broken = True
                hands.tell(error.message, None, error.message)
                raise

        result = await hands.ask(request, unknown=unknown)
        if is_broken and await self._has_survived(hands):
            result = await hands.ask(request, unknown=unknown, patience_s=hands.context.link_patience_s)
        return result

    def text(self) -> Iterator[str]:
        what = f"/v1/chat/completions of {self.engine}: {self.max_tokens} tokens at most"
        if self.is_pooling:
            what = f"{POOLED} of {self.engine}"
        yield f"POST {what}, asked from here; fails when less than {gib(self.floor_bytes)} are available"

    def cause(self, node: str, picture: FleetState) -> Cause | None:
        return failure_cause(((node, self.engine),), picture)

    async def request(self, line: NodeLine, picture: Picture, node: str, progress: Progress) -> RequestResult:
        """Send one request, and watch memory while it runs.

        Raises:
            LinkLost: the connection to the node ended; how the engine fares is not known.
        """
        engine = await seen_engine(picture, node, self.engine)
        if engine is None or engine.endpoint is None:
            return RequestResult(
                ok=False, detail=f"sparktop sees no endpoint of {self.engine} on {node}, so it couldn't send a request"
            )
        watch = MemoryWatch(picture, nodes_of(picture(), node, self.engine), self.floor_bytes)

        def tell(pieces: int) -> None:  # no ratio: it ends when it likes, long before so many
            progress(f"{f'{pieces} pieces of the answer' if pieces else 'asked; no answer yet'}; {watch.words}", None)

        answer = await watched_request(
            line, engine.endpoint, watch, tell, prompt=self.prompt, max_tokens=self.max_tokens,
            is_pooling=self.is_pooling or None, api_key=self.api_key,
        )  # fmt: skip
        if isinstance(answer, RequestResult):
            return answer
        if answer.state is CompletionState.OK:
            for _ in range(round(AFTER_S / LOOK_S)):
                await asyncio.sleep(LOOK_S)
                if (failure := watch.look()) is not None:
                    return failure
        return judge_first_request(answer, self.engine, watch.lowest_bytes)

    async def _has_survived(self, hands: Hands) -> bool:
        """Whether the node is back in the same boot, with the engine running and memory above the floor."""
        start_view = hands.start_picture.node(hands.node)

        def judge(picture: FleetState, since: Since) -> WaitStatus:
            view = picture.node(hands.node)
            if view is None or view.sample is None or not since.available:
                return WaitStatus(verdict=WaitVerdict.WAITING, detail=f"waiting for {hands.node}")
            has_booted = bool(
                start_view and start_view.facts and view.facts and start_view.facts.boot_id != view.facts.boot_id
            )
            has_engine = any(
                self.engine in (engine.name, engine.key) and engine.exited_wall_s is None for engine in view.engines
            )
            is_well = has_engine and not has_booted and view.sample.memory.available_bytes >= self.floor_bytes
            verdict = WaitVerdict.MET if is_well else WaitVerdict.FAILED
            return WaitStatus(verdict=verdict, detail=f"{hands.node} is back")

        result = await hands.wait(judge)
        if result.is_aborted:
            raise Aborted
        return result.state is StepState.DONE


async def watched_request(
    line: NodeLine, endpoint: Endpoint, watch: MemoryWatch, tell: Callable[[int], None], *, api_key: str, **words: Any
) -> Completion | RequestResult:
    """The answer to a request, or why it was given up; `tell` gets the pieces that have come, `words` go to
    `complete`."""
    pieces = 0

    def count_pieces(count: int) -> None:
        nonlocal pieces
        pieces = count

    key = api_key or os.environ.get(KEY_VARIABLE, "")
    request = asyncio.ensure_future(
        complete(line.transport, endpoint.host, endpoint.port, api_key=key, progress=count_pieces, **words)
    )
    try:
        while not request.done():
            await asyncio.wait({request}, timeout=LOOK_S)
            if (failure := watch.look()) is not None:
                return failure
            tell(pieces)
        answer = request.result()
        if answer.state is not CompletionState.OK:
            await unless_lost(line)
        return answer
    finally:
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)


async def unless_lost(line: NodeLine) -> None:
    """Raise LinkLost if the connection has ended: then the broken request says nothing about the engine."""
    closed = asyncio.ensure_future(line.transport.wait_closed())
    await asyncio.wait({closed}, timeout=LOST_WITHIN_S)
    if closed.done():
        raise LinkLost(closed.result())
    closed.cancel()


def judge_first_request(answer: Completion, engine: str, lowest_bytes: int | None) -> RequestResult:
    """What the answer says about the engine: it serves, or why not."""
    memory_text = f"; at least {gib(lowest_bytes)} stayed available" if lowest_bytes is not None else ""
    if answer.state is not CompletionState.OK:
        return RequestResult(ok=False, detail=f"{engine} does not serve: {why_not(answer)}{memory_text}")
    if answer.numbers:
        return RequestResult(ok=True, detail=f"serves: {pooled(answer)} in {answer.seconds:.1f} s{memory_text}")
    first_text = f", the first after {answer.first_token_s:.1f} s" if answer.first_token_s is not None else ""
    count_text = f"{answer.tokens} tokens" if answer.tokens is not None else "as many tokens as were asked for,"
    tokens_text = f"{count_text} in {answer.seconds:.1f} s{first_text}"
    if not answer.has_content and answer.has_reasoning:
        reasoning_text = (
            "spent all its tokens on reasoning" if answer.finish_reason == "length" else "gave only reasoning"
        )
        tokens_text += f"; it {reasoning_text}, so the answer itself is empty, and it serves"
    elif not answer.has_content:
        tokens_text += "; none of them is text, and it serves"
    return RequestResult(ok=True, detail=f"serves: {tokens_text}{memory_text}")


def pooled(answer: Completion) -> str:
    """ "1,024 numbers from /v1/embeddings", "1 number from /v1/rerank"."""
    return f"{answer.numbers:,} number{'' if answer.numbers == 1 else 's'} from {answer.path}"


def why_not(answer: Completion) -> str:
    """Why no tokens arrived, and what to do."""
    if answer.state is CompletionState.DENIED:
        return (
            f"{answer.detail}. Its key was not found in its container or is not the right one: put it into the "
            f"environment variable {KEY_VARIABLE} here and try again. It answers, so it runs"
        )
    if answer.state is CompletionState.HANGS:
        return f"{answer.detail}: the first forward pass hangs. Its log and power will say more; stop it if it spins"
    if answer.state is CompletionState.UNREACHABLE:
        return f"{answer.detail}. If it ended, its log says why"
    return answer.detail


class MemoryWatch:
    """Watches the available memory of the engine's nodes since the request began."""

    def __init__(self, picture: Callable[[], FleetState], nodes: Sequence[str], floor_bytes: int) -> None:
        self._picture = picture
        self._nodes = nodes
        self._floor_bytes = floor_bytes
        self._began_boot_s = {
            node: view.available_history.times[-1]
            for node in nodes
            if (view := picture().node(node)) is not None and view.available_history.times
        }
        self._sample_seen_s: dict[str, tuple[float | None, float]] = {}
        self._fired_before = {
            node: view.guard.since_wall_s
            for node in nodes
            if (view := picture().node(node)) is not None
            and view.guard is not None
            and view.guard.phase is GuardPhase.FIRED
        }
        self.lowest_bytes: int | None = None

    @property
    def words(self) -> str:
        return "memory not seen yet" if self.lowest_bytes is None else f"lowest {gib(self.lowest_bytes)}"

    def look(self) -> RequestResult | None:
        """Take in the newest picture; a result when the request must be given up."""
        fleet = self._picture()
        for node in self._nodes:
            view = fleet.node(node)
            if view is None:
                continue
            guard = view.guard
            if (
                guard is not None
                and guard.phase is GuardPhase.FIRED
                and self._fired_before.get(node, -1.0) != guard.since_wall_s
            ):
                return _failure(
                    f"the guard on {node} has killed it: {guard.detail or 'memory was running out'}. With these "
                    "settings it loads but can't serve"
                )
            values = [view.sample.memory.available_bytes] if view.sample else []
            history = view.available_history
            for at_s, value in zip(reversed(history.times), reversed(history.values), strict=True):
                if at_s <= self._began_boot_s.setdefault(node, history.times[-1]):
                    break
                if value is not None:
                    values.append(int(value))
            if values:
                self.lowest_bytes = min(values + ([self.lowest_bytes] if self.lowest_bytes is not None else []))
            if values and min(values) < self._floor_bytes:
                return _failure(
                    f"available memory on {node} fell to {gib(min(values))}, below the floor of "
                    f"{gib(self._floor_bytes)}: the request was aborted. Relaunch it with a smaller share or "
                    "--enforce-eager"
                )
            if self._is_silent(node, view.link.state, view.sample_at_s):
                return _failure(f"{node} has shown nothing for {SILENT_S:.0f} s: it may be starved")
        return None

    def _is_silent(self, node: str, state: LinkState, sample_at_s: float | None) -> bool:
        now_s = asyncio.get_running_loop().time()
        last_seen = self._sample_seen_s.get(node)
        if last_seen is None or last_seen[0] != sample_at_s:
            self._sample_seen_s[node] = (sample_at_s, now_s)
            return False
        return now_s - last_seen[1] > SILENT_S


def _failure(detail: str) -> RequestResult:
    return RequestResult(ok=False, detail=detail)


async def seen_engine(picture: Callable[[], FleetState], node: str, name: str) -> Engine | None:
    """The engine with its endpoint, waited for until the picture has it; the engine without it after FIND_S."""
    engine = None
    for _ in range(round(FIND_S / LOOK_S)):
        rank = find(name, node, picture())
        engine = rank.engine if rank else None
        if engine is not None and engine.endpoint is not None:
            return engine
        await asyncio.sleep(LOOK_S)
    return engine


ANSWER_TRIES = 3
"""A busy engine may be late with an answer."""


async def answer(line: NodeLine, picture: Callable[[], FleetState], node: str, name: str) -> Reply:
    """What the engine's endpoint answers now; nothing is generated for it.

    Raises:
        LinkLost: the connection to the node ended.
    """
    rank = find(name, node, picture())
    endpoint = rank.engine.endpoint if rank is not None else None
    reply = Reply(state=EndpointState.NOT_ASKED, detail=f"no endpoint of {name} is seen on {node}")
    for _ in range(ANSWER_TRIES if endpoint is not None else 0):
        assert endpoint is not None
        client = EndpointClient(line.transport, endpoint.host, endpoint.port)
        try:
            reply = await client.get("/metrics")
        finally:
            await client.aclose()
        if reply.state is not EndpointState.TIMED_OUT:
            break
    if reply.state in (EndpointState.REFUSED, EndpointState.TIMED_OUT):
        await unless_lost(line)
    return reply


def nodes_of(fleet: FleetState, node: str, name: str) -> tuple[str, ...]:
    """The nodes that hold a rank of the engine, `node` first."""
    return tuple(dict.fromkeys((node, *(rank.node.name for rank in ranks(name, node, fleet)))))


PROMPT = "Count upwards from one, in words, with commas between. Begin now and do not stop."
SLOW_BELOW = 0.7
"""Share of the lowest expected rate: runs on one machine differ by 10 to 20 %."""
LEAST_TOKENS = 8
"""With fewer tokens after the first, no rate is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure(Act):
    """A short benchmark from the operator's side, after the first request succeeded."""

    engine: str
    """The container's name."""
    expected: Expected
    floor_bytes: int
    tokens: int = 256
    api_key: str = field(default="", repr=False)

    async def perform(self, hands: Hands) -> StepResult:
        """Measure once; a failure says nothing about the engine, which has served."""
        return await hands.ask(lambda line, progress: self.request(line, hands.picture, hands.node, progress))

    def text(self) -> Iterator[str]:
        yield f"POST /v1/chat/completions of {self.engine}: {self.tokens} tokens, timed from here"

    def cause(self, node: str, picture: FleetState) -> Cause | None:
        return failure_cause(((node, self.engine),), picture)

    async def request(self, line: NodeLine, picture: Picture, node: str, progress: Progress) -> RequestResult:
        """Request a fixed number of tokens, and time them.

        Raises:
            LinkLost: the connection to the node ended.
        """
        engine = await seen_engine(picture, node, self.engine)
        if engine is None or engine.endpoint is None:
            return RequestResult(
                ok=False, detail=f"no endpoint of {self.engine} is seen on {node}: nothing was measured"
            )
        nodes = nodes_of(picture(), node, self.engine)
        watch = MemoryWatch(picture, nodes, self.floor_bytes)

        def tell(pieces: int) -> None:
            ratio = min(1.0, pieces / max(1, self.tokens))
            progress(f"{pieces} of {self.tokens} tokens; {watch.words}", ratio)

        answer = await watched_request(
            line, engine.endpoint, watch, tell, prompt=PROMPT, max_tokens=self.tokens,
            api_key=self.api_key, more={"ignore_eos": True}, is_pooling=None,
        )  # fmt: skip
        if isinstance(answer, RequestResult):
            return answer
        views = [view for name in nodes if (view := picture().node(name)) is not None]
        left_bytes = min((view.sample.memory.available_bytes for view in views if view.sample), default=None)
        return judge_measurement(answer, self.expected, left_bytes=left_bytes, lowest_bytes=watch.lowest_bytes)


def judge_measurement(
    answer: Completion, expected: Expected, *, left_bytes: int | None, lowest_bytes: int | None
) -> RequestResult:
    """What was measured, next to what was expected."""
    if answer.state is not CompletionState.OK:
        return RequestResult(ok=False, detail=f"nothing was measured: {why_not(answer)}")
    if answer.numbers:
        return RequestResult(ok=True, detail=f"no tokens to measure: it serves {pooled(answer)}")
    speed = rate(answer)
    parts = []
    if answer.first_token_s is not None:
        parts.append(f"first token {answer.first_token_s:.1f} s{_expected_text(expected.first_token_s, 's')}")
    if speed is None:
        parts.append(f"{answer.tokens or 0} tokens came, too few to measure a rate")
    else:
        parts.append(f"{speed:.1f} tok/s{_expected_rate(expected)}")
    if left_bytes is not None:
        parts.append(f"{left_bytes / GIB:.0f} GiB left{_expected_text(expected.available_gib)}")
    if lowest_bytes is not None and left_bytes is not None and lowest_bytes < left_bytes - GIB // 2:
        parts.append(f"{lowest_bytes / GIB:.0f} at least")
    if slow_note := slower(speed, expected):
        parts.append(slow_note)
    return RequestResult(ok=True, detail="; ".join(parts))


def rate(answer: Completion) -> float | None:
    """Decoding rate in tokens a second: those after the first piece, over the time since it arrived."""
    if answer.first_token_s is None or answer.last_token_s is None or not answer.tokens or answer.pieces < 2:
        return None
    took_s = answer.last_token_s - answer.first_token_s
    # A piece may hold several tokens, the first one as well as the others.
    later_tokens = answer.tokens * (1 - 1 / answer.pieces)
    return later_tokens / took_s if later_tokens >= LEAST_TOKENS and took_s > 0 else None


def slower(speed: float | None, expected: Expected) -> str:
    """A sentence where it is clearly slower than expected, with what to look at; empty otherwise."""
    if speed is None or not expected.tokens_s or speed >= SLOW_BELOW * expected.tokens_s:
        return ""
    return (
        f"that is {100 * speed / expected.tokens_s:.0f} % of the least that is expected: look at the GPU's clock and "
        "power while it decodes (a supply that limits it pins the clock low), at what else uses the GPU, at the "
        "backends that its log names, and on two nodes at whether NCCL goes over RDMA"
    )


def _expected_text(figure: float | None, unit: str = "") -> str:
    return "" if figure is None else f" (expected {figure:g}{' ' + unit if unit else ''})"


def _expected_rate(expected: Expected) -> str:
    if expected.tokens_s is None:
        return ""
    most = f"-{expected.tokens_s_most:g}" if expected.tokens_s_most else ""
    return f" (expected {expected.tokens_s:g}{most})"
