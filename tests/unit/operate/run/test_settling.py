"""The figures after a run: taken when what a way back let go of is there again, and not for ever waited for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.operate_support import FAILED, ROLL_BACK, Stage, plan, step
from tests.pictures_support import node

from sparktop.model.engine import Containers
from sparktop.model.operation import DockerCall
from sparktop.operate.acts.remote import Remote
from sparktop.operate.acts.serving import AwaitServing
from sparktop.operate.step.run import RunState
from sparktop.operate.step.wait import WaitStatus, WaitVerdict

GIB = 1024**3
STEP_S = 1.0


def with_memory_back_after(stage: Stage, seconds: float) -> float:
    """Available memory of spark1 rises from 60 to 110 GiB until then, in samples a second apart; returns now."""
    began_s = stage.clock.monotonic()
    view = node("spark1", step_s=300.0)
    assert view.sample is not None
    sample = view.sample

    def sampled() -> None:
        now_s = stage.clock.monotonic() // STEP_S * STEP_S
        available = round((60 + 50 * min(1.0, (now_s - began_s) / seconds)) * GIB)
        memory = replace(sample.memory, available_bytes=available)
        fresh = replace(sample, boot_s=sample.boot_s + now_s, memory=memory)
        stage.views["spark1"] = {"sample": fresh, "sample_at_s": now_s}

    stage.at_pause = sampled
    sampled()
    return began_s


@pytest.mark.parametrize(("seconds", "available"), [(6.0, 110.0), (200.0, 63.0)])
async def test_after_a_way_back_memory_is_told_when_it_is_back(
    tmp_path: Path, seconds: float, available: float
) -> None:
    stage = Stage(tmp_path)
    began_s = with_memory_back_after(stage, seconds)
    stage.node.fails["start"] = FAILED
    run = await stage.carry_out(plan(step("stop"), step("start", on_failure=ROLL_BACK), back=(step("old"),)))
    assert run.state is RunState.ROLLED_BACK
    assert run.after["spark1"]["available_gib"] == pytest.approx(available, abs=1.0)
    assert stage.clock.monotonic() - began_s < 20


async def test_so_it_is_after_a_stop(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    with_memory_back_after(stage, 6.0)
    stop = Remote(operations=(DockerCall(method="POST", path="/containers/x/stop", query={"t": "60"}),))
    run = await stage.carry_out(plan(step("stop", stop)))
    assert run.after["spark1"]["available_gib"] == pytest.approx(110.0, abs=1.0)


async def test_what_let_nothing_go_ends_with_the_next_sample(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    began_s = with_memory_back_after(stage, 6.0)
    run = await stage.carry_out(plan(step("stop")))
    assert run.state is RunState.DONE
    assert stage.clock.monotonic() - began_s < 3


@pytest.mark.parametrize(("asked_every_s", "ends_within_s"), [(3.0, 6.0), (1e9, 10.0)])
async def test_after_a_rollback_the_containers_are_as_it_left_them(
    tmp_path: Path, asked_every_s: float, ends_within_s: float
) -> None:
    """A plan made at once must not see what the run has removed; a Docker that isn't asked is not waited for."""
    stage = Stage(tmp_path)
    began_s = with_memory_back_after(stage, 0.5)
    sampled = stage.at_pause

    def asked() -> None:
        assert sampled is not None
        sampled()
        at_s = stage.clock.monotonic() // asked_every_s * asked_every_s - 0.5
        stage.views["spark1"] |= {"containers_at_s": at_s, "containers": Containers(available=True)}

    stage.at_pause = asked
    asked()
    stage.node.fails["start"] = FAILED
    await stage.carry_out(plan(step("stop"), step("start", on_failure=ROLL_BACK), back=(step("old"),)))
    ended_s = stage.clock.monotonic()
    assert ended_s - began_s < ends_within_s
    if asked_every_s < 10:
        assert stage.views["spark1"]["containers_at_s"] >= began_s


@pytest.mark.parametrize("how", ["done", "way back"])
async def test_the_last_check_sees_what_the_end_tells(tmp_path: Path, how: str) -> None:
    """What dies while the run waits for its last figures is not told as serving."""
    stage = Stage(tmp_path)
    began_s = with_memory_back_after(stage, 6.0)
    stop = Remote(operations=(DockerCall(method="POST", path="/containers/x/stop", query={"t": "60"}),))
    check = step("serving", AwaitServing(name="x"))
    checked_s: list[float] = []

    def judged(what: str) -> WaitStatus:
        checked_s.append(stage.clock.monotonic() - began_s)
        return WaitStatus(verdict=WaitVerdict.MET, detail="it serves")

    stage.acts.judged = judged  # type: ignore[method-assign]
    if how == "way back":
        stage.node.fails["start"] = FAILED
        made = plan(step("stop", stop), step("start", on_failure=ROLL_BACK), back=(step("old"), check))
    else:
        made = plan(step("stop", stop), step("start"), check)
    run = await stage.carry_out(made)
    assert run.state is (RunState.ROLLED_BACK if how == "way back" else RunState.DONE)
    assert run.after["spark1"]["available_gib"] == pytest.approx(110.0, abs=1.0)
    assert checked_s[0] >= 6.0, "memory was back by then"
    assert stage.clock.monotonic() - began_s < checked_s[-1] + 1.0, "and nothing is waited for after it"
