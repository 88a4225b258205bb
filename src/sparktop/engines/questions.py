"""Questions with a known answer: what a proof and a canary ask of an engine. `/health` lies, they do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparktop.cmdline.engine_argv import is_pooling, is_ranking
from sparktop.model.engine import EngineKind

LEAST_LINES = 12
"""With fewer nothing is hidden."""
TOKENS_PER_LINE = 22
"""Of `_LINE`, as most vocabularies have it; the room of a short context is counted with _MOST_TOKENS_PER_LINE."""
_MOST_TOKENS_PER_LINE = 30
_ROOM_TOKENS = 384
"""Of the context, left free for the answer and the chat template."""
_HELLO = "Say hello."
_LINE = "Day {number}: the harbour was calm, two ships came in, and the log was closed at dusk.\n"
TOOL = "get_weather"
"""The tool that is offered."""
TOOLS: Mapping[str, Any] = {
    "tools": [
        {
            "type": "function",
            "function": {
                "name": TOOL,
                "description": "The weather in a city now.",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
            },
        }
    ],
    "tool_choice": "auto",
}
TOOL_PROMPT = "What is the weather in Oslo now? Call the tool that tells you."
BRIEFLY: Mapping[str, Any] = {"chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "low"}
"""Keeps a model that reasons from using its few tokens up before it comes to the point; others ignore it."""


def first_question(argv: Sequence[str], kind: EngineKind, model: str) -> tuple[str, Mapping[str, Any]]:
    """(path below /v1, fields besides the model) of a request to type by hand; what a pooling model does, a
    flag says, or at best a name."""
    if not is_pooling(argv, kind):
        return "chat/completions", {"messages": [{"role": "user", "content": _HELLO}]}
    if is_ranking(argv, kind) or any("rerank" in word.lower() for word in (model, *argv)):
        return "rerank", {"query": _HELLO, "documents": [_HELLO]}
    return "embeddings", {"input": _HELLO}


def lines_in(context_tokens: int | None, most: int) -> int:
    """How many of a long prompt's lines a context has room for; `most` where it doesn't say how long it is."""
    if context_tokens is None:
        return most
    return min(most, (context_tokens - _ROOM_TOKENS) // _MOST_TOKENS_PER_LINE)


def long_prompt(word: str, count: int) -> str:
    """A log of so many lines, two at least, with a word hidden in its middle."""
    lines = [_LINE.format(number=number) for number in range(1, max(count, 2) + 1)]
    middle = len(lines) // 2
    hidden = f"Remember: the code word is {word}.\n"
    question = "What is the code word in this log? Answer with the word alone."
    return "".join((*lines[:middle], hidden, *lines[middle:], question))
