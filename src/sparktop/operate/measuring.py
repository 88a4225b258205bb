"""A short measurement of an engine that serves, from the operator's side: first token, tokens a second, memory left.

Set beside what the recipe expects. It says whether this start is as good as somebody else's was; that it is slower is
no failure, and is told with what to look at (facts/engines.md section 7; gb10.md sections 4, 5).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sparktop.diagnose.live.window import GIB
from sparktop.model.fleet import FleetState
from sparktop.model.plan import Measure
from sparktop.model.recipe import Expected
from sparktop.operate.line import NodeLine
from sparktop.operate.smoke import KEY_VARIABLE, LOOK_S, MemoryWatch, nodes_of, seen_engine, unless_lost, why_not
from sparktop.transport.completion import Completion, CompletionState, complete

PROMPT = "Count upwards from one, in words, with commas between. Begin now and do not stop."
SLOW_BELOW = 0.7
"""Of the least that is expected: runs of one machine differ by a tenth or two."""
LEAST_TOKENS = 8
"""With fewer after the first no rate is told."""
Progress = Callable[[str, float | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured; None where nothing came to measure it by."""

    ok: bool
    detail: str
    first_token_s: float | None = None
    tokens_s: float | None = None
    """Of decoding: the tokens after the first."""
    left_bytes: int | None = None
    """Available on the node that has least, when it is over."""
    lowest_bytes: int | None = None


async def measure(
    line: NodeLine, picture: Callable[[], FleetState], node: str, wanted: Measure, *, progress: Progress
) -> Measured:
    """Ask for so many tokens, and time them.

    Raises:
        LinkLost: the connection to the node ended.
    """
    engine = await seen_engine(picture, node, wanted.engine)
    if engine is None or engine.endpoint is None:
        return Measured(ok=False, detail=f"no endpoint of {wanted.engine} is seen on {node}: nothing was measured")
    nodes = nodes_of(picture(), node, wanted.engine)
    watch = MemoryWatch(picture, nodes, wanted.floor_bytes)
    pieces = 0

    def told(count: int) -> None:
        nonlocal pieces
        pieces = count

    # Exactly so many, counted by the engine: with speculation a piece may be several tokens.
    more: Mapping[str, Any] = {"ignore_eos": True, "stream_options": {"include_usage": True}}
    asking = asyncio.ensure_future(
        complete(
            line.transport,
            engine.endpoint.host,
            engine.endpoint.port,
            prompt=PROMPT,
            max_tokens=wanted.tokens,
            api_key=wanted.api_key or os.environ.get(KEY_VARIABLE, ""),
            told=told,
            more=more,
        )
    )
    try:
        while not asking.done():
            await asyncio.wait({asking}, timeout=LOOK_S)
            if (failed := watch.look()) is not None:
                return Measured(ok=False, detail=failed.detail, lowest_bytes=watch.lowest_bytes)
            progress(f"{pieces} of {wanted.tokens} tokens; {watch.words}", min(1.0, pieces / max(1, wanted.tokens)))
        answer = asking.result()
        if answer.state is not CompletionState.OK:
            await unless_lost(line)
        views = [view for name in nodes if (view := picture().node(name)) is not None and view.sample is not None]
        left = min((view.sample.memory.available_bytes for view in views if view.sample), default=None)
        return judged(answer, wanted, left_bytes=left, lowest_bytes=watch.lowest_bytes)
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


def judged(answer: Completion, wanted: Measure, *, left_bytes: int | None, lowest_bytes: int | None) -> Measured:
    """What came, beside what is expected."""
    if answer.state is not CompletionState.OK:
        return Measured(
            ok=False,
            detail=f"nothing was measured: {why_not(answer)}",
            left_bytes=left_bytes,
            lowest_bytes=lowest_bytes,
        )
    expected = wanted.expected
    speed = rate(answer)
    parts = []
    if answer.first_token_s is not None:
        parts.append(f"first token {answer.first_token_s:.1f} s{_beside(expected.first_token_s, 's')}")
    if speed is None:
        parts.append(f"{answer.tokens or 0} tokens came, too few to tell a rate by")
    else:
        parts.append(f"{speed:.1f} tok/s{_range(expected)}")
    if left_bytes is not None:
        parts.append(f"{left_bytes / GIB:.0f} GiB left{_beside(expected.available_gib)}")
    if lowest_bytes is not None and left_bytes is not None and lowest_bytes < left_bytes - GIB // 2:
        parts.append(f"{lowest_bytes / GIB:.0f} at the lowest")
    if slow := slower(speed, expected):
        parts.append(slow)
    return Measured(
        ok=True,
        detail="; ".join(parts),
        first_token_s=answer.first_token_s,
        tokens_s=speed,
        left_bytes=left_bytes,
        lowest_bytes=lowest_bytes,
    )


def rate(answer: Completion) -> float | None:
    """Tokens a second of decoding: those after the first piece over the time since it came."""
    if answer.first_token_s is None or answer.last_token_s is None or not answer.tokens or answer.pieces < 2:
        return None
    took_s = answer.last_token_s - answer.first_token_s
    # A piece may hold several tokens, the first one as well as the others.
    later = answer.tokens * (1 - 1 / answer.pieces)
    return later / took_s if later >= LEAST_TOKENS and took_s > 0 else None


def slower(speed: float | None, expected: Expected) -> str:
    """That it is clearly slower than expected, and what to look at; empty where it isn't."""
    if speed is None or not expected.tokens_s or speed >= SLOW_BELOW * expected.tokens_s:
        return ""
    return (
        f"that is {100 * speed / expected.tokens_s:.0f} % of the least that is expected: look at the GPU's clock and "
        "power while it decodes (a supply that limits it pins the clock low), at what else uses the GPU, at the "
        "backends that its log names, and on two nodes at whether NCCL goes over RDMA"
    )


def _beside(figure: float | None, unit: str = "") -> str:
    return "" if figure is None else f" (expected {figure:g}{' ' + unit if unit else ''})"


def _range(expected: Expected) -> str:
    if expected.tokens_s is None:
        return ""
    most = f"-{expected.tokens_s_most:g}" if expected.tokens_s_most else ""
    return f" (expected {expected.tokens_s:g}{most})"
