"""A safe restart whose link is cut again and again, on a real sshd and a real Docker Engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.desk import desk, hurried
from tests.integration.dockerd import Dockerd
from tests.integration.engine_image import Engines
from tests.integration.sshd import Sshd, sshd

from sparktop.model.plan import Run, RunState, StepState

pytestmark = pytest.mark.integration
__all__ = ["sshd"]


async def test_the_link_is_cut_at_every_step_and_the_restart_is_finished(
    sshd: Sshd, dockerd: Dockerd, engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(monkeypatch)
    engine = engines.start("vllm-cut", env={"ENGINE_LOAD_S": "0.5"}, restart_policy={"Name": "always"})
    async with desk(sshd, dockerd, tmp_path, monkeypatch) as at:
        await at.serves("vllm-cut")
        plan = await at.plan("safe-restart", "vllm-cut", target_gib="2", grace_s="10")
        cut: list[str] = []

        def cut_new_steps(run: Run) -> None:
            for one in run.steps:
                if one.state is StepState.RUNNING and one.step.id not in cut:
                    cut.append(one.step.id)
                    sshd.kill_sessions()

        run = await at.finished(at.begin(plan, also=cut_new_steps), within_s=150)
        told = [(one.step.id, one.state.value, one.detail) for one in run.steps]
        assert run.state is RunState.DONE, (run.message, told)
        assert set(cut) == {one.step.id for one in run.steps if one.state is not StepState.SKIPPED}
        assert engine.inspect()["HostConfig"]["RestartPolicy"]["Name"] == "always"
        assert engine.inspect()["RestartCount"] == 0
        assert engine.answers() is not None
