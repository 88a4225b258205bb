"""The help: every command of the registry with its keys, at any width."""

from __future__ import annotations

import pytest
from tests.table import over
from tests.ui import svg
from tests.ui.log_stage import Stage
from textual import events
from textual.binding import Binding
from textual.widgets import Static

from sparktop.ui.commands import COMMANDS, keys_text
from sparktop.ui.dialogs.page import Body
from sparktop.ui.screens.help import DESCRIPTION_FROM, RECIPE_KEYS, HelpScreen, help_lines
from sparktop.ui.screens.launch import LaunchScreen
from sparktop.ui.screens.recipes import RecipesScreen

SHOWN = {
    "escape": "Esc",
    "ctrl+s": "Ctrl+S",
    "enter": "Enter",
    "enter,L": "Enter",
    "slash": "/",
    "pagedown": "PgDn",
    "pagedown,space": "PgDn",
    "pageup": "PgUp",
    "backspace,delete": "⌫",
    "y,c": "y, c",
}
"""A binding -> how the help names it; what moves a cursor, and closes, is told with the console's own."""


@over("width", [30, 52, DESCRIPTION_FROM, 100])
def test_every_command_is_there_with_its_keys(width: int) -> None:
    lines = help_lines(width)
    assert all(line.width <= width for line in lines)
    text = "\n".join(line.plain for line in lines)
    for command in COMMANDS:
        assert any(line.plain.startswith(keys_text(command)) and command.title in line.plain for line in lines)
        if width >= DESCRIPTION_FROM:
            assert command.description.split()[-1] in text


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40), (200, 50)])
@pytest.mark.parametrize("key", ["escape", "q", "question_mark"])
async def test_it_opens_scrolls_and_closes(size: tuple[int, int], key: str) -> None:
    stage = Stage(Static())
    async with stage.run_test(size=size) as pilot:
        stage.push_screen(HelpScreen())
        for _ in range(100):
            await pilot.pause(0.02)
            if "Help" in "\n".join(svg.plain(stage)):
                break
        assert COMMANDS[0].title in "\n".join(svg.plain(stage))
        await pilot.press("end")
        await pilot.pause()
        assert "n/a" in "\n".join(svg.plain(stage))
        await pilot.press("home")
        await pilot.pause()
        assert COMMANDS[0].title in "\n".join(svg.plain(stage))
        await pilot.press(key)
        await pilot.pause()
        assert not isinstance(stage.screen, HelpScreen)


def test_a_read_only_console_marks_the_keys_that_do_nothing_there() -> None:
    def line(title: str, *, read_only: bool) -> str:
        return next(one.plain for one in help_lines(120, read_only=read_only) if one.plain[11:].startswith(title))

    for title in ("Safe restart", "Drop caches", "Memory guard"):
        assert "Off, read-only" in line(title, read_only=True)
        assert "Off, read-only" not in line(title, read_only=False)
    for title in ("Fix", "Actions", "Last run", "Details"):
        assert "Off, read-only" not in line(title, read_only=True)
    assert any("Drop caches" in one.plain and "Off" in one.plain for one in help_lines(50, read_only=True))


async def test_the_wheel_scrolls_it_and_the_frame_says_where_it_stands() -> None:
    stage = Stage(Static())
    async with stage.run_test(size=(60, 20)) as pilot:
        stage.push_screen(HelpScreen())
        await pilot.pause()
        page = stage.screen.query_one(Body)
        first, rows = page.render_line(1).text, page.size.height
        assert next(y for y in range(rows) if "┃" in page.render_line(y).text) == 0
        page.post_message(
            events.MouseScrollDown(page, 1, 1, 0, 1, 0, shift=False, meta=False, ctrl=False, screen_x=1, screen_y=1)
        )
        await pilot.pause()
        assert page.render_line(1).text != first
        assert "\n".join(svg.plain(stage)).count("╭") == 1
        await pilot.press("end")
        assert [y for y in range(rows) if "┃" in page.render_line(y).text][-1] == rows - 1


async def test_what_is_painted_below_does_not_paint_it_again() -> None:
    below = Static("a")
    stage = Stage(below)
    async with stage.run_test(size=(80, 24)) as pilot:
        stage.push_screen(HelpScreen())
        await pilot.pause()
        assert stage.screen.styles.background.a == 1
        painted: list[object] = []
        stage._display = lambda screen, update: painted.append(update)  # type: ignore[method-assign]
        below.update("b")
        await pilot.pause()
        assert [update for update in painted if update is not None] == []
        del stage._display  # type: ignore[attr-defined]
        await pilot.press("escape")
        await pilot.pause()
        assert svg.plain(stage)[0].startswith("b"), "and it is there afterwards"


def test_where_recipes_are_chosen_their_keys_come_first() -> None:
    for width in (52, 76, 100):
        lines = [line.plain for line in help_lines(width, is_of_recipes=True)]
        assert lines[0] == "Recipes and their launch"
        assert len(lines) == len(help_lines(width))
        assert "Recipes and their launch" in [line.plain for line in help_lines(width)]


def test_the_keys_of_a_launch_are_those_that_its_screens_have() -> None:
    told = " ".join(keys for keys, _ in RECIPE_KEYS)
    for screen in (RecipesScreen, LaunchScreen):
        for binding in screen.BINDINGS:
            assert isinstance(binding, Binding)
            shown = SHOWN.get(binding.key, "")
            assert shown in told, binding
