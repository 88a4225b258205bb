"""A launch configuration of any content costs in step with its length, in calls of Python's functions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import pytest

from sparktop.diagnose.lint.catalogue import check
from sparktop.documents.finding import FindingView, listing, pages, short
from sparktop.errors import ConfigError
from sparktop.launchspec.read.commands import MAX_LAUNCHES
from sparktop.launchspec.read.configuration import read
from sparktop.masking import mask_text

CHARS = 8_000
MOST_CALLS = 130
"""Of Python's functions, for each character of a text: a million takes some tenth of a second."""
LAUNCH = "docker run --name v{} --gpus all vllm/vllm-openai:v0.32.0 --model Qwen/Qwen3-{}B\n"
TEXTS: dict[str, tuple[str, str, str]] = {
    "launches": ("", LAUNCH, ""),
    "comments": ("", "vllm serve m\n# c\n# d\n# e{}\n# f\n# g{}\n", ""),
    "a variable that doubles": ("", "A=$A$A\n", "vllm serve $A\n"),
    "a long variable, often": (f"A={'x' * 900}\nvllm serve ", "$A", "\n"),
    "an array that grows": ("", "A=(x $A)\n", 'vllm serve "${A[@]}"\n'),
    "flags": ("vllm serve m ", "--a{} b ", "\n"),
    "secrets": (
        "docker run ",
        "-e HF_TOKEN{}=hf_{}abcdefghij{}abcdefghijklmno ",
        "vllm/vllm-openai --model m\n",
    ),
    "variables": ("", "export A{}=b\n", "vllm serve m\n"),
    "Environment=": ("[Unit]\n[Service]\n", "Environment=A{}=b\n", "ExecStart=/usr/bin/vllm serve m $A1\n"),
    "a variable of a unit": (f"[Service]\nEnvironment=A={'x' * 900}\nExecStart=/b/vllm serve m ", "$A ", "\n"),
    "compose": ("services:\n", "  v{}:\n    image: vllm/vllm-openai\n    command: --model m{}\n", ""),
}


def text_of(kind: str, chars: int) -> str:
    head, row, tail = TEXTS[kind]
    rows, size = [], 0
    while size < chars - len(head):
        rows.append(row.replace("{}", str(len(rows))))
        size += len(rows[-1])
    return head + "".join(rows) + tail


def linted(text: str) -> None:
    findings = check(read(text, "f").specs, mask=mask_text)
    pages(findings, 100)
    listing(findings, 100, (), 0.0)
    for finding in findings:
        short(FindingView(finding=finding, findings=findings), 100, 20)


def calls_of(call: Callable[[], None]) -> int:
    calls = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("kind", TEXTS)
def test_twice_the_text_costs_twice_as_much(kind: str) -> None:
    linted(text_of(kind, 1000))  # tables are read once
    once, twice = (calls_of(partial(linted, text_of(kind, chars))) for chars in (CHARS // 2, CHARS))
    assert twice < 2.5 * once
    assert twice < MOST_CALLS * CHARS


@pytest.mark.parametrize("row", ["vllm serve m\n", "sh -c 'vllm serve m'\n", "docker run vllm/vllm-openai\n"])
def test_a_text_that_starts_too_many_engines_is_refused_at_once(row: str) -> None:
    assert len(read(row * MAX_LAUNCHES, "f").specs) == MAX_LAUNCHES
    with pytest.raises(ConfigError, match="too many engines"):
        read(row * (MAX_LAUNCHES + 1), "f")


def test_launches_with_too_many_values_together_are_refused() -> None:
    variables = "".join(f"export A{number}=b\n" for number in range(100))
    assert len(read(variables + "vllm serve m\n" * 190, "f").specs) == 190
    with pytest.raises(ConfigError, match="too many values"):
        read(variables + "vllm serve m\n" * 210, "f")


def test_a_line_with_very_many_secrets_is_masked_whole() -> None:
    shown = [
        line
        for finding in check(read(text_of("secrets", 4000), "f").specs, mask=mask_text)
        for line in finding.evidence
    ]
    assert shown
    assert not any("abcdefghij" in line.text for line in shown)
