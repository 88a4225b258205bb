"""The screens as pictures, kept under snapshots/: what was looked at and found right.

SPARKTOP_UPDATE_SNAPSHOTS=1 writes them anew; look at them before committing (they are SVGs).
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import pytest
from tests.ui import svg
from tests.ui.look import console
from tests.ui.operating import FakeOperating
from tests.ui.pictures import FakeWatch
from tests.ui.test_app import ready
from textual.pilot import Pilot

from sparktop.ui.app import SparktopApp

FOLDER = Path(__file__).with_name("snapshots")
CASES = [
    ("decode", (80, 24), "dark", ""),
    ("decode", (120, 40), "dark", ""),
    ("decode", (200, 60), "dark", ""),
    ("memory-spike", (120, 40), "light", ""),
    ("spin-deadlock", (120, 40), "dark", "enter"),
    ("deadlock", (120, 40), "dark", ""),
    ("deadlock", (120, 40), "light", "d"),
    ("many", (80, 24), "dark", "A"),
    ("many", (120, 40), "light", "A"),
    ("well", (80, 24), "dark", ""),
    ("lost", (120, 40), "dark", ""),
    ("low", (60, 20), "dark", ""),
    ("no-gpu", (80, 24), "light", ""),
    ("deadlock", (80, 24), "dark", "R"),
    ("deadlock", (120, 40), "light", "R"),
    ("deadlock", (120, 40), "dark", "f"),
    ("deadlock", (80, 24), "dark", "f 2 1"),
    ("decode", (80, 24), "dark", "x"),
    ("decode", (120, 40), "dark", "x end enter enter"),
    ("decode", (80, 24), "light", "M"),
    ("decode", (80, 24), "dark", "R tab enter"),
    ("decode", (120, 40), "light", "R tab enter escape"),
]


async def settled(pilot: Pilot[int], watch: FakeWatch, kept: str) -> str:
    """The screen once it is as kept; else once it has long stood still, for on a busy machine panes come one by one."""
    app = pilot.app
    assert isinstance(app, SparktopApp)
    drawn, same = "", 0
    for turn in range(200):
        await pilot.pause(0.05)
        if turn % 20 == 19:
            app.publish(watch.state)  # as a live watch does every second
        now = svg.picture(app)
        same = same + 1 if now == drawn else 0
        drawn = now
        if drawn == kept or same > 60:
            break
    return drawn


def compare(file: Path, drawn: str) -> None:
    """With what is kept; SPARKTOP_UPDATE_SNAPSHOTS=1 keeps it instead."""
    if os.environ.get("SPARKTOP_UPDATE_SNAPSHOTS") == "1":
        file.parent.mkdir(exist_ok=True)
        file.write_text(drawn, "utf-8")
        return
    kept = kept_in(file)
    assert kept, f"{file.name} is missing: SPARKTOP_UPDATE_SNAPSHOTS=1 writes it"
    changes = difflib.unified_diff(kept.splitlines(), drawn.splitlines(), "kept", "drawn", lineterm="", n=0)
    assert drawn == kept, "\n".join([f"{file.name} is drawn otherwise now:", *list(changes)[:40]])


def kept_in(file: Path) -> str:
    return file.read_text("utf-8") if file.is_file() else ""


@pytest.mark.parametrize(("picture", "size", "shade", "keys"), CASES)
async def test_the_screen_is_as_it_was(picture: str, size: tuple[int, int], shade: str, keys: str) -> None:
    file = FOLDER / f"{picture}-{size[0]}x{size[1]}-{shade}{'-' + keys.replace(' ', '-') if keys else ''}.svg"
    side = FakeOperating()
    side.begins_at = (3, "available 96.4 of 108 GiB, rising 1.2 GiB/s, there in 0:10", 0.89)
    app, watch = console(picture, theme=f"sparktop-{shade}", operating=side)
    async with app.run_test(size=size) as pilot:
        await ready(pilot, {"lost": "spark2 ● live", "no-gpu": "local ● live"}.get(picture, "spark1 ● live"))
        for key in keys.split():
            await pilot.press(key)
            await pilot.pause(0.3)
        drawn = await settled(pilot, watch, kept_in(file))
    compare(file, drawn)
