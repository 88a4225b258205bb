"""Safe restart, stop and the break of a loop, end to end on a real sshd and a real Docker Engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.desk import desk
from tests.integration.dockerd import Dockerd
from tests.integration.engine_image import Engines
from tests.integration.sshd import Sshd, sshd

from sparktop.model.plan import RunState, StepState

pytestmark = pytest.mark.integration
__all__ = ["sshd"]


async def test_a_safe_restart_stops_waits_starts_proves_and_puts_the_policy_back(
    sshd: Sshd, dockerd: Dockerd, engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engines.start("vllm-restart", restart_policy={"Name": "unless-stopped"})
    before = engine.inspect()
    async with desk(sshd, dockerd, tmp_path, monkeypatch) as at:
        await at.serves("vllm-restart")
        run = await at.do("safe-restart", "vllm-restart", target_gib="2", grace_s="10")
        told = [(one.step.id, one.state.value, one.detail) for one in run.steps]
        assert run.state is RunState.DONE, (run.message, told)
        assert all(one.state in (StepState.DONE, StepState.SKIPPED) for one in run.steps), told
        after = engine.inspect()
        assert after["Id"] == before["Id"]
        assert after["State"]["StartedAt"] > before["State"]["StartedAt"]
        assert after["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"
        assert Path(run.evidence_path).exists()
        assert engine.answers() is not None


async def test_the_link_is_cut_at_every_step_and_the_restart_is_finished(
    sshd: Sshd, dockerd: Dockerd, engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engines.start("vllm-cut", env={"ENGINE_LOAD_S": "0.5"}, restart_policy={"Name": "always"})
    async with desk(sshd, dockerd, tmp_path, monkeypatch) as at:
        await at.serves("vllm-cut")
        plan = await at.plan("safe-restart", "vllm-cut", target_gib="2", grace_s="10")
        execution = at.begin(plan)
        cut: list[str] = []

        def cut_new_steps() -> bool:
            for one in execution.run.steps:
                if one.state is StepState.RUNNING and one.step.id not in cut:
                    cut.append(one.step.id)
                    sshd.kill_sessions()
            return execution.run.state.is_over

        await at.until(cut_new_steps, what="its end", within_s=170)
        run = execution.run
        told = [(one.step.id, one.state.value, one.detail) for one in run.steps]
        assert run.state is RunState.DONE, (run.message, told)
        assert set(cut) == {one.step.id for one in run.steps if one.state is not StepState.SKIPPED}
        assert engine.inspect()["HostConfig"]["RestartPolicy"]["Name"] == "always"
        assert engine.inspect()["RestartCount"] == 0
        assert engine.answers() is not None
