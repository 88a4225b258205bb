"""Recipes, launch, its review and its run as pictures, as `test_snapshots` keeps the others."""

from __future__ import annotations

import pytest
from tests.ui.launches import launching
from tests.ui.pictures import FakeWatch
from tests.ui.test_snapshots import FOLDER, compare, kept_in, settled

CASES = [
    ("recipes", "L", (80, 24), "dark"),
    ("recipes", "L", (120, 40), "light"),
    ("recipes", "L", (200, 50), "dark"),
    ("launch-short", "L enter", (80, 24), "dark"),
    ("launch-short", "L enter", (120, 40), "dark"),
    ("launch-short", "L enter", (200, 50), "light"),
    ("launch-fits", "L down down enter", (80, 24), "light"),
    ("launch-fits", "L down down enter", (120, 40), "dark"),
    ("launch-pair", "L down enter", (80, 24), "dark"),
    ("launch-pair", "L down enter", (120, 40), "light"),
    ("launch-editing", "L enter 1 down down down down down enter 8", (120, 40), "dark"),
    ("launch-review", "L down down enter enter", (120, 40), "dark"),
    ("launch-run", "L down down enter enter tab enter v", (80, 24), "dark"),
]


@pytest.fixture(autouse=True)
def _alone(utc: None, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No secret of who runs the tests."""
    for name in ("HF_TOKEN", "VLLM_API_KEY", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path_factory.mktemp("homes-state")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    monkeypatch.chdir(folder)


@pytest.mark.parametrize(("name", "keys", "size", "shade"), CASES)
async def test_the_screen_is_as_it_was(name: str, keys: str, size: tuple[int, int], shade: str) -> None:
    file = FOLDER / f"{name}-{size[0]}x{size[1]}-{shade}.svg"
    async with launching(size=size, theme=f"sparktop-{shade}") as (app, side, pilot):
        side.begins_at = (5, "loading 12 of 37 shards", 0.33)
        for key in keys.split():
            await pilot.press(key)
            await pilot.pause(0.3)
        watch = app.watch_running
        assert isinstance(watch, FakeWatch)
        drawn = await settled(pilot, watch, kept_in(file))
    compare(file, drawn)
