"""What Docker does with a stopped container when it is started anew, as `stop-engine` says it."""

from __future__ import annotations

import pytest
from tests.integration.desk import Desk, at, told
from tests.integration.dockerd import Dockerd
from tests.integration.engine_image import Engines
from tests.integration.sshd import sshd
from tests.support import poll

from sparktop.operate.step.plan import Plan
from sparktop.operate.step.run import RunState

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["at", "sshd"]

QUICK = {"ENGINE_LOAD_S": "0.3", "ENGINE_HOLD_MIB": "16"}
COMES = "it starts again when Docker or"


async def test_who_comes_again_with_the_docker_engine_is_told_before_the_stop(
    at: Desk, dockerd: Dockerd, engines: Engines
) -> None:
    policies = ("always", "on-failure", "unless-stopped")
    made = {name: engines.start(f"vllm-{name}", env=QUICK, restart_policy={"Name": name}) for name in policies}
    warned = {}
    for name in policies:
        await at.serves(f"vllm-{name}")
        plan = await at.plan("stop-engine", f"vllm-{name}", grace_s="5")
        assert isinstance(plan, Plan)
        warned[name] = any(COMES in warning for warning in plan.warnings)
        run = await at.finished(at.begin(plan))
        assert run.state is RunState.DONE, told(run)
    dockerd.restart()
    poll(lambda: made["always"].inspect()["State"]["Running"], what="the one that always comes")
    runs = {name: made[name].inspect()["State"]["Running"] for name in policies}
    assert warned == {"always": True, "on-failure": True, "unless-stopped": False}
    assert runs == {"always": True, "on-failure": False, "unless-stopped": False}, "stopped, vLLM exits with 0"


async def test_a_container_without_any_policy_is_seen_to_stay_stopped(at: Desk, engines: Engines) -> None:
    """Docker Engine 20.10 then says "" where a later one says "no"."""
    engines.start("vllm-plain", env=QUICK)
    await at.serves("vllm-plain")
    plan = await at.plan("stop-engine", "vllm-plain", grace_s="5")
    assert isinstance(plan, Plan)
    run = await at.finished(at.begin(plan))
    assert run.state is RunState.DONE, told(run)
