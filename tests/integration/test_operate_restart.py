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
