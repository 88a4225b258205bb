"""What rules say a relaunch should change: read from TOML, filled from the line, resolved for one engine and node."""

from __future__ import annotations

import pytest

from sparktop.diagnose.logs.reader import LogReader
from sparktop.diagnose.logs.rules import parse, shipped
from sparktop.errors import ConfigError
from sparktop.model.change import SMALLER_SHARE, Change

RULE = """
[[rule]]
id = "test.rule"
title = "{name} went wrong"
severity = "warning"
any = ["went wrong"]
regex = '(?P<name>[A-Z_]+) went wrong, use (?P<value>\\d+)'
explanation = "It did."
examples = ["A_B went wrong, use 3"]
[[rule.remedy]]
title = "Change it"
action = "relaunch"
change = %s
"""


def test_a_change_is_said_for_one_engine_and_one_node() -> None:
    change = Change(
        flags={"--a": "1"},
        by_engine={"vllm": Change(flags={"--a": "2", "--b": ""}), "sglang": Change(environment={"C": None})},
        by_node={"spark2": Change(environment={"D": "4"})},
    )
    assert change.for_engine("vllm") == Change(flags={"--a": "2", "--b": ""})
    assert change.for_engine("sglang", "spark2") == Change(flags={"--a": "1"}, environment={"C": None, "D": "4"})
    assert SMALLER_SHARE.for_engine("other").is_empty


def test_groups_of_the_line_fill_names_and_values() -> None:
    text = RULE % '{ remove = ["{name}"], vllm = { flags = { "--limit" = "{value}" } } }'
    (rule,) = parse(text, "test.toml")
    reader = LogReader([rule])
    reader.feed("OLD_NAME went wrong, use 12")
    (finding,) = reader.findings("log")
    change = finding.remedies[0].change
    assert change is not None
    assert change.for_engine("vllm") == Change(environment={"OLD_NAME": None}, flags={"--limit": "12"})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ('{ flag = { "--a" = "1" } }', "unknown key `flag`"),
        ('{ flags = { "a" = "1" } }', "`a` is no flag"),
        ('{ flags = { "--a" = 1 } }', "wants a table of texts"),
        ('{ vllm = { sglang = { flags = { "--a" = "1" } } } }', "unknown key `sglang`"),
        ('["--a"]', "wants a table"),
    ],
)
def test_a_change_that_cannot_be_meant_is_told(change: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse(RULE % change, "test.toml")


def test_what_ships_changes_only_at_a_relaunch() -> None:
    changing = [remedy for rule in shipped() for remedy in rule.remedies if remedy.change is not None]
    assert len(changing) > 100
    assert {remedy.action for remedy in changing} == {"relaunch"}
    assert not [remedy.title for remedy in changing if remedy.change is None or remedy.change.is_empty]
