"""Bad moments of actions, each on a real sshd and a real Docker Engine: what survives, and what is said."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.integration.desk import Desk, at, desk, told
from tests.integration.dockerd import Dockerd
from tests.integration.engine_image import EngineLike, Engines
from tests.integration.sshd import Sshd, sshd
from tests.integration.test_launch_faults import when

from sparktop.operate.plan.running_rank import RunningRank
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.step.step_result import StepState
from sparktop.transport.docker.inspection import wall_s_of

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["at", "sshd"]

QUICK = {"ENGINE_LOAD_S": "0.3", "ENGINE_HOLD_MIB": "16"}
RESTART = {"target_gib": "2", "grace_s": "5"}


def state_of(run: Run, step: str) -> StepState:
    return next(one.state for one in run.steps if one.step.id == step)


async def test_the_container_vanishes_between_review_and_run(at: Desk, dockerd: Dockerd, engines: Engines) -> None:
    engine = engines.start("vllm-gone", env=QUICK)
    await at.serves("vllm-gone")
    plan = await at.plan("safe-restart", "vllm-gone", **RESTART)
    dockerd.api.remove_container(engine.container_id, force=True)
    dockerd.made.remove(engine.container_id)
    run = await at.finished(at.begin(plan))
    assert run.state in (RunState.FAILED, RunState.REFUSED), told(run)
    assert "vllm-gone" in run.message + run.hint
    assert not any(one.state is StepState.DONE and "start" in one.step.id for one in run.steps)


async def test_another_container_has_taken_the_name_meanwhile(at: Desk, dockerd: Dockerd, engines: Engines) -> None:
    engine = engines.start("vllm-taken", env=QUICK)
    await at.serves("vllm-taken")
    plan = await at.plan("stop-engine", "vllm-taken", grace_s="5")
    dockerd.api.rename(engine.container_id, "vllm-taken-aside")
    # In a thread: the figures must not grow old meanwhile.
    other = await asyncio.to_thread(engines.start, "vllm-taken", env=QUICK)
    run = await at.finished(at.begin(plan))
    assert run.state in (RunState.FAILED, RunState.REFUSED), told(run)
    assert engine.inspect()["State"]["Running"] is True
    assert other.inspect()["State"]["Running"] is True


async def test_a_first_request_that_hangs_is_told_and_the_way_back_offered(
    at: Desk, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparktop.operate.plan.start_steps.SMOKE_LIMIT_S", 4.0)
    engines.start("vllm-mute", env={**QUICK, "ENGINE_COMPLETION": "hang"})
    await at.serves("vllm-mute")
    run = await at.do("safe-restart", "vllm-mute", **RESTART)
    assert run.state is RunState.FAILED, told(run)
    assert state_of(run, "smoke") is StepState.FAILED
    assert run.can_go_back


async def test_two_consoles_and_one_node(
    sshd: Sshd, dockerd: Dockerd, engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engines.start("vllm-two", env={**QUICK, "ENGINE_DEAF": "1"})
    async with (
        desk(sshd, dockerd, tmp_path, monkeypatch) as one,
        desk(sshd, dockerd, tmp_path, monkeypatch, name="other") as two,
    ):
        await one.serves("vllm-two")
        await two.serves("vllm-two")
        plans = [await at.plan("stop-engine", "vllm-two", grace_s="300") for at in (one, two)]
        first = one.begin(plans[0])
        await one.until(lambda: first.run.steps[0].state is StepState.DONE, what="its first step")
        late = await two.finished(two.begin(plans[1]))
        engine.docker.api.kill(engine.container_id)
        run = await one.finished(first)
    assert late.state is RunState.REFUSED, told(late)
    assert "@" in late.message, "who has it is told"
    assert run.state is RunState.DONE, told(run)
    assert engine.inspect()["State"]["Running"] is False


async def test_the_docker_engine_restarts_in_the_middle(at: Desk, dockerd: Dockerd, engines: Engines) -> None:
    engine = engines.start("vllm-daemon", env={**QUICK, "ENGINE_DEAF": "1"}, restart_policy={"Name": "always"})
    await at.serves("vllm-daemon")
    plan = await at.plan("safe-restart", "vllm-daemon", **RESTART)
    run = await at.finished(at.begin(plan, also=when("stop", dockerd.restart)))
    assert run.state is RunState.DONE, told(run)
    assert engine.answers() is not None
    assert engine.inspect()["HostConfig"]["RestartPolicy"]["Name"] == "always"


async def _aborted_at(at: Desk, plan: Plan | Refusal, step: str) -> Run:
    execution = at.begin(plan, also=when(step, lambda: execution.abort()))
    return await at.finished(execution)


async def test_out_in_the_middle_leaves_nothing_half_way_and_says_what_is_done(at: Desk, engines: Engines) -> None:
    engine: EngineLike = engines.start("vllm-abort", env=QUICK, restart_policy={"Name": "always"})
    await at.serves("vllm-abort")
    for step in ("stop", "ready", "smoke"):  # every state there is: test_operate_executor
        started = wall_s_of(engine.inspect()["State"]["StartedAt"])

        def sees_this_run(started: float | None = started) -> bool:
            seen = at.engine("vllm-abort")
            return bool(seen and seen.container and seen.container.started_wall_s == started)

        await at.until(sees_this_run, what="the run before seen")
        await at.serves("vllm-abort")
        run = await _aborted_at(at, await at.plan("safe-restart", "vllm-abort", **RESTART), step)
        assert run.state in (RunState.ABORTED, RunState.DONE), (step, told(run))
        assert not any(one.state in (StepState.RUNNING, StepState.UNKNOWN) for one in run.steps), (step, told(run))
        if run.state is RunState.ABORTED and run.can_go_back:
            back = at.operations.rollback(run)
            assert back is not None
            returned = await at.finished(at.begin(back))
            assert returned.state is RunState.DONE, (step, told(returned))
        assert engine.inspect()["HostConfig"]["RestartPolicy"]["Name"] == "always", (step, told(run))
        engine.wait_ready()
    entries = [json.loads(line) for line in at.audit_path.read_text().splitlines()]

    assert [one["state"] for one in entries if one["kind"] == "end"].count("aborted") == 3


async def test_a_first_request_that_takes_all_memory_is_ended_by_the_guard_and_the_way_back_offered(
    at: Desk, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Field report 001: it loads, and does not serve. The floor is one that only its spike reaches."""
    spiking = {**QUICK, "ENGINE_SPIKE_MIB": "7168"}
    engine = engines.start("vllm-spike", env=spiking, restart_policy={"Name": "always"})
    await at.serves("vllm-spike")

    def below(part: RunningRank) -> int:
        assert part.view.sample is not None
        return part.view.sample.memory.available_bytes - (3 << 30)

    monkeypatch.setattr("sparktop.operate.plan.running_start.floor_of", below)
    run = await at.do("safe-restart", "vllm-spike", **RESTART)
    assert run.state is RunState.FAILED, told(run)
    assert state_of(run, "smoke") is StepState.FAILED
    assert "guard" in run.message, told(run)
    assert "still armed" not in run.message, told(run)
    await at.until(lambda: engine.inspect()["State"]["ExitCode"] == 137, what="its end by the guard")
    assert engine.inspect()["HostConfig"]["RestartPolicy"]["Name"] == "no"  # nothing starts it again by itself
    assert "docker update --restart=always vllm-spike" in run.hint
    back = at.operations.rollback(run)
    run = await at.finished(at.begin(back))  # type: ignore[arg-type]
    assert run.state is RunState.DONE, told(run)
    assert engine.inspect()["HostConfig"]["RestartPolicy"]["Name"] == "always"
    assert engine.inspect()["State"]["Running"] is True  # its first request is the operator's own affair now
