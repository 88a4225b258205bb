"""Packing the runner: Python 3.10 and the standard library alone, one set of masking rules, no two names alike."""

from __future__ import annotations

import ast
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.test_probe_bundle import HEAVY, imported, without_typing

from sparktop.probe import bundle, remote, runner, runnerbundle

FOLDER = Path(runner.__file__).parent
SOURCES = ["runner.py", "runner_start.py", *(f"runner_{name}.py" for name in runnerbundle.PARTS if name != "runner")]


def names_of(tree: ast.Module) -> set[str]:
    """What a source defines at its top; what it imports elsewhere and types are left out."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found - {"TYPE_CHECKING", "Words"}


@pytest.mark.parametrize("name", SOURCES)
def test_it_is_python_3_10_and_the_standard_library_alone(name: str) -> None:
    tree = without_typing(ast.parse((FOLDER / name).read_text(), feature_version=(3, 10)))
    there = [node for node in tree.body if not (isinstance(node, ast.If) and "__name__" in ast.unparse(node.test))]
    found = imported(ast.Module(there, []))
    assert found <= sys.stdlib_module_names
    assert not found & HEAVY


def test_every_part_is_sent_and_no_two_share_a_name() -> None:
    assert sorted(path.name for path in FOLDER.glob("runner*.py")) == sorted([*SOURCES, "runnerbundle.py"])
    seen: dict[str, str] = {}
    texts = {name: (FOLDER / name).read_text() for name in SOURCES} | {"masking": runnerbundle.masking_source()}
    for source, text in texts.items():
        for name in names_of(ast.parse(text)):
            assert name not in seen, (name, source, seen[name])
            seen[name] = source


def test_what_masks_on_the_spark_is_what_masks_here() -> None:
    names: dict[str, object] = {"__name__": "sparktop_runner"}
    exec(runnerbundle.masking_source(), names)
    mask = names["mask_text"]
    assert callable(mask)
    text = "HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz --api-key x://u:p@h Bearer abcdefgh"
    assert mask(text) == remote.mask_text(text) != text


def test_docstrings_are_left_behind_and_nothing_else() -> None:
    def dumped(text: str) -> str:
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(body := getattr(node, "body", None), list):
                node.body = [one for one in body if not _is_constant(one)]  # type: ignore[attr-defined]
        return ast.dump(tree)

    for name in SOURCES:
        text = (FOLDER / name).read_text()
        sent = runnerbundle.bare(text)
        assert dumped(sent) == dumped(text)
        assert '"""' not in sent


def _is_constant(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def test_its_command_line_is_recognised_and_holds_no_probe_s() -> None:
    launch = runnerbundle.launch()
    command = shlex.join(launch.argv)
    found = runnerbundle.parse_command(command)
    assert found is not None
    assert (found.nonce, found.length, found.lease_s) == (launch.nonce, len(launch.payload), 30.0)
    assert bundle.parse_command(command) is None
    assert runnerbundle.parse_command(shlex.join(bundle.launch(interval_s=1.0).argv)) is None
    assert len(command) < 2000
    assert len(launch.payload) < 60_000


def test_a_damaged_payload_is_not_run() -> None:
    launch = runnerbundle.launch()
    payload = launch.payload[:-1] + bytes([launch.payload[-1] ^ 1])
    done = subprocess.run(launch.argv, input=payload, capture_output=True, check=False)
    assert done.returncode == bundle.CUT_EXIT
    assert b"the runner arrived damaged" in done.stderr
    assert done.stdout == b""


def test_its_memory_is_small(tmp_path: Path) -> None:
    """11 MB as Debian's python3 has it; the limit here allows for a Python that is built otherwise."""
    tmp_path.chmod(0o700)
    launch = runnerbundle.launch(state_folder=str(tmp_path))
    process = subprocess.Popen(launch.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(launch.payload)
        process.stdin.flush()
        assert process.stdout.readline() == f"SPARKTOP {launch.nonce}\n".encode()
        assert b'"hello"' in process.stdout.readline()
        status = Path(f"/proc/{process.pid}/status").read_text()
        own_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))
        assert own_kb < 6_000
        assert Path(f"/proc/{process.pid}/comm").read_text() == "sparktop-runner\n"
    finally:
        process.stdin.close()
        assert process.wait(10) == 0
        process.stdout.close()
