"""What a console that was killed has left is told from the audit and the picture, and nothing that is not so."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cutoff_support import BOX, NEW, NEW_ID, OLD, OLD_ID, STAMP, launch, written
from tests.operate_support import Stage, plan, step
from tests.pictures_support import container, link, node, picture
from tests.plain_text import unclean
from tests.table import over

from sparktop.clock import ManualClock
from sparktop.engines.labels import LAUNCH
from sparktop.model.engine import Container, Containers
from sparktop.model.fleet import FleetState, LinkState
from sparktop.model.operation import Command, Signal
from sparktop.operate.acts.arrivals import AwaitGone
from sparktop.operate.acts.memory import AwaitMemory
from sparktop.operate.acts.remote import Remote
from sparktop.operate.audit import plan_codec
from sparktop.operate.audit.interrupted_runs import (
    InterruptedRun,
    interrupted_runs,
    kept_figures,
    one_line,
    run_report,
)
from sparktop.operate.audit_file import Audit, entries, is_under_way
from sparktop.operate.container import lifecycle
from sparktop.operate.evidence.collect import CollectEvidence
from sparktop.operate.operations import Operations
from sparktop.operate.secrets.masking import Masker
from sparktop.operate.step.plan import Step
from sparktop.operate.step.run import Run, RunState
from sparktop.operate.step.step_result import StepState
from sparktop.operate.step.wait import WaitStatus, WaitVerdict

WALL_S = ManualClock().wall()


def old(**more: Any) -> Container:
    return container(OLD, container_id=OLD_ID, **{"status": "exited", "restart_policy": "no", **more})


def new(**more: Any) -> Container:
    return container(NEW, container_id=NEW_ID, **{"status": "created", "restart_policy": "no", **more})


def seen(*boxes: Container, state: LinkState = LinkState.LIVE, available: bool = True) -> FleetState:
    there = Containers(containers=boxes, available=available)
    return picture(replace(node("spark1"), containers=there, link=link(state)))


def found(audit: list[dict[str, Any]], *, alive: bool = False, later_s: float = 60.0) -> tuple[InterruptedRun, ...]:
    return interrupted_runs(audit, is_under_way=lambda run: alive, now_wall_s=WALL_S + later_s, own="me@laptop")


async def left(tmp_path: Path, at: str, *boxes: Container) -> Run | None:
    (one,) = found(await written(tmp_path, at))
    return run_report(one, seen(*boxes))


# --- what is told


async def test_an_engine_that_was_stopped_for_room(tmp_path: Path) -> None:
    run = await left(tmp_path, "gone", old(), new())
    assert run is not None
    assert run.state is RunState.INTERRUPTED
    assert run.message.startswith("vllm-old on spark1 is stopped; tiny on spark1 was created and never started. Its")
    assert "Its console died after " in run.message
    assert "at step 4 of 6: Wait until it is gone" in run.message
    assert run.hint == (
        "Back by hand: docker rm tiny; docker start vllm-old; docker update --restart=on-failure:3 vllm-old"
    )
    states = [one.state for one in run.steps]
    assert states == [StepState.DONE] * 3 + [StepState.UNKNOWN] + [StepState.SKIPPED] * 2
    assert one_line(run).startswith("Launch tiny on spark1 (vLLM) was cut off: vllm-old on spark1 is stopped")


async def test_a_step_that_its_node_has_finished_alone(tmp_path: Path) -> None:
    run = await left(tmp_path, "stop", old(), new())
    assert run is not None
    assert "docker start vllm-old" in run.hint


async def test_one_that_runs_on_without_its_policy(tmp_path: Path) -> None:
    run = await left(tmp_path, "stop", old(status="running"))
    assert run is not None
    assert "docker update --restart=on-failure:3 vllm-old" in run.hint
    assert "docker start" not in run.hint


async def test_a_rank_that_runs_and_was_never_proven(tmp_path: Path) -> None:
    run = await left(tmp_path, "ready", new(status="running"), old())
    assert run is not None
    assert "docker stop tiny; docker start vllm-old;" in run.hint


async def test_a_container_whose_id_was_never_heard_is_known_by_its_label(tmp_path: Path) -> None:
    (one,) = found(await written(tmp_path, "make"))
    assert run_report(one, seen(new(labels={LAUNCH: "another"}))) is None
    assert run_report(one, seen(new())) is None, "somebody's own of that name"
    run = run_report(one, seen(new(labels={LAUNCH: STAMP})))
    assert run is not None
    assert run.saved["spark1"]["NEW"] == NEW_ID, "its way back removes that one"


async def test_a_console_that_was_closed_in_the_middle(tmp_path: Path) -> None:
    """A terminal that goes, or an operator who leaves: nothing more was done, and somebody else may come next."""
    stage = Stage(tmp_path)
    stage.acts.judgements["memory"] = WaitStatus(verdict=WaitVerdict.WAITING, detail="it is awaited")
    wait = step("memory", AwaitMemory(target_bytes=5), limit_s=1e9)
    execution = stage.execution(plan(*launch().steps[1:3], wait, action="launch"))
    waits = asyncio.Event()
    stage.at_pause = waits.set
    execution.start()
    async with asyncio.timeout(20):
        await waits.wait()
    await execution.leave()
    assert execution.run.state is RunState.ABORTED
    (one,) = found(stage.audited)
    run = run_report(one, seen(old()))
    assert run is not None
    assert run.message.startswith("vllm-old on spark1 is stopped. Its console was closed at ")
    assert run.message.endswith("at step 3 of 3: Do memory.")


@pytest.mark.parametrize(
    ("state", "verb"), [("failed", "failed"), ("aborted", "was aborted"), ("did not help", "did not help")]
)
async def test_what_a_run_that_ended_halfway_has_left(tmp_path: Path, state: str, verb: str) -> None:
    """A way back that failed too, or an operator who got out: the next console tells of it, as of a killed one."""
    audit = await written(tmp_path, "start")
    end = {"run": "run-1", "kind": "end", "wall_s": WALL_S, "state": state, "message": "it would not"}
    (one,) = found([*audit, end])
    run = run_report(one, seen(old(), new()))
    assert run is not None
    assert (str(run.state), run.can_go_back) == (state, True)
    assert run.message.startswith("vllm-old on spark1 is stopped; tiny on spark1 was created and never started. It ")
    assert "console" not in run.message
    assert one_line(run).startswith(f"Launch tiny on spark1 (vLLM) {verb}: vllm-old on spark1 is stopped")
    assert "docker rm tiny; docker start vllm-old" in run.hint
    assert run.steps[4].state is StepState.SKIPPED, "it was not begun, and the audit knows"
    assert run_report(one, seen(old(status="running", restart_policy="on-failure"))) is None
    served = new(status="running", restart_policy="always")
    assert run_report(one, seen(old(), served)) is None, "what took its place serves"
    assert found([*audit, end, {"run": "run-1", "kind": "note", "wall_s": WALL_S, "read": True}]) == ()
    did_it = await written(tmp_path / "3", "gone", run_id="run-3")
    (one,) = found([*audit, end, *did_it, {**end, "run": "run-3", "state": "done"}])
    left = run_report(one, seen(old(), new()))
    assert left is not None
    assert "docker rm tiny" in left.hint
    assert not left.can_go_back, "it would lead the later one back"
    later = await written(tmp_path / "2", "gone", run_id="run-2")
    again = [*audit, end, *later, {**end, "run": "run-2"}]
    assert [one.run.id for one in found(again) if run_report(one, seen(old()))] == ["run-2"], "told once"


async def test_its_steps_are_told_as_the_audit_has_them(tmp_path: Path) -> None:
    audit = await written(tmp_path, "gone")
    ended = next(entry for entry in audit if entry["kind"] == "step" and entry["step"] == "make")
    ended |= {"seconds": 7.0, "wall_s": WALL_S + 10.0}
    audit[0]["steps"][1]["has_no_undo"] = True
    (one,) = found(audit)
    first, second, *_ = one.run.steps
    assert (first.began_wall_s, first.ended_wall_s) == (WALL_S + 3.0, WALL_S + 10.0)
    assert second.step.act.undoing() == ()
    assert one.run.steps[3].detail == "the console was gone from here on"  # it only waited here
    (one,) = found(await written(tmp_path / "2", "stop"))
    at_node = "; the node has completed or reverted that step by itself"
    assert one.run.steps[2].detail == f"the console was gone from here on{at_node}"


async def test_a_run_that_failed_at_its_first_step(tmp_path: Path) -> None:
    audit = await written(tmp_path, "policy-off")
    audit[1]["state"] = "failed"
    end = {"run": "run-1", "kind": "end", "wall_s": WALL_S, "state": "failed", "message": ""}
    (one,) = found([*audit, end])
    assert (one.number, one.at) == (1, "Make the container tiny")
    assert [container.name for container in one.made] == [NEW]


async def test_a_run_that_was_aborted_between_two_steps_was_at_none(tmp_path: Path) -> None:
    end = {"run": "run-1", "kind": "end", "wall_s": WALL_S, "state": "aborted", "message": ""}
    (one,) = found([*(await written(tmp_path, "gone")), end])
    assert (one.number, one.at) == (3, "")
    run = run_report(one, seen(old()))
    assert run is not None
    assert "at step" not in run.message


async def test_a_console_that_died_after_its_last_step_had_failed(tmp_path: Path) -> None:
    audit = await written(tmp_path, "no step of it")
    audit[-1]["state"] = "failed"
    (one,) = found(audit)
    assert (one.number, one.at, one.was_closed) == (6, "Wait until tiny answers", False)


async def test_an_engine_that_a_killed_reboot_never_came_to_start(tmp_path: Path) -> None:
    reboot = step("reboot", Remote(operations=(Command(argv=("reboot",)),), takes_link=True))
    start, ready = lifecycle.start_again(BOX, ""), launch().steps[-1]
    audit = await written(tmp_path, ready.id, plan(reboot, start, ready, action="reboot"))
    audit[-1] |= {"state": "failed", "untouched": True}  # no runner came
    (one,) = found(audit)
    assert one.stopped == (OLD_ID,)


async def test_what_else_a_step_does_makes_no_container(tmp_path: Path) -> None:
    made = launch()
    more = step("more", Remote(operations=(Command(argv=("sync",)),)))
    (one,) = found(await written(tmp_path, "gone", replace(made, steps=(more, *made.steps))))
    assert [container.name for container in one.made] == [NEW]


@pytest.mark.parametrize(
    ("policy", "count", "shown"),
    [
        ("on-failure", 1, "on-failure:1"),
        *(("on-failure", count, "on-failure") for count in (None, 0, -1, True, "3", [3])),
        ("always", 3, "always"),
    ],
)
async def test_a_policy_is_told_as_docker_update_takes_it(
    tmp_path: Path, policy: str, count: object, shown: str
) -> None:
    audit = await written(tmp_path, "gone")
    for planned in audit[0]["steps"]:
        for operation in (*planned.get("operations", ()), *planned.get("undo", ())):
            if operation.get("body", {}).get("RestartPolicy", {}).get("Name") == "on-failure":
                operation["body"]["RestartPolicy"] = {"Name": policy, "MaximumRetryCount": count}
    (one,) = found(audit)
    assert dict(one.policies) == {OLD_ID: shown}


async def test_two_nodes_are_named_with_their_commands(tmp_path: Path) -> None:
    (one,) = found(await written(tmp_path, "gone"))
    both = picture(*seen(old()).nodes, node("spark2"))
    run = run_report(one, both)
    assert run is not None
    assert "Back by hand: on spark1: docker start vllm-old" in run.hint
    alone = run_report(one, seen(old()))
    assert alone is not None
    assert "Back by hand: docker start vllm-old" in alone.hint


@pytest.mark.parametrize(("after_s", "is_told"), [(-60.0, True), (60.0, True), (1800.0, True), (1800.5, False)])
async def test_what_ended_long_after_the_run_was_stopped_by_somebody_else(
    tmp_path: Path, after_s: float, *, is_told: bool
) -> None:
    audit = await written(tmp_path, "gone")
    audit[-1]["wall_s"] = WALL_S + 5000.0  # its last entry counts, not its first
    (one,) = found(audit, later_s=6000.0)
    assert (run_report(one, seen(old(finished_wall_s=WALL_S + 5000.0 + after_s))) is not None) is is_told


@pytest.mark.parametrize(
    "first",
    [
        {"status": "running"},
        {"finished_wall_s": WALL_S + 86_400.0},
    ],
    ids=["runs", "ended-later"],
)
async def test_each_of_several_is_looked_at(tmp_path: Path, first: dict[str, Any]) -> None:
    (one,) = found(await written(tmp_path, "gone"))
    other = container("other", container_id="ef" * 32, **{"status": "exited", **first})
    several = replace(one, stopped=("ef" * 32, OLD_ID), made=())
    run = run_report(several, seen(other, old()))
    assert run is not None
    assert run.remains == "vllm-old on spark1 is stopped"


async def test_one_whose_place_was_taken_hides_no_other_node_s(tmp_path: Path) -> None:
    (one,) = found(await written(tmp_path, "gone"))
    replaced = container("other", container_id="ef" * 32, status="exited")
    there = Containers(containers=(replaced, new(status="running", restart_policy="always")), available=True)
    taken = replace(node("spark1"), containers=there, link=link(LinkState.LIVE))
    (left_over,) = seen(old()).nodes
    run = run_report(replace(one, stopped=("ef" * 32, OLD_ID)), picture(taken, replace(left_over, name="spark2")))
    assert run is not None
    assert run.remains == "vllm-old on spark2 is stopped"


# --- what is not


@pytest.mark.parametrize(
    "now",
    [
        seen(old(status="running", restart_policy="on-failure")),
        seen(),
        seen(old(finished_wall_s=WALL_S + 7200.0)),
        seen(old(), available=False),
        seen(old(), state=LinkState.LOST),
        seen(new(status="running", restart_policy="unless-stopped")),
    ],
    ids=["it runs again", "it is gone", "stopped by somebody later", "no containers", "not heard", "taken over"],
)
async def test_what_is_as_it_was_or_cannot_be_seen_is_silent(tmp_path: Path, now: FleetState) -> None:
    (one,) = found(await written(tmp_path, "gone"))
    assert run_report(one, now) is None


async def test_a_run_that_is_under_way_or_long_ago_or_read_or_ended(tmp_path: Path) -> None:
    audit = await written(tmp_path, "gone")
    assert found(audit)
    assert not found(audit, alive=True)
    assert not found(audit, later_s=31 * 86_400.0)
    ends = [{"kind": "end", "state": state} for state in ("done", "rolled back")]
    for last in ({"kind": "note", "read": True}, *ends):
        assert not found([*audit, {"run": "run-1", "wall_s": WALL_S, **last}])


async def test_a_run_is_forgotten_thirty_days_after_its_last_entry(tmp_path: Path) -> None:
    audit = await written(tmp_path, "gone")
    audit[-1]["wall_s"] = last_s = WALL_S + 86_400.0
    for age_s, is_told in ((30 * 86_400.0 - 0.5, True), (30 * 86_400.0, False)):
        assert bool(found(audit, later_s=last_s - WALL_S + age_s)) is is_told


async def test_a_note_of_a_run_that_is_not_there_hides_none(tmp_path: Path) -> None:
    stray = {"run": "run-9", "kind": "note", "wall_s": WALL_S}
    assert found([*(await written(tmp_path, "gone")), stray])


async def test_the_last_entry_of_a_console_that_closes_is_no_end(tmp_path: Path) -> None:
    left_here = {"run": "run-1", "kind": "end", "wall_s": WALL_S, "state": "running", "message": "", "left": True}
    (one,) = found([*(await written(tmp_path, "gone")), left_here])
    assert (one.run.state, one.was_closed) == (RunState.INTERRUPTED, True)


async def test_a_run_whose_last_step_was_done(tmp_path: Path) -> None:
    assert found(await written(tmp_path, "no step of it")) == ()


async def test_what_a_run_ended_before_it_touched_is_not_its_damage(tmp_path: Path) -> None:
    made = launch()
    made = replace(made, steps=(*made.steps[1:3], lifecycle.start(BOX, "-again")))
    audit = await written(tmp_path, "policy-off", made)
    end = {"run": "run-1", "kind": "end", "wall_s": WALL_S, "state": "failed", "message": "it would not"}
    assert found([*audit, end]) == (), "if it is stopped, somebody has stopped it since"
    assert [run_report(one, seen(old())) is None for one in found(audit)] == [False], "a console that is gone may have"


async def test_a_later_run_has_dealt_with_it_unless_it_was_refused(tmp_path: Path) -> None:
    audit = await written(tmp_path / "1", "gone")
    later = await written(tmp_path / "2", "gone", run_id="run-2")
    end = {"run": "run-2", "kind": "end", "wall_s": WALL_S}
    for one in found([*audit, *later, {**end, "state": "done"}]):
        assert run_report(one, seen(old(), new(labels={LAUNCH: STAMP}))) is not None, "what that has made is another's"
        assert run_report(one, seen(old())) is None
    (one,) = found([*audit, *later, {**end, "state": "refused"}])
    assert run_report(one, seen(old())) is not None


async def test_what_a_way_back_has_led_back_is_not_looked_at_again(tmp_path: Path) -> None:
    audit = await written(tmp_path / "1", "gone")
    (one,) = found(audit)
    run = run_report(one, seen(old(), new()))
    assert run is not None
    back = Operations(picture=seen, lines=Stage(tmp_path).lines, audit=Audit(tmp_path / "a")).rollback(run)
    assert back is not None
    later = await written(tmp_path / "2", "", back, run_id="run-2")
    assert found([*audit, *later, {"run": "run-2", "kind": "end", "wall_s": WALL_S, "state": "done"}]) == ()


async def test_a_way_back_that_was_cut_off_is_told_itself(tmp_path: Path) -> None:
    (one,) = found(await written(tmp_path / "1", "gone"))
    run = run_report(one, seen(old(), new()))
    assert run is not None
    back = Operations(picture=seen, lines=Stage(tmp_path).lines, audit=Audit(tmp_path / "a")).rollback(run)
    assert back is not None
    (one,) = found(await written(tmp_path / "2", "back-memory", back, run_id="run-2"))
    run = run_report(one, seen(old()))
    assert run is not None
    assert run.message.startswith("vllm-old on spark1 is stopped. ")
    assert not run.can_go_back


async def test_what_was_to_be_stopped_is_no_damage(tmp_path: Path) -> None:
    (one,) = found(await written(tmp_path, "gone", launch(action="stop-engine")))
    assert run_report(one, seen(old())) is None
    assert run_report(one, seen(new())) is not None


@pytest.mark.parametrize("damage", [None, 7, [], {"x": 1}, "\x1b[2J", [None], [{"docker": 3}], {"Labels": 4}])
async def test_a_damaged_audit_is_read_as_far_as_it_goes(tmp_path: Path, damage: object) -> None:
    audit = await written(tmp_path, "gone")
    intent = audit[0]
    for key in intent:
        if key not in ("kind", "run", "wall_s"):
            for one in found([{**intent, key: damage}, *audit[1:]]):
                assert unclean(run_report(one, seen(old(), new()))) == []
    for key in [*audit[1], "saved"]:
        if key not in ("kind", "run", "wall_s"):
            for one in found([intent, {**audit[1], key: damage}, *audit[2:]]):
                assert unclean(run_report(one, seen(old(), new()))) == []


async def test_an_id_that_is_none_reaches_no_call(tmp_path: Path) -> None:
    audit = await written(tmp_path, "gone")
    made = {**audit[1], "saved": {"NEW": "../images/prune"}}
    (one,) = found([audit[0], made, *audit[2:]])
    assert one.run.saved == {"spark1": {}}


# --- its way back


def kept(steps: Sequence[Step]) -> list[tuple[Step, tuple[str, ...]]]:
    """The steps as they do something, and what reverts them as it is typed: that is kept as words."""
    acts = [replace(one.act, reverse=None) if isinstance(one.act, Remote) else one.act for one in steps]
    return [(replace(one, act=act), one.act.undoing()) for one, act in zip(steps, acts, strict=True)]


async def test_its_way_back_is_planned_from_the_audit(tmp_path: Path) -> None:
    (one,) = found(await written(tmp_path, "gone"))
    now = seen(old(), new())
    run = run_report(one, now)
    assert run is not None
    assert run.can_go_back
    assert kept(run.plan.rollback) == kept(launch().rollback), "as it was planned, whole"
    stage = Stage(tmp_path)
    back = Operations(picture=lambda: now, lines=stage.lines, audit=stage.means.audit).rollback(run)
    assert back is not None
    act = back.steps[0].act
    assert isinstance(act, Remote)
    assert act.operations[0].path == f"/containers/{NEW_ID}"  # type: ignore[union-attr]


@pytest.mark.parametrize(("status", "kept"), [("created", False), ("running", True), ("exited", True)])
async def test_its_way_back_keeps_the_log_of_what_had_started(tmp_path: Path, status: str, kept: bool) -> None:
    """Also where the console died before it heard that the container had started."""
    made = launch()
    log = Step(id="back-log", title="Log", node="spark1", act=CollectEvidence(nodes=("spark1",), needs="STARTED"))
    (one,) = found(await written(tmp_path, "start", replace(made, rollback=(log, *made.rollback))))
    now = seen(old(), new(status=status))
    run = run_report(one, now)
    assert run is not None
    stage = Stage(tmp_path)
    back = Operations(picture=lambda: now, lines=stage.lines, audit=stage.means.audit).rollback(run)
    assert back is not None
    assert [step.id for step in back.steps][:2] == (
        ["back-log", "back-remove"] if kept else ["back-remove", "back-memory"]
    )
    assert not kept or back.steps[0].act == CollectEvidence(nodes=("spark1",)), "it would skip itself"


async def test_a_way_back_over_a_node_that_is_not_watched_is_told(tmp_path: Path) -> None:
    made = launch()
    other = replace(made.rollback[0], node="spark2")
    (one,) = found(await written(tmp_path, "gone", replace(made, rollback=(other, *made.rollback[1:]))))
    run = run_report(one, seen(old()))
    assert run is not None
    assert not run.can_go_back
    assert run.hint.startswith(
        "Its rollback needs spark2, which this console doesn't watch. Back by hand: docker start"
    )


async def test_a_way_back_with_a_secret_in_it_is_not_kept(tmp_path: Path) -> None:
    audit = await written(tmp_path, "gone", launch(secret="hunter2hunter2"))
    assert audit[0]["kept"] is None
    assert "hunter2" not in json.dumps(audit)
    (one,) = found(audit)
    run = run_report(one, seen(old()))
    assert run is not None
    assert not run.can_go_back
    assert "docker start vllm-old" in run.hint


@over(
    "act",
    [
        Remote(operations=(Signal(pid=7, started_ticks=1),)),
        Remote(operations=(Command(argv=("tee", "x"), content="text"),)),
        Remote(operations=(Command(argv=("env",), environment={"A": "b"}),)),
        AwaitGone(pids=(7,)),
    ],
)
def test_what_means_something_else_another_day_is_not_kept(act: Any) -> None:
    assert plan_codec.encoded_steps((step("x", act),), Masker()) is None


@over(
    "data",
    [
        None,
        [3],
        [{}],
        "GuardOrder",
    ],
)
def test_what_is_no_way_back_is_none(data: object) -> None:
    assert plan_codec.decoded_steps(data) == ()


@over(
    "key, value",
    [
        ("do", {"local": "Remote"}),
        ("do", {"local": "AwaitMemory", "target_bytes": "5"}),
        ("do", {"local": "AwaitGone", "pids": 7}),
        ("do", {"remote": [{"do": "signal", "pid": 1, "started": 1, "signal": "KILL"}], "undo": []}),
        ("do", {"remote": [], "undo": []}),
        ("undoes", "stop"),
        ("on_failure", "whatever"),
        ("limit_s", None),
    ],
)
def test_a_step_that_is_damaged_takes_all_of_them_with_it(key: str, value: object) -> None:
    whole = plan_codec.encoded_steps(launch().rollback, Masker())
    assert whole is not None
    assert kept(plan_codec.decoded_steps(whole)) == kept(launch().rollback)
    assert plan_codec.decoded_steps([{**whole[0], key: value}, *whole[1:]]) == ()


# --- whose it is


def test_a_run_is_under_way_as_long_as_its_process_lives(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    program = (
        "import sys, time; from pathlib import Path; from sparktop.operate.audit_file import Audit\n"
        "Audit(Path(sys.argv[1]), who='me').hold('run-1'); print('held', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert is_under_way("run-1", path)
        assert not is_under_way("run-2", path)
        assert not is_under_way("../audit.jsonl", path)
    finally:
        other.kill()
        other.wait()
        other.stdout.close()  # type: ignore[union-attr]
    assert not is_under_way("run-1", path)
    assert not list((tmp_path / "under-way").iterdir()), "its mark is gone"


async def test_a_run_is_marked_from_its_intent_to_its_end(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    marks: list[bool] = []
    stage.at_state = lambda run: marks.append(is_under_way(run.id, stage.audit_path))
    await stage.carry_out(plan(step("a")))
    assert any(marks)
    assert not is_under_way("run-1", stage.audit_path)


async def test_what_was_read_is_told_no_more(tmp_path: Path) -> None:
    await written(tmp_path, "gone")
    stage = Stage(tmp_path)
    operations = Operations(picture=stage.picture, lines=stage.lines, audit=stage.means.audit, clock=stage.clock)
    assert await operations.interrupted_runs() == (), "the process that wrote it lives: it is this one"
    audit = Audit(tmp_path / "copy.jsonl", clock=stage.clock)
    audit.path.write_bytes(stage.audit_path.read_bytes())
    operations = Operations(picture=stage.picture, lines=stage.lines, audit=audit, clock=stage.clock)
    (one,) = await operations.interrupted_runs()
    operations.read(one.run.id)
    assert await operations.interrupted_runs() == ()
    assert entries(audit.path)[0][-1]["kind"] == "note"
    demo = Operations(picture=stage.picture, lines=stage.lines, audit=audit, clock=stage.clock, recalls=False)
    assert await demo.interrupted_runs() == ()


def test_figures_in_the_audit_are_figures() -> None:
    given = {"decode_tps": 3.5, "tool_call": "na\x1b[31mmed", "is_well": True, "more": [1], "none": None}
    assert kept_figures(given) == {"decode_tps": 3.5, "tool_call": "named"}
    assert kept_figures(None) == kept_figures([1]) == {}
