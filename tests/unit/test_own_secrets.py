"""The operator's secrets: which a recipe wants, where they are looked for, and what is never said of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Dialect, Recipe
from sparktop.recipe.ownsecrets import files, found, needed, read, wanted


def recipe(**environment: str) -> Recipe:
    return Recipe(id="x", path="x.yaml", dialect=Dialect.SPARKRUN, engine=EngineKind.VLLM, model="a/b", container="c",
                  environment=environment)  # fmt: skip


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text, "utf-8")
    path.chmod(mode)
    return path


def test_a_recipe_wants_what_its_environment_names_and_the_hubs_token() -> None:
    one = recipe(A="$MY_KEY", B="x ${OTHER} y", C="plain", D="{port}", E="$MY_KEY")
    assert wanted(one) == ("MY_KEY", "OTHER", "HF_TOKEN")
    assert needed(one) == ("MY_KEY", "OTHER")
    assert needed(recipe()) == ()


def test_the_environment_wins_over_the_nearest_file_and_that_over_the_next(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    near = written(tmp_path / ".env", "A=near\nB=near\n")
    far = written(tmp_path / "own" / ".env", "B=far\nC='far # one'\nexport D=\"q\"\nE=v # note\nF=\n")
    assert files(tmp_path / "own", tmp_path) == (near, far)
    got = found(("A", "B", "C", "D", "E", "F", "G"), {"A": "here", "G": ""}, (near, far))
    assert got.values == {"A": "here", "B": "near", "C": "far # one", "D": "q", "E": "v"}
    assert got.sources["A"] == "from the environment"
    assert got.sources["B"] == f"from {near}"
    assert got.missing == ("F", "G")
    assert "near" not in repr(got).replace(str(near), "")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_file_that_others_can_read_is_not_read(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path / ".env", "HF_TOKEN=hunter2hunter2", mode)
    got = found(("HF_TOKEN",), {}, (path,))
    assert got.values == {}
    assert got.problems == (f"{path} can be read by others, so it was not read: chmod 600 {path}",)
    assert "hunter2" not in repr(got)


def test_what_is_no_file_is_no_fault(tmp_path: Path) -> None:
    assert read(tmp_path / "none") == ({}, "")
    assert "is no file" in read(tmp_path)[1]
    large = written(tmp_path / "large", "A=" + "x" * 70_000)
    assert "larger" in read(large)[1]
    broken = tmp_path / "broken"
    broken.write_bytes(b"A=\xff")
    broken.chmod(0o600)
    assert read(broken) == ({}, f"{broken} could not be read (UnicodeDecodeError)")
    assert read(written(tmp_path / "odd", "no pair\n=x\nA=a\x1b]52;c\x07\nB=b"))[0] == {"B": "b"}
