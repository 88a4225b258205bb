"""What rules say a relaunch should change: read from TOML, filled from the line, resolved for one engine and node."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.lint_support import only
from tests.table import over

from sparktop.cmdline.source import Document, Item
from sparktop.diagnose.lint.lint import Edit, edited, removed, renamed, replaced, with_flag, with_option
from sparktop.diagnose.logs.reader import LogReader
from sparktop.diagnose.logs.rule import parse, shipped
from sparktop.errors import ConfigError
from sparktop.launchspec.read.running import items_of, spec_of
from sparktop.launchspec.spec import Launcher, LaunchSpec, SourceKind
from sparktop.model.change import SMALLER_SHARE, Change
from sparktop.model.engine import EngineKind
from sparktop.model.finding import Remedy

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


@over(
    "change, said",
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


def _running() -> LaunchSpec:
    spec = spec_of(
        LaunchSpec(
            document=Document("argv of vllm @ spark1"),
            kind=SourceKind.RUNNING,
            launcher=Launcher.DOCKER,
            engine=EngineKind.VLLM,
            version="0.21.0",
            wrapper=("vllm", "serve", "m", "--x", "1", "--performance-mode", "throughput"),
            environment=tuple(items_of([("VLLM_Y", "0")])),
            image=Item(name="image", value="vllm:1"),
            has_container=True,
            options=tuple(items_of([("network", "host")])),
        )
    )
    assert spec is not None
    return spec


def _only(items: Sequence[Item], name: str) -> Item:
    return next(item for item in items if item.name == name)


def test_edits_of_what_runs_are_a_relaunch() -> None:
    spec = _running()
    x, mode = _only(spec.flags, "x"), _only(spec.flags, "performance-mode")
    variable = _only(spec.environment, "VLLM_Y")
    edit = removed(spec, mode) + replaced(spec, x, "2") + replaced(spec, variable, "a=b")
    remedy, other = edited((Remedy(title="go", steps=("last",)), Remedy(title="or not")), [edit])
    assert (remedy.action, remedy.steps) == ("relaunch", (*edit.lines, "last"))
    assert remedy.change == Change(flags={"--performance-mode": None, "--x": "2"}, environment={"VLLM_Y": "a=b"})
    assert other == Remedy(title="or not")
    assert with_flag(spec, "enforce-eager").change == Change(flags={"--enforce-eager": ""})
    assert renamed(spec, x, "--z 3").change == Change(flags={"--x": None, "--z": "3"})


def test_no_relaunch_where_it_can_not_make_every_edit() -> None:
    spec = _running()
    flag = with_flag(spec, "x", "2")
    for edit in (flag + Edit(("set it",)), flag + with_option(spec, "network", "host")):
        (remedy,) = edited((Remedy(title="go"),), [edit])
        assert (remedy.action, remedy.change) == (None, None)
    in_file = only("docker run vllm/vllm-openai:v0.21.0 m --x 1")
    assert with_flag(in_file, "y", "2").change is None, "a file is changed by hand"
