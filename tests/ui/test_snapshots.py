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
from tests.ui.test_app import ready

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
]


@pytest.fixture(autouse=True)
def _utc(utc: None) -> None:
    pass


@pytest.mark.parametrize(("picture", "size", "shade", "keys"), CASES)
async def test_the_screen_is_as_it_was(picture: str, size: tuple[int, int], shade: str, keys: str) -> None:
    file = FOLDER / f"{picture}-{size[0]}x{size[1]}-{shade}{'-' + keys if keys else ''}.svg"
    kept = file.read_text("utf-8") if file.is_file() else ""
    app, watch = console(picture, theme=f"sparktop-{shade}")
    async with app.run_test(size=size) as pilot:
        await ready(pilot, {"lost": "spark2 ● live", "no-gpu": "local ● live"}.get(picture, "spark1 ● live"))
        await pilot.press(*([keys] if keys else []))
        drawn, same = "", 0
        # Until it is as kept; else until it has long stood still, for on a busy machine panes come one after the other.
        for turn in range(200):
            await pilot.pause(0.05)
            if turn % 20 == 19:
                app.publish(watch.state)  # as a live watch does every second
            now = svg.picture(app)
            same = same + 1 if now == drawn else 0
            drawn = now
            if drawn == kept or same > 60:
                break
    if os.environ.get("SPARKTOP_UPDATE_SNAPSHOTS") == "1":
        file.parent.mkdir(exist_ok=True)
        file.write_text(drawn, "utf-8")
        return
    assert kept, f"{file.name} is missing: SPARKTOP_UPDATE_SNAPSHOTS=1 writes it"
    changes = difflib.unified_diff(kept.splitlines(), drawn.splitlines(), "kept", "drawn", lineterm="", n=0)
    assert drawn == kept, "\n".join([f"{file.name} is drawn otherwise now:", *list(changes)[:40]])
