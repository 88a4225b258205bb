"""The screens as pictures, kept under snapshots/: what was looked at and found right.

SPARKTOP_UPDATE_SNAPSHOTS=1 writes them anew; look at them before committing (they are SVGs).
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import pytest
from tests.ui import svg
from tests.ui.launches import launching
from tests.ui.look import console
from tests.ui.operating import FakeOperating
from tests.ui.pictures import FakeWatch
from tests.ui.test_app import ready
from textual.pilot import Pilot

from sparktop.ui.app import SparktopApp

FOLDER = Path(__file__).with_name("snapshots")
CASES = [
    ("decode", (120, 40), "dark", ""),
    ("decode", (200, 50), "dark", ""),
    ("decode", (120, 40), "dark", "3"),
    ("decode", (80, 24), "dark", "R tab enter"),
    ("memory-spike", (120, 40), "light", ""),
    ("guard-fired", (120, 40), "dark", ""),
    ("deadlock", (120, 40), "dark", ""),
    ("deadlock", (120, 40), "dark", "R"),
    ("deadlock", (80, 24), "none", ""),
    ("many", (80, 24), "light", "A"),
    ("five", (80, 24), "dark", ""),
]
"""Picture, size, theme ("none": without colours), keys."""


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
async def test_the_screen_is_as_it_was(
    picture: str, size: tuple[int, int], shade: str, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = FOLDER / f"{picture}-{size[0]}x{size[1]}-{shade}{'-' + keys.replace(' ', '-') if keys else ''}.svg"
    if shade == "none":
        monkeypatch.setenv("NO_COLOR", "1")
    side = FakeOperating()
    side.begins_at = (3, "available 96.4 of 108 GiB, rising 1.2 GiB/s, there in 0:10", 0.89)
    app, watch = console(picture, theme="sparktop-light" if shade == "light" else "sparktop-dark", operating=side)
    async with app.run_test(size=size) as pilot:
        await ready(pilot, {"five": "● 4 live"}.get(picture, "spark1 ● live"))
        for key in keys.split():
            await pilot.press(key)
            await pilot.pause(0.3)
        drawn = await settled(pilot, watch, kept_in(file))
    compare(file, drawn)


async def test_the_launch_page_is_as_it_was(utc: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HF_TOKEN", "VLLM_API_KEY", "HF_ENDPOINT"):  # no secret of who runs the tests
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    file = FOLDER / "launch-120x40-light.svg"
    async with launching(size=(120, 40), theme="sparktop-light") as (app, _, pilot):
        for key in ("L", "enter"):
            await pilot.press(key)
            await pilot.pause(0.3)
        watch = app.watch_running
        assert isinstance(watch, FakeWatch)
        drawn = await settled(pilot, watch, kept_in(file))
    compare(file, drawn)
