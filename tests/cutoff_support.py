"""A launch that was cut off: what its console had written down, up to the step at which it was killed.

entries = await written(tmp_path, at="stop")     # all steps before that have ended
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.operate_support import Stage, plan

from sparktop.engines.labels import LAUNCH
from sparktop.model.operation import DockerCall, Expect
from sparktop.operate.acts.arrivals import AwaitGone
from sparktop.operate.acts.guard_order import GuardOrder
from sparktop.operate.acts.memory import AwaitMemory
from sparktop.operate.acts.readiness import AwaitReady
from sparktop.operate.acts.remote import Remote
from sparktop.operate.acts.serving import AwaitServing
from sparktop.operate.audit_file import entries
from sparktop.operate.container import lifecycle
from sparktop.operate.container.inspected import Inspected
from sparktop.operate.run.record import Record, new_run
from sparktop.operate.step.plan import OnFailure, Plan, Step
from sparktop.operate.step.step_result import StepResult, StepState

OLD_ID, NEW_ID = "ab" * 32, "cd" * 32
OLD, NEW = "vllm-old", "tiny"
STAMP = "20261121T140000"
BOX = Inspected(
    node="spark1", container_id=OLD_ID, name=OLD, running=True, started_at="2026-11-20T08:00:00Z", policy="on-failure",
    policy_retries=3,
)  # fmt: skip


def _remote(*operations: DockerCall | Expect) -> Remote:
    return Remote(operations=operations)


def launch(secret: str = "", **more: Any) -> Plan:
    """What a launch does that stops another engine for room; `secret` stands in its way back."""
    create = DockerCall(
        method="POST", path="/containers/create", query={"name": NEW}, saves="NEW",
        body={"Image": "img", "Env": ["HF_TOKEN=hunter2hunter2"], "Labels": {LAUNCH: STAMP}},
    )  # fmt: skip
    run = DockerCall(method="POST", path="/containers/{NEW}/start")
    gone = DockerCall(method="DELETE", path="/containers/{NEW}", query={"force": "true"}, accepts=(204, 404))
    steps = (
        Step(id="make", title="Make the container tiny", node="spark1", act=_remote(create)),
        lifecycle.policy_off(BOX, ""),
        lifecycle.stop(BOX, "", 5.0),
        Step(id="gone", title="Wait until it is gone", node="spark1", act=AwaitGone(pids=(7,), container_id=OLD_ID)),
        Step(id="start", title="Start tiny", node="spark1", act=_remote(run)),
        Step(id="ready", title="Wait until tiny answers", node="spark1", act=AwaitReady(name=NEW)),
    )
    back = (
        Step(id="back-remove", title="Remove tiny", node="spark1", act=_remote(gone), on_failure=OnFailure.GO_ON),
        Step(id="back-memory", title="Memory", node="spark1", act=AwaitMemory(target_bytes=5, unless_runs=OLD_ID)),
        lifecycle.start_again(BOX, "-again"),
        Step(id="back-ready", title="Ready", node="spark1", act=AwaitReady(name=OLD, together=(("spark2", "w"),))),
        Step(id="back-guard", title="Guard", node="spark1", act=GuardOrder(container_id="", empty_within_s=2.5)),
        lifecycle.policy_back(BOX, "-again"),
        Step(id="back-serving", title="Serves", node="spark1", act=AwaitServing(name=OLD)),
    )
    if secret:
        told = DockerCall(method="POST", path="/containers/create", body={"Cmd": ["--api-key", secret]})
        back = (Step(id="back-make", title="Make it anew", node="spark1", act=_remote(told)), *back)
    return plan(*steps, back=back, **{"action": "launch", "title": "Launch tiny on spark1 (vLLM)", **more})


async def written(tmp_path: Path, at: str, made: Plan | None = None, run_id: str = "run-1") -> list[dict[str, Any]]:
    """The audit, when the step `at` was under way."""
    stage = Stage(tmp_path)
    made = made or launch()
    record = Record(new_run(run_id, made), context=stage.means, changed=lambda run: None)
    await record.intent({})
    for index, step in enumerate(made.steps):
        if step.id == at:
            break
        record.step(index, state=StepState.RUNNING)
        record.step_ended(index, StepResult(state=StepState.DONE, saved={"NEW": NEW_ID} if step.id == "make" else {}))
    return entries(stage.audit_path)[0]
