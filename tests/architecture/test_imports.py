"""The layers hold: statically by the contracts, and at run time by what a front end really loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import parsed

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
        # The first paint waits for neither SSH nor Docker (each costs as much as the paint itself).
        ("sparktop.cli", ["textual", "asyncssh", "docker", "httpx", "yaml"]),
        ("sparktop.ui.app", ["asyncssh", "docker", "httpx", "prometheus_client"]),
        # Diagnosing is pure.
        ("sparktop.diagnose.kernel.line", ["asyncio", "textual", "asyncssh"]),
    ],
)
def test_what_a_module_loads(module: str, absent: list[str]) -> None:
    code = f"import sys, {module}; print(' '.join(name for name in {absent!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_folder_can_be_looked_over() -> None:
    """Some 15 modules a folder; a module is one idea, however long."""
    counts: dict[str, int] = {}
    for path in (ROOT / "src").rglob("*.py"):
        if path.name != "__init__.py":
            folder = str(path.parent.relative_to(ROOT))
            counts[folder] = counts.get(folder, 0) + 1
    assert {folder: count for folder, count in counts.items() if count > 15} == {}


def test_each_room_says_what_belongs_there() -> None:
    """A folder's `__init__` is one docstring; two carry what must be there: the protocol, and the command line."""
    carrying = {"src/sparktop/__init__.py", "src/sparktop/wire/__init__.py", "src/sparktop/cli/__init__.py"}
    for path in (ROOT / "src").rglob("__init__.py"):
        body = parsed(path.read_text("utf-8")).body
        assert ast.get_docstring(ast.Module(body, [])), path
        assert len(body) == 1 or str(path.relative_to(ROOT)) in carrying, path
