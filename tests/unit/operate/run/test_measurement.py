"""The measurement after a launch: its figures beside those expected, and what is said of a slow one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests import pictures_support as made
from tests.completion_support import EngineStage, delta, events, reply
from tests.operate_support import Stage as RunStage
from tests.operate_support import plan, step
from tests.table import over
from tests.unit.operate.run.test_first_request import Line, Stage

from sparktop.documents.run import body_lines
from sparktop.errors import LinkLost
from sparktop.model.fleet import FleetState
from sparktop.model.recipe import Expected
from sparktop.operate.acts import request as module
from sparktop.operate.acts.request import Measure, judge_measurement
from sparktop.operate.audit_file import entries
from sparktop.operate.run.run_text import measured as measured_figures
from sparktop.operate.step.plan import OnFailure, Step
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.step.step_result import RequestResult
from sparktop.transport.completion import Completion, CompletionState
from sparktop.transport.local import LocalTransport

GIB = made.GIB
EXPECTED = Expected(tokens_s=28, tokens_s_most=30, available_gib=45, first_token_s=0.9)
WANTED = Measure(engine="vllm-qwen36", expected=EXPECTED, floor_bytes=4 * GIB, tokens=64)


def answer(**more: Any) -> Completion:
    said = {
        "state": CompletionState.OK,
        "tokens": 64,
        "pieces": 64,
        "first_token_s": 0.8,
        "last_token_s": 0.8 + 63 / 29.4,
        **more,
    }
    return Completion(**said)


@over(
    "came, told",
    [
        (
            answer(),
            ("first token 0.8 s (expected 0.9 s); 29.4 tok/s (expected 28-30); 46 GiB left (expected 45); 44 at least"),
        ),
        (answer(tokens=128), "58.8 tok/s"),  # speculation: two tokens a piece
        (answer(tokens=3, pieces=3), "3 tokens came, too few to measure a rate"),
        (answer(pieces=1), "64 tokens came, too few to measure a rate"),  # not streamed
        (answer(last_token_s=0.8 + 63 / 14), "14.0 tok/s (expected 28-30)"),
        (answer(last_token_s=0.8 + 63 / 14), "that is 50 % of the least that is expected: look at the GPU's clock"),
    ],
)
def test_figures_beside_those_expected(came: Completion, told: str) -> None:
    found = judge_measurement(came, WANTED.expected, left_bytes=46 * GIB, lowest_bytes=44 * GIB)
    assert found.ok
    assert told in found.detail


def test_not_slow_where_nothing_is_expected_or_it_is_within_a_third() -> None:
    bare = Measure(engine="vllm-qwen36", expected=Expected(), floor_bytes=0)
    alone = judge_measurement(answer(), bare.expected, left_bytes=46 * GIB, lowest_bytes=46 * GIB).detail
    assert alone == "first token 0.8 s; 29.4 tok/s; 46 GiB left"
    assert (
        "look at"
        not in judge_measurement(
            answer(last_token_s=0.8 + 63 / 21), WANTED.expected, left_bytes=None, lowest_bytes=None
        ).detail
    )


def test_no_answer_is_no_measurement() -> None:
    found = judge_measurement(
        Completion(state=CompletionState.HANGS, detail="it hangs"), WANTED, left_bytes=None, lowest_bytes=None
    )
    assert not found.ok
    assert "it hangs" in found.detail


async def measured(engine: EngineStage, stage: Stage, wanted: Measure = WANTED) -> RequestResult:
    transport = LocalTransport()
    try:
        async with asyncio.timeout(20):
            return await wanted.request(Line(transport), stage, "spark1", lambda text, ratio: None)  # type: ignore[arg-type]
    finally:
        await transport.close()


def counting(count: int, tokens: int) -> Any:
    async def write(writer: asyncio.StreamWriter) -> None:
        pieces = [delta(content=f"{number} ") for number in range(count)]
        whole = events(*pieces, delta("length"), {"choices": [], "usage": {"completion_tokens": tokens}})
        head, _, body = whole.partition(b"\r\n\r\n")
        writer.write(head + b"\r\n\r\n")
        for piece in body.split(b"\n\n"):
            writer.write(piece + b"\n\n")
            await writer.drain()
            await asyncio.sleep(0.002)

    return write


async def test_it_asks_for_so_many_tokens_and_counts_by_the_engine() -> None:
    async with EngineStage(chat=counting(20, 40)) as engine:
        found = await measured(engine, Stage(engine.port))
    asked = engine.bodies[-1]
    assert (asked["max_tokens"], asked["ignore_eos"], asked["stream_options"]) == (64, True, {"include_usage": True})
    assert found.ok
    assert "tok/s" in found.detail
    assert "27 GiB left" in found.detail


async def test_an_engine_that_knows_no_such_fields_is_asked_without_them() -> None:
    async def choosy(writer: asyncio.StreamWriter) -> None:
        if "ignore_eos" in engine.bodies[-1]:
            writer.write(reply({"message": "ignore_eos: extra fields not permitted"}, "400 Bad Request"))
            return
        await counting(20, 20)(writer)

    async with EngineStage(chat=choosy) as engine:
        found = await measured(engine, Stage(engine.port))
    assert ["ignore_eos" in body for body in engine.bodies] == [True, False]
    assert found.ok, json.dumps(engine.bodies)


async def test_memory_below_the_floor_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    async with EngineStage(chat=counting(500, 500)) as engine:
        stage = Stage(engine.port)
        stage.fall(2.0)
        found = await measured(engine, stage)
    assert not found.ok
    assert "4.0 GiB" in found.detail


def measuring() -> Step:
    return Step(id="measure", title="Measure it", node="spark1", act=WANTED, on_failure=OnFailure.GO_ON)


async def test_its_figures_are_the_step_s_detail(tmp_path: Path) -> None:
    stage = RunStage(tmp_path)
    stage.acts.measured = RequestResult(ok=True, detail="first token 0.8 s; 29.4 tok/s")
    run = await stage.carry_out(plan(step("start"), measuring()))
    assert run.state is RunState.DONE
    assert run.steps[-1].detail == "first token 0.8 s; 29.4 tok/s"


async def test_its_figures_stand_in_the_run_and_in_the_audit(tmp_path: Path) -> None:
    stage = RunStage(tmp_path)
    figures = {"first_token_s": 0.8, "decode_tps": 29.4, "tool_call": "named"}
    stage.acts.measured = RequestResult(ok=True, detail="29.4 tok/s", figures=figures)
    run = await stage.carry_out(plan(step("start"), measuring()))
    assert [step_run.figures for step_run in run.steps] == [{}, figures]
    assert measured_figures(run) == {"spark1": {"first_token_s": 0.8, "decode_tps": 29.4}}
    steps = [entry for entry in entries(stage.audit_path)[0] if entry["kind"] == "step"]
    assert [entry.get("figures") for entry in steps] == [None, figures]
    shown = "\n".join(line.plain for line in body_lines(run, 78, 0.0)[0])
    assert "Measured\nspark1  first token 0.8 s, decode 29.4 tok/s" in shown


@pytest.mark.parametrize("problem", ["", "bringup.json can't be written"])
async def test_what_it_measured_is_kept_once_it_has_ended(tmp_path: Path, problem: str) -> None:
    kept: list[tuple[Run, FleetState]] = []

    def keep(run: Run, picture: FleetState) -> str:
        kept.append((run, picture))
        return problem

    stage = RunStage(tmp_path, keep_measured=keep)
    stage.acts.measured = RequestResult(ok=True, detail="29.4 tok/s")
    run = await stage.carry_out(plan(step("start"), measuring()))
    ((ended, before),) = kept
    assert (ended.state, ended.steps) == (RunState.DONE, run.steps)
    assert before.monotonic_s <= stage.clock.monotonic()
    assert run.message.endswith(f"{problem}." if problem else "done in 0:00.")


async def test_a_fault_in_keeping_leaves_the_run_as_it_is(tmp_path: Path) -> None:
    def keep(run: Run, picture: FleetState) -> str:
        raise ZeroDivisionError

    stage = RunStage(tmp_path, keep_measured=keep)
    stage.acts.measured = RequestResult(ok=True, detail="29.4 tok/s")
    run = await stage.carry_out(plan(step("start"), measuring()))
    assert run.state is RunState.DONE
    assert "was measured" in run.message


async def test_a_line_that_breaks_in_it_takes_nothing_back(tmp_path: Path) -> None:
    stage = RunStage(tmp_path)
    stage.acts.measured = LinkLost("the connection ended")
    run = await stage.carry_out(plan(step("start"), measuring(), step("policy")))
    assert run.state is RunState.DONE
    assert "nothing was measured" in run.message
