"""What docs/contributing.md names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "contributing.md").read_text("utf-8")
FILES = sorted(set(re.findall(r"`([a-z_]+(?:/[a-z_*{},.-]+)+)/?`", TEXT)))


@pytest.mark.parametrize("name", FILES)
def test_a_file_it_names_is_there(name: str) -> None:
    name = name.rstrip("/")
    assert any([*ROOT.glob(name), *(ROOT / "src" / "sparktop").glob(name)]), name
