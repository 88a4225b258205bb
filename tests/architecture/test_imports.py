"""The layers hold: statically by the contracts, and at run time by what a front end really loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_contracts_are_kept() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        # Without a screen there is no Textual.
        ("sparktop.headless.status", ["textual"]),
        # The first paint waits for neither SSH nor Docker (facts/peers.md: both cost as much as the paint itself).
        ("sparktop.cli", ["textual", "asyncssh", "docker", "httpx", "yaml"]),
        ("sparktop.ui.app", ["asyncssh", "docker", "httpx", "prometheus_client"]),
        # Diagnosing is pure.
        ("sparktop.diagnose.kernel", ["asyncio", "textual", "asyncssh"]),
    ],
)
def test_what_a_module_loads(module: str, absent: list[str]) -> None:
    code = f"import sys, {module}; print(' '.join(name for name in {absent!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_no_module_has_grown_past_its_idea() -> None:
    limit = 450
    # The probe is one file because it travels as one.
    allowed = {"src/sparktop/probe/remote.py"}
    long = {
        str(path.relative_to(ROOT)): count
        for path in (ROOT / "src").rglob("*.py")
        if (count := path.read_text("utf-8").count("\n")) > limit
    }
    assert set(long) <= allowed, long
