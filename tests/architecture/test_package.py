"""The wheel carries the style sheets and recipes, and the program in it runs without a checkout."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out], cwd=ROOT, check=True,
                   capture_output=True)  # fmt: skip
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_carries_styles_and_scenarios(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.startswith("sparktop/styles/") and name.endswith(".tcss") for name in names)
    assert any(name.startswith("sparktop/sim/scenarios/") and name.endswith(".toml") for name in names)
    assert any(name.startswith("sparktop/diagnose/") and name.endswith(".toml") for name in names)
    assert any(name.startswith("sparktop/headless/report/") and name.endswith(".html.j2") for name in names)
    assert any(name.endswith(".data/data/share/man/man1/sparktop.1") for name in names)
    assert not any(name.startswith("tests/") for name in names)


def test_the_installed_wheel_finds_its_files(wheel: Path, tmp_path: Path) -> None:
    unpacked = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(unpacked)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from sparktop.config import resource_dir; from sparktop.cli import main;"
        "assert resource_dir('styles').is_relative_to(sys.argv[1]); sys.exit(main(['demo', '--list']))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(unpacked)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "spin-deadlock" in done.stdout
