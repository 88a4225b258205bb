"""Safe restart, stop and loop-breaking from key to audit: a real Docker Engine, a real sshd, an engine that serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.integration.desk import Desk, at, told
from tests.integration.engine_image import EngineLike, Engines
from tests.integration.sshd import Sshd, sshd

from sparktop.operate.step.plan import Refusal
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.step.step_result import StepState

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["at", "sshd"]

SMALL = ("--gpu-memory-utilization", "0.01")


def policy(engine: EngineLike) -> str:
    return str(engine.inspect()["HostConfig"]["RestartPolicy"]["Name"])


@pytest.mark.fast
async def test_safe_restart(at: Desk, engines: Engines, tmp_path: Path) -> None:
    engine = engines.start("tiny-restart", *SMALL, env={"VLLM_API_KEY": "sk-canary-77"}, restart_policy=always())
    before = engine.inspect()
    await at.serves("tiny-restart")
    run = await at.do("safe-restart", "tiny-restart", target_gib="1", grace_s="10")
    assert run.state is RunState.DONE, told(run)
    after = engine.inspect()
    assert after["Id"] == before["Id"]
    assert after["State"]["StartedAt"] != before["State"]["StartedAt"]
    assert policy(engine) == "unless-stopped"
    assert engine.answers(key="sk-canary-77")
    details = {one.step.id: one.detail for one in run.steps}
    assert details["smoke"].startswith("serves: ")
    assert details["ready"].startswith("answers")
    assert "canary" not in told(run)
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"canary" not in path.read_bytes(), path


def always() -> dict[str, Any]:
    return {"Name": "unless-stopped", "MaximumRetryCount": 0}


async def test_engine_that_loads_and_does_not_serve_is_told_and_the_policy_stays_off(
    at: Desk, engines: Engines
) -> None:
    engine = engines.start("tiny-error", *SMALL, env={"ENGINE_COMPLETION": "error"}, restart_policy=always())
    await at.serves("tiny-error")
    run = await at.do("safe-restart", "tiny-error", target_gib="1", grace_s="5")
    assert run.state is RunState.FAILED, told(run)
    assert "does not serve" in {one.step.id: one.detail for one in run.steps}["smoke"]
    assert run.can_go_back
    assert policy(engine) == "no"
    back = at.operations.rollback(run)
    assert back is not None
    returned = await at.finished(at.begin(back))
    assert returned.state is RunState.DONE, told(returned)
    assert policy(engine) == "unless-stopped"


async def test_memory_that_never_comes_back_starts_nothing(at: Desk, engines: Engines) -> None:
    engine = engines.start("tiny-memory", *SMALL, restart_policy=always())
    await at.serves("tiny-memory")
    run = await at.do("safe-restart", "tiny-memory", target_gib="9000", memory_limit_s="10", grace_s="5")
    assert run.state is RunState.FAILED, told(run)
    assert "of 9000.0 GiB available" in {one.step.id: one.detail for one in run.steps}["memory"]
    assert engine.inspect()["State"]["Running"] is False
    assert policy(engine) == "no"


async def test_deaf_engine_is_killed_after_its_grace(at: Desk, engines: Engines) -> None:
    engine = engines.start("tiny-deaf", *SMALL, env={"ENGINE_DEAF": "1"})
    await at.serves("tiny-deaf")
    run = await at.do("stop-engine", "tiny-deaf", grace_s="2")
    assert run.state is RunState.DONE, told(run)
    assert engine.inspect()["State"]["ExitCode"] == 137
    # the picture follows within seconds, Docker's own answer at once
    assert isinstance(await at.plan("stop-engine", "tiny-deaf"), Refusal)


async def test_the_link_is_cut_at_every_step_and_the_restart_is_finished(
    at: Desk, sshd: Sshd, engines: Engines
) -> None:
    engine = engines.start("vllm-cut", env={"ENGINE_LOAD_S": "0.5"}, restart_policy={"Name": "always"})
    await at.serves("vllm-cut")
    plan = await at.plan("safe-restart", "vllm-cut", target_gib="2", grace_s="10")
    cut: list[str] = []

    def cut_new_steps(run: Run) -> None:
        for one in run.steps:
            if one.state is StepState.RUNNING and one.step.id not in cut:
                cut.append(one.step.id)
                sshd.kill_sessions()

    run = await at.finished(at.begin(plan, also=cut_new_steps))
    assert run.state is RunState.DONE, told(run)
    assert set(cut) == {one.step.id for one in run.steps if one.state is not StepState.SKIPPED}
    assert engine.inspect()["HostConfig"]["RestartPolicy"]["Name"] == "always"
    assert engine.inspect()["RestartCount"] == 0
    assert engine.answers() is not None
