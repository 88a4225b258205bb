"""What the stand-in engines write is what real ones wrote: each line has its like in a capture of the same version."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from sparktop.sim.spark import engine_start

CAPTURES = Path(__file__).parents[2] / "real" / "captures"
LINES = tomllib.loads(Path(engine_start.__file__).with_name("engine_lines.toml").read_text())
VERSIONS = {"vllm": "vllm-0.32.0", "sglang": "sglang-0.5.23"}
DEVICE = {"GPU KV": r"(?:CPU|GPU) KV", "cuda graph: ": "(?:cpu|cuda) graph: "}
"""Words that name the device, which these captures' machines don't have."""


def rows(*, is_gpu: bool) -> list[Any]:
    return [
        pytest.param(kind, text, id=f"{kind} {text[:60]}")
        for kind in VERSIONS
        for part in ("start", "stop", "died")
        for row in LINES[kind].get(part, ())
        if row.get("gpu", False) is is_gpu
        for text in row["text"].split("\n")
    ]


def pattern(text: str) -> re.Pattern[str]:
    """A line's form: what is filled in, and every number, may be anything."""
    plain = re.sub(r"\{\{", "{", re.sub(r"\}\}", "}", re.sub(r"(?<!\{)\{\w+[^}]*\}(?!\})|<\w+>", "\0", text)))
    plain = plain.rstrip("}")  # of a list that is longer
    form = re.sub(r"\d[\d.,]*", r"\\d[\\d.,]*", re.escape(plain)).replace("\0", ".*?")
    for word, either in DEVICE.items():
        form = form.replace(re.escape(word), either)
    return re.compile(form)


@pytest.mark.parametrize(("kind", "text"), rows(is_gpu=False))
def test_a_real_engine_of_that_version_wrote_it(kind: str, text: str) -> None:
    logs = [path.read_text() for path in (CAPTURES / VERSIONS[kind]).glob("*.log")]
    assert any(pattern(text).match(line) for log in logs for line in log.splitlines()), pattern(text).pattern


def test_what_only_a_gpu_writes_names_its_place_in_the_source() -> None:
    for kind, text in (row.values for row in rows(is_gpu=True)):
        assert kind == "sglang" or re.search(r"\[\w+\.py:\d+\]|Capturing CUDA graphs", text), text
