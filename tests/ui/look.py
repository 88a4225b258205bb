"""The console with a picture as an SVG, to look at it.

python -m tests.ui.look --size 120x40 --picture lost --theme sparktop-light out.svg
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.ui import svg
from tests.ui.operating import FakeOperating
from tests.ui.pictures import PICTURES, FakeWatch

from sparktop.clock import ManualClock
from sparktop.model.fleet import FleetState
from sparktop.ui.app import SparktopApp
from sparktop.ui.setup import Setup

Size = tuple[int, int]


def clock_of_pictures() -> ManualClock:
    """03:12:44 of a day in UTC."""
    return ManualClock(wall=1_779_937_964.0)


def console(
    picture: str | FleetState,
    *,
    theme: str = "sparktop-dark",
    clock: ManualClock | None = None,
    operating: FakeOperating | None = None,
    **more: Any,
) -> tuple[SparktopApp, FakeWatch]:
    """An app that shows one picture, by its name or as a fleet state of `clock`, and the Watch behind it.

    `operating` acts, where it is given.
    """
    clock = clock or clock_of_pictures()
    state = PICTURES[picture](clock) if isinstance(picture, str) else picture
    watch = FakeWatch(state)

    async def start(publish: Callable[..., None], prompter: object) -> FakeWatch:
        publish(state)
        return watch

    async def operate() -> FakeOperating:
        assert operating is not None
        return operating

    own = {name: more.pop(name) for name in ("greeting", "notifying", "is_ascii", "is_in_browser") if name in more}
    setup = Setup(
        start=start,
        node_names=tuple(view.name for view in state.nodes),
        clock=clock,
        operating=operate if operating is not None else None,
        **more,
    )
    app = SparktopApp(setup, theme=theme, **own)
    return app, watch


async def render(picture: str, size: Size, *, theme: str, keys: tuple[str, ...] = ()) -> str:
    """The SVG of one picture after some keys."""
    app, _ = console(picture, theme=theme, operating=FakeOperating())
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
            await pilot.pause(0.2)
        await pilot.pause()
        return svg.picture(app)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", default="120x40")
    parser.add_argument("--picture", default="decode", choices=sorted(PICTURES))
    parser.add_argument("--theme", default="sparktop-dark")
    parser.add_argument("--keys", default="", help="keys pressed first, separated by blanks")
    options = parser.parse_args()
    os.environ["TZ"] = "UTC"
    time.tzset()
    width, height = map(int, options.size.split("x"))
    keys = tuple(options.keys.split())
    drawn = asyncio.run(render(options.picture, (width, height), theme=options.theme, keys=keys))
    options.out.write_text(drawn, "utf-8")


if __name__ == "__main__":
    main()
