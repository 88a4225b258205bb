"""What the README says is so: keys as registered, commands and flags that exist, files that are there."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from tests import rules_page
from tests.ui.readme import README, with_table

import sparktop
from sparktop.cli import main
from sparktop.model.recipe import Expected, Need, Proof, Requirement
from sparktop.recipe.extension import KEYS
from sparktop.recipe.unsupported import IGNORED

TEXT = README.read_text("utf-8")


def test_the_table_of_keys_is_the_registrys() -> None:
    assert with_table(TEXT) == TEXT, "make readme"


def test_the_page_of_rules_is_the_catalogues() -> None:
    assert rules_page.PAGE.read_text("utf-8") == rules_page.page(), "make readme"


def test_linked_files_are_there() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", TEXT):
        assert (README.parent / target).exists(), target


def test_every_make_target_is_there() -> None:
    makefile = (README.parent / "Makefile").read_text("utf-8")
    for target in set(re.findall(r"\bmake ([a-z]+)", TEXT)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


COMMANDS = [
    ["--help"],
    *([name, "--help"] for name in ("demo", "status", "act", "audit", "explain", "launch", "lint", "recipes", "rules")),
]


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_explains_itself(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    assert "exit codes" in capsys.readouterr().out


def test_every_flag_of_the_readme_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    told = ""
    for words in COMMANDS:
        with pytest.raises(SystemExit):
            main(words)
        told += capsys.readouterr().out
    commands = TEXT.split("## Commands")[1].split("## Keys")[0]
    for flag in set(re.findall(r"--[a-z-]+", commands)):
        assert flag in told, flag


def test_the_readme_lists_every_scenario_by_command_only() -> None:
    """The list is the program's; the README names at most ones that exist."""
    names = {path.stem for path in (Path(sparktop.__file__).parent / "sim/scenarios").glob("*.toml")}
    for name in re.findall(r"--scenario ([a-z-]+)", TEXT):
        assert name in names


def test_every_key_that_is_added_to_a_recipe_is_in_the_reference_and_no_other() -> None:
    page = (README.parent / "recipes/README.md").read_text("utf-8").split("## What sparktop adds")[1]
    told = set()
    for row in re.findall(r"^\| (`.+?) \|", page, re.MULTILINE):
        parts = re.findall(r"`([a-z_.]+)`", row)
        section = parts[0].partition(".")[0]
        told |= {f"{section}{one}" if one.startswith(".") else one for one in parts}
    sections = {
        "need": Need, "requires": Requirement, "expected": Expected, "smoke_test": Proof,
    }  # fmt: skip
    for name, made in sections.items():
        known = {each.name.removeprefix("is_") for each in fields(made)} - {"ready_limit_s"}
        assert {one.partition(".")[2] for one in told if one.startswith(f"{name}.")} == known, name
    assert {one.partition(".")[0] for one in told} == set(KEYS)


def test_every_field_of_a_recipe_that_changes_nothing_is_told_of() -> None:
    page = (README.parent / "recipes/README.md").read_text("utf-8").split("## What sparktop adds")[0]
    assert [name for name in (*IGNORED, "builder_config", "runtime_cache") if f"`{name}`" not in page] == []


def test_the_rule_of_the_readme_is_a_good_one(tmp_path: Path) -> None:
    rule = tmp_path / "rule.toml"
    rule.write_text(TEXT.split("```toml\n[[rule]]")[1].split("```")[0].join(["[[rule]]", ""]), "utf-8")
    assert main(["rules", "check", str(rule)]) == 0
