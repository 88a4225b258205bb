"""A compose file's service from the list to its review: who starts it, and by which command, stands on each page."""

from __future__ import annotations

import pytest
from tests.ui.acting import NARROW, at, each_size
from tests.ui.launches import USUAL, launching
from tests.ui.test_app import screen
from tests.ui.test_launch_screen import go_to, planned
from tests.unit.operate.launch.launch_support import COMPOSE_FILES, FOLDER, Sparks, composed

from sparktop.documents.recipe import Group, RecipeRow
from sparktop.model.request import Request
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.ui.screens.launch import LaunchScreen
from sparktop.ui.screens.recipes import RecipesScreen
from sparktop.ui.screens.review import ReviewScreen

RECIPE = composed()
UP = f"docker compose -f {FOLDER}/compose.yaml up -d --no-deps engine"


def answers(request: Request) -> Plan | Refusal:
    spot = Sparks()
    spot.files |= COMPOSE_FILES
    assert request.order is not None
    return spot.planned(request.order)


def words(text: str) -> str:
    """Without the frames and the line breaks of a page."""
    return " ".join(word for word in text.split() if word.strip("│┃▌▐█▲●"))


@pytest.mark.parametrize("size", each_size(NARROW, USUAL))
async def test_its_command_is_read_before_it_runs(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_canaryABCDEFGHIJKLMN")
    row = RecipeRow(id=RECIPE.id, recipe=RECIPE, path=RECIPE.path, group=Group.FILES, node="spark1")
    async with launching("idle", size, shelf=(row,), answers=answers) as (_, side, pilot):
        await pilot.press("L")
        await at(pilot, RecipesScreen, "started by")
        await pilot.press("enter")
        await at(pilot, LaunchScreen, "✔ Fits")
        await pilot.press("enter")
        await at(pilot, ReviewScreen, "✔ Fits")
        assert f"Runs `{UP}`" in words(screen(pilot)), screen(pilot)
        await pilot.press("escape")
        await at(pilot, LaunchScreen, "✔ Fits")
        await go_to(pilot, "max_model_len")
        await pilot.press("enter", *["backspace"] * 6, *"16384", "enter")
        await planned(pilot, side, 2)
        await pilot.press("home")
        await go_to(pilot, "Review and launch")
        await pilot.press("enter")
        await at(pilot, ReviewScreen, "✔ Fits")
        assert UP not in words(screen(pilot))
