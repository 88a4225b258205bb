"""Keys that arrive in one read: no dialog is dismissed twice, and no fault shows a secret."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from tests.table import few
from tests.ui import operating, svg
from tests.ui.acting import acting, at
from tests.ui.look import console
from tests.ui.test_app import ready
from textual import events
from textual.keys import _character_to_key
from textual.pilot import Pilot
from textual.widgets import Input

from sparktop import faults
from sparktop.model.change import Change
from sparktop.model.request import Request
from sparktop.transport.base import HostKeyQuestion, SecretQuestion
from sparktop.ui.app import SparktopApp
from sparktop.ui.dialogs.prompts import HostKeyScreen, SecretScreen
from sparktop.ui.prompter import ConsolePrompter
from sparktop.ui.screens.change import ChangeScreen
from sparktop.ui.screens.review import ReviewScreen

SECRET = "sk-canary-4f2a9c77"


def type_at_once(pilot: Pilot[int], *keys: str) -> None:
    """Queue the keys as the terminal's driver does for one read: none is handled before the last is queued."""
    for key in keys:
        name = _character_to_key(key) if len(key) == 1 else key
        pilot.app.post_message(events.Key(name, key if len(key) == 1 else None))


async def handled(pilot: Pilot[int]) -> None:
    for _ in range(3):
        await pilot.pause()


@pytest.mark.parametrize("below", [(), ("question_mark",)])
async def test_a_secret_sent_with_a_double_enter_is_sent_once(below: tuple[str, ...]) -> None:
    async with acting("idle") as (app, _, pilot):
        await pilot.press(*below)
        screens = len(app.screen_stack)
        answer = asyncio.create_task(ConsolePrompter(app).secret(SecretQuestion(host="spark1", prompt="Password:")))
        await svg.settle(pilot, lambda: isinstance(app.focused, Input))
        type_at_once(pilot, *SECRET, "enter", "enter", "enter")
        assert await answer == SECRET
        await svg.settle(pilot, lambda: not isinstance(app.screen, SecretScreen))
        await handled(pilot)
        assert len(app.screen_stack) == screens
        assert app.is_running


async def test_a_host_key_is_refused_once() -> None:
    question = HostKeyQuestion(
        host="spark1", algorithm="ssh-ed25519", fingerprint="SHA256:x", known_hosts_path=Path("known_hosts")
    )
    async with acting("idle") as (app, _, pilot):
        await pilot.press("question_mark")
        answer = asyncio.create_task(ConsolePrompter(app).host_key(question))
        await at(pilot, HostKeyScreen)
        type_at_once(pilot, "r", "escape", "enter", "n")
        assert await answer is False
        await handled(pilot)
        assert app.is_running


OPENERS = ("f", "x", "R", "D", "L", "B", "M", "F", "d", "A", "e", "o", "T", "ctrl+p", "question_mark", "slash")
"""Keys of the console that open something."""


@pytest.mark.parametrize("closer", few(("enter", "escape", "1"), {"enter"}.__contains__))
async def test_what_a_key_opens_is_closed_once(closer: str) -> None:
    async with acting("memory-spike") as (app, _, pilot):
        for opener in OPENERS:
            await pilot.press(opener)
            await handled(pilot)
            type_at_once(pilot, closer, closer, closer)
            await handled(pilot)
            assert app._exception is None, opener
            while len(app.screen_stack) > 1:
                await pilot.press("escape")
        assert app.is_running


async def test_a_dialog_may_be_closed_before_it_is_composed() -> None:
    """It has no buttons then that could have the focus."""
    plan = operating.restart(Request(action="safe-restart", nodes=("spark1",), target="vllm"))
    async with acting("idle") as (app, _, pilot):
        for screen in (ReviewScreen(plan), ChangeScreen("change", Change(flags={"--enforce-eager": ""}))):
            app.push_screen(screen)
            app.pop_screen()
            await handled(pilot)
        assert app._exception is None


async def test_a_filter_is_left_once() -> None:
    async with acting("decode") as (app, _, pilot):
        await pilot.press("A", "slash", "x")
        await svg.settle(pilot, lambda: isinstance(app.focused, Input))
        type_at_once(pilot, "escape", "escape", "escape")
        await handled(pilot)
        assert app._exception is None


KEYS = (
    *(chr(code) for code in range(32, 127)),
    *("enter", "escape", "tab", "shift+tab", "up", "down", "left", "right", "pageup", "pagedown", "home", "end"),
    *("backspace", "delete", "ctrl+p", "ctrl+s", "ctrl+c", "f1"),
)


@pytest.mark.parametrize(
    ("seed", "count"), few([(0, 150), *((seed, 1000) for seed in range(1, 11))], {(0, 150)}.__contains__)
)
async def test_keys_in_random_chunks_end_nothing(
    seed: int, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seeds press 10,000 together; `Enter` and `Esc` come more often, as they open and close. Quitting is off."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(SparktopApp, "exit", lambda app, *results, **more: None)
    chance = random.Random(seed)
    keys = (*KEYS, *("enter", "escape") * 12)
    async with acting("memory-spike") as (app, _, pilot):
        pressed: list[str] = []
        while len(pressed) < count:
            chunk = chance.choices(keys, k=chance.randint(1, 8))
            pressed += chunk
            type_at_once(pilot, *chunk)
            await handled(pilot)
            assert app.is_running, pressed[-60:]
            assert app._exception is None, pressed[-60:]


async def fail_in_a_callback(app: SparktopApp, answer: str) -> None:
    async with app.run_test() as pilot:
        await ready(pilot)
        app.call_later(lambda typed: 1 / 0, answer)
        await handled(pilot)


async def test_a_fault_that_ends_the_console_shows_no_local_variable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faults.keep_in(tmp_path)
    app, _ = console("idle")
    with pytest.raises(ZeroDivisionError):
        await fail_in_a_callback(app, SECRET)
    shown = capsys.readouterr().err
    faults.keep_in(None)
    assert SECRET not in shown
    assert "lambda" not in shown, "no traceback"
    assert "ZeroDivisionError" in shown
    assert str(tmp_path / faults.LOG_NAME) in shown.replace("\n", "")
    assert "ZeroDivisionError" in (tmp_path / faults.LOG_NAME).read_text()
