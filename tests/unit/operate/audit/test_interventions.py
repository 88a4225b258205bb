"""What consoles have stopped, as the audit tells while it grows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cutoff_support import BOX, OLD_ID
from tests.operate_support import Stage, plan

from sparktop.model.fleet import Intervention
from sparktop.model.operation import Command
from sparktop.operate.acts.remote import Remote
from sparktop.operate.audit.interventions import CUT_OFF_S, Interventions
from sparktop.operate.container import lifecycle
from sparktop.operate.run.record import Record, new_run
from sparktop.operate.step.plan import Plan, Step
from sparktop.operate.step.run import RunState
from sparktop.operate.step.step_result import StepResult, StepState

DONE, FAILED, SKIPPED = (StepResult(state=state) for state in (StepState.DONE, StepState.FAILED, StepState.SKIPPED))


def stopping(action: str = "stop-engine") -> Plan:
    look = Step(id="look", title="Look", node="spark1", act=Remote(operations=(Command(argv=("true",)),)))
    return plan(look, lifecycle.stop(BOX, "", 5.0), action=action, title="Stop")


class Desk:
    """A console that writes the audit, and another look at it."""

    def __init__(self, folder: Path, made: Plan, **more: Any) -> None:
        self.stage = Stage(folder)
        self.record = Record(new_run("run-1", made), context=self.stage.means, changed=lambda run: None)
        self.now_s = 0.0
        self.read = Interventions(self.stage.audit_path, monotonic=lambda: self.now_s, **more)

    def seen(self) -> tuple[Intervention, ...]:
        self.now_s += 1.0
        return self.read()

    async def end(self, state: RunState) -> tuple[Intervention, ...]:
        self.record.update(state=state)
        await self.record.end()
        return self.seen()


async def test_a_stop_is_told_from_its_step_on_to_the_end_of_its_run(tmp_path: Path) -> None:
    desk = Desk(tmp_path, stopping("safe-restart"))
    assert desk.seen() == ()
    await desk.record.intent({})
    assert desk.seen() == (), "it has only looked so far"
    desk.record.step_ended(0, DONE)
    (running,) = desk.seen()
    assert (running.node, running.containers, running.engine) == ("spark1", (OLD_ID,), BOX.name)
    assert running.ended_wall_s is None
    assert running.is_under_way
    assert not running.is_meant
    desk.record.step_ended(1, DONE)
    (stopped,) = desk.seen()
    assert stopped.ended_wall_s is not None
    assert stopped.is_under_way
    (over,) = await desk.end(RunState.FAILED)
    assert not over.is_under_way
    assert not over.is_meant, "it was to start again"


async def test_who_meant_it_is_told(tmp_path: Path) -> None:
    desk = Desk(tmp_path, stopping())
    await desk.record.intent({})
    desk.record.step_ended(0, DONE)
    desk.record.step_ended(1, DONE)
    (one,) = await desk.end(RunState.DONE)
    assert one.is_meant
    assert one.who != "", "the tests' audit is written by somebody else"
    (mine,) = Interventions(desk.stage.audit_path, who=one.who)()
    assert mine.who == ""


async def test_what_was_not_begun_was_not_stopped(tmp_path: Path) -> None:
    desk = Desk(tmp_path, stopping())
    await desk.record.intent({})
    desk.record.step_ended(0, FAILED)
    assert await desk.end(RunState.FAILED) == ()
    skipped = Desk(tmp_path / "other", stopping())
    await skipped.record.intent({})
    skipped.record.step_ended(0, DONE)
    skipped.record.step_ended(1, SKIPPED)
    assert await skipped.end(RunState.ABORTED) == ()


async def test_a_console_that_died_in_a_stop_may_have_stopped_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path, stopping())
    await desk.record.intent({})
    desk.record.step_ended(0, DONE)
    desk.stage.means.audit.let_go("run-1")
    (one,) = desk.seen()
    assert not one.is_under_way
    assert one.ended_wall_s == one.began_wall_s + CUT_OFF_S


async def test_a_reboot_is_told_of_its_node(tmp_path: Path) -> None:
    act = Remote(operations=(Command(argv=("systemctl", "reboot")),), takes_link=True)
    desk = Desk(tmp_path, plan(Step(id="reboot", title="Reboot", node="spark1", act=act), action="reboot"))
    await desk.record.intent({})
    (one,) = desk.seen()
    assert one.is_reboot
    assert one.node == "spark1"


async def test_a_torn_line_is_read_when_it_is_whole_and_another_file_anew(tmp_path: Path) -> None:
    desk = Desk(tmp_path, stopping())
    await desk.record.intent({})
    desk.record.step_ended(0, DONE)
    whole = desk.stage.audit_path.read_bytes()
    desk.stage.audit_path.write_bytes(whole[:-20])
    assert desk.seen() == ()
    desk.stage.audit_path.write_bytes(whole)
    assert len(desk.seen()) == 1
    desk.stage.audit_path.write_text(json.dumps({"kind": "note", "wall_s": 1, "run": "x"}) + "\n")
    desk.seen()
    desk.stage.audit_path.unlink()
    assert len(desk.seen()) == 1, "what was known stays"
