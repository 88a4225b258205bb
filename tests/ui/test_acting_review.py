"""A plan before it is run: nothing is run but by its button, what is shown is masked, and a refusal says why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.ui import operating, pictures, svg
from tests.ui.acting import NARROW, USUAL, acting, at, each_size
from tests.ui.look import clock_of_pictures, console
from tests.ui.operating import FakeOperating
from tests.ui.test_app import ready, screen, until
from textual.widgets import Button, Input, TextArea

from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.step.run import RunState
from sparktop.transport.base import HostKeyQuestion
from sparktop.ui.console import ConsoleScreen
from sparktop.ui.dialogs.dialog import ChooseScreen
from sparktop.ui.dialogs.prompts import HostKeyScreen
from sparktop.ui.prompter import ConsolePrompter
from sparktop.ui.screens.change import ChangeScreen
from sparktop.ui.screens.review import RefusalScreen, ReviewScreen
from sparktop.ui.screens.run import RunScreen


@pytest.mark.parametrize("key", ["enter", "escape"])
async def test_a_review_shows_the_plan_and_its_cancel_has_the_focus(key: str) -> None:
    async with acting("deadlock") as (app, side, pilot):
        await pilot.press("R")
        await at(pilot, ReviewScreen, "Safe restart of vllm-minimax on spark1")
        text = screen(pilot)
        for wanted in (
            "▲ disruptive", "on spark1, at most 25 min", "down for some 5 minutes", "The 3 requests",
            "docker stop -t 60 3f1c9a04d2be", "Rollback, offered if a step fails",
        ):  # fmt: skip
            assert wanted in text
        assert text.index("Rollback") < text.index("▲ disruptive") < text.index("The 3 requests") < text.index("Run")
        await pilot.press("r")
        await until(pilot, lambda: "docker: POST /containers/3f1c9a04d2be/stop?t=60" in screen(pilot))
        await pilot.press("r")
        await until(pilot, lambda: "docker: POST" not in screen(pilot))
        assert isinstance(app.focused, Button)
        assert app.focused.id == "cancel"
        await pilot.press(key)
        await at(pilot, ConsoleScreen)
    assert side.executions == ()
    assert [one.action for one in side.asked] == ["safe-restart"]


@pytest.mark.parametrize(
    ("picture", "keys", "focused", "hint"),
    [("one", ["D"], "run", "Enter run   Esc"), ("deadlock", ["R"], "cancel", "Tab, Enter run   Esc")],
)
async def test_cancel_has_the_focus_only_where_something_can_be_lost(
    picture: str, keys: list[str], focused: str, hint: str
) -> None:
    async with acting(picture, NARROW) as (app, _, pilot):
        await pilot.press(*keys)
        await at(pilot, ReviewScreen, f"{hint} cancel")
        assert app.focused is not None
        assert app.focused.id == focused
        assert ("Tab, Enter run" in screen(pilot)) is (focused == "cancel")
        await pilot.press("escape")
        await at(pilot, ConsoleScreen)


@pytest.mark.parametrize("keys", [("tab", "enter"), ("right", "enter")])
async def test_running_takes_a_step(keys: tuple[str, ...]) -> None:
    async with acting("deadlock") as (_, side, pilot):
        await pilot.press("R")
        await at(pilot, ReviewScreen)
        await pilot.press(*keys)
        await at(pilot, RunScreen, "Stop vllm-minimax")
    assert len(side.executions) == 1


@pytest.mark.parametrize("size", each_size((60, 20), NARROW, USUAL, (200, 50)))
@pytest.mark.parametrize("make", [operating.restart, operating.reboot, operating.hostile])
async def test_every_plan_fits_with_its_answers_in_sight(size: tuple[int, int], make: Callable[..., Plan]) -> None:
    side = FakeOperating()
    side.answer = make
    app, _ = console("decode", operating=side)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app._state is not None and app.session_runs.operating is not None)
        await pilot.press("R")
        await at(pilot, ReviewScreen, "Cancel")
        for _ in range(12):
            lines = svg.plain(app)
            assert len(lines) == size[1]
            assert max(map(len, lines)) <= size[0]
            assert "Cancel" in lines[-2] or any("Cancel" in line and "Run" in line for line in lines)
            assert not [char for line in lines for char in line if ord(char) < 32 or 0x7F <= ord(char) < 0xA0]
            await pilot.press("pagedown")
        await pilot.pause()
        await pilot.press("escape")
        await at(pilot, ConsoleScreen)


@pytest.mark.parametrize("size", [NARROW, USUAL])
async def test_a_review_and_its_run_leave_memory_and_verdict_in_sight_as_they_change(size: tuple[int, int]) -> None:
    async with acting("deadlock", size) as (app, _, pilot):
        await pilot.press("R")
        await at(pilot, ReviewScreen, "✖ both")
        assert "45.4 GiB" in screen(pilot)
        assert "Spin dead" in screen(pilot)
        falling = pictures.PICTURES["memory-spike"](clock_of_pictures())
        app.publish(falling)
        await at(pilot, ReviewScreen, "empty in 0:07")
        assert "spark1 will be" in screen(pilot)
        await pilot.press("tab", "enter")
        await at(pilot, RunScreen, "empty in 0:07")
        app.publish(pictures.PICTURES["lost"](clock_of_pictures()))
        await at(pilot, RunScreen, "✖ lost")
        app.publish(pictures.PICTURES["idle"](clock_of_pictures()))
        await at(pilot, RunScreen, "nothing wrong")
        assert "107.2 GiB" in screen(pilot)


WARNINGS = tuple(
    f"{count} files in the writable layer of vllm-qwen36 on spark1 (/root/.cache/vllm/torch_compile_cache), not in the "
    f"new one; to keep them use docker commit, warning {count} ends here"
    for count in range(10)
)


async def test_the_warnings_stand_whole_above_the_buttons_of_a_small_terminal() -> None:
    side = FakeOperating()
    side.answer = lambda request: replace(operating.reboot(request), warnings=WARNINGS[:2])
    async with acting("decode", NARROW, side) as (_, _, pilot):
        await pilot.press("R")
        await at(pilot, ReviewScreen, "Run")
        text = " ".join(screen(pilot).replace("│", " ").split())
        assert "warning 0 ends here" in text
        assert "warning 1 ends here" in text
        assert "…" not in text


async def test_more_warnings_than_fit_are_whole_at_the_end_of_the_plan() -> None:
    side = FakeOperating()
    side.answer = lambda request: replace(operating.reboot(request), warnings=WARNINGS)
    async with acting("decode", NARROW, side) as (_, _, pilot):
        await pilot.press("R")
        await at(pilot, ReviewScreen, "whole at the end of the plan: PgDn")
        seen = ""
        for _ in range(80):
            await pilot.press("down")
            await pilot.pause()
            seen += " ".join(screen(pilot).replace("│", " ").replace("┃", " ").split())
        assert [f"warning {count} ends here" in seen for count in range(10)] == [True] * 10
        assert "Run" in screen(pilot)


async def test_text_of_a_plan_is_never_markup() -> None:
    side = FakeOperating()
    side.answer = operating.hostile
    app, _ = console("decode", operating=side)
    async with app.run_test(size=(200, 60)) as pilot:
        await ready(pilot)
        await pilot.press("R")
        await at(pilot, ReviewScreen, "a[/x] $(reboot)")
        assert "\x1b" not in screen(pilot)
        await pilot.press("tab", "enter")
        await at(pilot, RunScreen, "a[/x] $(reboot)")
        side.executions[0].at(0, operating.HOSTILE, 0.5)
        await pilot.press("escape")
        await until(pilot, lambda: "a[/x] $(reboot)" in svg.plain(app)[1])
        side.executions[0].end(RunState.FAILED, 0, message=operating.HOSTILE, hint=operating.HOSTILE)
        await pilot.pause()
        assert "]52;" not in screen(pilot)
        assert "‮" not in screen(pilot)


async def test_what_destroys_wants_the_nodes_name_typed() -> None:
    side = FakeOperating()
    side.answer = operating.reboot
    app, _ = console("decode", operating=side)
    async with app.run_test(size=NARROW) as pilot:
        await ready(pilot)
        await pilot.press("x")
        await at(pilot, ChooseScreen, "Safe restart")
        await pilot.press("end")
        await at(pilot, ChooseScreen, "Reboot")
        await pilot.press("enter")
        await at(pilot, ChooseScreen, "spark2")
        await pilot.press("enter")
        await at(pilot, ReviewScreen, "Type spark1")
        assert "✖ destructive" in screen(pilot)
        run = app.screen.query_one("#run", Button)
        assert isinstance(app.focused, Input)
        assert run.disabled
        await pilot.press(*"spark2", "enter")
        assert run.disabled
        assert isinstance(app.screen, ReviewScreen)
        await pilot.press("backspace", "1")
        assert not run.disabled
        await pilot.press("tab")
        assert app.focused is run, "Tab leads to what goes on, not to Cancel"
        await pilot.press("shift+tab", "enter")
        await at(pilot, RunScreen)
    assert len(side.executions) == 1


async def test_what_is_copied_and_shown_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    side = FakeOperating()
    copied: list[str] = []
    app, _ = console("decode", operating=side)
    monkeypatch.setattr(app, "copy_to_clipboard", copied.append)
    async with app.run_test(size=(160, 60)) as pilot:
        await ready(pilot)
        await pilot.press("x")
        await at(pilot, ChooseScreen, "Relaunch")
        await pilot.press("3")
        await at(pilot, ChangeScreen)
        app.screen.query_one(TextArea).text = "HF_TOKEN=hunter2hunter2\n--max-num-seqs=8"
        await until(pilot, lambda: "changes 1 flag, 1 variable" in screen(pilot))
        await pilot.press("ctrl+s")
        await at(pilot, ReviewScreen, "--api-key")
        assert "hunter2" not in screen(pilot)
        assert "+ --max-num-seqs=8" in screen(pilot)
        await pilot.press("y")
    assert copied
    assert "hunter2" not in copied[0]
    assert "--max-model-len 131072" in copied[0]
    assert side.asked[0].change.environment == {"HF_TOKEN": "hunter2hunter2"}


async def test_a_refusal_says_why_and_what_would_help(monkeypatch: pytest.MonkeyPatch) -> None:
    side = FakeOperating()
    side.answer = lambda request: Refusal(
        request=request, reason="no docker for ops", remedies=("sudo usermod -aG docker ops",)
    )
    copied: list[str] = []
    app, _ = console("decode", operating=side)
    monkeypatch.setattr(app, "copy_to_clipboard", copied.append)
    async with app.run_test(size=NARROW) as pilot:
        await ready(pilot)
        await pilot.press("R")
        await at(pilot, RefusalScreen, "✖ no docker for ops")
        assert "sudo usermod -aG docker ops" in screen(pilot)
        assert "Nothing was done." in screen(pilot)
        await pilot.press("y", "enter")
        await at(pilot, ConsoleScreen)
    assert copied == ["sudo usermod -aG docker ops"]


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (("question_mark",), "Memory guard"),
        (("f",), "Restart both ranks together"),
        (("x",), "Collect evidence"),
        (("d",), "spark1"),
        (("M",), "drops below a limit"),
        (("D",), "spark1 and spark2"),
    ],
)
async def test_what_a_dialog_says_is_copied(keys: tuple[str, ...], text: str) -> None:
    async with acting("deadlock") as (app, _, pilot):
        await pilot.press(*keys)
        await until(pilot, lambda: len(app.screen_stack) > 1, what="a dialog")
        app.screen.set_focus(None)  # an input takes the letter
        await pilot.press("y")
        await until(pilot, lambda: text in app.clipboard, what=text)


async def test_the_fingerprint_of_a_new_host_is_copied() -> None:
    question = HostKeyQuestion(
        host="spark1", algorithm="ssh-ed25519", fingerprint="SHA256:abc", known_hosts_path=Path("known_hosts")
    )
    async with acting("idle") as (app, _, pilot):
        asking = asyncio.create_task(ConsolePrompter(app).host_key(question))
        await at(pilot, HostKeyScreen)
        await pilot.press("y")
        await until(pilot, lambda: "SHA256:abc" in app.clipboard, what="the fingerprint")
        await pilot.press("escape")
        assert await asking is False


async def test_ctrl_z_stops_the_console_under_a_dialog_too(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[int] = []
    async with acting("deadlock") as (app, _, pilot):
        monkeypatch.setattr(app, "action_suspend_process", lambda: stopped.append(len(app.screen_stack)))
        await pilot.press("ctrl+z", "x")
        await at(pilot, ChooseScreen)
        await pilot.press("ctrl+z")
        await until(pilot, lambda: stopped == [1, 2], what="both")
