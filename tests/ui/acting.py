"""What tests of acting share: a console whose operating side is a fake, and the way to a run's screen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.ui import claims, pictures
from tests.ui.look import clock_of_pictures, console
from tests.ui.operating import FakeOperating
from tests.ui.test_app import ready, screen, until
from textual.pilot import Pilot

from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState
from sparktop.ui.app import SparktopApp
from sparktop.ui.screens.review import ReviewScreen
from sparktop.ui.screens.run import RunScreen

NARROW, USUAL = (80, 24), (120, 40)


def each_size(first: tuple[int, int], *others: tuple[int, int]) -> list[Any]:
    """For `pytest.mark.parametrize`: `make test` tries the first, `make test-all` all."""
    return [first, *(pytest.param(size, marks=pytest.mark.slow) for size in others)]


@asynccontextmanager
async def acting(
    picture: str, size: tuple[int, int] = USUAL, side: FakeOperating | None = None, **more: Any
) -> AsyncIterator[tuple[SparktopApp, FakeOperating, Pilot[int]]]:
    """A console that shows this picture, ready for keys."""
    side = side or FakeOperating()
    app, _ = console(picture, operating=side, **more)
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        yield app, side, pilot


async def at(pilot: Pilot[int], kind: type, words: str = "") -> None:
    """Until such a screen is on top and says so."""
    await until(
        pilot, lambda: isinstance(pilot.app.screen, kind) and words in screen(pilot), what=f"{kind.__name__} {words}"
    )
    await pilot.pause()


async def open_run(pilot: Pilot[int]) -> None:
    """A safe restart under way, its screen on top."""
    await pilot.press("R")
    await at(pilot, ReviewScreen)
    await pilot.press("tab", "enter")
    await at(pilot, RunScreen)


def notified(app: SparktopApp) -> str:
    return "\n".join(note.message for note in app._notifications)


def with_finding(make: Callable[[float], Finding]) -> FleetState:
    clock = clock_of_pictures()
    return claims.with_findings(pictures.decode(clock), clock, make)
