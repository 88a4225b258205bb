"""What an earlier console has left half-way stands above everything until it is read, or all is as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.cutoff_support import NEW, NEW_ID, OLD, OLD_ID, launch, written
from tests.pictures_support import container
from tests.ui import pictures
from tests.ui.acting import NARROW, USUAL, acting, at
from tests.ui.look import clock_of_pictures
from tests.ui.operating import FakeOperating
from tests.ui.test_app import screen, until

from sparktop.model.fleet import FleetState
from sparktop.operate.audit.interrupted_runs import interrupted_runs
from sparktop.ui.console import ConsoleScreen
from sparktop.ui.screens.review import ReviewScreen
from sparktop.ui.screens.run import RunScreen


async def a_side(tmp_path: Path) -> FakeOperating:
    audit = await written(tmp_path, "gone", launch(title="Launch Qwen/Qwen3.6-35B-A3B-FP8 on spark1 (vLLM)"))
    side = FakeOperating()
    side.left = interrupted_runs(audit, is_under_way=lambda run: False, now_wall_s=audit[0]["wall_s"])
    return side


def now(status: str, policy: str = "no") -> FleetState:
    state = pictures.decode(clock_of_pictures())
    view = state.nodes[0]
    boxes = (
        container(OLD, container_id=OLD_ID, status=status, restart_policy=policy),
        container(NEW, container_id=NEW_ID, status="created", restart_policy="no"),
    )
    there = replace(view.containers, containers=(*view.containers.containers, *boxes[: 1 if policy != "no" else 2]))
    return replace(state, nodes=(replace(view, containers=replace(there, available=True)), *state.nodes[1:]))


@pytest.mark.parametrize("size", [NARROW, USUAL])
async def test_it_is_told_and_opened_and_its_way_back_reviewed(size: tuple[int, int], tmp_path: Path) -> None:
    side = await a_side(tmp_path)
    async with acting("decode", size, side) as (app, _, pilot):
        assert "cut off" not in screen(pilot), "nothing of it is to be seen in this picture"
        app.publish(now("exited"))
        await until(pilot, lambda: "cut off" in screen(pilot))
        assert side.was_read == []
        assert " ▲ cut off  vllm-old on spark1 is stopped; tiny on spark1" in screen(pilot)
        await pilot.press("o")
        await at(pilot, RunScreen, "vllm-old on spark1 is stopped")
        assert side.was_read == ["run-1"]
        assert "docker rm tiny; docker start" in screen(pilot)
        await pilot.press("b")
        await at(pilot, ReviewScreen, "Way back")
        await pilot.press("escape")
        await at(pilot, ConsoleScreen)
        app.publish(now("exited"))
        await pilot.pause()
        assert "cut off" not in screen(pilot), "it was read"


async def test_it_goes_when_all_is_as_it_was(tmp_path: Path) -> None:
    side = await a_side(tmp_path)
    async with acting("decode", USUAL, side) as (app, _, pilot):
        app.publish(now("exited"))
        await until(pilot, lambda: "cut off" in screen(pilot))
        app.publish(now("running", "on-failure"))
        await until(pilot, lambda: "cut off" not in screen(pilot))
        await pilot.press("o")
        await pilot.pause()
        assert isinstance(app.screen, ConsoleScreen), "there is nothing to open"
        assert side.was_read == []
