"""The canary: when an engine is asked what, over real sockets what an answer shows, and what is told of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests import pictures_support as made
from tests.completion_support import EngineStage, delta, events, hang, reply
from tests.support import engine_of
from tests.table import over

from sparktop.clock import ManualClock, SystemClock
from sparktop.cmdline.engine_command import with_argv
from sparktop.diagnose.rules.engine.answers import is_one_token
from sparktop.model.engine import Endpoint, EndpointState, Engine, EngineKind
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence
from sparktop.model.proof import CANARIES, Canary, Proof
from sparktop.observe.engines import canary as module
from sparktop.observe.engines.canary import canary, due
from sparktop.observe.engines.engine_book import CANARIES_KEPT, EngineBook, Figures
from sparktop.observe.node_state import NodeState
from sparktop.transport.local import LocalTransport

KEY = "sk-canary-51c0"
ANSWER, LONG, TOOL = CANARIES
CALL = delta("tool_calls", tool_calls=[{"index": 0, "function": {"name": "get_weather", "arguments": "{}"}}])


def engine(port: int = 8000, *canaries: Canary) -> Engine:
    endpoint = Endpoint(host="127.0.0.1", port=port, state=EndpointState.OK)
    return engine_of(key="a", kind=EngineKind.VLLM, name="vllm", endpoint=endpoint, canaries=canaries)


def said(proof: Proof, is_right: bool | None, *, at_s: float = 0.0, was: bool = True, text: str = "ships") -> Canary:
    return Canary(proof=proof, wall_s=at_s, is_right=is_right, was_right=was, text=text)


RIGHT, WRONG = said(ANSWER, True), said(ANSWER, False)


@over(
    "canaries, after_s, asked",
    [
        ((), 0.0, ANSWER),
        ((RIGHT,), 299.0, None),
        ((RIGHT,), 300.0, LONG),
        ((said(TOOL, None),), 300.0, ANSWER),
        ((RIGHT, WRONG), 59.0, None),
        ((RIGHT, WRONG), 60.0, ANSWER),
        ((RIGHT, WRONG, WRONG), 60.0, LONG),
        ((said(ANSWER, False, was=False),), 60.0, None),
    ],
)
def test_what_is_asked_and_when(canaries: tuple[Canary, ...], after_s: float, asked: Proof | None) -> None:
    assert due(engine(8000, *canaries), 300.0, after_s) is asked
    silent = replace(engine(8000, *canaries), endpoint=Endpoint(host="127.0.0.1", port=1, state=EndpointState.LOADING))
    assert due(silent, 300.0, after_s) is None
    embeds = with_argv(engine(8000, *canaries), ("vllm", "serve", "m", "--task=embed"))
    assert due(embeds, 300.0, after_s) is None


@pytest.mark.parametrize(
    ("proof", "answer", "is_right"),
    [
        (ANSWER, events(delta("stop", content="lighthouse")), True),
        (ANSWER, events(delta("stop", reasoning_content="they want lighthouse")), True),
        (ANSWER, events(delta("length", content="!" * 40)), False),
        (ANSWER, hang, False),
        (ANSWER, reply({"error": "Unauthorized"}, "401 Unauthorized"), None),
        (LONG, events(delta("stop", content="heron-7f3")), True),
        (LONG, events(delta("stop", content="a harbour")), False),
        (TOOL, events(CALL), True),
        (TOOL, events(delta("stop", content="It is fine.")), False),
        (TOOL, reply({"error": {"message": "needs --enable-auto-tool-choice"}}, "400 Bad Request"), None),
    ],
    ids=["right", "reasoned", "garbled", "silent", "no key", "found", "not found", "called", "not called", "no tools"],
)
async def test_what_an_answer_shows(
    monkeypatch: pytest.MonkeyPatch, proof: Proof, answer: Any, is_right: bool | None
) -> None:
    monkeypatch.setattr(module, "SILENT_S", 0.3)
    monkeypatch.setenv("SPARKTOP_API_KEY", KEY)
    transport = LocalTransport()
    async with asyncio.timeout(20), EngineStage(chat=answer) as stage:
        seen = await canary(transport, engine(stage.port), proof, SystemClock())
    await transport.close()
    assert (seen.proof, seen.is_right) == (proof, is_right)
    assert KEY not in repr(seen)
    assert f"Bearer {KEY}" in stage.heads[-1]
    assert seen.why or is_right is not None


def test_a_run_remembers_what_it_once_knew() -> None:
    book = EngineBook(NodeState("spark1", clock=ManualClock(), changed=lambda _: None))
    book.figures["a"] = Figures()
    for is_right in (False, True, *[False] * 20):
        book.canary("a", said(ANSWER, is_right, was=False))
    kept = book.figures["a"].canaries
    assert len(kept) == CANARIES_KEPT
    assert all(one.was_right for one in kept)
    book.canary("gone", RIGHT)


@over(
    "canaries, severity",
    [
        ((RIGHT, WRONG), None),
        ((RIGHT, WRONG, RIGHT), None),
        ((RIGHT, WRONG, said(ANSWER, None), said(LONG, True), WRONG), Severity.WARNING),
        ((said(ANSWER, False, was=False),) * 3, None),
        ((RIGHT, WRONG, WRONG, said(TOOL, False), said(TOOL, False)), Severity.CRITICAL),
        ((RIGHT, *[said(ANSWER, False, text="!" * 40)] * 2), Severity.CRITICAL),
    ],
)
def test_what_turned_wrong_is_told(canaries: tuple[Canary, ...], severity: Severity | None) -> None:
    argv = ("vllm", "serve", "m", "--kv-cache-dtype", "fp8", "--speculative-config", "{}")
    one = with_argv(replace(made.engine(), canaries=canaries), argv)
    found = [
        finding
        for finding in made.claims(made.rules_on("engine"), made.picture(made.node(engines=(one,))))
        if finding.rule == "engine.wrong-answers"
    ]
    assert [finding.severity for finding in found] == ([] if severity is None else [severity])
    for finding in found:
        assert (finding.confidence is Confidence.CONFIRMED) is (severity is Severity.CRITICAL)
        assert [remedy.action for remedy in finding.remedies] == ["safe-restart", *["relaunch"] * 3]


@over(
    "text, is_one",
    [("!" * 40, True), ("the the the the", True), ("!!!", False), ("a lighthouse warns ships", False), ("", False)],
)
def test_one_token_for_ever(text: str, is_one: bool) -> None:
    assert is_one_token(text) is is_one
