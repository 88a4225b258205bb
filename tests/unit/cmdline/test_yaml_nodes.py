"""YAML that stands for more than it says: refused before anything walks or copies it, by every reader."""

from __future__ import annotations

import ast
import tracemalloc
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import sparktop
from sparktop.cmdline.source import Document
from sparktop.cmdline.yaml_nodes import (
    MAX_ALIASED,
    MAX_LEVELS,
    UnreadableYaml,
    get,
    pairs,
    root_of,
    scalar,
    values_of,
)
from sparktop.errors import ConfigError
from sparktop.launchspec.read.configuration import read
from sparktop.operate.relaunch.compose_override import NotInOverride, ours
from sparktop.operate.relaunch.compose_project import parsed

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)
MERGED = "a0: &a0 {k0: v}\n" + "".join(
    f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]\n  k{n}: v\n" for n in range(1, 10)
)
CIRCLE = "a: &a [1, *a]\n"
DEEP = "[" * (MAX_LEVELS + 1) + "]" * (MAX_LEVELS + 1)
HOSTILE = pytest.mark.parametrize("text", [BOMB, MERGED, CIRCLE, DEEP], ids=["aliases", "merges", "circle", "depth"])


@HOSTILE
def test_no_reader_expands_it(text: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="no YAML"):
            values_of(text)
        with pytest.raises(UnreadableYaml) as refused:
            root_of(Document("compose.yaml", text))
        assert refused.value.line >= 1
        assert parsed(text) is None
        with pytest.raises(NotInOverride):
            ours("# Written by sparktop\n" + text)
        with pytest.raises(ConfigError):
            read("services:\n  vllm:\n    image: vllm\n" + text, name="compose.yaml")
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()


def test_aliases_as_people_use_them_are_read() -> None:
    text = "x: &env {A: 1}\nservices:\n" + "".join(f"  s{n}:\n    environment: *env\n    <<: *env\n" for n in range(50))
    assert values_of(text)["services"]["s49"] == {"environment": {"A": 1}, "A": 1}
    assert root_of(Document("x", text)) is not None
    long = "\n".join(f"- {n}" for n in range(2 * MAX_ALIASED))
    assert len(values_of(long)) == 2 * MAX_ALIASED


@given(st.text(alphabet="abc:&*<>[]{}- \n|", max_size=120))
def test_any_text_is_read_or_refused(text: str) -> None:
    # PyYAML itself is asked only about what was let through: on `&a {<<: *a}` it takes all memory.
    try:
        values = values_of(text)
    except ValueError:
        return
    assert values == yaml.safe_load(text)


def test_a_key_of_its_own_wins_over_merged_ones_and_of_those_the_first() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc:\n  <<: [*a, *b]\n  z: 3\n"
    document = Document("t", text)
    found = {key.text: scalar(document, node) for key, node in pairs(get(root_of(document), "c"))}
    assert found == {key: str(value) for key, value in yaml.safe_load(text)["c"].items()}
    assert len(list(pairs(get(root_of(document), "c")))) == len(found)


def test_every_yaml_text_is_read_in_one_place() -> None:
    package = Path(sparktop.__file__).parent
    readers = {"load", "safe_load", "load_all", "safe_load_all", "full_load", "unsafe_load", "compose", "compose_all"}
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(text)) if "yaml." in (text := path.read_text()) else ():
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "yaml":
                assert node.attr not in readers, f"{path.name} reads YAML by itself"
