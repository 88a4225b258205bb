"""An engine's answer over HTTP: content that is null because the model was still thinking when its tokens ran out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sparktop import sanitise
from sparktop.diagnose.documents.embedded import values
from sparktop.diagnose.rule import Rule, RuleKind
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Remedy

CONTENT_NULL = Rule(
    id="serving.content-null",
    kind=RuleKind.DOCUMENT,
    title="The answer's content is null: the model spent its tokens on reasoning",
    severity=Severity.WARNING,
    scope="an API's answer",
    sources=("field report 002",),
)
CARDS = (CONTENT_NULL,)

_CUT_OFF = re.compile(r'"content"\s*:\s*(?:null|"")[^{}]{0,4000}?"reasoning(?:_content)?"\s*:\s*"')


def read(text: str, source: str) -> tuple[Finding, ...] | None:
    """What the answers say; None where the text holds no chat completion."""
    if "chat.completion" not in text:
        return None
    is_one = False
    for value, line in values(text, having="chat.completion"):
        if isinstance(value, dict) and str(value.get("object", "")).startswith("chat.completion"):
            is_one = True
            for choice in value.get("choices") or ():
                if isinstance(choice, dict) and _is_empty(choice):
                    return (_finding(choice, value.get("usage"), source, line),)
    if is_one:
        return ()
    if (found := _CUT_OFF.search(text)) is not None:  # a paste that lacks its end is still plain enough
        line = text.count("\n", 0, found.start()) + 1
        return (_finding({}, None, source, line),)
    return None


def _is_empty(choice: Mapping[str, Any]) -> bool:
    message = choice.get("message")
    if not isinstance(message, dict) or message.get("content") or message.get("tool_calls"):
        return False
    return bool(_thought(message)) or choice.get("finish_reason") == "length"


def _thought(message: Mapping[str, Any]) -> str:
    for key in ("reasoning", "reasoning_content"):
        if isinstance(message.get(key), str):
            return str(message[key])
    return ""


def _finding(choice: Mapping[str, Any], usage: Any, source: str, line: int) -> Finding:
    message = choice.get("message") or {}
    thought = _thought(message)
    spent = usage.get("completion_tokens") if isinstance(usage, dict) else None
    says = ["content null"]
    if thought:
        says.append(f"{len(thought)} characters of reasoning")
    if reason := choice.get("finish_reason"):
        says.append(f"finish_reason {sanitise.name(str(reason))}")
    if isinstance(spent, int):
        says.append(f"{spent} completion tokens")
    is_cut = choice.get("finish_reason") == "length"
    return Finding(
        rule=CONTENT_NULL.id,
        severity=CONTENT_NULL.severity,
        confidence=Confidence.CONFIRMED if is_cut else Confidence.SUSPECTED,
        title=CONTENT_NULL.title,
        explanation=(
            "A reasoning model thinks before it answers, and what it thinks counts against `max_tokens`. Where "
            "they run out "
            "before the thinking ends, `content` is null and all the text stands in the reasoning field. The "
            "engine works; "
            "the request allows too little."
        ),
        settles="" if is_cut else "`finish_reason`: `length` says that the tokens ran out",
        evidence=(Evidence(source=source, line=line, text=", ".join(says)),),
        remedies=(
            Remedy(title="Allow more tokens", steps=("`max_tokens` of 1024 or more in the request",), cost="time"),
            Remedy(
                title="Turn reasoning off for this request",
                steps=(
                    '`"chat_template_kwargs": {"enable_thinking": false}` in the request (Qwen3 and others)',
                    "`/no_think` in the prompt for models that know it",
                ),
                cost="the quality that reasoning gives",
            ),
        ),
        references=CONTENT_NULL.sources,
    )
