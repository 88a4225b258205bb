"""The canary: an engine at rest is asked what has one right answer, so that garbled answers behind green figures are
told before somebody reads one. Only where the operator has switched it on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from sparktop.clock import Clock
from sparktop.cmdline.engine_argv import is_pooling
from sparktop.engines.questions import BRIEFLY, TOOL, TOOL_PROMPT, TOOLS, lines_in, long_prompt
from sparktop.model.engine import EndpointState, Engine
from sparktop.model.proof import CANARIES, Canary, Proof
from sparktop.transport.base import Transport
from sparktop.transport.completion import KEY_VARIABLE, CompletionState, Prompt, complete

AGAIN_S = 60.0
"""After a wrong answer the next question comes so soon, and never sooner."""
SILENT_S = 60.0
TOKENS = 64
"""The most of one answer."""
LINES = 90
"""Of the long prompt: some 2,000 tokens."""
_WORD, _HIDDEN = "lighthouse", "heron-7f3"


def due(engine: Engine, every_s: float, wall_s: float) -> Proof | None:
    """What to ask the engine now; None: nothing yet."""
    if engine.endpoint is None or engine.endpoint.state is not EndpointState.OK:
        return None
    if is_pooling(engine.argv, engine.kind):
        return None  # it writes no text
    if not engine.canaries:
        return CANARIES[0]
    last = engine.canaries[-1]
    is_wrong = last.was_right and last.is_right is False
    if wall_s - last.wall_s < (AGAIN_S if is_wrong else every_s):
        return None
    # a wrong answer is asked for again: one may be chance
    is_first = is_wrong and [one.is_right for one in engine.canaries if one.proof is last.proof][-2:] != [False] * 2
    return last.proof if is_first else CANARIES[(CANARIES.index(last.proof) + 1) % len(CANARIES)]


async def canary(transport: Transport, engine: Engine, proof: Proof, clock: Clock) -> Canary:
    """Ask it, and judge the answer.

    Raises:
        LinkLost: the connection to the node ended.
    """
    assert engine.endpoint is not None  # `due` asks no other
    asked: dict[Proof, tuple[Prompt, str, Mapping[str, Any]]] = {
        Proof.ANSWER: (f"Write this one word and nothing else: {_WORD}", _WORD, BRIEFLY),
        Proof.LONG_PROMPT: (_log, _HIDDEN, BRIEFLY),
        Proof.TOOL_CALL: (TOOL_PROMPT, "", {**TOOLS, **BRIEFLY}),
    }
    prompt, word, more = asked[proof]
    answer = await complete(
        transport,
        engine.endpoint.host,
        engine.endpoint.port,
        prompt=prompt,
        max_tokens=TOKENS,
        api_key=os.environ.get(KEY_VARIABLE, ""),
        idle_s=SILENT_S,
        more=more,
        is_strict=proof is Proof.TOOL_CALL,
        seeks=word,
    )
    is_right: bool | None = None
    if answer.state in (CompletionState.OK, CompletionState.EMPTY):
        is_right = TOOL in answer.tool_names if proof is Proof.TOOL_CALL else answer.has_found
    elif answer.state is CompletionState.HANGS:
        is_right = False
    return Canary(proof=proof, wall_s=clock.wall(), is_right=is_right, text=answer.text[:80], why=answer.detail)


def _log(context_tokens: int | None) -> str:
    return long_prompt(_HIDDEN, lines_in(context_tokens, LINES))
