"""What docs/contributing.md names is there: the files, and where history is at hand the commits."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "contributing.md").read_text("utf-8")
FILES = sorted(set(re.findall(r"`([a-z_]+(?:/[a-z_*{},.-]+)+)/?`", TEXT)))
COMMITS = sorted(set(re.findall(r"\b[0-9a-f]{7}\b", TEXT)))


@pytest.mark.parametrize("name", FILES)
def test_a_file_it_names_is_there(name: str) -> None:
    name = name.rstrip("/")
    assert any([*ROOT.glob(name), *(ROOT / "src" / "sparktop").glob(name)]), name


def test_its_commits_are_in_the_history() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("no git history here: a tarball")
    shallow = subprocess.run(["git", "rev-parse", "--is-shallow-repository"], cwd=ROOT, capture_output=True, text=True)
    if shallow.stdout.strip() != "false":
        pytest.skip("the clone is shallow, or not to be asked: its history is not at hand")
    assert len(COMMITS) >= 7
    missing = [commit for commit in COMMITS if not _is_commit(commit)]
    if missing == COMMITS:
        pytest.skip("none of the commits is here: this history begins later")
    assert not missing


def _is_commit(name: str) -> bool:
    argv = ["git", "merge-base", "--is-ancestor", name, "HEAD"]
    return subprocess.run(argv, cwd=ROOT, capture_output=True).returncode == 0
