"""A new critical finding is told once, through the channels asked for, and nothing of it can script anything."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support import poll
from tests.table import over
from tests.ui import claims, pictures, svg
from tests.ui.look import clock_of_pictures
from tests.ui.test_app import ready, screen, until
from tests.ui.test_hostile_text import capture
from textual.screen import Screen

from sparktop.clock import ManualClock
from sparktop.documents.attention import Attention
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Phase
from sparktop.model.fleet import FleetState
from sparktop.model.request import Request, Risk
from sparktop.observe.watch import Publish
from sparktop.operate.acts.remote import Remote
from sparktop.operate.step.plan import Plan, Step
from sparktop.operate.step.run import Run, RunState, StepRun
from sparktop.operate.step.step_result import StepState
from sparktop.text.lines import Line
from sparktop.transport.outgoing.program import environment, run_command
from sparktop.ui import notify
from sparktop.ui.app import SparktopApp
from sparktop.ui.dialogs.dialog import Choice, ChooseScreen
from sparktop.ui.notify import NewFindings, NotifyOptions, filled, for_terminal, window_title
from sparktop.ui.setup import Setup

ONE = Finding(rule="a.one", severity=Severity.CRITICAL, title="One", nodes=("spark1", "spark2"), explanation="Why.")
TWO = replace(ONE, rule="a.two", title="Two")


@pytest.fixture
def attention() -> Attention:
    return Attention(ManualClock())


def test_a_finding_is_news_once_until_it_was_resolved(attention: Attention) -> None:
    alert = NewFindings()
    assert alert.of([ONE], attention) == (ONE,)
    assert alert.of([replace(ONE, brief="other figures")], attention) == ()
    assert alert.of([replace(ONE, phase=Phase.RESOLVED)], attention) == ()
    assert alert.of([ONE], attention) == (ONE,)


def test_a_finding_that_comes_back_in_a_run_is_announced_once_and_as_such(attention: Attention) -> None:
    plan = Plan(request=Request(action="relaunch", nodes=("spark1",)), title="R", risk=Risk.DISRUPTIVE, steps=())
    run = Run(id="r", plan=plan, state=RunState.RUNNING, steps=())
    alert = NewFindings()
    assert alert.of([ONE], attention) == (ONE,)
    assert not alert.is_back(ONE)
    assert alert.of([], attention, [run]) == ()
    assert alert.of([ONE, TWO], attention, [run]) == (ONE, TWO)
    assert (alert.is_back(ONE), alert.is_back(TWO)) == (True, False)
    for _ in range(2):
        assert alert.of([], attention, [run]) == ()
        assert alert.of([ONE], attention, [run]) == (), "once in a run"
    assert alert.of([], attention, []) == ()
    assert alert.of([ONE], attention, []) == (ONE,)


def test_what_is_no_critical_or_known_already_is_no_news(attention: Attention) -> None:
    attention.acknowledge([ONE], on=True)
    warning = replace(TWO, severity=Severity.WARNING)
    assert NewFindings().of([ONE, warning], attention) == ()
    alert = NewFindings()
    assert alert.of([warning], attention) == ()
    assert alert.of([TWO], attention) == (TWO,), "it got worse"


def test_what_follows_from_one_that_is_told_is_not_told_itself(attention: Attention) -> None:
    alert = NewFindings()
    assert alert.of([ONE, replace(TWO, caused_by=ONE.rule)], attention) == (ONE,)
    assert alert.of([replace(TWO, caused_by=ONE.rule)], attention) == (), "it was seen, and is no newer alone"


def test_a_rank_that_a_run_stops_with_the_others_is_news_only_where_the_run_leaves_it_so(attention: Attention) -> None:
    died = replace(ONE, rule="cluster.rank-died", subject="vllm-pair")
    stop = Remote(operations=())
    steps = (
        Step(id="a", title="A", node="spark1", act=stop, stops="vllm-pair"),
        Step(id="b", title="B", node="spark2", act=stop, stops="vllm-pair-2"),
    )
    plan = Plan(request=Request(action="stop", nodes=("spark1",)), title="Stop", risk=Risk.DISRUPTIVE, steps=steps)
    begun = (StepRun(step=steps[0], state=StepState.DONE), StepRun(step=steps[1], state=StepState.RUNNING))
    run = Run(id="r", plan=plan, state=RunState.RUNNING, steps=begun)
    alert = NewFindings()
    assert alert.of([died], attention, [run]) == ()
    assert alert.of([died], attention, []) == (died,)
    other = replace(died, subject="vllm-pair2")
    assert NewFindings().of([other], attention, [run]) == (other,)
    waiting = replace(run, steps=(StepRun(step=steps[0]), StepRun(step=steps[1])))
    assert NewFindings().of([died], attention, [waiting]) == (died,)


def test_the_title_says_the_worst_and_who_is_watched(attention: Attention) -> None:
    fleet = pictures.deadlock(clock_of_pictures())
    assert window_title(fleet, attention) == "✖ Spin deadlock across both nodes +1 · sparktop spark1 spark2"
    assert window_title(replace(fleet, findings=()), attention) == "sparktop spark1 spark2"
    attention.acknowledge(fleet.findings, on=True)
    assert window_title(fleet, attention) == "sparktop spark1 spark2"


@over("text", ["a\x07b", "\x1b]52;c;x\x07", "\x9d0;t\x9c", "a\nb", "\u202ex", "x" * 9000])
def test_text_for_the_terminal_holds_no_control(text: str) -> None:
    made = for_terminal(text)
    assert made.isprintable()
    assert len(made) <= notify.TERMINAL_CHARS


@over(
    "argument, made",
    [
        ("{severity}", "critical"),
        ("now: {title} on {nodes}", "now: One (and 1 more) on spark1 spark2"),
        ("{rule}|{explanation}", "a.one|Why."),
        ("{other} {", "{other} {"),
    ],
)
def test_placeholders_are_filled_and_an_argument_stays_one(argument: str, made: str) -> None:
    assert filled(["prog", argument], [ONE, TWO]) == ["prog", made]


def test_a_finding_becomes_neither_option_nor_placeholder() -> None:
    bad = replace(ONE, title="--help {rule} $(reboot)\0")
    assert filled(["prog", "{title}", "--text={title}"], [bad]) == [
        "prog",
        " --help {rule} $(reboot)",
        "--text=--help {rule} $(reboot)",
    ]


def test_the_program_sees_no_secret_of_the_environment() -> None:
    given = {"HF_TOKEN": "x", "OPENAI_API_KEY": "x", "DB_PASSWORD": "x", "PATH": "/bin", "DISPLAY": ":0", "LANG": "C"}
    assert set(environment(given)) == {"PATH", "DISPLAY", "LANG"}


async def test_a_program_gets_the_findings_on_its_standard_input(tmp_path: Path) -> None:
    file = tmp_path / "out"
    assert await run_command(["tee", str(file)], b'{"version": 1}') == ""
    assert json.loads(file.read_text()) == {"version": 1}


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["false"], "false ended with code 1"),
        (["/nonexistent/program"], "No such file"),
        ([sys.executable, "-c", "import sys; sys.stdin.close()"], ""),
    ],
)
async def test_what_goes_wrong_is_said(argv: list[str], said: str) -> None:
    told = await run_command(argv, b"x" * 200_000)
    assert said in told
    assert bool(told) == bool(said)


async def test_a_program_that_does_not_end_is_ended_with_its_children(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    told = await run_command(["sh", "-c", f"sleep 60 & echo $! > {file}; wait"], b"", limit_s=0.5)
    assert "longer than 0.5 s" in told
    pid = int(file.read_text())
    state = Path(f"/proc/{pid}/stat")

    def has_ended() -> bool:
        try:
            return state.read_text().rpartition(")")[2].split()[0] in "ZX"
        except OSError:
            return True

    poll(has_ended)


def told_app(notifying: NotifyOptions) -> tuple[SparktopApp, FleetState, ManualClock]:
    clock = clock_of_pictures()
    state = replace(pictures.idle(clock), rules_watching=58)
    watch = pictures.FakeWatch(state)

    async def start(publish: Publish, prompter: object) -> pictures.FakeWatch:
        publish(state)
        return watch

    setup = Setup(start=start, node_names=("spark1", "spark2"), clock=clock)
    return SparktopApp(setup, notifying=notifying), state, clock


async def test_several_that_come_at_once_are_one_toast_and_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "GATHER_S", 0.2)
    script = 'cat > "$0.$$"; echo "$1" >> "$0.said"'
    command = ("sh", "-c", script, str(tmp_path / "hook"), "{title}")
    app, state, clock = told_app(NotifyOptions(channels=("toast",), command=command))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await ready(pilot)
        found = (claims.spin(clock.wall()), claims.held(clock.wall()), claims.apart(clock.wall()))
        app.publish(replace(state, findings=found[:1]))
        await until(pilot, lambda: "Spin deadlock across both nodes" in screen(pilot))
        app.publish(replace(state, findings=found))
        app.publish(replace(state, findings=(*found, ONE)))
        app.publish(replace(state, findings=(*found, ONE, TWO)))
        said = tmp_path / "hook.said"
        await until(pilot, lambda: said.is_file() and len(said.read_text().splitlines()) == 2, what="two runs")
        await until(pilot, lambda: len(list(tmp_path.glob("hook.[0-9]*"))) == 2)
        lines = said.read_text().splitlines()
        assert lines[0] == "Spin deadlock across both nodes"
        assert "(and 1 more)" in lines[1]
        sent = [json.loads(path.read_text()) for path in tmp_path.glob("hook.[0-9]*")]
        assert sorted(len(data["findings"]) for data in sent) == [1, 2]
        assert {one["rule"] for data in sent for one in data["findings"]} >= {"gpu.spin-deadlock", "a.one"}
        assert not app._notifications, "the top line has them"


async def test_no_toast_tells_what_gets_its_line_by_the_same_picture(tmp_path: Path) -> None:
    """The top line had one row until now: the others' come with the next layout."""
    command = ("sh", "-c", f'echo "$0" > {tmp_path / "said"}', "{title}")
    app, state, _ = told_app(NotifyOptions(channels=("toast",), command=command))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await ready(pilot)
        app.publish(replace(state, findings=(ONE, TWO)))
        await until(pilot, (tmp_path / "said").is_file, what="both announced")
        await pilot.pause()
        assert "One" in screen(pilot)
        assert "Two" in screen(pilot)
        assert not app._notifications


async def test_a_toast_tells_what_no_line_of_the_screen_does() -> None:
    app, state, _ = told_app(NotifyOptions(channels=("toast",)))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await ready(pilot)
        await app.push_screen(Screen())
        app.publish(replace(state, findings=(ONE,)))
        await until(pilot, lambda: "✖ spark1 + spark2: One" in screen(pilot), what="the toast")
        toast_row = next(y for y, row in enumerate(svg.plain(app)) if "✖ spark1 + spark2: One" in row)
        assert 3 <= toast_row < 8, "neither over the top lines nor over a log's newest"


async def test_a_dialog_drops_its_news_once_that_is_over() -> None:
    app, state, _ = told_app(NotifyOptions(channels=("toast",)))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await ready(pilot)
        await app.push_screen(ChooseScreen("fix", (Choice(label=Line.of("One way")),)))
        app.publish(replace(state, findings=(ONE,)))
        await until(pilot, lambda: "✖ new: spark1 + spark2: One" in screen(pilot))
        app.publish(replace(state, findings=(replace(ONE, phase=Phase.RESOLVED),)))
        await until(pilot, lambda: "new: spark1 + spark2: One" not in screen(pilot))


async def test_a_program_that_fails_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "GATHER_S", 0.05)
    app, state, _ = told_app(NotifyOptions(channels=(), command=("/nonexistent/program", "{title}")))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await ready(pilot)
        app.publish(replace(state, findings=(ONE,)))
        await until(pilot, lambda: "notify_command failed" in screen(pilot))
        app.publish(replace(state, findings=(ONE, TWO)))
        await until(pilot, lambda: all(not worker.is_running for worker in app.workers if worker.name != "watch"))
        assert len(app._notifications) == 1


def test_the_terminal_hears_it_and_gets_its_title_back() -> None:
    written, code = capture(module="tests.ui.terminal_app")
    assert code == 0, written[-2000:]
    assert b"\x1b[22;2t" in written
    assert b"\x1b]2;sparktop spark1 spark2\x07" in written
    bell = re.search(rb"\x1b\]9;sparktop: ([^\x07\x1b]*)\x07", written)
    desktop = re.search(rb"\x1b\]777;notify;sparktop;([^\x07\x1b;]*)\x07", written)
    title = [found.decode() for found in re.findall(rb"\x1b\]2;([^\x07\x1b]*)\x07", written)]
    assert bell is not None
    assert desktop is not None
    assert bell[1].decode().startswith("✖ spark1 + spark2: a; b")
    assert title[1].startswith("✖ a; b")
    assert b"]52;" not in written
    assert written.rindex(b"\x1b[23;2t") > written.rindex(b"\x1b]2;")


def test_the_environment_is_this_machines() -> None:
    assert "PATH" in environment(os.environ)
