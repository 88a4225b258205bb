"""The registry is the one list of what can be done: keys, palette, README."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.table import over
from textual.dom import DOMNode

from sparktop.ui.app import SparktopApp
from sparktop.ui.commands import COMMANDS, by_group, key_name, keys_text, readme_table
from sparktop.ui.console import ConsoleScreen
from sparktop.ui.panes.engines import EnginePane
from sparktop.ui.panes.findings import FindingsPane
from sparktop.ui.panes.kernel import KernelPane
from sparktop.ui.panes.log import LogPane
from sparktop.ui.panes.node import NodePane

HOLDERS: dict[str, type[DOMNode]] = {
    "app": SparktopApp,
    "console": ConsoleScreen,
    "findings": FindingsPane,
    "node": NodePane,
    "engines": EnginePane,
    "log": LogPane,
    "kernel": KernelPane,
}


def test_ids_are_distinct() -> None:
    assert max(Counter(command.id for command in COMMANDS).values()) == 1


@over("scope", HOLDERS)
def test_a_key_means_one_thing_in_one_place(scope: str) -> None:
    keys = Counter(key for command in COMMANDS if scope in command.scopes for key in command.keys)
    assert [key for key, count in keys.items() if count > 1] == []


@over("scope", HOLDERS)
def test_every_binding_is_in_the_registry(scope: str) -> None:
    own = vars(HOLDERS[scope])["BINDINGS"]
    known = {(key, command.action_in(scope)) for command in COMMANDS if scope in command.scopes for key in command.keys}
    bound = {(key, binding.action) for binding in own for key in binding.key.split(",")}
    assert bound == known


@over("scope", HOLDERS)
def test_every_command_can_be_run_where_it_is_bound(scope: str) -> None:
    for command in COMMANDS:
        if scope in command.scopes:
            assert hasattr(HOLDERS[scope], f"action_{command.action_in(scope).split('(')[0]}"), (scope, command.id)


def test_what_the_palette_and_the_footer_offer_works_from_anywhere() -> None:
    for command in COMMANDS:
        if command.in_palette or command.footer:
            assert {"app", "console", "findings"} & set(command.scopes), command.id


def test_upper_case_keys_are_for_what_changes_a_spark() -> None:
    """But for N, the search's, A, the findings', and F, which opens a port here. f, x, B and L lead to lists."""
    upper = {key: command for command in COMMANDS for key in command.keys if len(key) == 1 and key.isupper()}
    assert set(upper) == {"N", "A", "B", "D", "F", "R", "M", "L", "G", "T", "S"}
    assert {key for key, command in upper.items() if command.changes} == {"D", "R", "M"}
    by_lower = [command.id for command in COMMANDS if command.changes and command.keys[0].islower()]
    assert by_lower == ["shell"], "which changes nothing by itself"


def test_names_of_keys() -> None:
    assert [key_name(key) for key in ("question_mark", "f1", "ctrl+p", "shift+tab", "n", "N", "space")] == [
        "?", "F1", "Ctrl+P", "Shift+Tab", "n", "N", "Space",
    ]  # fmt: skip
    assert keys_text(COMMANDS[0]) == "?, F1"


def test_the_readme_has_the_table_as_the_registry_has_it() -> None:
    table = readme_table()
    told = [command for _, commands in by_group() for command in commands if command.scopes != ("replay",)]
    assert all(command.title in table for command in told)
    readme = Path(__file__).resolve().parents[2] / "README.md"
    text = readme.read_text("utf-8")
    kept = text.partition("<!-- keys -->")[2].partition("<!-- /keys -->")[0]
    assert kept.strip() == table.strip(), "`make readme` writes it anew"
