"""Golden files that are kept as differences: they come back whole, and stay so when another file changes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests import golden
from tests.table import over

BASE = [f"line {index}" for index in range(20)]
NEAR = ["own", *BASE[4:9], *BASE[:12], "own", *BASE[4:9], "= 1-3", "+", "^ 2-2"]


@pytest.fixture
def cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(golden, "CASES", tmp_path)
    monkeypatch.setenv("SPARKTOP_GOLDENS", "write")
    golden.compare("plans/base", "\n".join(BASE))
    golden.compare("plans/launch/near", "\n".join(NEAR))
    monkeypatch.delenv("SPARKTOP_GOLDENS")
    return tmp_path


def test_what_is_near_a_whole_one_is_kept_as_its_difference(cases: Path) -> None:
    assert (cases / "plans/base.txt").read_text().splitlines() == BASE
    kept = (cases / "plans/launch/near.txt").read_text().splitlines()
    assert kept[:4] == ["like: base", "+own", "= 5-9", "= 1-12"]
    assert len(kept) < len(NEAR) / 2
    assert golden.whole("plans/launch/near").split("\n") == NEAR
    golden.compare("plans/launch/near", "\n".join(NEAR))


def test_what_differs_is_shown_against_the_whole(cases: Path) -> None:
    with pytest.raises(pytest.fail.Exception) as failure:
        golden.compare("plans/launch/near", "\n".join(NEAR[:-3]))
    shown = str(failure.value).splitlines()
    assert shown[-6:] == [*(f" {line}" for line in NEAR[-6:-3]), "-= 1-3", "-+", "-^ 2-2"]
    with pytest.raises(pytest.fail.Exception):
        golden.compare("plans/new", "one")


def test_a_whole_one_that_changes_leaves_what_was_written_as_its_difference(
    cases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARKTOP_GOLDENS", "write")
    golden.compare("plans/base", "\n".join(["first", *BASE[:7], *BASE[9:]]))
    assert golden.whole("plans/launch/near").split("\n") == NEAR


@over("seed", range(20))
def test_any_text_comes_back(seed: int) -> None:
    draw = random.Random(seed)
    base, text = (draw.choices("abc", k=draw.randrange(1, 40)) for _ in range(2))
    assert golden._applied(golden._difference(text, base), base) == text
