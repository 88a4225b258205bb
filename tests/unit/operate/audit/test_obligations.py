"""What a run that ended early took from a container is owed until a run has given it back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.cutoff_support import BOX, NEW_ID, OLD_ID, launch, written
from tests.operate_support import Stage, plan
from tests.pictures_support import container, node, picture

from sparktop.clock import ManualClock
from sparktop.model.engine import Containers
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.model.operation import DockerCall
from sparktop.model.survey import Answer, DockerGet, Survey, Unrestored
from sparktop.operate.acts.guard_order import GuardOrder
from sparktop.operate.acts.remote import Remote
from sparktop.operate.audit.obligations import Obligations, guards_to_restore, obligations, owed_notes
from sparktop.operate.audit_file import entries
from sparktop.operate.container import lifecycle
from sparktop.operate.container.inspected import ask, inspected
from sparktop.operate.run.record import Record, new_run
from sparktop.operate.step.plan import OnFailure, Plan, Step
from sparktop.operate.step.run import RunState
from sparktop.operate.step.step_result import StepResult, StepState

WALL_S = ManualClock().wall()


def owed(audit: list[dict[str, Any]], *, later_s: float = 60.0, alive: bool = False) -> Obligations:
    return obligations(audit, is_under_way=lambda run: alive, now_wall_s=WALL_S + later_s)


def restart(**more: Any) -> Plan:
    """A safe restart, as far as Docker is told of it."""
    steps = (
        lifecycle.policy_off(BOX, ""),
        lifecycle.stop(BOX, "", 5.0),
        Step(id="guard-load", title="Guard", node="spark1", act=GuardOrder(container_id=OLD_ID, container_name="old")),
        lifecycle.start(BOX, ""),
        Step(id="guard-back", title="Back", node="spark1", act=GuardOrder(container_id="")),
        lifecycle.policy_back(BOX, "", OnFailure.GO_ON),
    )
    armed = GuardOrder(container_id=OLD_ID, container_name="old", floor_bytes=7, stay_s=60.0)
    back = (Step(id="back-guard", title="Back", node="spark1", act=armed), lifecycle.policy_back(BOX, "-again"))
    return plan(*steps, back=back, **{"action": "safe-restart", "title": "Safe restart of old on spark1", **more})


async def ended(
    tmp_path: Path, made: Plan, run_id: str, *states: StepState, end: RunState, has_touched: bool = True
) -> list[dict[str, Any]]:
    """The audit after one more run, with the states of its first steps."""
    stage = Stage(tmp_path)
    record = Record(new_run(run_id, made), context=stage.means, changed=lambda run: None)
    await record.intent({})
    for index, state in enumerate(states):
        record.step_ended(index, StepResult(state=state, has_touched=has_touched))
    record.update(state=end)
    await record.end()
    return entries(stage.audit_path)[0]


async def test_a_policy_that_was_switched_off_is_owed_from_the_step_that_did_it_to_the_one_that_set_it_again(
    tmp_path: Path,
) -> None:
    expected = {
        "policy-off": ("on-failure", 3, False),  # its node may have completed it
        "stop": ("on-failure", 3, True),
        "guard-load": ("on-failure", 3, True),
        "start": ("on-failure", 3, True),
        "guard-back": ("on-failure", 3, False),
        "policy-back": ("on-failure", 3, False),
    }
    for at, (policy, retries, was_running) in expected.items():
        debt = owed(await written(tmp_path / at, at, restart())).containers[OLD_ID]
        assert (debt.policy, debt.retries, debt.was_running) == (policy, retries, was_running), at
        assert debt.title == "Safe restart of old on spark1"


async def test_a_run_that_was_done_owes_nothing(tmp_path: Path) -> None:
    made = restart()
    audit = await ended(tmp_path, made, "run-1", *[StepState.DONE] * len(made.steps), end=RunState.DONE)
    assert owed(audit) == Obligations(containers={}, guards={})


async def test_a_run_that_failed_owes_as_one_that_was_cut_off(tmp_path: Path) -> None:
    audit = await ended(tmp_path, restart(), "run-1", StepState.DONE, StepState.DONE, end=RunState.FAILED)
    debt = owed(audit).containers[OLD_ID]
    assert (debt.policy, debt.was_running) == ("on-failure", True)


async def test_a_step_that_failed_before_it_changed_anything_owes_nothing(tmp_path: Path) -> None:
    states = (StepState.FAILED,)
    audit = await ended(tmp_path, restart(), "run-1", *states, end=RunState.FAILED, has_touched=False)
    assert not owed(audit).containers


async def test_the_next_run_that_is_done_settles_it_and_one_that_fails_does_not(tmp_path: Path) -> None:
    await written(tmp_path, "start", restart())
    audit = await ended(tmp_path, restart(), "run-2", StepState.DONE, end=RunState.FAILED)
    assert owed(audit).containers[OLD_ID].policy == "on-failure"
    done = [StepState.DONE] * len(restart().steps)
    assert not owed(await ended(tmp_path, restart(), "run-3", *done, end=RunState.DONE)).containers


async def test_a_stop_leaves_the_policy_owed_and_a_broken_loop_means_it_to_be_off(tmp_path: Path) -> None:
    await written(tmp_path, "start", restart())
    stop = plan(lifecycle.stop(BOX, "", 5.0, policy_back_if_not=False), action="stop-engine")
    debt = owed(await ended(tmp_path, stop, "run-2", StepState.DONE, end=RunState.DONE)).containers[OLD_ID]
    assert (debt.policy, debt.was_running) == ("on-failure", False)
    loop = plan(lifecycle.policy_off(BOX, ""), action="break-restart-loop")
    assert not owed(await ended(tmp_path, loop, "run-3", StepState.DONE, end=RunState.DONE)).containers


async def test_a_way_back_settles_it(tmp_path: Path) -> None:
    await written(tmp_path, "start", restart())
    back = plan(lifecycle.start_again(BOX, ""), lifecycle.policy_back(BOX, "-again"), action="safe-restart")
    assert not owed(await ended(tmp_path, back, "run-2", *[StepState.DONE] * 2, end=RunState.DONE)).containers


async def test_a_new_container_is_owed_the_policy_that_it_was_to_get(tmp_path: Path) -> None:
    made = launch()
    policy = lifecycle.policy_on("spark1", "", "tiny", {"Name": "always", "MaximumRetryCount": 0})
    made = replace(made, steps=(*made.steps, *policy))
    debts = owed(await written(tmp_path, "policy", made)).containers
    assert debts[NEW_ID].policy == "always"
    assert not debts[NEW_ID].was_running
    assert (debts[OLD_ID].policy, debts[OLD_ID].was_running) == ("on-failure", True), "it was stopped for room"


async def test_what_runs_now_or_was_long_ago_owes_nothing(tmp_path: Path) -> None:
    audit = await written(tmp_path, "start", restart())
    assert not owed(audit, alive=True).containers
    assert not owed(audit, later_s=31 * 86_400.0).containers


# --- what is made of it


def docker_says(policy: str, *, running: bool = False) -> Survey:
    raw = {
        "Id": OLD_ID,
        "Name": "/old",
        "State": {"Running": running},
        "HostConfig": {"RestartPolicy": {"Name": policy, "MaximumRetryCount": 0}},
    }

    return Survey(answers={ask("spark1", OLD_ID): Answer(value=raw)}, owed={OLD_ID: DEBT})


DEBT = Unrestored(
    title="Safe restart of old", policy="on-failure", retries=3, was_running=True, evidence_path="/e.tar.gz"
)


def test_a_plan_takes_the_container_for_what_it_was_before() -> None:
    assert isinstance(ask("spark1", OLD_ID), DockerGet)
    found = inspected("spark1", OLD_ID, docker_says("no"))
    assert found is not None
    assert found.policy_body == {"Name": "on-failure", "MaximumRetryCount": 3}
    assert found.restarts
    assert found.was_running
    assert not found.running


def test_a_policy_that_somebody_has_set_since_stands() -> None:
    found = inspected("spark1", OLD_ID, docker_says("always"))
    assert found is not None
    assert found.policy == "always"


def test_the_review_says_what_it_gives_back() -> None:
    owed = {OLD_ID: DEBT, NEW_ID: DEBT}
    (policy, stopped, log) = owed_notes(restart(), Survey(owed=owed))
    assert "this plan sets it to on-failure again" in policy
    assert "left it stopped" in stopped
    assert "/e.tar.gz" in log
    stop = plan(lifecycle.stop(BOX, "", 5.0, policy_back_if_not=False))
    assert "this plan leaves it off" in next(iter(owed_notes(stop, docker_says("no"))))
    (log,) = owed_notes(stop, docker_says("always", running=True))  # given back by hand
    assert "/e.tar.gz" in log
    other = Remote(operations=(DockerCall(method="POST", path=f"/containers/{NEW_ID}/stop"),))
    elsewhere = plan(Step(id="x", title="x", node="spark1", act=other))
    assert list(owed_notes(elsewhere, Survey(owed={OLD_ID: DEBT}))) == []


async def test_the_guard_that_the_run_replaced_is_owed_until_it_is_restored(tmp_path: Path) -> None:
    there = Containers(containers=(container("old", container_id=OLD_ID),), available=True)
    before = owed(await written(tmp_path / "a", "guard-load", restart()))
    assert before.guards == {}
    debts = owed(await written(tmp_path / "b", "start", restart()))
    assert debts.guards["spark1"].floor_bytes == 7
    seen = picture(replace(node("spark1"), containers=there))
    assert guards_to_restore(debts, seen)["spark1"].container_id == OLD_ID
    assert guards_to_restore(debts, picture(replace(node("spark1"), containers=Containers(available=True)))) == {}
    armed = GuardState(phase=GuardPhase.ARMED, container_id=NEW_ID)
    assert guards_to_restore(debts, picture(replace(node("spark1"), containers=there, guard=armed))) == {}
    assert owed(await written(tmp_path / "c", "policy-back", restart())).guards == {}
