"""A pane that fails costs only itself: the others show the picture, and the console names the fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.ui.look import console
from tests.ui.test_app import ready, screen, until
from textual.pilot import Pilot

from sparktop.ui.panes.engines import EnginePane
from sparktop.ui.panes.findings import FindingsPane
from sparktop.ui.panes.header import Header
from sparktop.ui.panes.kernel import KernelPane
from sparktop.ui.panes.log import LogPane
from sparktop.ui.panes.node import NodePane
from sparktop.ui.panes.processes import ProcessPane
from sparktop.ui.panes.verdict import VerdictPane

SIZE = (160, 60)


def words(pilot: Pilot[int]) -> set[str]:
    return {word for word in ("ZeroDivisionError", "docker logs") if word in screen(pilot)}


def broken(*_: object, **__: object) -> Any:
    raise ZeroDivisionError("division by zero")


@pytest.mark.parametrize("pane", [Header, FindingsPane, EnginePane, KernelPane, ProcessPane, NodePane, VerdictPane])
async def test_a_pane_that_cannot_take_a_picture(pane: type, monkeypatch: pytest.MonkeyPatch) -> None:
    app, _ = console("spin-deadlock")
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        monkeypatch.setattr(pane, "show", broken)
        fleet = app.console_screen.fleet
        changed = replace(fleet, nodes=tuple(replace(node, name=node.name) for node in fleet.nodes))
        app.publish(changed)
        await until(pilot, lambda: app.console_screen.fleet is changed)
        await pilot.pause()
        assert app.is_running
        assert app.console_screen._failed
        if pane is not VerdictPane:
            await until(pilot, lambda: "a fault in sparktop itself" in screen(pilot), what="the fault's name")
        if pane is not NodePane:
            assert app.console_screen.nodes[0].view is changed.nodes[0]
        monkeypatch.undo()
        app.publish(fleet)
        await until(pilot, lambda: not app.console_screen._failed, what="the end of the fault")


@pytest.mark.parametrize("pane", [Header, EnginePane, NodePane, VerdictPane])
async def test_a_pane_that_cannot_be_drawn_says_so_in_its_place(pane: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pane, "draw", broken)
    app, _ = console("decode")
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: {"ZeroDivisionError", "docker logs"} <= words(pilot), what="the fault and the log")
        assert app.is_running


async def test_what_only_one_pane_needs_of_a_node_costs_the_other_node_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = NodePane.draw

    def draw(self: NodePane, width: int, height: int) -> Any:
        return broken() if self.node_name == "spark1" else whole(self, width, height)

    monkeypatch.setattr(NodePane, "draw", draw)
    app, _ = console("decode")
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: "a fault in sparktop itself" in screen(pilot), what="the fault")
        first, second = app.console_screen.nodes
        await until(pilot, lambda: "GiB" in second.text(), what="the other node")
        assert "ZeroDivisionError" in first.text()


async def test_a_log_that_cannot_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    app, watch = console("decode")
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        monkeypatch.setattr(LogPane, "show", broken)
        app.publish(replace(watch.state, notices=()))
        await until(pilot, lambda: "the pane log" in screen(pilot), what="the fault")
        assert app.is_running


async def test_a_key_whose_action_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    app, _ = console("decode")
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        monkeypatch.setattr(type(app.console_screen), "action_step_pane", broken)
        await pilot.press("tab")
        await until(pilot, lambda: app._notifications, what="the fault")
        assert ["a fault in sparktop itself" in notice.message for notice in app._notifications] == [True]
        assert app.is_running
