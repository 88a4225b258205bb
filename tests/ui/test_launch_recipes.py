"""The list of recipes: what it shows, filters, and leads to; a broken recipe, a read-only console."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.table import over
from tests.ui import launches, pictures, svg
from tests.ui.acting import NARROW, at, notified
from tests.ui.launches import GPT, HOSTILE_SHELF, MISTRAL, QWEN, launching
from tests.ui.look import clock_of_pictures
from tests.ui.operating import HOSTILE
from tests.ui.test_app import screen, until

from sparktop.documents.recipe import (
    Group,
    RecipeRow,
    columns,
    detail_lines,
    in_order,
    nodes_text,
    quantisation,
    speed_text,
)
from sparktop.model.engine import EngineState
from sparktop.model.fleet import FleetState
from sparktop.model.recipe import Expected
from sparktop.recipe.read.adopt import Adopted
from sparktop.recipe.read.recipe_file import Reading
from sparktop.recipe.read.shelf import Origin
from sparktop.ui.console import ConsoleScreen
from sparktop.ui.launch_flow import given_rows, shelved
from sparktop.ui.screens.launch import LaunchScreen
from sparktop.ui.screens.recipes import RecipesScreen, RecipeTable


def plain(row: RecipeRow, width: int = 100) -> str:
    return "\n".join(line.plain for line in detail_lines(row, width))


def test_what_a_row_says() -> None:
    assert [quantisation(one) for one in (GPT, QWEN, MISTRAL)] == ["mxfp4", "fp8", "nvfp4"]
    assert [nodes_text(one) for one in (GPT, MISTRAL, launches.MINIMAX)] == ["1", "1-2", "2"]
    assert speed_text(Expected(tokens_s=38, tokens_s_most=52)) == "38-52"
    assert speed_text(Expected()) == ""


@over("width", [30, 60, 76, 116, 196])
def test_columns_never_want_more_than_there_is(width: int) -> None:
    shown = columns(launches.SHELF, width)
    assert shown[0].title == "RECIPE"
    assert sum(column.cells for column in shown) + 2 * (len(shown) - 1) <= width
    assert ("MODEL" in [column.title for column in shown]) == (width > 76)


def test_the_detail_says_where_it_comes_from_and_how_a_conflict_was_resolved() -> None:
    said = plain(launches.SHELF[2])
    for wanted in ("corti.com", "2026-06-08", "says 0.70 on NGC 26.05", "here 0.70 as the most", "34.6 GiB",
                   "48-53 tok", "max_model_len", "131072", "/usr/share/sparktop/recipes/qwen"):  # fmt: skip
        assert wanted in said
    assert plain(launches.SHELF[0]).index("Known risks") < plain(launches.SHELF[0]).index("Parameters")


def test_the_list_begins_with_what_runs_here_or_with_the_smallest_model() -> None:
    rows = shelved(FleetState())
    assert rows[0].id == "qwen3-0.6b"
    assert sorted(row.id for row in rows[1:]) == [row.id for row in rows[1:]], "the rest as the shelf has it"
    runs = rows[2]
    assert runs.recipe is not None
    engine = replace(pictures.engine(), model=runs.recipe.model)
    view = replace(pictures.PICTURES["decode"](clock_of_pictures()).nodes[0], engines=(engine,))
    assert in_order(rows, FleetState(nodes=(view,)))[0] == runs
    of_quant = replace(rows[1], recipe=replace(runs.recipe, model=f"{runs.recipe.model}:Q8_0"))
    assert in_order([rows[0], of_quant], FleetState(nodes=(view,)))[0] == of_quant
    gone = replace(view, engines=(replace(engine, state=EngineState.EXITED),))
    assert in_order(rows, FleetState(nodes=(gone,)))[0].id == "qwen3-0.6b"
    assert in_order([replace(row, source="@team") for row in rows[:1]] + list(rows[1:]), FleetState())[0].source == ""


def test_a_file_that_the_console_was_started_with_is_listed_engine_by_engine(tmp_path: Path) -> None:
    file = tmp_path / "two.sh"
    run = "docker run --network host i/vllm:1 vllm serve"
    file.write_text(f"{run} Org/A\n{run.replace('run', 'run --name b')} Org/B\n")
    rows = given_rows((str(file),))
    assert [(row.id, row.group, row.recipe.model if row.recipe else "") for row in rows] == [
        ("two", Group.FILES, "Org/A"),
        ("b", Group.FILES, "Org/B"),
    ]
    (tmp_path / "r.yaml").write_text("model: [")
    [row] = given_rows((str(tmp_path / "r.yaml"),))
    assert row.problems


def test_a_secret_in_a_recipe_is_not_shown() -> None:
    held = launches.replace(QWEN, environment={"HF_TOKEN": "hf_abcdefghijklmnopqrstuvwxyz0123"})
    assert "hf_abc" not in plain(RecipeRow(id="x", recipe=held))


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("NVFP4 vllm", ["minimax-m2.7-nvfp4"]),
        ("^minimax vllm", ["minimax-m2.7-nvfp4"]),
        ("yours", ["mistral-small-4-119b-nvfp4", "my-broken"]),
        ("nothing of it", []),
    ],
)
async def test_words_are_looked_for_anywhere(typed: str, found: list[str]) -> None:
    async with launching() as (app, _, pilot):
        await pilot.press("L")
        await at(pilot, RecipesScreen)
        await pilot.press("slash", *typed)
        assert isinstance(app.screen, RecipesScreen)
        table = app.screen.table
        await until(pilot, lambda: [row.id for row in table.rows] == found, what=f"{found}")


def test_the_shipped_recipes_are_on_the_list_and_none_is_broken() -> None:
    found = {row.id: row for row in shelved(FleetState()) if row.origin is Origin.SHIPPED}
    assert {"gpt-oss-120b", "qwen3.6-35b-a3b-fp8", "minimax-m2.7-nvfp4"} <= set(found)
    for row in found.values():
        assert row.recipe is not None, row.problems
        assert row.recipe.title in plain(row, 400)


async def test_the_key_lists_the_recipes_and_a_row_leads_to_its_launch() -> None:
    async with launching() as (app, side, pilot):
        await pilot.press("L")
        await at(pilot, RecipesScreen, "recipes  5")
        text = screen(pilot)
        for wanted in ("gpt-oss-120b, stock vLLM", "✖ my-broken.yaml:7: defaults.prot", "48-53", "sglang", "1-2"):
            assert wanted in text
        assert side.asked == [], "looking at a list asks nothing of a node"
        await pilot.press("down", "down", "enter")
        await at(pilot, LaunchScreen, "✔ Fits")
        await pilot.press("escape")
        await at(pilot, RecipesScreen)
        table = app.screen.query_one("#recipe-table")
        assert "▌qwen3.6" in "\n".join(line.rstrip() for line in table.text().splitlines())  # type: ignore[attr-defined]
        assert "✔" in screen(pilot), "the verdict of this session stands in the list"
        await pilot.press("escape")
        await at(pilot, ConsoleScreen)
    assert [one.action for one in side.asked] == ["launch"]


async def test_why_recipes_lack_stands_above_the_detail() -> None:
    async with launching() as (app, _, pilot):
        app.acting.launching.unread = lambda: ("~/.config/sparktop/recipes can't be read (permission denied)",)
        await pilot.press("L")
        await at(pilot, RecipesScreen, "▲ ~/.config/sparktop/recipes can't be read (permission denied)")


async def test_a_filter_narrows_the_list_and_escape_ends_it_first() -> None:
    async with launching(size=NARROW) as (_, _, pilot):
        await pilot.press("L")
        await at(pilot, RecipesScreen)
        await pilot.press("slash", *"nvfp4")
        await until(pilot, lambda: "2 of 5" in screen(pilot))
        assert "gpt-oss" not in screen(pilot)
        await pilot.press("enter", "down")
        await until(pilot, lambda: "EAGLE" in screen(pilot), what="keys are the list's again")
        await pilot.press("escape")
        await until(pilot, lambda: "gpt-oss" in screen(pilot))
        await pilot.press("escape")
        await at(pilot, ConsoleScreen)


async def test_a_broken_recipe_says_what_is_wrong_and_is_not_launched() -> None:
    async with launching() as (app, side, pilot):
        await pilot.press("L")
        await at(pilot, RecipesScreen)
        await pilot.press("end")
        await until(pilot, lambda: "mods: not supported" in screen(pilot))
        assert "Enter launch" not in screen(pilot)
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, RecipesScreen)
        assert "can't be launched" in notified(app)
    assert side.asked == []


async def test_a_read_only_console_shows_recipes_and_says_why_nothing_is_launched() -> None:
    async with launching(size=NARROW, read_only=True) as (app, side, pilot):
        await pilot.press("L")
        await at(pilot, RecipesScreen, "read-only: this console changes nothing")
        assert "Enter launch" not in screen(pilot)
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, RecipesScreen)
        assert "nothing can be launched from here" in notified(app)
        assert screen(pilot).count("--read-only") == 1
    assert side.asked == []


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40), (200, 50)])
async def test_hostile_recipes_are_only_text(size: tuple[int, int]) -> None:
    async with launching(size=size, shelf=HOSTILE_SHELF) as (app, _, pilot):
        await pilot.press("L")
        await at(pilot, RecipesScreen, "a[/x] $(reboot)")
        for key in ("pagedown", "pagedown", "down", "up"):
            await pilot.press(key)
            lines = svg.plain(app)  # type: ignore[arg-type]
            assert len(lines) == size[1]
            assert max(map(len, lines)) <= size[0]
            assert not [char for line in lines for char in line if ord(char) < 32 or 0x7F <= ord(char) < 0xA0]
            assert "]52;" not in screen(pilot)
            assert "‮" not in screen(pilot)
    assert "\x1b" in HOSTILE


async def test_what_runs_here_stands_first_and_is_launched_where_it_runs() -> None:
    held = {"MY_TOKEN": "hf_canary0123456789"}
    mine = replace(QWEN, id="mine")
    runs = Adopted(name="mine", reading=Reading(recipe=mine), kind="container", secrets=held)
    rows = (
        RecipeRow(id="mine", recipe=mine, group=Group.RUNNING, node="spark2", adopted=runs),
        RecipeRow(id="other", problems=("compose.yaml:3: model: not known",), group=Group.FILES, node="spark1"),
    )

    async def here(fleet: FleetState) -> tuple[RecipeRow, ...]:
        return rows

    async with launching(size=NARROW, here=here) as (app, side, pilot):
        await pilot.press("L")
        await at(pilot, RecipesScreen, "running here")
        text = screen(pilot)
        assert text.index("running here") < text.index("▌mine") < text.index(" files") < text.index("other")
        table = app.screen.query_one(RecipeTable)
        assert [table.row_at(y) for y in range(5)] == [None, None, 0, None, 1]
        await pilot.press("enter")
        await at(pilot, LaunchScreen, "✔ Fits")
        assert "canary" not in screen(pilot)
    assert side.asked[-1].nodes == ("spark2",)
    assert side.asked[-1].order is not None
    assert dict(side.asked[-1].order.secrets) == held
