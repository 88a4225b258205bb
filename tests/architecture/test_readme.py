"""What the README and docs say is so: keys, commands, flags, files, actions and settings as the code has them."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from tests import bringup_page, man_page, rules_page
from tests.rule_symptoms import SYMPTOMS, patterns, symptom_of
from tests.table import over
from tests.ui.readme import README, with_table

import sparktop
from sparktop.cli import main
from sparktop.cli.commands import BY_NAME
from sparktop.config import CHANNELS, Config, load
from sparktop.diagnose.catalogue import cards
from sparktop.diagnose.lint import user_rules
from sparktop.diagnose.logs import rule as logrules
from sparktop.model.recipe import Expected, Need, Proof, Requirement
from sparktop.operate.actions import ACTIONS
from sparktop.recipe.read.extension import KEYS
from sparktop.recipe.read.shelf import Origin, entries
from sparktop.recipe.read.unsupported import IGNORED

ROOT = README.parent
TEXT = README.read_text("utf-8")
OPERATING = (ROOT / "docs/operating.md").read_text("utf-8")
PAGES = [README, ROOT / "recipes/README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def section(heading: str) -> str:
    """One section of docs/operating.md."""
    return re.split(r"^## ", OPERATING.split(f"\n## {heading}\n")[1], flags=re.MULTILINE)[0]


def first_cells(text: str) -> list[str]:
    """What stands in backticks in the first cell of each row of the tables."""
    rows = re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def test_the_table_of_keys_is_the_registrys() -> None:
    assert with_table(TEXT) == TEXT, "make readme"


def test_the_page_of_the_bring_up_is_its_checks() -> None:
    assert bringup_page.PAGE.read_text("utf-8") == bringup_page.page(), "make readme"


def test_the_readme_stays_short() -> None:
    assert len(TEXT.split()) < 1400, "the README sells and starts; the rest belongs in docs/"


def test_the_pages_of_rules_are_the_catalogues() -> None:
    made = rules_page.pages()
    assert {rules_page.INDEX, *rules_page.FOLDER.glob("*.md")} == set(made), "make readme"
    for path, text in made.items():
        assert path.read_text("utf-8") == text, f"{path.name}: make readme"


def test_the_man_page_is_that_of_the_commands() -> None:
    assert man_page.PAGE.read_text("utf-8") == man_page.page(), "make man"


def test_every_rule_is_on_exactly_one_page() -> None:
    known = [card.id for card in cards()]
    assert [rule for rule in known if symptom_of(rule) is None] == [], (
        "say in tests/rule_symptoms.py what is seen of it"
    )
    found = {rule: patterns(rule) for rule in known}
    assert [rule for rule, these in found.items() if len(these) > 1 and these[0][0] == these[1][0]] == []
    shown = [card.id for rules in rules_page.grouped(cards()).values() for card in rules]
    assert sorted(shown) == sorted(known)
    used = {these[0][1] for these in found.values()}
    assert [pattern for one in SYMPTOMS for pattern in one.rules if pattern not in used] == []


@over("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_linked_files_and_headings_are_there(page: Path) -> None:
    for target, _, heading in re.findall(r"\]\(([^)#:]*)(#([^)]+))?\)", page.read_text("utf-8")):
        linked = (page.parent / target).resolve() if target else page
        assert linked.exists(), target
        if heading and linked.suffix == ".md":
            assert heading in anchors(linked.read_text("utf-8")), f"{target}#{heading}"


def anchors(text: str) -> set[str]:
    """The headings as GitHub links to them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}


def test_the_index_of_operating_has_every_section() -> None:
    index = OPERATING.split("\n## ")[0]
    assert re.findall(r"^- \[(.+)\]\(#", index, re.MULTILINE) == re.findall(r"^## (.+)$", OPERATING, re.MULTILINE)


def test_every_make_target_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in set(re.findall(r"\bmake ([a-z]+)", TEXT)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


COMMANDS = [["--help"], *([name, "--help"] for name in BY_NAME if name != "console")]


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_explains_itself(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    assert "exit codes" in capsys.readouterr().out


def test_every_flag_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Those of commands in code, whole lines or words; engines' own stand after an equals sign, or in rules."""
    told = ""
    for words in COMMANDS:
        with pytest.raises(SystemExit):
            main(words)
        told += capsys.readouterr().out
    known = set(re.findall(r"--[a-z-]+", told))
    commands = [line for line in f"{TEXT}\n{OPERATING}".splitlines() if re.match(r"(\$ )?sparktop ", line)]
    flags = {flag for line in commands for flag in re.findall(r"(?<!=)--[a-z-]+", line)}
    flags |= set(re.findall(r"^\| `(--[a-z-]+)", section("Commands"), re.MULTILINE))
    assert len(flags) > 15
    assert flags <= known


def test_every_command_is_listed() -> None:
    listed = re.findall(r"^sparktop ([a-z]+)", section("Commands"), re.MULTILINE)
    assert set(listed) == {words[0] for words in COMMANDS[1:]}


def test_scenarios_and_recipes_that_are_named_exist() -> None:
    """The lists are the program's; the README and docs name at most ones that exist."""
    scenarios = {path.stem for path in (Path(sparktop.__file__).parent / "sim/scenarios").glob("*.toml")}
    recipes = {one.id for one in entries() if one.origin is Origin.SHIPPED}
    no_recipes = {"compose.yaml", "run.sh", "vllm"}  # files, and a container
    for text in (TEXT, OPERATING):
        assert set(re.findall(r"(?:sparktop demo |make demo ARGS=)([a-z-]+)", text)) <= scenarios
        assert set(re.findall(r"^(?:\$ )?sparktop launch ([a-z0-9.-]+) ", text, re.MULTILINE)) <= recipes | no_recipes


def test_the_actions_are_those_there_are() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (\w+) \|", section("Acting"), re.MULTILINE)
    assert sorted(rows) == sorted((one.name, one.risk.value) for one in ACTIONS)


def test_the_settings_are_those_there_are() -> None:
    told = first_cells(section("Configuration"))
    known = {one.name for one in fields(Config)} - {"docker_sockets"} | {"docker_socket"}
    assert set(told) - {"[host.NAME]"} == known
    assert {name.strip('"') for name in first_cells(section("Notifications"))} == set(CHANNELS)


def test_every_key_that_is_added_to_a_recipe_is_in_the_reference_and_no_other() -> None:
    page = (ROOT / "recipes/README.md").read_text("utf-8").split("## What sparktop adds")[1]
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
    page = (ROOT / "recipes/README.md").read_text("utf-8").split("## What sparktop adds")[0]
    assert [name for name in (*IGNORED, "builder_config", "runtime_cache") if f"`{name}`" not in page] == []


def test_the_settings_shown_can_be_read(tmp_path: Path) -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```", OPERATING, re.DOTALL | re.MULTILINE)
    shown = [block for block in blocks if "[[" not in block]
    assert len(shown) > 2
    for number, block in enumerate(shown):
        file = tmp_path / f"{number}.toml"
        file.write_text(block, "utf-8")
        assert load(file) != Config()


@pytest.mark.parametrize("kind", ["rule", "lint"])
def test_the_rules_of_the_docs_are_good_ones(kind: str, tmp_path: Path) -> None:
    rule = tmp_path / "rule.toml"
    rule.write_text(f"[[{kind}]]" + OPERATING.split(f"```toml\n[[{kind}]]")[1].split("```")[0], "utf-8")
    assert main(["rules", "check", str(rule)]) == 0


@pytest.mark.parametrize(("kind", "known"), [("rule", logrules._KNOWN), ("lint", user_rules._KNOWN)])
def test_every_key_of_a_rule_is_told(kind: str, known: tuple[str, ...]) -> None:
    table = section("Your own rules").split(f"| key of `[[{kind}]]` |")[1].split("\n\n")[0]
    assert sorted(first_cells(table)) == sorted(known)
