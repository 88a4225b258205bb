"""The help: every command of the registry with its keys, at any width."""

from __future__ import annotations

import pytest
from tests.ui import svg
from tests.ui.log_stage import Stage
from textual.widgets import Static

from sparktop.ui.commands import COMMANDS, keys_text
from sparktop.ui.screens.help import DESCRIPTION_FROM, HelpScreen, help_lines


@pytest.mark.parametrize("width", [30, 52, DESCRIPTION_FROM, 100])
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
