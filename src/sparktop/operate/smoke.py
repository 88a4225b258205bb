"""The first request to an engine that has just become ready, from the operator's side, with memory watched meanwhile.

"It loaded" is not "it serves" (field report 001): the first forward pass may hang, crash, or take all memory within
seconds. The probe samples faster by itself as memory falls, and the guard it holds ends the engine without us; here the
request is given up when memory falls below the floor, and what was seen is told.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparktop.diagnose.live.window import GIB, gib
from sparktop.errors import LinkLost
from sparktop.model.engine import Engine
from sparktop.model.fleet import FleetState, LinkState
from sparktop.model.guard import GuardPhase
from sparktop.model.plan import SmokeTest
from sparktop.operate.line import NodeLine
from sparktop.operate.pair import find, ranks
from sparktop.transport.completion import Completion, CompletionState, complete

LOOK_S = 0.1
AFTER_S = 2.0
"""Memory is watched on for so long: samples come later than tokens."""
SILENT_S = 20.0
"""A node that shows nothing for so long while its first request runs is taken for starved."""
LOST_WITHIN_S = 1.0
"""A connection that ends is known to have ended so long after what ran over it broke off."""
FIND_S = 20.0
KEY_VARIABLE = "SPARKTOP_API_KEY"
"""Of the operator's own environment: the engine's key, where the engine doesn't show it."""
Progress = Callable[[str, float | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeResult:
    """How the first request went."""

    ok: bool
    detail: str
    """A sentence: what came and when, or why nothing did and what to do."""
    first_token_s: float | None = None
    tokens: int | None = None
    lowest_available_bytes: int | None = None
    """Over all nodes of the engine, while the request ran and a moment after."""


async def smoke(
    line: NodeLine, picture: Callable[[], FleetState], node: str, test: SmokeTest, *, progress: Progress
) -> SmokeResult:
    """Ask once, and watch.

    Raises:
        LinkLost: the connection to the node ended; how the engine fares is not known.
    """
    engine = await seen_engine(picture, node, test.engine)
    if engine is None or engine.endpoint is None:
        return SmokeResult(
            ok=False, detail=f"no endpoint of {test.engine} is seen on {node}: nothing could be asked of it"
        )
    watch = MemoryWatch(picture, nodes_of(picture(), node, test.engine), test.floor_bytes)
    pieces = 0

    def told(count: int) -> None:
        nonlocal pieces
        pieces = count

    key = test.api_key or os.environ.get(KEY_VARIABLE, "")
    asking = asyncio.ensure_future(
        complete(
            line.transport,
            engine.endpoint.host,
            engine.endpoint.port,
            prompt=test.prompt,
            max_tokens=test.max_tokens,
            api_key=key,
            told=told,
        )
    )
    try:
        while not asking.done():
            await asyncio.wait({asking}, timeout=LOOK_S)
            if (failed := watch.look()) is not None:
                return failed
            words = f"{pieces} pieces of the answer" if pieces else "asked, no token yet"
            progress(f"{words}; {watch.words}", None)  # it ends when it likes, long before so many
        answer = asking.result()
        if answer.state is not CompletionState.OK:
            await unless_lost(line)
        if answer.state is CompletionState.OK:
            for _ in range(round(AFTER_S / LOOK_S)):
                await asyncio.sleep(LOOK_S)
                if (failed := watch.look()) is not None:
                    return failed
        return judged(answer, test, watch.lowest_bytes)
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def unless_lost(line: NodeLine) -> None:
    """Raises LinkLost where the connection to the node has ended: that it broke off says nothing of the engine."""
    closed = asyncio.ensure_future(line.transport.wait_closed())
    await asyncio.wait({closed}, timeout=LOST_WITHIN_S)
    if closed.done():
        raise LinkLost(closed.result())
    closed.cancel()


def judged(answer: Completion, test: SmokeTest, lowest_bytes: int | None) -> SmokeResult:
    """What an answer says of the engine."""
    low = f"; at least {gib(lowest_bytes)} stayed available" if lowest_bytes is not None else ""
    if answer.state is not CompletionState.OK:
        return SmokeResult(
            ok=False,
            detail=f"{test.engine} does not serve: {why_not(answer)}{low}",
            lowest_available_bytes=lowest_bytes,
        )
    first = f", the first after {answer.first_token_s:.1f} s" if answer.first_token_s is not None else ""
    what = f"{answer.tokens} tokens in {answer.seconds:.1f} s{first}"
    if not answer.has_content and answer.has_reasoning:
        thought = "spent all its tokens on reasoning" if answer.finish_reason == "length" else "gave reasoning alone"
        what += f"; it {thought}, so the answer itself is empty, and it serves"
    elif not answer.has_content:
        what += "; none of them is text, and it serves"
    return SmokeResult(
        ok=True,
        detail=f"serves: {what}{low}",
        first_token_s=answer.first_token_s,
        tokens=answer.tokens,
        lowest_available_bytes=lowest_bytes,
    )


def why_not(answer: Completion) -> str:
    """Why no tokens came, and what to do."""
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
    """Available memory of the engine's nodes since the request began."""

    def __init__(self, picture: Callable[[], FleetState], nodes: Sequence[str], floor_bytes: int) -> None:
        self._picture = picture
        self._nodes = nodes
        self._floor_bytes = floor_bytes
        self._began_boot_s = {
            name: view.available_history.times[-1]
            for name in nodes
            if (view := picture().node(name)) is not None and view.available_history.times
        }
        self._seen_s: dict[str, tuple[float | None, float]] = {}
        self._fired_before = {
            name: view.guard.since_wall_s
            for name in nodes
            if (view := picture().node(name)) is not None
            and view.guard is not None
            and view.guard.phase is GuardPhase.FIRED
        }
        self.lowest_bytes: int | None = None

    @property
    def words(self) -> str:
        return "memory not seen yet" if self.lowest_bytes is None else f"lowest {self.lowest_bytes / GIB:.1f} GiB"

    def look(self) -> SmokeResult | None:
        """The newest picture; a result when the request has to be given up."""
        fleet = self._picture()
        for name in self._nodes:
            view = fleet.node(name)
            if view is None:
                continue
            guard = view.guard
            if (
                guard is not None
                and guard.phase is GuardPhase.FIRED
                and self._fired_before.get(name, -1.0) != guard.since_wall_s
            ):
                return self._failed(
                    f"the guard on {name} has ended it: {guard.detail or 'memory was running out'}. It loads and does "
                    "not serve as it is"
                )
            values = [view.sample.memory.available_bytes] if view.sample else []
            history = view.available_history
            for at_s, value in zip(reversed(history.times), reversed(history.values), strict=True):
                if at_s <= self._began_boot_s.setdefault(name, history.times[-1]):
                    break
                if value is not None:
                    values.append(int(value))
            if values:
                self.lowest_bytes = min(values + ([self.lowest_bytes] if self.lowest_bytes is not None else []))
            if values and min(values) < self._floor_bytes:
                return self._failed(
                    f"available memory on {name} fell to {gib(min(values))}, below the floor of "
                    f"{gib(self._floor_bytes)}: the request was given up. Relaunch it with a smaller share or "
                    "--enforce-eager"
                )
            if self._is_silent(name, view.link.state, view.sample_at_s):
                return self._failed(f"{name} has shown nothing for {SILENT_S:.0f} s: it may be starved")
        return None

    def _is_silent(self, name: str, state: LinkState, sample_at_s: float | None) -> bool:
        now_s = asyncio.get_running_loop().time()
        before = self._seen_s.get(name)
        if before is None or before[0] != sample_at_s:
            self._seen_s[name] = (sample_at_s, now_s)
            return False
        return now_s - before[1] > SILENT_S

    def _failed(self, detail: str) -> SmokeResult:
        return SmokeResult(ok=False, detail=detail, lowest_available_bytes=self.lowest_bytes)


async def seen_engine(picture: Callable[[], FleetState], node: str, name: str) -> Engine | None:
    """The engine with its endpoint, as soon as the picture has it."""
    found = None
    for _ in range(round(FIND_S / LOOK_S)):
        rank = find(name, node, picture())
        found = rank.engine if rank else None
        if found is not None and found.endpoint is not None:
            return found
        await asyncio.sleep(LOOK_S)
    return found


def nodes_of(fleet: FleetState, node: str, name: str) -> tuple[str, ...]:
    """Those on which it has a rank."""
    return tuple(dict.fromkeys((node, *(rank.node for rank in ranks(name, node, fleet)))))
