"""The keys that act: what each asks for, what it asks first, and what a console says that only reads."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.ui import claims, pictures, svg
from tests.ui.acting import NARROW, USUAL, acting, at, notified, open_run, with_finding
from tests.ui.look import clock_of_pictures, console
from tests.ui.operating import FakeOperating
from tests.ui.test_app import ready, screen, until
from textual.widgets import Button, Input, TextArea

from sparktop.errors import LinkLost
from sparktop.model.change import Change
from sparktop.model.finding import Finding, Remedy
from sparktop.model.guard import GuardPhase, GuardState
from sparktop.model.request import Request
from sparktop.operate.step.plan import Refusal
from sparktop.ui.console import ConsoleScreen
from sparktop.ui.dialogs.dialog import ChooseScreen, ConfirmScreen, OptionsScreen, WaitScreen
from sparktop.ui.dialogs.prompts import NamedSecret, SudoScreen
from sparktop.ui.screens.change import ChangeScreen
from sparktop.ui.screens.review import RefusalScreen, ReviewScreen
from sparktop.ui.screens.run import RunScreen


@pytest.mark.parametrize("key", ["R", "D", "M"])
@pytest.mark.parametrize("by", ["console", "operating"])
async def test_a_read_only_console_says_so(key: str, by: str) -> None:
    side = FakeOperating(is_read_only=True)
    app, _ = console("deadlock", operating=side, read_only=by == "console")
    async with app.run_test(size=(160, 40)) as pilot:
        await ready(pilot)
        if by == "console":
            assert "read-only" in svg.plain(app)[0]
            assert "fix" in svg.plain(app)[-1]
            assert "drop caches" not in svg.plain(app)[-1]
        await pilot.press(key)
        await pilot.pause()
        assert isinstance(app.screen, ConsoleScreen)
        assert "read-only: this console changes nothing" in notified(app)
    assert side.asked == []


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({}, "simulated"),
        ({"read_only": True}, "read-only"),
        ({"protected": frozenset({"spark1"})}, "protected"),
        ({"protected": frozenset({"spark2"})}, "terminal"),
    ],
)
async def test_a_shell_that_can_not_be_opened_is_refused(more: dict[str, Any], word: str) -> None:
    asked: list[tuple[str, str]] = []

    async def shell(node: str, container_id: str) -> list[str]:
        asked.append((node, container_id))
        return ["sh"]

    app, _ = console("decode", operating=FakeOperating(), shell=shell if more else None, **more)
    async with app.run_test(size=USUAL) as pilot:
        await ready(pilot)
        await pilot.press("s")
        await until(pilot, lambda: word in notified(app), what=word)
        assert asked == ([("spark1", "3f1c9a04d2be".ljust(64, "0"))] if word == "terminal" else [])


async def test_a_read_only_console_collects_evidence_and_shows_remedies_to_read() -> None:
    side = FakeOperating(is_read_only=True)
    app, _ = console("deadlock", operating=side, read_only=True)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await pilot.press("f")
        await at(pilot, ChooseScreen, "Restart both ranks together")
        assert "not in a read-only console" in screen(pilot)
        await pilot.press("1", "enter")
        await pilot.pause()
        assert isinstance(app.screen, ChooseScreen)
        await pilot.press("escape", "x")
        await at(pilot, ChooseScreen, "Collect evidence")
        assert "Safe restart" not in screen(pilot)
        assert "Reboot" not in screen(pilot)
        await pilot.press("enter")
        await at(pilot, ChooseScreen, "spark1 and spark2")
        await pilot.press("enter")
        await at(pilot, RefusalScreen)
    assert [one.action for one in side.asked] == ["collect-evidence"]


async def test_before_anything_can_act_a_key_says_so() -> None:
    app, _ = console("deadlock")
    async with app.run_test(size=USUAL) as pilot:
        await ready(pilot)
        await pilot.press("R")
        assert "still starting" in notified(app)


async def test_a_protected_node_is_named_in_the_header() -> None:
    app, _ = console("decode", protected=frozenset({"spark2"}))
    async with app.run_test(size=USUAL) as pilot:
        await ready(pilot)
        assert "read-write, spark2 protected" in svg.plain(app)[0]


async def test_fix_offers_the_remedies_and_names_the_finding() -> None:
    async with acting("deadlock", NARROW) as (_, side, pilot):
        await pilot.press("f")
        await at(pilot, ChooseScreen, "Restart both ranks together")
        assert "costs the three held requests" in screen(pilot)
        await pilot.press("enter")
        await at(pilot, ChooseScreen, "vllm-minimax on spark2")
        await pilot.press("enter")
        await at(pilot, ReviewScreen)
    asked = side.asked[-1]  # before it the plans that told which remedy is expected to succeed
    assert asked.action == "safe-restart"
    assert asked.finding is not None
    assert asked.finding.rule == "gpu.spin-deadlock"


async def test_of_a_node_out_of_reach_every_remedy_is_expected_to_fail_and_evidence_comes_first() -> None:
    clock = clock_of_pictures()
    remedies = (
        Remedy(title="Arm the guard for the next time", action="guard"),
        Remedy(title="Save what was seen", action="collect-evidence"),
        Remedy(title="Reboot it", action="reboot"),
    )
    fallen = replace(claims.falling(clock.wall()), remedies=remedies, subject="vllm-minimax")
    async with acting("decode") as (app, side, pilot):
        app.publish(replace(pictures.lost(clock), findings=(fallen,)))
        await until(pilot, lambda: "spark1 will" in screen(pilot))
        await pilot.press("f")
        await at(pilot, ChooseScreen, "Arm the guard")
        chooser = app.screen
        assert isinstance(chooser, ChooseScreen)
        titles = [choice.label.plain for choice in chooser._choices]
        assert titles == ["Save what was seen", "Arm the guard for the next time", "Reboot it"]
        assert screen(pilot).count("expected to fail now: spark1 can't be reached now") == 2
        assert side.asked == []


async def test_a_remedy_by_hand_is_read_and_a_suspicion_is_called_one() -> None:
    async with acting("decode") as (app, side, pilot):
        app.publish(with_finding(claims.rdma))
        await until(pilot, lambda: "No byte moves" in screen(pilot))
        await pilot.press("f")
        await at(pilot, ChooseScreen, "only suspected")
        assert "to be sure: ib_write_bw" in screen(pilot)
        assert "No known remedy" in screen(pilot)
        await pilot.press("enter", "1")
        await pilot.pause()
        assert isinstance(app.screen, ChooseScreen)
    assert side.asked == []


async def test_an_open_list_of_fixes_tells_of_the_finding_as_it_is_now() -> None:
    async with acting("decode") as (app, _side, pilot):
        shown = with_finding(claims.spin)
        app.publish(shown)
        await until(pilot, lambda: "Spin deadlock" in screen(pilot))
        await pilot.press("f")
        await at(pilot, ChooseScreen, "Restart both ranks together")
        (finding,) = (each for each in shown.findings if each.rule == "gpu.spin-deadlock")
        app.publish(replace(shown, findings=(replace(finding, brief="96 % SM at 14 W, 9 requests held"),)))
        await until(pilot, lambda: "9 requests held" in screen(pilot))
        app.publish(replace(shown, findings=()))
        await until(pilot, lambda: "it is resolved: there may be nothing left" in screen(pilot))


async def test_a_relaunch_is_edited_before_it_is_planned() -> None:
    def claim(wall_s: float) -> Finding:
        made = claims.spin(wall_s)
        change = Change(by_engine={"vllm": Change(flags={"--enforce-eager": ""}, environment={"OLD": None})})
        return replace(made, nodes=("spark2",), remedies=(replace(made.remedies[1], change=change),))

    async with acting("decode", NARROW) as (app, side, pilot):
        app.publish(with_finding(claim))
        await until(pilot, lambda: "Spin deadlock" in screen(pilot))
        await pilot.press("f")
        await at(pilot, ChooseScreen, "start without CUDA graphs")
        await pilot.press("1")
        await at(pilot, ChangeScreen, "unset OLD")
        area = app.screen.query_one(TextArea)
        assert area.text == "--enforce-eager\nunset OLD"
        assert area.cursor_location == (1, len("unset OLD")), "what is typed stands on no other line's value"
        area.text += "\nwhat is this"
        await until(pilot, lambda: "▲ line 3" in screen(pilot))
        assert app.screen.query_one("#review", Button).disabled
        await pilot.press("ctrl+s")
        assert isinstance(app.screen, ChangeScreen)
        area.text = "--enforce-eager\n--max-num-seqs 8"
        await until(pilot, lambda: "changes 2 flags" in screen(pilot))
        await pilot.press("ctrl+s")
        await at(pilot, ReviewScreen, "What changes")
        assert "+ --enforce-eager" in screen(pilot)
        await pilot.press("o")
        await at(pilot, ChangeScreen)
    asked = side.asked[-1]  # before it the plans that told which remedy is expected to succeed
    assert (asked.nodes, asked.target) == (("spark2",), "vllm-minimax")
    assert asked.change.flags == {"--enforce-eager": "", "--max-num-seqs": "8"}


async def test_a_remedys_own_change_is_reviewed_with_enter_and_edited_with_shift_tab() -> None:
    def claim(wall_s: float) -> Finding:
        made = claims.spin(wall_s)
        change = Change(by_engine={"vllm": Change(flags={"--enforce-eager": ""})})
        return replace(made, nodes=("spark2",), remedies=(replace(made.remedies[1], change=change),))

    async with acting("decode", NARROW) as (app, side, pilot):
        app.publish(with_finding(claim))
        await until(pilot, lambda: "Spin deadlock" in screen(pilot))
        await pilot.press("f")
        await at(pilot, ChooseScreen, "start without CUDA graphs")
        await pilot.press("1")
        await at(pilot, ChangeScreen, "Shift+Tab edit")
        await pilot.press("shift+tab", "end", "enter", *"A=1")
        await until(pilot, lambda: "Ctrl+S review" in screen(pilot) and "1 variable" in screen(pilot))
        await pilot.press("tab", "enter")
        await at(pilot, ReviewScreen, "What changes")
    assert side.asked[-1].change.environment == {"A": "1"}


async def test_drop_caches_asks_on_which_of_two() -> None:
    async with acting("decode") as (app, side, pilot):
        app.console_screen.nodes[1].focus()
        await pilot.press("D")
        await at(pilot, ChooseScreen, "spark1 and spark2")
        await pilot.press("enter")
        await at(pilot, ReviewScreen, "Drop caches on spark2")
        assert "sudo sysctl -w vm.drop_caches=3" in screen(pilot)
        await pilot.press("escape", "D")
        await at(pilot, ChooseScreen)
        await pilot.press("3")
        await at(pilot, ReviewScreen, "Drop caches on spark1 and spark2")
    assert [one.nodes for one in side.asked] == [("spark2",), ("spark1", "spark2")]


async def test_with_one_node_there_is_nothing_to_choose() -> None:
    async with acting("one") as (_, _, pilot):
        await pilot.press("D")
        await at(pilot, ReviewScreen, "Drop caches on spark1")


async def test_the_guard_is_set_and_where_it_is_armed_taken_off() -> None:
    side = FakeOperating()
    side.answer = lambda request: Refusal(request=request, reason="seen")
    app, _ = console("one", operating=side)
    async with app.run_test(size=NARROW) as pilot:
        await ready(pilot)
        await pilot.press("M")
        await at(pilot, OptionsScreen, "kill below this much available")
        await pilot.press("6", "enter")
        await at(pilot, RefusalScreen)
        await pilot.press("escape")
        state = pictures.one(clock_of_pictures())
        guard = GuardState(phase=GuardPhase.ARMED, container_name="vllm-minimax")
        app.publish(replace(state, nodes=(replace(state.nodes[0], guard=guard),)))
        await until(pilot, lambda: app.console_screen.fleet.nodes[0].guard is not None)
        await pilot.press("M")
        await at(pilot, RefusalScreen)
    assert [dict(one.options) for one in side.asked] == [{"floor_gib": "6"}, {"off": "yes"}]
    assert [(one.nodes, one.target) for one in side.asked] == [(("spark1",), "vllm-minimax")] * 2


async def test_an_engine_is_exposed_by_a_name_and_a_key_that_stands_nowhere() -> None:
    side = FakeOperating()
    side.answer = lambda request: Refusal(request=request, reason="seen")
    async with acting("one", side=side) as (app, _, pilot):
        await pilot.press("x")
        await at(pilot, ChooseScreen, "Expose an engine")
        for _ in range(20):
            if "▌" in next(row for row in screen(pilot).splitlines() if "Expose an engine" in row):
                break
            await pilot.press("down")
        await pilot.press("enter")
        await at(pilot, OptionsScreen, "the name that clients use")
        fields = {field.name: field for field in app.screen.query(Input)}
        assert fields["on"].value == "spark1"
        await pilot.press("enter")
        await at(pilot, OptionsScreen, "it is needed")
        fields["name"].value = "llm.example.org"
        await pilot.press("enter")
        await at(pilot, NamedSecret, "SPARKTOP_API_KEY isn't set")
        await pilot.press(*"canary-key", "enter")
        await at(pilot, RefusalScreen)
        assert "canary" not in screen(pilot)
    (asked,) = side.asked
    assert (asked.action, asked.nodes, asked.target) == ("expose", ("spark1",), "vllm-minimax")
    assert dict(asked.options) == {"name": "llm.example.org", "on": "spark1"}
    assert asked.secret == "canary-key"
    assert "canary" not in repr(asked)


async def test_an_option_that_cannot_be_is_told_before_planning() -> None:
    async with acting("one") as (app, side, pilot):
        await pilot.press("R")
        await at(pilot, ReviewScreen)
        await pilot.press("o")
        await at(pilot, OptionsScreen, "yes, no")
        fields = {field.name: field for field in app.screen.query(Input)}
        fields["smoke"].value = "perhaps"
        fields["target_gib"].value = "96"
        await pilot.press("enter")
        await at(pilot, OptionsScreen, "▲ send one request")
        fields["smoke"].value = "no"
        await pilot.press("enter")
        await at(pilot, ReviewScreen)
    assert [dict(one.options) for one in side.asked] == [{}, {"target_gib": "96", "smoke": "no"}]


async def test_a_slow_plan_is_waited_for_or_not() -> None:
    side = FakeOperating()
    side.gate = asyncio.Event()
    app, _ = console("one", operating=side)
    async with app.run_test(size=NARROW) as pilot:
        await ready(pilot)
        await pilot.press("R")
        await at(pilot, WaitScreen, "Asking spark1")
        await pilot.press("escape")
        await at(pilot, ConsoleScreen)
        await pilot.press("R")
        await at(pilot, WaitScreen)
        side.gate.set()
        await at(pilot, ReviewScreen)


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (LinkLost("spark1: the connection ended", hint="r tries again"), "spark1: the connection ended"),
        (ValueError("[/x]"), "a fault in sparktop: ValueError: [/x]"),
    ],
)
async def test_a_plan_that_could_not_be_made_is_a_refusal(failure: Exception, words: str) -> None:
    side = FakeOperating()
    side.failure = failure
    app, _ = console("one", operating=side)
    async with app.run_test(size=NARROW) as pilot:
        await ready(pilot)
        await pilot.press("R")
        await at(pilot, RefusalScreen, words)


async def test_two_keys_at_once_open_one_review() -> None:
    async with acting("one", NARROW) as (app, side, pilot):
        app.acting.act("safe-restart", app.console_screen.selection())
        app.acting.act("safe-restart", app.console_screen.selection())
        await at(pilot, ReviewScreen)
        await pilot.pause(0.1)
        await pilot.press("escape")
        await at(pilot, ConsoleScreen)
    assert len(side.asked) == 1


async def test_leaving_while_something_runs_is_asked_about() -> None:
    async with acting("one", NARROW) as (app, side, pilot):
        await open_run(pilot)
        side.executions[0].at(2)
        await pilot.press("escape", "q")
        await at(pilot, ConfirmScreen, "completes or reverts")
        await pilot.press("enter")
        await at(pilot, ConsoleScreen)
        await pilot.press("q")
        await at(pilot, ConfirmScreen)
        await pilot.press("tab", "enter")
    assert app.return_value == 0


async def test_sudo_is_asked_for_with_the_count_of_wrong_ones() -> None:
    async with acting("one", NARROW) as (_, side, pilot):
        await open_run(pilot)
        assert side.secret is not None
        answer = asyncio.ensure_future(side.secret("spark1", 0))
        await at(pilot, SudoScreen, "sudo on spark1 wants your password")
        assert "not the password" not in screen(pilot)
        await pilot.press(*"geheim")
        assert "geheim" not in screen(pilot)
        await pilot.press("enter")
        assert await answer == "geheim"
        answer = asyncio.ensure_future(side.secret("spark1", 2))
        await at(pilot, SudoScreen, "2 times it was not the password")
        await pilot.press("escape")
        assert await answer is None
        await at(pilot, RunScreen)


async def test_the_requests_of_the_actions_menu_are_of_what_is_selected() -> None:
    side = FakeOperating()
    side.answer = lambda request: Refusal(request=request, reason="seen")
    app, _ = console("decode", operating=side)
    asked: list[Request] = []
    async with app.run_test(size=USUAL) as pilot:
        await ready(pilot)
        await pilot.press("j")  # the engine on spark2
        for digit in "45":
            await pilot.press("x")
            await at(pilot, ChooseScreen, "Break restart loop")
            await pilot.press(digit)
            await at(pilot, RefusalScreen)
            await pilot.press("escape")
            await at(pilot, ConsoleScreen)
        asked = side.asked
    assert [(one.action, one.nodes, one.target) for one in asked] == [
        ("stop-engine", ("spark2",), "vllm-minimax"),
        ("break-restart-loop", ("spark2",), "vllm-minimax"),
    ]


async def test_a_choice_can_be_clicked_and_an_answer_too() -> None:
    async with acting("decode") as (app, side, pilot):
        await pilot.press("D")
        await at(pilot, ChooseScreen, "spark1 and spark2")
        row = next(y for y, line in enumerate(svg.plain(app)) if "2 spark2" in line)
        await pilot.click(offset=(30, row))
        await at(pilot, ReviewScreen, "Drop caches on spark2")
        await pilot.click("#run")
        await at(pilot, RunScreen)
    assert len(side.executions) == 1


@pytest.mark.parametrize("is_read_only", [False, True])
async def test_the_palette_offers_no_change_to_who_only_reads(is_read_only: bool) -> None:
    app, _ = console("decode", operating=FakeOperating(), read_only=is_read_only)
    async with app.run_test(size=USUAL) as pilot:
        await ready(pilot)
        await pilot.press("ctrl+p")
        await pilot.pause()
        await pilot.press(*"restart")
        await until(pilot, lambda: "Restart" in screen(pilot) or "restart" in screen(pilot))
        await pilot.pause(0.5)
        assert ("Safe restart" in screen(pilot)) is not is_read_only
