"""What a run says while it goes and when it is over, where nobody looks at it too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.table import over
from tests.ui import claims, svg
from tests.ui.acting import at, notified, open_run, with_finding
from tests.ui.look import clock_of_pictures, console
from tests.ui.operating import ID, WALL_S, FakeExecution, FakeOperating, restart
from tests.ui.test_app import ready, screen, until
from textual.widgets import TextArea

from sparktop.documents.run import body_lines, end_text, head_lines, printed_lines, step_line, summary
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.operation import DockerCall, Signal
from sparktop.model.request import Request, Risk
from sparktop.operate.acts.readiness import AwaitReady
from sparktop.operate.acts.remote import Remote
from sparktop.operate.evidence.collect import CollectEvidence
from sparktop.operate.run.run_text import message, short_detail, waiting, was_killed
from sparktop.operate.step.plan import Plan, Step
from sparktop.operate.step.run import Run, RunState, StepRun
from sparktop.operate.step.step_result import StepState
from sparktop.text.lines import plain
from sparktop.ui.console import ConsoleScreen
from sparktop.ui.dialogs.dialog import ChooseScreen
from sparktop.ui.screens.change import ChangeScreen
from sparktop.ui.screens.review import ReviewScreen
from sparktop.ui.screens.run import RunScreen

REQUEST = Request(action="safe-restart", nodes=("spark1",), target="vllm")
STOP = Remote(operations=(DockerCall(method="POST", path=f"/containers/{ID}/stop", query={"t": "60"}),))


def a_run(state: RunState = RunState.RUNNING, **more: object) -> Run:
    execution = FakeExecution(restart(REQUEST), lambda run: None)
    if state is RunState.RUNNING:
        execution.at(2)
    else:
        failed_at = None if state in (RunState.DONE, RunState.NO_HELP) else 3
        execution.end(state, failed_at, **more)
    return execution.run


def test_the_line_at_the_top_keeps_the_step_and_cuts_a_long_title() -> None:
    run = a_run()
    title = f"Relaunch vllm on spark1 with {'--a-long-flag 1 ' * 8}"
    long_run = replace(run, plan=replace(run.plan, title=title))
    line = summary(long_run, 70)
    assert line.plain.startswith("▸ Relaunch vllm on spark1")
    step = summary(run, 400).plain.partition("  ")[2]
    assert step[:20] in line.plain[:70]
    assert title in summary(long_run, 400).plain


def test_half_a_secret_is_not_left_of_a_title_that_is_cut() -> None:
    run = a_run()
    title = "Relaunch vllm with a key of hf_abcdefghijklmnop"
    secret_run = replace(run, plan=replace(run.plan, title=title, secrets=("hf_abcdefghijklmnop",)))
    assert "hf_" not in summary(secret_run, 60).plain


# --- a stop that is waited for


@over(
    "act, seconds",
    [
        (STOP, 60.0),
        (Remote(operations=(Signal(pid=7, started_ticks=1, ends_within_s=45.0),)), 45.0),
        (Remote(operations=(Signal(pid=7, started_ticks=1, signal="KILL", ends_within_s=10.0),)), None),
        (Remote(operations=(DockerCall(method="POST", path=f"/containers/{ID}/start"),)), None),
        (Remote(operations=(DockerCall(method="POST", path=f"/containers/{ID}/stop"),)), None),
        (Remote(operations=(DockerCall(method="POST", path=f"/containers/{ID}/stop", query={"t": "0"}),)), None),
    ],
)
def test_only_what_asks_to_end_has_a_grace(act: Remote, seconds: float | None) -> None:
    assert act.grace_s == seconds


def test_a_stop_under_way_says_when_it_is_killed_and_afterwards_that_it_was() -> None:
    step = Step(id="stop", title="Stop vllm, 60 s grace", node="spark1", act=STOP)
    one = StepRun(step=step, state=StepState.RUNNING, detail="1 of 2 done", ratio=0.5, began_wall_s=WALL_S)
    assert waiting(one, WALL_S + 23) == (23.0, 60.0)
    run = replace(a_run(), steps=(one,))
    told = plain(body_lines(run, 76, WALL_S + 23)[0])
    assert "SIGTERM sent, SIGKILL after 1:00" in told
    assert "0:23 of 1:00" in told
    assert "1 of 2 done" not in told
    assert "grace period over" in plain(body_lines(run, 76, WALL_S + 70)[0])
    over = replace(one, state=StepState.DONE, detail="60.4 s", ended_wall_s=WALL_S + 60.4)
    assert was_killed(over)
    told = plain(body_lines(replace(run, steps=(over,)), 76, WALL_S + 70)[0])
    assert "was killed" in told
    assert "60.4 s" not in told
    early = replace(over, detail="9.1 s", brief="", ended_wall_s=WALL_S + 9.1)
    assert not was_killed(early)
    told = " ".join(plain(body_lines(replace(run, steps=(early,)), 76, WALL_S + 70)[0]).split())
    assert told == "✓ Stop vllm, 60 s grace 0:09 Before spark1 available 45.4 GiB, cache 9.1 GiB"


# --- what stays in sight


FIGURES = {"spark1": {"available_gib": 96.4, "cache_gib": 1.2}}


def test_the_steps_of_a_rollback_are_counted_for_themselves() -> None:
    run = a_run(RunState.FAILED)
    done = [replace(step, state=StepState.DONE) for step in run.steps]
    failed = replace(done[3], state=StepState.FAILED)
    own = (*done[:3], failed, *(replace(step, state=StepState.SKIPPED) for step in done[4:]))
    (head, *_) = head_lines(replace(run, steps=(*own, done[0], failed)), 76, WALL_S, limit=9)
    assert head.plain.endswith("   3 of 8 steps done, 1 of 2 of the rollback")
    under_way = replace(run, state=RunState.ROLLING_BACK, steps=(*own, replace(done[0], state=StepState.RUNNING)))
    assert "   step 1 of 1   " in head_lines(under_way, 76, WALL_S, limit=9)[0].plain
    assert step_line(9, under_way).plain.startswith("▸ rollback 1/1 ")


def test_its_end_says_how_long_it_took_and_what_came_of_it_before_its_steps() -> None:
    run = a_run(RunState.DONE, message=f"{restart(REQUEST).title}: done in 1:12.", brief="", after=FIGURES)
    (head,) = head_lines(run, 76, WALL_S, limit=9)
    assert head.plain == "✓ done in 1:12   8 of 8 steps done"
    lines = [line.plain for line in body_lines(run, 76, WALL_S)[0]]
    assert lines[0] == "Before and after"
    assert "available 45.4 → 96.4 GiB" in lines[1]
    going = [line.plain for line in body_lines(a_run(), 76, WALL_S)[0]]
    assert going.index("Before") > going.index(next(line for line in going if "Stop vllm" in line))


def test_what_the_steps_say_of_themselves_is_not_said_above_them_too() -> None:
    run = a_run(RunState.FAILED)
    run = replace(run, message=message(run, "It stalled", but=["The guard is armed"]), brief="The guard is armed.")
    assert "Not started: Start vllm" in run.message
    told = plain(head_lines(run, 76, WALL_S, limit=9))
    assert "Not begun" not in told
    assert "The guard is armed." in told
    assert "Not started: Start vllm" in plain(printed_lines(run, 100, has_steps=True)).replace("\n", " ")


@over("limit", [4, 6, 9])
def test_a_long_end_leaves_its_keys_in_sight(limit: int) -> None:
    run = a_run(RunState.FAILED, message="It stalled. " * 60, hint="Look at it. " * 60, can_go_back=True)
    lines = head_lines(run, 60, WALL_S, limit=limit)
    assert len(lines) <= limit
    assert "b plans the rollback" in plain(lines)
    assert plain(printed_lines(run, 100, has_steps=True)).replace("\n", " ").count("It stalled.") == 60


async def test_its_state_stays_in_sight_while_it_scrolls() -> None:
    side = FakeOperating()
    app, _ = console("deadlock", operating=side)
    async with app.run_test(size=(80, 16)) as pilot:
        await ready(pilot)
        await open_run(pilot)
        side.executions[0].end(RunState.FAILED, 3, message="It stalled. " * 8, hint="Do this.", after=FIGURES,
                               evidence_path="/tmp/evidence.tar.gz", can_go_back=True)  # fmt: skip
        await at(pilot, RunScreen, "failed after")
        seen = []
        for key in ("home", "end", "pageup", "home", "pagedown", "j", "end", "G", "g"):
            await pilot.press(key)
            await pilot.pause()
            assert "✖ failed after" in screen(pilot), key
            assert "b plans the rollback" in screen(pilot), key
            seen.append(screen(pilot))
        assert "Before and after" in seen[0]
        assert "Restart policy back" not in seen[0]
        assert "Restart policy back" in seen[1]
        assert seen[0] == seen[3] == seen[8]


async def test_what_is_new_and_critical_is_said_in_a_dialog_not_over_it() -> None:
    app, _ = console("decode", operating=FakeOperating())
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("R")
        await at(pilot, ReviewScreen)
        low = with_finding(claims.low)
        both = replace(low, findings=(*low.findings, *with_finding(claims.spin).findings))
        app.publish(low)
        await until(pilot, lambda: "spark1 has 3.1" in screen(pilot), what="the verdict in the review")
        app.publish(both)
        await until(pilot, lambda: "✖ new: spark1 + spark2" in screen(pilot))
        assert "Cancel" in svg.plain(app)[-2] + svg.plain(app)[-3]
        app.publish(low)
        await until(pilot, lambda: "new: " not in screen(pilot))
        app.publish(both)
        await until(pilot, lambda: "✖ again: spark1 + spark2" in screen(pilot))
        assert not notified(app)


# --- nobody looks


def test_the_end_in_a_few_words_has_the_figure_that_counts() -> None:
    run = a_run(RunState.DONE, message="Done, and more.", brief="The guard is armed.", after=FIGURES)
    assert end_text(run).splitlines() == [
        "✓ Safe restart of vllm on spark1: done in 1:12",
        "The guard is armed.",
        "spark1: available 45.4 → 96.4 GiB",
    ]


@pytest.mark.parametrize(("state", "severity"), [
    (RunState.DONE, "information"), (RunState.FAILED, "error"), (RunState.NO_HELP, "warning"),
])  # fmt: skip
async def test_the_end_of_a_run_that_was_left_running_is_told(state: RunState, severity: str) -> None:
    side = FakeOperating()
    app, _ = console("deadlock", operating=side)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await open_run(pilot)
        await pilot.press("escape")
        await at(pilot, ConsoleScreen)
        await pilot.press("question_mark")
        await until(pilot, lambda: len(app.screen_stack) == 2)
        side.executions[0].end(state, 3 if state is RunState.FAILED else None, message="How it went.", after=FIGURES)
        await until(pilot, lambda: f"on spark1: {state}" in notified(app))
        (note,) = [one for one in app._notifications if str(state) in one.message]
        assert note.severity == severity
        assert "o opens it" in note.message


async def test_a_notification_does_not_repeat_the_line_of_a_run_that_ended() -> None:
    side = FakeOperating()
    app, _ = console("deadlock", operating=side)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await open_run(pilot)
        await pilot.press("escape")
        await at(pilot, ConsoleScreen)
        side.executions[0].end(RunState.DONE, None, message="How it went.", after=FIGURES)
        await until(pilot, lambda: "vllm-minimax on spark1  done in" in screen(pilot))
        assert not notified(app)


async def test_the_end_of_a_run_that_is_looked_at_is_not_told_twice() -> None:
    side = FakeOperating()
    app, _ = console("deadlock", operating=side)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await open_run(pilot)
        side.executions[0].end(RunState.DONE, None, message="How it went.")
        await at(pilot, RunScreen, "done in")
        assert "on spark1: done" not in notified(app)


class Refusing(FakeOperating):
    """Its gate lets nothing through: a run is over before it is shown."""

    def start(self, plan: Plan, **more: Any) -> FakeExecution:
        execution = super().start(plan, **more)
        execution.end(RunState.REFUSED, -1, message="spark1 is taken.")
        return execution


async def test_what_is_refused_at_once_is_read_on_its_screen_alone() -> None:
    app, _ = console("deadlock", operating=Refusing())
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await open_run(pilot)
        await at(pilot, RunScreen, "spark1 is taken.")
        assert not notified(app)
        await pilot.press("escape")
        await at(pilot, ConsoleScreen)
        assert "refused" not in screen(pilot)


# --- f


def two(now_s: float) -> Finding:
    return replace(claims.spin(now_s), rule="a.other", title="Something else is wrong", severity=Severity.WARNING)


async def test_fix_begins_at_what_mends_and_leads_on_to_what_else_is_wrong() -> None:
    from tests.ui import pictures

    from sparktop.model.finding import Remedy

    clock = clock_of_pictures()
    evidence = Remedy(title="Keep the evidence first", action="collect-evidence")

    def first(now_s: float) -> Finding:
        found = claims.spin(now_s)
        return replace(found, remedies=(evidence, *found.remedies))

    app, _ = console("decode", operating=FakeOperating())
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        app.publish(claims.with_findings(pictures.decode(clock), clock, first, two))
        await until(pilot, lambda: "Something else is wrong" in screen(pilot))
        await pilot.press("f")
        await at(pilot, ChooseScreen, "What else is wrong")
        marked = [line for line in svg.plain(app) if "│  ▌" in line]
        assert any("Restart both ranks together" in line for line in marked), screen(pilot)
        assert not any("Keep the evidence first" in line for line in marked)
        await pilot.press("end", "enter")
        await until(pilot, lambda: screen(pilot).count("What else is wrong") == 1)
        await pilot.press("end", "enter", "escape")
        await at(pilot, ConsoleScreen)


async def test_the_editor_shows_what_the_engine_is_started_with_and_what_is_wrong_right_there() -> None:
    app, _ = console("decode", operating=FakeOperating())
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        app.push_screen(
            ChangeScreen("change  vllm", REQUEST.change, intro=["a step " * 30] * 4, running_command="vllm serve /m")
        )
        await at(pilot, ChangeScreen, "no change yet")
        assert "no change yet" in screen(pilot)
        await pilot.press("end", *"rubbish")
        await until(pilot, lambda: "▲ line 1" in screen(pilot))
        app.screen.query_one(TextArea).text = "\n".join(f"A{number}=1" for number in range(12))
        await until(pilot, lambda: "✓ changes 12 variables" in screen(pilot))
        await until(pilot, lambda: "Cancel" in screen(pilot))
        await pilot.press("tab", "pagedown")
        assert isinstance(app.screen, ChangeScreen)
        assert "vllm serve /m" in "\n".join(line.plain for line in app.screen.content(70))


def test_a_step_is_told_in_brief_where_there_is_little_room_and_whole_where_there_is_much() -> None:
    step = Step(id="evidence", title="Collect evidence", node="spark1", act=CollectEvidence(nodes=("spark1",)))
    detail = "/home/ada/.local/state/sparktop/evidence/20261121T0312Z-spark1.tar.gz; 2 things missing: a/b: no; c: d"
    one = StepRun(step=step, state=StepState.DONE, detail=detail, brief="spark1.tar.gz; see README.txt in it")
    assert short_detail(one) == "spark1.tar.gz; see README.txt in it"
    run = replace(a_run(), steps=(one,))
    assert "2 things missing: a/b: no; c: d" in " ".join(plain(printed_lines(run, 100, has_steps=True)).split())
    assert step_line(1, run).plain.endswith("see README.txt in it")


def test_a_step_of_a_pairs_run_names_its_node_where_its_title_does_not() -> None:
    request = Request(action="x", nodes=("spark1", "spark2"))
    texts = (("spark1", "Start vllm"), ("spark2", "Start vllm"), ("spark2", "Wait for memory on spark2"))
    steps = tuple(
        Step(id=f"{number}", title=title, node=node, act=AwaitReady(name="vllm"))
        for number, (node, title) in enumerate(texts)
    )
    plan = Plan(request=request, title="x", risk=Risk.SAFE, steps=steps)
    pair = Run(id="r", plan=plan, steps=tuple(StepRun(step=step) for step in steps))
    assert [step_line(number, pair).plain for number in (1, 2, 3)] == [
        "· 1/3 spark1: Start vllm",
        "· 2/3 spark2: Start vllm",
        "· 3/3 Wait for memory on spark2",
    ]
    alone = replace(pair, steps=pair.steps[:1])
    assert step_line(1, alone).plain == "· 1/1 Start vllm"
