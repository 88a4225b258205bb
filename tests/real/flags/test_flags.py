"""The table and the captured readings against an engine's own parser.

SPARKTOP_VLLM_PYTHON and SPARKTOP_SGLANG_PYTHON name their interpreters; without, vLLM's is the one of `make real`.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.real.conftest import need
from tests.real.flags import dump
from tests.real.flags.table import PATH, dumped, wrong
from tests.real.parts import FOLDER

CASES = Path(__file__).parents[2] / "cases" / "engine_flags"


def interpreter(engine: str) -> list[str]:
    """The command of the Python that has this engine: the one named, or vLLM's as `make real` builds it."""
    named = os.environ.get(f"SPARKTOP_{engine.upper()}_PYTHON", "")
    if named:
        return [named]
    if engine == "sglang":
        pytest.skip("SPARKTOP_SGLANG_PYTHON names no interpreter that has SGLang")
    need("vllm")
    if os.geteuid() != 0:
        pytest.skip("entering vLLM's tree needs root")
    return [
        "chroot",
        str(FOLDER / "vllm"),
        "/usr/bin/env",
        "HOME=/tmp",
        "PYTHONDONTWRITEBYTECODE=1",
        "/opt/vllm/bin/python",
    ]


def asked(engine: str, given: str) -> dict[str, Any]:
    """What the installed engine's parser says."""
    argv = [*interpreter(engine), "-c", Path(dump.__file__).read_text(), engine]
    done = subprocess.run(argv, input=given, capture_output=True, text=True, cwd="/", check=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_table_is_what_the_engine_has(engine: str) -> None:
    dump_ = asked(engine, "")
    versions = dumped(PATH.read_text())[engine]
    if dump_["version"] not in versions:
        pytest.skip(
            f"the table has no {engine} {dump_['version']}: make engine-flags ENGINE={engine} ENGINE_PYTHON=..."
        )
    assert list(wrong(dump_, versions[dump_["version"]])) == []


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_captured_readings_are_what_the_engine_reads(engine: str) -> None:
    for path in CASES.glob(f"{engine}-*.json"):
        made = asked(engine, path.read_text())
        if made["version"] == json.loads(path.read_text())["version"]:
            assert made["readings"] == json.loads(path.read_text())["readings"]
            return
    pytest.skip(f"no readings of {engine} {made['version']} are captured")
