"""The first request of an engine, with memory watched meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests import pictures_support as made
from tests.completion_support import NOT_FOUND, EngineStage, delta, events, hang, reply
from tests.table import over

from sparktop.errors import LinkLost
from sparktop.model.fleet import FleetState
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.operate.acts import request as module
from sparktop.operate.acts.request import SmokeTest, judge_first_request
from sparktop.operate.step.step_result import RequestResult
from sparktop.transport.completion import Completion, CompletionState
from sparktop.transport.local import LocalTransport

GIB = made.GIB
TEST = SmokeTest(engine="vllm-qwen36", floor_bytes=4 * GIB)


@dataclass
class Line:
    """As much of a NodeLine as is wanted."""

    transport: Any
    node: str = "spark1"


class Stage:
    """A picture that can be changed while a request runs."""

    def __init__(self, port: int, **more: Any) -> None:
        engine = made.engine()
        assert engine.endpoint is not None
        self.engine = replace(engine, endpoint=replace(engine.endpoint, port=port))
        self.now_s = made.NOW_S
        self.node = made.node(engines=(self.engine,), **more)

    def __call__(self) -> FleetState:
        self.now_s += 0.1
        return replace(made.picture(self.node), monotonic_s=self.now_s)

    def fall(self, available_gib: float) -> None:
        assert self.node.sample is not None
        self.node = replace(self.node, sample=replace(self.node.sample, memory=made.memory(available_gib)))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    monkeypatch.setattr(module, "AFTER_S", 0.05)
    monkeypatch.setattr(module, "FIND_S", 0.1)
    monkeypatch.delenv(module.KEY_VARIABLE, raising=False)


async def run(
    engine: EngineStage,
    stage: Stage,
    *,
    test: SmokeTest = TEST,
    told: Callable[[str, float | None], None] | None = None,
) -> RequestResult:
    transport = LocalTransport()
    try:
        async with asyncio.timeout(20):
            return await test.request(Line(transport), stage, "spark1", told or (lambda text, ratio: None))  # type: ignore[arg-type]
    finally:
        await transport.close()


async def test_engine_that_serves() -> None:
    texts: list[str] = []
    async with EngineStage() as engine:
        found = await run(engine, Stage(engine.port), told=lambda text, ratio: texts.append(text))
    assert found.ok
    assert found.detail.startswith("serves: 2 tokens in ")
    assert found.detail.endswith("at least 27.0 GiB stayed available")
    assert texts


async def test_what_embeds_serves_whether_or_not_it_was_told_to() -> None:
    nothing = dict.fromkeys(("chat", "plain"), NOT_FOUND)
    async with EngineStage(**{"/v1/embeddings": reply({"data": [{"embedding": [0.5] * 1024}]}), **nothing}) as engine:
        for test in (TEST, replace(TEST, is_pooling=True)):
            found = await run(engine, Stage(engine.port), test=test)
            assert found.ok
            assert found.detail.startswith("serves: 1,024 numbers from /v1/embeddings in ")
        assert [head.split(" ")[1].rpartition("/")[2] for head in engine.heads if head.startswith("POST")] == [
            *("completions", "completions", "embeddings"),
            "embeddings",
        ]


async def test_how_far_an_answer_is_is_not_known() -> None:
    """It ends long before the most tokens it may have: "2 %" reads as if there were much to wait for."""
    told: list[float | None] = []
    async with EngineStage(chat=hang) as engine:
        stage = Stage(engine.port)

        def heard(text: str, ratio: float | None) -> None:
            told.append(ratio)
            stage.fall(2.5)

        await run(engine, stage, told=heard)
    assert set(told) == {None}


async def test_memory_below_the_floor_ends_the_request() -> None:
    async with EngineStage(chat=hang) as engine:
        stage = Stage(engine.port)

        def told(text: str, ratio: float | None) -> None:
            if len(engine.heads) > 1:
                stage.fall(2.5)

        found = await run(engine, stage, told=told)
        async with asyncio.timeout(10):
            await engine.aborted.wait()
    assert not found.ok
    assert "fell to 2.5 GiB, below the floor of 4.0 GiB: the request was aborted" in found.detail


async def test_spike_between_two_pictures_is_seen_in_the_history() -> None:
    """The picture comes five times a second at most; samples come faster while memory falls."""
    async with EngineStage(chat=hang) as engine:
        stage = Stage(engine.port)
        history = stage.node.available_history

        def told(text: str, ratio: float | None) -> None:
            at_s = stage.now_s
            longer = replace(history, times=(*history.times, at_s), values=(*history.values, 1.0 * GIB))
            stage.node = replace(stage.node, available_history=longer)

        found = await run(engine, stage, told=told)
    assert not found.ok
    assert "fell to 1.0 GiB" in found.detail


async def test_spike_after_the_last_token_counts() -> None:
    async with EngineStage() as engine:
        stage = Stage(engine.port)
        calls = 0

        class Late(Stage):
            def __call__(self) -> FleetState:
                nonlocal calls
                calls += 1
                if len(engine.heads) > 1 and calls > 3:
                    stage.fall(1.0)
                return stage.__class__.__call__(stage)

        found = await run(engine, Late(engine.port))
    assert not found.ok


async def test_what_was_low_before_is_no_spike() -> None:
    """The history of before the request is another's."""
    async with EngineStage() as engine:
        stage = Stage(engine.port, available_gib=[(-60, 2.0), (-50, 2.0), (-40, 27.0), (0, 27.0)])
        stage.now_s = made.NOW_S + 5
        found = await run(engine, stage)
    assert found.ok


async def test_guard_that_fires_is_told() -> None:
    async with EngineStage(chat=hang) as engine:
        stage = Stage(engine.port)
        fired = GuardState(phase=GuardPhase.FIRED, since_wall_s=5.0, detail="3.1 GiB available, below 4.0 GiB")

        def told(text: str, ratio: float | None) -> None:
            stage.node = replace(stage.node, guard=fired)

        found = await run(engine, stage, told=told)
    assert not found.ok
    assert "the guard on spark1 has killed it: 3.1 GiB available, below 4.0 GiB" in found.detail


async def test_guard_that_fired_earlier_is_another_story() -> None:
    async with EngineStage() as engine:
        earlier = GuardState(phase=GuardPhase.FIRED, since_wall_s=5.0)
        found = await run(engine, Stage(engine.port, guard=earlier))
    assert found.ok


async def test_node_that_falls_silent_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENT_S", 0.2)
    async with EngineStage(chat=hang) as engine:
        found = await run(engine, Stage(engine.port))
    assert not found.ok
    assert "has shown nothing" in found.detail


async def test_key_comes_from_the_plan_or_the_operator_s_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for test, variable, sent in (
        (replace(TEST, api_key="sk-plan"), "sk-own", "sk-plan"),
        (TEST, "sk-own", "sk-own"),
    ):
        monkeypatch.setenv(module.KEY_VARIABLE, variable)
        async with EngineStage() as engine:
            found = await run(engine, Stage(engine.port), test=test)
            assert f"Bearer {sent}" in engine.heads[-1]
        assert "sk-" not in repr(found)


async def test_key_that_is_wanted_is_explained() -> None:
    async with EngineStage(models=reply({"error": "Unauthorized"}, "401 Unauthorized")) as engine:
        found = await run(engine, Stage(engine.port))
    assert not found.ok
    assert "needs a key" in found.detail
    assert module.KEY_VARIABLE in found.detail


async def test_reasoning_alone_serves() -> None:
    chat = events(delta(reasoning_content="let me think"), delta("length", content=None))
    async with EngineStage(chat=chat) as engine:
        found = await run(engine, Stage(engine.port))
    assert found.ok
    assert "spent all its tokens on reasoning" in found.detail


async def test_engine_without_an_endpoint_is_told() -> None:
    stage = Stage(1)
    stage.node = replace(stage.node, engines=(replace(stage.engine, endpoint=None),))
    async with EngineStage() as engine:
        found = await run(engine, stage)
    assert not found.ok
    assert "couldn't send a request" in found.detail


async def test_line_that_breaks_is_the_caller_s_to_handle() -> None:
    class Broken:
        def tcp_socket(self, host: str, port: int) -> Any:
            raise LinkLost("the connection ended")

    with pytest.raises(LinkLost):
        await TEST.request(Line(Broken()), Stage(1), "spark1", lambda text, ratio: None)  # type: ignore[arg-type]


@over(
    "state, words",
    [
        (CompletionState.HANGS, "the first forward pass hangs"),
        (CompletionState.UNREACHABLE, "its log says why"),
        (CompletionState.REFUSED, "does not serve"),
        (CompletionState.EMPTY, "does not serve"),
    ],
)
def test_every_other_end_says_what_it_means(state: CompletionState, words: str) -> None:
    found = judge_first_request(Completion(state=state, detail="so it was"), TEST.engine, None)
    assert not found.ok
    assert "so it was" in found.detail
    assert words in found.detail
