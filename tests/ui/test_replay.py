"""The console over a recording: it is moved by its keys, shows what the console showed, and does nothing to a Spark."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.ui.acting import at
from tests.ui.test_app import screen, until
from textual.pilot import Pilot
from textual.widgets import Input

from sparktop.cli.record import find, moment
from sparktop.errors import UsageError
from sparktop.observe.replay.player import Player
from sparktop.observe.watch import Publish, Watch
from sparktop.transport.base import Prompter
from sparktop.ui.replay import ReplayApp, timeline
from sparktop.ui.screens.recipes import RecipesScreen
from sparktop.ui.setup import Setup
from sparktop.ui.shell import replay_argv

TAPE = Path(__file__).parents[1] / "unit/record/version-1.tape.gz"
"""Forty seconds in which a memory spike begins, is found, and the node is lost."""
LENGTH_S = 40.0


@asynccontextmanager
async def replaying(size: tuple[int, int] = (120, 40)) -> AsyncIterator[tuple[Pilot[int], Player]]:
    taped = find([str(TAPE)], None)
    begin_s = taped.begin_s
    receivers: list[Publish] = []
    player = Player(
        taped.replay, begin_s=begin_s, end_s=begin_s + LENGTH_S, at_s=begin_s, publish=lambda one: receivers[0](one)
    )

    async def start(publish: Publish, _: Prompter) -> Watch:
        receivers.append(publish)
        return player

    app = ReplayApp(player, Setup(start=start, node_names=("spark1",), clock=player, title="replay: "))
    async with app.run_test(size=size) as pilot:
        player.pause()
        await until(pilot, lambda: player.playing.marked_until_s >= player.playing.end_s, what="the marks")
        yield pilot, player


def told(pilot: Pilot[int]) -> list[str]:
    return [notification.message for notification in pilot.app._notifications]


@pytest.mark.parametrize(
    "size", [(80, 24), *(pytest.param(size, marks=pytest.mark.slow) for size in ((120, 40), (200, 50)))]
)
async def test_the_next_problem_is_a_key_away(size: tuple[int, int]) -> None:
    async with replaying(size) as (pilot, player):
        await until(pilot, lambda: "✖" in screen(pilot).splitlines()[1], what="the marks on the line")
        await pilot.press("}")
        await until(pilot, lambda: "Stop vllm-gptoss now" in screen(pilot))
        first_s = player.wall()
        assert 5.0 < first_s - player.playing.begin_s < 20.0
        await pilot.press("}")
        await until(pilot, lambda: player.wall() > first_s and not player.playing.doing)
        await pilot.press("{")
        await until(pilot, lambda: abs(player.wall() - first_s) < 1.0)


async def test_it_plays_pauses_steps_and_changes_its_speed() -> None:
    async with replaying() as (pilot, player):
        at_s = player.wall()
        await pilot.press(".")
        await until(pilot, lambda: player.wall() - at_s >= 9.0)
        await pilot.press(",")
        await until(pilot, lambda: player.wall() - at_s <= 1.0)
        await pilot.press(">", ">", "space")
        await until(pilot, lambda: player.wall() - at_s > 5.0)
        await pilot.press("space")
        assert not player.playing.is_playing
        assert player.playing.speed == 15.0
        await pilot.press("<", "<", "<", "<")
        assert player.playing.speed == 0.25


async def test_it_does_nothing_to_a_spark() -> None:
    async with replaying() as (pilot, _):
        await pilot.press("}")
        await until(pilot, lambda: "Stop vllm-gptoss now" in screen(pilot))
        for key in ("R", "D", "M"):
            pilot.app.clear_notifications()
            await pilot.press(key)
            await until(pilot, lambda: told(pilot), what=f"the answer to {key}")
            assert told(pilot) == ["a replay reaches no Spark: nothing can be done here"]
        await pilot.press("L")
        await at(pilot, RecipesScreen, "a replay reaches no Spark")
        assert screen(pilot).count("nothing can be done here") == 1
        assert "--read-only" not in screen(pilot)


async def test_its_keys_are_letters_where_something_is_typed() -> None:
    async with replaying() as (pilot, player):
        at_s = player.wall()
        app = pilot.app
        assert isinstance(app, ReplayApp)
        await until(pilot, lambda: app.console_screen.bottom.kernel is not None)
        await pilot.press("4", "slash")
        await until(pilot, lambda: isinstance(app.focused, Input), what="the search line")
        await pilot.press("a", ".", "<", "{")
        await pilot.pause()
        assert "a.<{" in screen(pilot)
        assert player.wall() == at_s


async def test_the_console_opens_it_where_the_node_was_lost_or_where_it_begins(tmp_path: Path) -> None:
    folder = tmp_path / "spark1"
    folder.mkdir()
    shutil.copy(TAPE, folder / "20260528T202640Z-1.0000.tape.gz")
    begin_s = find([str(folder)], None).begin_s
    for wanted_s, opened_s in ((begin_s + 20.0, begin_s + 20.0), (begin_s - 500.0, begin_s + 1.0)):
        *_, at, opened = await replay_argv("spark1", tmp_path, wanted_s)
        assert opened == str(folder)
        assert moment(at, wanted_s) == pytest.approx(opened_s, abs=1.0)
    with pytest.raises(UsageError, match="nothing of spark9"):
        await replay_argv("spark9", tmp_path, begin_s)


async def test_an_event_that_is_cut_is_whole_a_key_away() -> None:
    async with replaying((80, 24)) as (pilot, _):
        await pilot.press("}")
        await until(pilot, lambda: "Stop vllm-gptoss now" in screen(pilot))
        await pilot.press("8")
        await until(pilot, lambda: "down 7.6 GiB in 3 s)" not in screen(pilot) and "7 events" in screen(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: "GiB in 3 s)" in " ".join(screen(pilot).split()))
        assert "memory.falling" in screen(pilot)


async def test_a_hole_between_recordings_is_left_open_on_the_line_and_not_waited_for() -> None:
    taped = find([str(TAPE)], None)
    begin_s = taped.begin_s
    player = Player(
        taped.replay,
        begin_s=begin_s,
        end_s=begin_s + LENGTH_S,
        at_s=begin_s,
        publish=lambda _: None,
        holes=((begin_s + 10.0, begin_s + 30.0),),
    )
    line = timeline(replace(player.playing, marked_until_s=begin_s + LENGTH_S), 20)
    assert line.plain == "●─────" + 9 * " " + "─────"
    player.change_speed(2)
    playing, seen = asyncio.create_task(player.run()), set[float]()
    while player.wall() < begin_s + 35.0:
        await asyncio.sleep(0.01)
        seen.add(round(player.wall() - begin_s))
    playing.cancel()
    assert len(seen & set(range(16, 30))) <= 4, "it goes through at once"
