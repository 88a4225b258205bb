"""The dialogs a connection opens: trust a host key, give a secret; refusing and giving up are the easy ways."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest
from tests.table import over
from tests.ui import svg
from tests.ui.log_stage import Stage
from textual.app import App
from textual.widgets import Button, Input, Static

from sparktop.text.lines import Line
from sparktop.transport.base import HostKeyQuestion, SecretQuestion
from sparktop.ui.dialogs.dialog import Choice, ChooseScreen
from sparktop.ui.dialogs.prompts import HostKeyScreen, SecretScreen
from sparktop.ui.prompter import ConsolePrompter
from sparktop.ui.screens.help import HelpScreen

FINGERPRINT = "SHA256:uNiVztksCsDhcc0u9e8BrwoHHz39PzdkV0MUeYYdrTk"


def key_question(host: str = "spark1", *same: str) -> HostKeyQuestion:
    return HostKeyQuestion(
        host=host,
        algorithm="ssh-ed25519",
        fingerprint=FINGERPRINT,
        known_hosts_path=Path("/home/ada/.ssh/known_hosts"),
        same_key_hosts=same,
    )


def shown(app: App[None]) -> str:
    return "\n".join(svg.plain(app))


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40)])
async def test_a_new_host_shows_its_fingerprint_and_both_answers(size: tuple[int, int]) -> None:
    stage = Stage(Static())
    async with stage.run_test(size=size) as pilot:
        answer = asyncio.create_task(ConsolePrompter(stage).host_key(key_question("spark1", "spark2")))
        await svg.settle(pilot, lambda: isinstance(stage.screen, HostKeyScreen) and FINGERPRINT in shown(stage))
        text = shown(stage)
        for wanted in ("spark1", "ssh-ed25519", "spark2 presents the same key", "Trust and connect", "Refuse"):
            assert wanted in text
        assert isinstance(stage.focused, Button)
        assert stage.focused.id == "no"
        await pilot.press("down", "down", "down", "down", "down", "down", "down", "down")
        await svg.settle(pilot, lambda: "known_hosts" in shown(stage))
        assert not answer.done()
        await pilot.press("enter")
        assert await answer is False


@pytest.mark.parametrize(
    ("keys", "trusted"),
    [
        (("tab", "enter"), True),
        (("left", "enter"), True),
        (("enter",), False),
        (("escape",), False),
        (("r",), False),
        (("left", "right", "enter"), False),
    ],
)
async def test_trusting_takes_a_step(keys: tuple[str, ...], trusted: bool) -> None:
    stage = Stage(Static())
    async with stage.run_test(size=(80, 24)) as pilot:
        answer = asyncio.create_task(ConsolePrompter(stage).host_key(key_question()))
        await svg.settle(pilot, lambda: isinstance(stage.focused, Button))
        await pilot.press(*keys)
        assert await answer is trusted


@pytest.mark.parametrize("echo", [False, True])
async def test_a_secret_is_masked_unless_the_server_wants_it_seen(echo: bool) -> None:
    stage = Stage(Static())
    async with stage.run_test(size=(80, 24)) as pilot:
        question = SecretQuestion(host="spark1", prompt="Code [/x] for ada:", echo=echo)
        answer = asyncio.create_task(ConsolePrompter(stage).secret(question))
        await svg.settle(pilot, lambda: isinstance(stage.focused, Input) and "Code [/x] for ada:" in shown(stage))
        field = stage.screen.query_one(Input)
        await pilot.press(*"hunter2")
        await svg.settle(pilot, lambda: ("hunter2" if echo else "•" * 7) in shown(stage))
        assert ("hunter2" in shown(stage)) is echo
        await pilot.press("enter")
        assert await answer == "hunter2"
        assert field.value == "", "the dialog keeps nothing"


async def test_giving_up_is_an_answer_and_so_is_an_empty_one() -> None:
    stage = Stage(Static())
    async with stage.run_test(size=(80, 24)) as pilot:
        prompter = ConsolePrompter(stage)
        for key, wanted in (("escape", None), ("enter", "")):
            answer = asyncio.create_task(prompter.secret(SecretQuestion(host="spark1", prompt="Password:")))
            await svg.settle(pilot, lambda: isinstance(stage.focused, Input))
            await pilot.press(key)
            assert await answer == wanted
            await svg.settle(pilot, lambda: not isinstance(stage.screen, SecretScreen))


async def test_a_typed_secret_is_in_no_object_afterwards() -> None:
    stage = Stage(Static())
    async with stage.run_test(size=(80, 24)) as pilot:
        answer = asyncio.create_task(ConsolePrompter(stage).secret(SecretQuestion(host="spark1", prompt="Password:")))
        await svg.settle(pilot, lambda: isinstance(stage.focused, Input))
        await pilot.press(*"zq9x7w")
        await pilot.press("enter")
        assert await answer == "zq9x7w"
        del answer
        await svg.settle(pilot, lambda: not isinstance(stage.screen, SecretScreen))
        gc.collect()
        assert not [field for field in gc.get_objects() if isinstance(field, Input) and "zq9x7w" in field.value]


async def test_two_nodes_that_ask_at_once_are_asked_for_in_turn() -> None:
    stage = Stage(Static())
    async with stage.run_test(size=(80, 24)) as pilot:
        prompter = ConsolePrompter(stage)
        first = asyncio.create_task(prompter.host_key(key_question("spark1")))
        second = asyncio.create_task(prompter.secret(SecretQuestion(host="spark2", prompt="Password:")))
        await svg.settle(pilot, lambda: "new host  spark1" in shown(stage))
        assert len(stage.screen_stack) == 2
        await pilot.press("tab", "enter")
        assert await first is True
        await svg.settle(pilot, lambda: "log in  spark2" in shown(stage))
        await pilot.press("x", "enter")
        assert await second == "x"


async def test_a_question_nobody_waits_for_any_more_goes() -> None:
    stage = Stage(Static())
    async with stage.run_test(size=(80, 24)) as pilot:
        prompter = ConsolePrompter(stage)
        first = asyncio.create_task(prompter.host_key(key_question("spark1")))
        waiting = asyncio.create_task(prompter.host_key(key_question("spark2")))
        await svg.settle(pilot, lambda: "new host  spark1" in shown(stage))
        first.cancel()
        await svg.settle(pilot, lambda: "new host  spark2" in shown(stage))
        stage.push_screen(HelpScreen())
        await svg.settle(pilot, lambda: isinstance(stage.screen, HelpScreen))
        waiting.cancel()
        await asyncio.gather(first, waiting, return_exceptions=True)
        assert isinstance(stage.screen, HelpScreen), "what the operator reads stays"
        await pilot.press("escape")
        await svg.settle(pilot, lambda: len(stage.screen_stack) == 1)


async def chosen(*keys: str, count: int = 23) -> object:
    """What these keys choose among so many numbered rows; None: nothing yet."""
    answers: list[object] = []
    rows = [
        Choice(label=Line.of((f"row {number}", "")), value=number, heading="late" if number >= 20 else "")
        for number in range(1, count + 1)
    ]
    stage = Stage(Static())
    async with stage.run_test(size=(80, 24)) as pilot:
        stage.push_screen(ChooseScreen("many", rows), answers.append)
        await svg.settle(pilot, lambda: "row 1" in shown(stage))
        await pilot.press(*keys)
        await pilot.pause()
        assert answers or "slash" not in keys or "late" in shown(stage), "a group's heading is that of its first row"
    return answers[0] if answers else None


@over(
    "keys, wanted",
    [
        (("3",), 3),
        (("2",), None),
        (("2", "enter"), 2),
        (("1", "7"), 17),
        (("2", "3"), 23),
        (("2", "4"), 4),
        (("1", "down", "5"), 5),
        (("2", "escape"), None),
        (("0",), None),
        (("slash", *"w 2.", "enter"), None),
        (("slash", *"w 2.", "enter", "2"), 21),
        (("slash", *"W 2", "escape", "1", "1"), 11),
    ],
)
async def test_a_row_is_chosen_by_its_number_of_two_digits_or_found(keys: tuple[str, ...], wanted: int | None) -> None:
    assert await chosen(*keys) == wanted
