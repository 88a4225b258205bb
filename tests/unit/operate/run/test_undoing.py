"""What is left to be undone by hand when a run ends early: commands that can be pasted, and no more than there is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests import pictures_support as made
from tests.operate_support import FAILED, ROLL_BACK, Stage, plan, step
from tests.restart_support import planned, request, spark, two
from tests.table import over

from sparktop.operate.acts.remote import Remote
from sparktop.operate.restart import restart
from sparktop.operate.run.run_text import by_hand, hint
from sparktop.operate.step.plan import Plan, Step
from sparktop.operate.step.run import Run, RunState, StepRun
from sparktop.operate.step.step_result import StepState

NAME = "vllm-qwen36"
ONE = made.picture(spark(engines=(made.engine(NAME),)))


def restarting(picture=ONE, wish=None) -> Plan:
    found = planned(restart, wish or request(target=NAME), picture)
    assert isinstance(found, Plan), found
    return found


def run_until(of: Plan, last: str, *more: Step) -> Run:
    """A run whose steps are done up to `last`; `more` after them."""
    count = [one.id for one in of.steps].index(last) + 1
    steps = [StepRun(step=one, state=StepState.DONE) for one in (*of.steps[:count], *more)]
    return Run(id="r", plan=of, steps=(*steps, *(StepRun(step=one) for one in of.steps[count:])))


@over(
    "last, lines",
    [
        ("evidence", ()),
        ("policy-off", (f"docker update --restart=unless-stopped {NAME}",)),
        ("memory", (f"docker start {NAME}", f"docker update --restart=unless-stopped {NAME}")),
        ("ready", (f"docker update --restart=unless-stopped {NAME}",)),  # it has been started again
        ("policy-back", ()),
    ],
)
def test_what_is_left_of_a_restart(last: str, lines: tuple[str, ...]) -> None:
    assert by_hand(run_until(restarting(), last)) == lines


def test_on_two_nodes_each_line_says_where() -> None:
    pair = restarting(two(), request("safe-restart", "vllm-head", "spark1", "spark2"))
    lines = by_hand(run_until(pair, "memory@spark2"))
    assert {line.partition(": ")[0] for line in lines} == {"on spark1", "on spark2"}
    assert lines[-1].startswith("on spark1: docker update --restart=")


def test_what_the_way_back_has_done_is_not_to_be_done_again() -> None:
    made_plan = restarting()
    assert by_hand(run_until(made_plan, "memory", *made_plan.rollback)) == ()


def test_a_run_that_can_go_back_says_the_commands_too() -> None:
    run = run_until(restarting(), "gone")
    told = hint(run, can_go_back=True)
    assert told.startswith("You can roll back: ")
    assert told.endswith(f"By hand: docker start {NAME}; docker update --restart=unless-stopped {NAME}")
    assert hint(replace(run, steps=run.steps[:1]), can_go_back=False) == ""


def test_no_wait_is_undone() -> None:
    made_plan = restarting()
    assert all(isinstance(one.act, Remote) for one in made_plan.steps if one.act.undoing())


async def test_how_a_run_ended_and_what_to_undo_stand_in_the_audit(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node.fails["start"] = FAILED
    steps = step("stop", undone_by="docker start vllm"), step("start")
    run = await stage.carry_out(plan(*steps))
    assert run.state is RunState.FAILED
    assert run.hint == "To undo it: docker start vllm"
    assert stage.audited[-1]["hint"] == run.hint  # a console that was closed tells nobody else


async def test_a_run_that_was_rolled_back_leaves_nothing_to_undo(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node.fails["start"] = FAILED
    steps = step("stop", undone_by="docker start vllm"), step("start", on_failure=ROLL_BACK)
    run = await stage.carry_out(plan(*steps, back=(step("old"),)))
    assert (run.state, run.hint) == (RunState.ROLLED_BACK, "")
