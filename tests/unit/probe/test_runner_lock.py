"""The words in the node's lock file, which any user of the node may have written."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sparktop.probe.runner.journal import holder_words


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"who": "a", "since": 10**400}),
        json.dumps({"who": ["a"], "what": {"b": 1}, "since": -1, "token": 3}),
        '{"who":' + "[" * 900 + "]" * 900 + "}",
        "[" * 4000,
        '{"since": 1e999}',
        "",
    ],
)
def test_hostile_words_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "lock").write_text(text)
    lock = os.open(tmp_path / "lock", os.O_RDONLY)
    try:
        words: dict[str, Any] = holder_words(lock)
    finally:
        os.close(lock)
    assert words["since"] is None
    assert [type(words[key]) for key in ("who", "what", "token")] == [str] * 3
    assert json.loads(json.dumps(words, allow_nan=False)) == words
