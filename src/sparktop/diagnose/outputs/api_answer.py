"""Reads chat completions for empty content: the model was still thinking when its tokens ran out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

from sparktop import sanitise
from sparktop.diagnose.logs.unwrap import values
from sparktop.knowledge.card import found
from sparktop.model.finding import Confidence, Evidence, Finding

CARDS = ("serving.content-null",)

_NO_CONTENT = re.compile(r'"content"\s*:\s*(?:null|"")')
_REASONING = re.compile(r'[{}]|(?P<field>"reasoning(?:_content)?"\s*:\s*")')
_REASONING_WITHIN_CHARS = 4000
_TRIED = 1000
"""So many empty contents of a text are looked behind."""


def read(text: str, source: str) -> tuple[Finding, ...] | None:
    """The findings in chat completions; None if the text holds none."""
    if "chat.completion" not in text:
        return None
    has_completion = False
    for value, line in values(text, having="chat.completion"):
        if isinstance(value, dict) and str(value.get("object", "")).startswith("chat.completion"):
            has_completion = True
            for choice in value.get("choices") or ():
                if isinstance(choice, dict) and _is_empty(choice):
                    return (_finding(choice, value.get("usage"), source, line),)
    if has_completion:
        return ()
    for empty in islice(_NO_CONTENT.finditer(text), _TRIED):  # a paste without its end is still clear
        after = _REASONING.search(text, empty.end(), empty.end() + _REASONING_WITHIN_CHARS)
        if after is not None and after["field"]:
            return (_finding({}, None, source, text.count("\n", 0, empty.start()) + 1),)
    return None


def _is_empty(choice: Mapping[str, Any]) -> bool:
    message = choice.get("message")
    if not isinstance(message, dict) or message.get("content") or message.get("tool_calls"):
        return False
    return bool(_reasoning(message)) or choice.get("finish_reason") == "length"


def _reasoning(message: Mapping[str, Any]) -> str:
    for key in ("reasoning", "reasoning_content"):
        if isinstance(message.get(key), str):
            return str(message[key])
    return ""


def _finding(choice: Mapping[str, Any], usage: Any, source: str, line: int) -> Finding:
    message = choice.get("message") or {}
    thought = _reasoning(message)
    token_count = usage.get("completion_tokens") if isinstance(usage, dict) else None
    observations = ["content null"]
    if thought:
        observations.append(f"{len(thought)} characters of reasoning")
    if reason := choice.get("finish_reason"):
        observations.append(f"finish_reason {sanitise.name(str(reason))}")
    if isinstance(token_count, int):
        observations.append(f"{token_count} completion tokens")
    is_cut = choice.get("finish_reason") == "length"
    return found(
        "serving.content-null",
        "reasoning",
        {},
        confidence=Confidence.CONFIRMED if is_cut else Confidence.SUSPECTED,
        evidence=(Evidence(source=source, line=line, text=", ".join(observations)),),
    )
