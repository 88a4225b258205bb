"""What a node keeps of runs: how many, for how long, how much, and whom it takes for at work."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from sparktop.probe.runner import notes


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = tmp_path / "sparktop/runs"
    made.mkdir(parents=True)
    return made


def left(folder: Path, run: str, text: str = "{}\n", *, ago_s: float = 0.0) -> Path:
    file = folder / f"{run}.jsonl"
    file.write_text(text)
    os.utime(file, (time.time() - ago_s,) * 2)
    return file


def runs() -> list[str]:
    return [one["run"] for one in notes.noted((), [])]


def test_forty_runs_are_kept_the_newest_and_none_for_over_thirty_days(folder: Path) -> None:
    for number in range(45):
        left(folder, f"r{number}", ago_s=60.0 * number)
    assert notes.note("new", "{}") == ""
    assert runs() == ["new", *(f"r{number}" for number in range(39))]
    for file in folder.iterdir():
        file.unlink()
    left(folder, "young", ago_s=30 * 86_400 - 60)
    left(folder, "old", ago_s=30 * 86_400 + 60)
    (folder / "other.txt").write_text("stays")
    assert notes.note("new", "{}") == ""
    assert runs() == ["new", "young"]
    assert (folder / "other.txt").exists()
    left(folder, "old", ago_s=31 * 86_400)
    assert notes.note("new", "{}") == ""
    assert "old" in runs(), "looked for only as a run begins"


def test_a_run_has_a_mebibyte_and_all_have_two(folder: Path) -> None:
    left(folder, "big", "x" * ((1 << 20) - 3) + "\n")
    assert notes.note("big", "a") == ""
    assert notes.note("big", "") == "its file has 1 MiB already"
    for number in range(3):
        left(folder, f"r{number}", "x" * ((1 << 20) - 1) + "\n", ago_s=number + 1)
    assert runs() == ["big", "r0"]


def test_a_link_in_a_note_s_place_is_neither_read_nor_written(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("secret\n")
    (folder / "link.jsonl").symlink_to(target)
    assert notes.note("link", "{}") != ""
    assert target.read_text() == "secret\n"
    assert runs() == []
    assert notes.note("own", "{}") == ""
    assert (folder / "own.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_run_whose_step_is_at_work_is_held(folder: Path, tmp_path: Path) -> None:
    left(folder, "run-1")
    journal = tmp_path / "journal"
    journal.mkdir()
    with (journal / "run-1.stop.step").open("w") as step:
        assert notes.noted((), [str(journal)])[0]["held"] is False
        fcntl.flock(step, fcntl.LOCK_EX)
        assert notes.noted((), [str(journal), str(tmp_path / "none")])[0]["held"] is True
