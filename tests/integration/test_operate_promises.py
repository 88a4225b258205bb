"""A plan that promises a served engine is done only if that is so at its end, on a real sshd and Docker Engine."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from tests.integration.desk import Desk, at, told
from tests.integration.dockerd import Dockerd
from tests.integration.engine_image import EngineLike, Engines
from tests.integration.sshd import sshd
from tests.table import few

from sparktop.model.change import Change
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.step.step_result import StepState

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["at", "sshd"]

QUICK = {"ENGINE_LOAD_S": "0.3", "ENGINE_HOLD_MIB": "16"}
RESTART = {"target_gib": "2", "grace_s": "5"}


def after(step_id: str, do: Callable[[], object]) -> Callable[[Run], None]:
    """Do this once, as soon as the step is done."""
    was_done = False

    def changed(run: Run) -> None:
        nonlocal was_done
        if not was_done and any(one.step.id == step_id and one.state is StepState.DONE for one in run.steps):
            was_done = True
            do()

    return changed


def crash(engine: EngineLike) -> None:
    os.kill(engine.inspect()["State"]["Pid"], signal.SIGKILL)


def detail_of(run: Run, step: str) -> str:
    return next(one.detail for one in run.steps if one.step.id == step)


@pytest.mark.parametrize("step_id", few(["smoke", "policy-back"], "smoke".__eq__))
async def test_an_engine_that_dies_after_it_has_served_is_not_done(at: Desk, engines: Engines, step_id: str) -> None:
    """With its policy off it stays dead; with it on Docker starts it again, which is another start."""
    engine = engines.start("vllm-dies", env=QUICK, restart_policy={"Name": "always"})
    await at.serves("vllm-dies")
    plan = await at.plan("safe-restart", "vllm-dies", **RESTART)
    run = await at.finished(at.begin(plan, also=after(step_id, lambda: crash(engine))))
    assert run.state is RunState.FAILED, told(run)
    assert run.can_go_back
    assert "it was ready, then ended" in detail_of(run, "serving") or "started again" in detail_of(run, "serving")
    assert engine.inspect()["HostConfig"]["RestartPolicy"]["Name"] == "always"


async def test_a_docker_engine_that_restarts_after_it_has_served_is_not_done(
    at: Desk, dockerd: Dockerd, engines: Engines
) -> None:
    engine = engines.start("vllm-daemon", env=QUICK, restart_policy={"Name": "always"})
    await at.serves("vllm-daemon")
    plan = await at.plan("safe-restart", "vllm-daemon", **RESTART)
    run = await at.finished(at.begin(plan, also=after("smoke", dockerd.restart)))
    assert run.state is RunState.FAILED, told(run)
    assert run.can_go_back
    assert engine.inspect()["HostConfig"]["RestartPolicy"]["Name"] == "always"


async def test_an_engine_that_no_longer_answers_is_not_done(at: Desk, engines: Engines) -> None:
    engine = engines.start("vllm-frozen", env=QUICK)

    def freeze() -> None:
        os.kill(engine.inspect()["State"]["Pid"], signal.SIGSTOP)

    await at.serves("vllm-frozen")
    plan = await at.plan("safe-restart", "vllm-frozen", **RESTART)
    run = await at.finished(at.begin(plan, also=after("smoke", freeze)))
    os.kill(engine.inspect()["State"]["Pid"], signal.SIGCONT)
    assert run.state is RunState.FAILED, told(run)
    assert "no longer answers" in detail_of(run, "serving")


async def test_a_relaunch_whose_engine_dies_after_it_has_served_goes_back(
    at: Desk, dockerd: Dockerd, engines: Engines
) -> None:
    engine = engines.start("vllm-change", env=QUICK, restart_policy={"Name": "always"})
    before = engine.inspect()["Id"]

    def crash_new() -> None:
        os.kill(dockerd.api.inspect_container("vllm-change")["State"]["Pid"], signal.SIGKILL)

    await at.serves("vllm-change")
    plan = await at.plan("relaunch", "vllm-change", change=Change(environment={"MORE": "1"}), **RESTART)
    run = await at.finished(at.begin(plan, also=after("smoke", crash_new)))
    assert run.state is RunState.ROLLED_BACK, told(run)
    now = dockerd.api.inspect_container("vllm-change")
    assert (now["Id"], now["State"]["Running"]) == (before, True)
    assert now["HostConfig"]["RestartPolicy"]["Name"] == "always"
