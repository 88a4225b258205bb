"""A run on its screen: closing stops nothing, getting out is asked for twice, and what failed offers its way back."""

from __future__ import annotations

from tests.ui import svg
from tests.ui.acting import NARROW, acting, at, open_run
from tests.ui.test_app import screen, until
from textual.widgets import Button

from sparktop.operate.step.run import RunState
from sparktop.ui.console import ConsoleScreen
from sparktop.ui.dialogs.dialog import ConfirmScreen
from sparktop.ui.screens.review import ReviewScreen
from sparktop.ui.screens.run import RunScreen


async def test_closing_a_run_leaves_it_alone_and_its_line_leads_back() -> None:
    async with acting("deadlock", NARROW) as (app, side, pilot):
        await open_run(pilot)
        run = side.executions[0]
        run.at(3, "available 96.4 of 108 GiB, there in 0:10", 0.89)
        await at(pilot, RunScreen, "▰▰")
        assert "step 4 of 8" in screen(pilot)
        assert "89 %" in screen(pilot)
        await pilot.press("escape")
        await at(pilot, ConsoleScreen, "Safe restart of vllm-minimax")
        assert "4/8 available 96.4" in svg.plain(app)[1]
        assert run.aborted == 0
        run.at(5, "loading weights 12/37")
        await until(pilot, lambda: "6/8 loading weights 12/37" in svg.plain(app)[1])
        await pilot.press("o")
        await at(pilot, RunScreen, "loading weights 12/37")
        await pilot.press("escape")
        run.end(RunState.DONE, message="vllm-minimax answers again.")
        await until(pilot, lambda: "✓ Safe restart of vllm-minimax on spark1  done in 1:12  vllm" in svg.plain(app)[1])
        await pilot.press("o")
        await at(pilot, RunScreen, "8 of 8 steps done")
        await pilot.press("escape")
        await until(pilot, lambda: "Safe restart" not in screen(pilot), what="the line of a run that was read to go")


async def test_an_abort_says_what_it_means_and_is_asked_for_twice() -> None:
    async with acting("deadlock", NARROW) as (app, side, pilot):
        await open_run(pilot)
        run = side.executions[0]
        run.at(2)
        await pilot.press("a")
        await at(pilot, ConfirmScreen, "the rest is cancelled")
        assert isinstance(app.focused, Button)
        assert app.focused.id == "no"
        await pilot.press("enter")
        await at(pilot, RunScreen)
        assert run.aborted == 0
        run.at(3, "available 60 of 108 GiB")
        await pilot.press("a")
        await at(pilot, ConfirmScreen, "ends at once")
        await pilot.press("tab", "enter")
        await at(pilot, RunScreen, "aborting")
        assert run.aborted == 1
        assert "a abort" not in screen(pilot)
        await pilot.press("a")
        await pilot.pause()
        assert isinstance(app.screen, RunScreen)


async def test_a_run_that_failed_offers_its_way_back_as_a_plan() -> None:
    async with acting("deadlock") as (_, side, pilot):
        await open_run(pilot)
        run = side.executions[0]
        run.end(RunState.FAILED, 3, message="The memory did not come back.", hint="Reboot spark1.", can_go_back=True,
                evidence_path="/tmp/e.tar.gz", after={"spark1": {"available_gib": 96.4}})  # fmt: skip
        await at(pilot, RunScreen, "The memory did not come back.")
        text = screen(pilot)
        for wanted in ("✖ failed", "3 of 8 steps done", "Reboot spark1.", "b plans the rollback", "/tmp/e.tar.gz",
                       "available 45.4 → 96.4 GiB", "– Start vllm-minimax"):  # fmt: skip
            assert wanted in text
        await pilot.press("b")
        await at(pilot, ReviewScreen, "Way back of Safe restart")
        await pilot.press("tab", "enter")
        await at(pilot, RunScreen, "Way back of")
        assert len(side.executions) == 2
        await pilot.press("escape", "o")
        await at(pilot, RunScreen, "Way back of")


async def test_what_the_gate_refused_can_be_planned_anew() -> None:
    async with acting("deadlock") as (_, side, pilot):
        await open_run(pilot)
        side.executions[0].end(RunState.REFUSED, -1, message="The picture is 40 s old.")
        await at(pilot, RunScreen, "The picture is 40 s old.")
        await pilot.press("p")
        await at(pilot, ReviewScreen)
        assert [one.action for one in side.asked] == ["safe-restart", "safe-restart"]
