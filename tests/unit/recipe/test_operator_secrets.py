"""The operator's secrets: which a recipe wants, where they are looked for, and what is never said of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.recipe_support import seat
from tests.table import over
from tests.unit.operate.launch.gates_support import World, hub

from sparktop.config import resource_dir
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Dialect, Order, Recipe, SecretProblem
from sparktop.recipe.container_spec import CannotRender
from sparktop.recipe.operator_secrets import (
    collect,
    env_files,
    env_path,
    names_required,
    names_used,
    read,
    read_secrets,
)
from sparktop.recipe.parameters import resolve
from sparktop.recipe.render.render import render
from sparktop.ui.dialogs.prompts import NamedSecret


def recipe(**environment: str) -> Recipe:
    return Recipe(id="x", path="x.yaml", dialect=Dialect.SPARKRUN, engine=EngineKind.VLLM, model="a/b", container="c",
                  environment=environment)  # fmt: skip


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text, "utf-8")
    path.chmod(mode)
    return path


def test_a_recipe_wants_what_its_environment_names_and_the_hubs_token() -> None:
    one = recipe(A="$MY_KEY", B="x ${OTHER} y", C="plain", D="{port}", E="$MY_KEY", F="${MAYBE_KEY:-}")
    assert names_used(one) == ("MY_KEY", "OTHER", "MAYBE_KEY", "VLLM_API_KEY", "HF_TOKEN")
    assert names_required(one) == ("MY_KEY", "OTHER")
    assert names_required(recipe()) == ()


def test_the_environment_wins_over_the_nearest_file_and_that_over_the_next(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    near = written(tmp_path / ".env", "A=near\nB=near\n")
    far = written(tmp_path / "own" / ".env", "B=far\nC='far # one'\nexport D=\"q\"\nE=v # note\nF=\n")
    got = collect(("A", "B", "C", "D", "E", "F", "G"), {"A": "here", "G": ""}, (near, far))
    assert got.values == {"A": "here", "B": "near", "C": "far # one", "D": "q", "E": "v"}
    assert got.sources["A"] == "from the environment"
    assert got.sources["B"] == f"from {near}"
    assert (got.sources["F"], got.sources["G"]) == ("", "")
    assert "near" not in repr(got).replace(str(near), "")


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """(the folder of the operator's own recipes, sparktop's own), and the current folder with a .env of its own."""
    own = tmp_path / "config" / "sparktop"
    (own / "recipes").mkdir(parents=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    written(elsewhere / ".env", "A=of-the-current-folder\nHF_TOKEN=of-the-current-folder\n")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("A", "HF_TOKEN", "VLLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return own / "recipes", own


def test_an_own_recipe_has_the_file_beside_it_and_then_sparktops(homes: tuple[Path, Path]) -> None:
    recipes, own = homes
    mine = written(recipes / "mine.yaml", "")
    assert env_files(str(mine)) == (recipes / ".env", own / ".env")
    assert env_files(str(mine), Path("named.env")) == (Path("named.env"),)
    written(own / ".env", "A=own\nHF_TOKEN=own\n")
    written(recipes / ".env", "A=beside\n")
    got = read_secrets(replace(recipe(X="$A"), path=str(mine)))
    assert got.values == {"A": "beside", "HF_TOKEN": "own"}


def test_what_would_do_names_the_file_where_it_is(homes: tuple[Path, Path]) -> None:
    named = str(homes[1] / ".env")
    assert env_path() == named
    assert named in "".join(str(line) for line in NamedSecret("X", use="").content(100))
    with pytest.raises(CannotRender) as cannot:
        render(resolve(Order(recipe=recipe(X="$A"))), [seat()])
    assert f"A=... to {named}" in cannot.value.remedies[0]
    world = World()
    world.asks_for(environment={"X": "$A"})
    assert f"chmod 600 {named}" in next(gate.remedy for gate in world.gates() if gate.name == "secrets")
    world.model_is_missing("spark1", "spark2", **hub(gated="manual"))
    assert any(f"HF_TOKEN=... in {named}" in gate.remedy for gate in world.gates() if gate.name == "hub")


def test_a_shipped_recipe_and_one_without_a_file_have_sparktops_alone(
    homes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, own = homes
    shipped = next(iter(sorted(resource_dir("recipes").glob("*.yaml"))))
    for path in (str(shipped), "", "gone.yaml"):
        assert env_files(path) == (own / ".env",)
    monkeypatch.chdir(shipped.parent)
    assert env_files(shipped.name) == (own / ".env",)


def test_the_current_folders_is_never_read_and_the_environment_wins(
    homes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_secrets(recipe(X="$A")).values == {}
    written(homes[1] / ".env", "A=own\n")
    assert read_secrets(recipe(X="$A")).given == set()
    assert read_secrets(recipe(X="$A"), named=homes[1] / ".env").given == {"A"}
    monkeypatch.setenv("A", "mine")
    got = read_secrets(recipe(X="$A"))
    assert (got.values, got.given) == ({"A": "mine"}, {"A"})


@over("mode", [0o644, 0o640, 0o604])
def test_a_file_that_others_can_read_is_not_read(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path / ".env", "HF_TOKEN=hunter2hunter2", mode)
    got = collect(("HF_TOKEN",), {}, (path,))
    assert got.values == {}
    text = f"{path} is readable by other users, so sparktop didn't read it: chmod 600 {path}"
    assert got.problems == (SecretProblem(text=text, remedy=f"chmod 600 {path}"),)
    assert "hunter2" not in repr(got)


def test_what_is_no_file_is_no_fault(tmp_path: Path) -> None:
    assert read(tmp_path / "none") == ({}, {}, None)
    assert str(tmp_path) in str(read(tmp_path)[2])
    large = written(tmp_path / "large", "A=" + "x" * 70_000)
    assert "larger" in str(read(large)[2])
    broken = tmp_path / "broken"
    broken.write_bytes(b"A=\xff")
    broken.chmod(0o600)
    assert read(broken)[::2] == (
        {},
        SecretProblem(text=f"{broken} is not UTF-8: sparktop didn't read it", remedy=f"ls -l {broken}"),
    )
    assert read(written(tmp_path / "odd", "no pair\n=x\nA=a\x1b]52;c\x07\nB=b"))[0] == {"B": "b"}


@over(
    "line, value",
    [
        ('A="a" # note', "a"),
        ("A='a b'", "a b"),
        ("A=a b # note", "a b"),
        ("A=a#b", "a#b"),
        ("A=# none", ""),
        ("export A=a", "a"),
        ("\ufeffA=a", "a"),
        ("A=a\r", "a"),
        ('A="it\'s # one"', "it's # one"),
        ("A=one\nA=two", "two"),
        ('A="unclosed\nA=two', "two"),
    ],
)
def test_a_line_is_read_as_a_shell_reads_it(tmp_path: Path, line: str, value: str) -> None:
    got = collect(("A",), {}, (written(tmp_path / ".env", f"{line}\n"),))
    assert (got.values.get("A", ""), got.problems) == (value, ())


@over(
    "line, said",
    [
        ('A="unclosed', "line 1: the value of A is not valid: its closing quote is missing or not at its end"),
        ("A='a'#x", "line 1: the value of A is not valid: its closing quote is missing or not at its end"),
        ("# a\nA: yaml", "line 2: the value of A is not valid: it is not NAME=value"),
        ("A=a\tb", "line 1: the value of A is not valid: it has a control character"),
    ],
)
def test_a_line_that_can_not_be_meant_is_told_where_it_is_wanted(tmp_path: Path, line: str, said: str) -> None:
    path = written(tmp_path / ".env", f'{line}\nOTHER="\n')
    got = collect(("A",), {}, (path,))
    assert (got.values, got.problems) == ({}, (SecretProblem(text=f"{path} {said}", name="A"),))
    assert collect(("B",), {}, (path,)).problems == ()
    assert collect(("A",), {"A": "here"}, (path,)).problems == ()


def test_a_value_of_the_environment_that_no_header_takes_is_told() -> None:
    got = collect(("A",), {"A": "key\n"}, ())
    assert got.values == {}
    text = "the environment: the value of A is not valid: it has a line break or another control character"
    assert got.problems == (SecretProblem(text=text, name="A"),)
