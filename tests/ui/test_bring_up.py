"""The page that B opens: rows by chapter as they come, what is wrong under the cursor, its remedy planned."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.bringup_support import BOTH, Desk, link_run, load
from tests.ui import operating, svg
from tests.ui.acting import NARROW, USUAL, acting, at, notified
from tests.ui.operating import FakeOperating
from tests.ui.pictures import PICTURES
from tests.ui.test_app import screen, until
from textual.pilot import Pilot

from sparktop.bringup.catalogue import measured
from sparktop.bringup.kept import ResultFile
from sparktop.errors import LinkLost
from sparktop.model.bringup import Changed, CheckResult
from sparktop.model.state import State
from sparktop.operate.step.run import RunState
from sparktop.ui.console import ConsoleScreen
from sparktop.ui.screens.bring_up import BringUpScreen, CheckTable
from sparktop.ui.screens.recipes import RecipesScreen
from sparktop.ui.screens.review import RefusalScreen, ReviewScreen
from sparktop.ui.screens.run import RunScreen


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def side_of(desk: Desk) -> FakeOperating:
    side = FakeOperating()
    side.answers = desk.ask
    return side


DEAD = {"": {"python3 -I -S -c import ctypes": "100\n"}}


@pytest.mark.parametrize("size", [NARROW, USUAL, (200, 50)])
async def test_the_page_comes_chapter_by_chapter_and_the_cursor_goes_to_the_first_problem(
    size: tuple[int, int],
) -> None:
    async with acting("decode", size, side_of(Desk(texts=DEAD))) as (_, _side, pilot):
        await pilot.press("B")
        await at(pilot, BringUpScreen, "Esc close")
        page = pilot.app.screen
        assert isinstance(page, BringUpScreen)
        await until(pilot, lambda: not page._is_looking and bool(page.rows), what="the look over")
        await pilot.pause()
        selected = page.table.selected
        assert selected is not None
        assert selected.is_problem
        await pilot.press("n")
        assert page.table.selected is not selected
        assert "why" in screen(pilot)
        assert "n next problem" in svg.plain(pilot.app)[-1]
        assert svg.plain(pilot.app)[-1].endswith("Esc close ─╯"), "its most important keys are never cut"


def test_the_nodes_column_is_as_wide_as_their_names() -> None:
    table = CheckTable(BOTH)
    rows = [
        CheckResult(check="machine.cuda", nodes=BOTH, state=State.PASSED, found="cuInit(0) = 0"),
        *(
            CheckResult(check="endpoint.key", nodes=("spark1",), subject=name, state=State.PASSED, found="wanted")
            for name in ("vllm-minimax", "sglang-mistral4")
        ),
    ]
    table.show_rows(rows)
    drawn = [line.plain for line in table.draw(76, 10)]
    assert [line[12:19].strip() for line in drawn] == ["both", "spark1", "spark1"]
    assert len({line.index("✔") for line in drawn}) == 1
    assert drawn[0].index("✔") == 19
    assert "sglang-mistral4" in drawn[2]


async def test_a_remedy_is_planned_and_reviewed_and_the_page_remembers() -> None:
    async with acting("decode", USUAL, side_of(Desk(texts=DEAD))) as (_, side, pilot):
        await pilot.press("B")
        await at(pilot, BringUpScreen, "Esc close")
        page = pilot.app.screen
        assert isinstance(page, BringUpScreen)
        await until(pilot, lambda: not page._is_looking and bool(page.rows), what="the look over")
        index = next(index for index, row in enumerate(page.table.rows) if row.check == "machine.cuda")
        page.table.select(index)
        await pilot.pause()
        assert "Enter fix" in screen(pilot)
        assert "sparktop act reboot spark1" in screen(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: bool(side.asked), what="a plan asked for")
        await until(pilot, lambda: not isinstance(pilot.app.screen, BringUpScreen), what="the review")
        assert (side.asked[0].action, side.asked[0].nodes) == ("reboot", ("spark1",))
        if isinstance(pilot.app.screen, RefusalScreen):
            await pilot.press("escape")
        else:
            await pilot.press("escape")
        await pilot.pause()
        await pilot.press("B")
        await at(pilot, BringUpScreen, "CUDA")  # at once: the rows were kept, that one is looked at again


async def test_what_waited_for_a_remedy_is_looked_at_again_after_it() -> None:
    """A row that could not look is looked at again after the remedy of another, which it may have waited for."""
    desk = Desk(texts={"": {**DEAD[""], "fwupdmgr get-updates": 1}})
    async with acting("decode", USUAL, side_of(desk)) as (_, side, pilot):
        await pilot.press("B")
        page = await opened(pilot)
        assert state_of(page, "release.firmware") is State.UNKNOWN
        page.table.select(next(index for index, row in enumerate(page.table.rows) if row.check == "machine.cuda"))
        await pilot.press("enter")
        await until(pilot, lambda: bool(side.asked) and pilot.app.screen is not page, what="the review")
        desk.texts.clear()
        await pilot.press("escape")
        await pilot.press("B")
        page = await opened(pilot)
        assert state_of(page, "release.firmware") is State.PASSED


def state_of(page: BringUpScreen, check: str) -> State:
    return next(row.state for row in page.rows.values() if row.check == check)


async def opened(pilot: Pilot[object]) -> BringUpScreen:
    await at(pilot, BringUpScreen, "Esc close")
    page = pilot.app.screen
    assert isinstance(page, BringUpScreen)
    await until(pilot, lambda: not page._is_looking and bool(page.rows), what="the look over")
    return page


async def test_what_passed_is_hidden_and_a_check_is_looked_at_again() -> None:
    desk = Desk(texts=dict(DEAD))
    async with acting("decode", USUAL, side_of(desk)) as (_, _side, pilot):
        await pilot.press("B")
        await at(pilot, BringUpScreen, "Esc close")
        page = pilot.app.screen
        assert isinstance(page, BringUpScreen)
        await until(pilot, lambda: not page._is_looking and bool(page.rows), what="the look over")
        await pilot.press("p")
        assert page.table.rows
        assert all(row.state is not State.PASSED for row in page.table.rows)
        index = next(index for index, row in enumerate(page.table.rows) if row.check == "machine.cuda")
        page.table.select(index)
        desk.texts.clear()
        await pilot.press("r")
        await until(pilot, lambda: all(row.check != "machine.cuda" for row in page.table.rows), what="it passes")


async def test_the_page_is_exported_and_its_commands_copied(tmp_path: Path) -> None:
    side = side_of(Desk(texts=DEAD))
    side.changed = (Changed(wall_s=1_779_937_964.0, nodes=("spark1",), title="Reboot spark1", result="done"),)
    async with acting("decode", USUAL, side) as (app, _, pilot):
        await pilot.press("B")
        await at(pilot, BringUpScreen, "Esc close")
        page = pilot.app.screen
        assert isinstance(page, BringUpScreen)
        await until(pilot, lambda: not page._is_looking and bool(page.rows), what="the look over")
        await pilot.press("e", "y")
        await until(pilot, lambda: "The page was saved to" in notified(app), what="the file")
        text = next(tmp_path.rglob("*bring-up*.md")).read_text()
        assert text.startswith("# Bring-up of spark1 and spark2")
        assert "cuInit(0) = 100" in text
        assert "| spark1 | Reboot spark1 | done |" in text


async def selected(pilot: Pilot[int], check: str) -> BringUpScreen:
    """The page, looked over, with this check's first row selected."""
    await pilot.press("B")
    await at(pilot, BringUpScreen, "Esc close")
    page = pilot.app.screen
    assert isinstance(page, BringUpScreen)
    await until(pilot, lambda: not page._is_looking and bool(page.rows), what="the look over")
    page.table.select(next(index for index, row in enumerate(page.table.rows) if row.check == check))
    await pilot.pause()
    return page


async def test_a_spark_without_an_engine_leads_to_the_recipes() -> None:
    async with acting("idle", USUAL, side_of(Desk())) as (_, _side, pilot):
        await selected(pilot, "endpoint.served")
        assert "sparktop launch RECIPE spark1" in screen(pilot)
        await pilot.press("enter")
        await at(pilot, RecipesScreen)


async def test_an_engine_s_proof_is_planned_from_its_row() -> None:
    async with acting("decode", USUAL, side_of(Desk())) as (_, side, pilot):
        await selected(pilot, "endpoint.answer")
        assert "Enter measure" in screen(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: bool(side.asked), what="a plan asked for")
        assert (side.asked[0].action, side.asked[0].target) == ("prove-endpoint", "vllm-minimax")


async def test_what_passed_is_kept_where_the_console_was_told_to(tmp_path: Path) -> None:
    async with acting("decode", USUAL, side_of(Desk())) as (app, _, pilot):
        app.acting.bringing_up.kept = tmp_path / "demo" / "bringup.json"
        await pilot.press("B")
        await at(pilot, BringUpScreen, "Esc close")
        page = pilot.app.screen
        assert isinstance(page, BringUpScreen)
        await until(pilot, lambda: not page._is_looking and bool(page.rows), what="the look over")
        assert {path.parent.name for path in tmp_path.rglob("bringup.json")} == {"demo"}


async def test_nodes_that_fail_while_they_are_asked_are_told_on_the_page() -> None:
    side = FakeOperating()

    async def gone(questions: object) -> None:
        await asyncio.sleep(0)
        raise LinkLost("spark1: the connection was lost")

    side.answers = gone  # type: ignore[assignment]
    async with acting("decode", USUAL, side) as (_, _side, pilot):
        await pilot.press("B")
        await at(pilot, BringUpScreen, "the connection was lost")


SLOW = link_run(
    load("bw-slow"), load("bw-half", back=True), load("bw-slow", "bw-slow"), load("lat-small", latency=True)
)


@pytest.mark.parametrize("size", [NARROW, USUAL, (200, 50)])
async def test_a_slow_cable_stands_beside_what_is_healthy(
    size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept" / "bringup.json"
    monkeypatch.setitem(PICTURES, "desk", lambda clock: Desk().picture)
    async with acting("desk", size, side_of(Desk())) as (app, _side, pilot):
        flow = app.acting.bringing_up
        ResultFile(kept).keep(measured(SLOW, flow.picture(), now_wall_s=flow.clock.wall()))
        flow.kept = kept
        await pilot.press("B")
        await at(pilot, BringUpScreen, "Esc close")
        page = pilot.app.screen
        assert isinstance(page, BringUpScreen)
        await until(pilot, lambda: not page._is_looking and bool(page.rows), what="the look over")
        page.table.select(next(index for index, row in enumerate(page.table.rows) if row.check == "bandwidth.half"))
        await pilot.pause()
        assert "12.9 Gb/s, healthy 109 to 112" in screen(pilot)
        assert "█" in screen(pilot)


async def test_the_page_comes_back_after_a_run_with_the_next_problem_selected() -> None:
    """One plan for what is the same on both nodes; a run that is left running doesn't lead back."""
    side = side_of(Desk(texts=DEAD))
    side.answer = operating.drop

    def at_row(check: str, node: str) -> bool:
        row = page.table.selected
        return row is not None and (row.check, row.nodes) == (check, (node,))

    async def run() -> None:
        await pilot.press("enter")
        await at(pilot, ReviewScreen, "Run")
        await pilot.press("enter")
        await at(pilot, RunScreen)

    async with acting("decode", USUAL, side) as (_app, _, pilot):
        await pilot.press("B")
        page = await opened(pilot)
        assert at_row("machine.cuda", "spark1")
        await pilot.press("enter")
        await at(pilot, ReviewScreen, "Run")
        await pilot.press("escape")
        page = await opened(pilot)
        assert at_row("machine.cuda", "spark1"), "nothing was done there"
        await pilot.press("p")
        await until(pilot, lambda: "p show passed" in screen(pilot))
        await run()
        side.executions[-1].end(RunState.DONE)
        await pilot.press("escape")
        page = await opened(pilot)
        assert at_row("machine.cuda", "spark2")
        assert "p show passed" in screen(pilot), "what is hidden stays hidden"
        assert side.asked[-1].nodes == ("spark1",), "a reboot is one node's"

        rows = [(row.check, row.nodes) for row in page.table.rows]
        page.table.select(rows.index(("machine.power", ("spark2",))))
        await pilot.pause()
        assert "on 2 nodes" in screen(pilot)
        await run()
        assert side.asked[-1].nodes == ("spark1", "spark2")
        await pilot.press("escape")
        await at(pilot, ConsoleScreen)
        await pilot.press("o")
        await at(pilot, RunScreen)
        side.executions[-1].end(RunState.DONE)
        await pilot.press("escape")
        await at(pilot, ConsoleScreen)
