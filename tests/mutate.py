"""Mutates the modules that hold the doors, one change at a time, and prints what their own tests don't notice.

    make mutate                                  lists the doors
    make mutate ARGS=masking                     one door, all of its mutants
    make mutate ARGS="lock plan --limit 40"      some doors, 40 mutants of each, spread evenly
    make mutate ARGS="lock --lines 330-420"      of its modules' lines 330 to 420 alone: what was just changed

cosmic-ray makes the mutants: it changes the source text and runs any command, so that what is sent to a Spark as text
is mutated there too, and module constants are (mutmut wraps functions at import, and reaches neither). Many mutants
are the same fault in another dress, so one of each kind stands for them, and none is made in an annotation or above a
class. All of it happens in a copy of the tree. Survivors that change nothing are judged in docs/mutation.md.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 120.0
"""For the tests on one mutant: one that hangs is noticed."""


@dataclass(frozen=True)
class Door:
    """Modules, and the tests that hold them."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


DOORS = {
    "masking": Door(("masking.py",), ("unit/probe/test_masking.py",)),
    "secrets": Door(
        ("operate/secrets/masking.py", "operate/secrets/redaction.py"),
        ("unit/operate/test_masking.py", "unit/operate/test_redaction.py"),
    ),
    "sudo": Door(
        ("operate/secrets/sudo.py",), ("unit/operate/test_sudo.py", "unit/operate/machine", "unit/operate/restart")
    ),
    "bounds": Door(
        ("bounds.py",), ("unit/test_bounds.py", "unit/wire/test_decode.py", "unit/operate/runner/test_codec.py")
    ),
    "lock": Door(
        ("probe/runner/journal.py",),
        (*(f"unit/probe/test_runner_{name}.py" for name in ("lock", "fetch")), "unit/operate/runner/test_client.py"),
    ),
    "step": Door(
        ("probe/runner/step.py",),
        (
            *("unit/probe/test_runner_docker.py", "unit/operate/runner/test_client.py"),
            *("unit/probe/test_runner_sudo.py", "unit/probe/test_runner_fetch.py"),
        ),
    ),
    "ssh": Door(
        ("transport/ssh/config.py", "transport/ssh/connector.py", "transport/ssh/login.py"),
        (
            *(f"unit/transport/test_ssh_{name}.py" for name in ("config", "doors", "login", "stages")),
            *("integration/test_ssh_passwords.py", "integration/test_ssh_connect.py"),
        ),
    ),
    "host-keys": Door(
        ("transport/ssh/host_keys.py", "transport/ssh/host_identity.py"),
        tuple(f"unit/transport/test_ssh_{name}.py" for name in ("host_keys", "host_identity", "doors")),
    ),
    "plan": Door(
        ("operate/plan/start_steps.py", "operate/plan/stop_steps.py", "operate/plan/sequence.py"),
        (
            *("unit/operate/plan/test_start_steps.py", "unit/operate/restart"),
            *("unit/operate/relaunch/test_relaunch.py", "unit/operate/launch/test_launch.py"),
        ),
    ),
    "file": Door(
        ("operate/container/remote_file.py",),
        ("unit/operate/relaunch", "unit/operate/serve", "unit/operate/setup"),
    ),
    "notes": Door(
        ("probe/runner/notes.py", "operate/audit/elsewhere.py", "operate/run/node_notes.py"),
        ("unit/operate/run/test_node_notes.py", "unit/probe/test_runner_notes.py"),
    ),
    "loop": Door(("operate/restart/loop.py",), ("unit/operate/restart/test_loop.py",)),
    "interrupted": Door(
        ("operate/audit/interrupted_runs.py", "operate/audit/request_codec.py"), ("unit/operate/audit",)
    ),
}
_KINDS = re.compile(
    "core/(?:AddNot|Replace(?:TrueWithFalse|FalseWithTrue|AndWithOr|OrWithAnd|BreakWithContinue|ContinueWithBreak)"
    "|NumberReplacer|ExceptionReplacer|ZeroIterationForLoop|ReplaceUnaryOperator_\\w+"
    "|ReplaceBinaryOperator_(?:Add_Sub|Sub_Add|Mul_Div|Div_Mul|FloorDiv_Mul|Mod_Mul|BitOr_BitAnd|BitAnd_BitOr)"
    "|ReplaceComparisonOperator_(?:Eq_NotEq|NotEq_Eq|Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt|Is_IsNot|IsNot_Is|In_NotIn|NotIn_In))"
)
_COPIED = ("src", "tests", "styles", "recipes", "docs", "pyproject.toml", "README.md", "Makefile")
_CONFIG = """[cosmic-ray]
module-path = [{modules}]
timeout = {timeout}
test-command = {command!r}
[cosmic-ray.distributor]
name = "local"
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutate", usage='make mutate ARGS="DOOR ... [--limit N]"')
    parser.add_argument("doors", nargs="*", metavar="DOOR", choices=[*DOORS, []], help=", ".join(DOORS))
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="mutants of each door at most; 0: all")
    parser.add_argument("--lines", default="1-1000000", metavar="A-B", help="of these lines alone")
    options = parser.parse_args()
    first, _, last = options.lines.partition("-")
    for name in options.doors:
        _mutate(name, DOORS[name], options.limit, range(int(first), int(last or first) + 1))
    if not options.doors:
        for name, door in DOORS.items():
            print(f"{name:12} {' '.join(door.modules)}")
    return 0


def _mutate(name: str, door: Door, limit: int, lines: range) -> None:
    from cosmic_ray.work_db import WorkDB, use_db
    from cosmic_ray.work_item import WorkerOutcome, WorkResult

    with tempfile.TemporaryDirectory(prefix="sparktop-mutate-") as folder:
        copy = Path(folder)
        for part in _COPIED:
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, copy / part)
        modules = [f"src/sparktop/{module}" for module in door.modules]
        command = f"{sys.executable} -m pytest -x -q -n 0 -p no:cacheprovider " + " ".join(
            f"tests/{test}" for test in door.tests
        )
        (copy / "mutate.toml").write_text(
            _CONFIG.format(modules=", ".join(map(repr, modules)), timeout=LIMIT_S, command=command)
        )
        # The same inputs for each mutant; no byte code, as a mutant may be as long and as old as the last one.
        environment = os.environ | {"CI": "1", "PYTHONPATH": f"{copy}/src", "PYTHONDONTWRITEBYTECODE": "1"}

        def run(*argv: str) -> None:
            subprocess.run(argv, cwd=copy, env=environment, check=True, stdout=subprocess.DEVNULL)

        if subprocess.run(command.split(), cwd=copy, env=environment, stdout=subprocess.DEVNULL).returncode:
            sys.exit(f"{name}: its tests fail without a mutant: {command}")
        ray = str(Path(sys.executable).with_name("cosmic-ray"))
        run(ray, "init", "mutate.toml", "mutate.sqlite")
        with use_db(copy / "mutate.sqlite", WorkDB.Mode.open) as work:
            skipped = list(_skipped(copy, work.work_items, limit, lines))
            work.set_multiple_results(skipped, WorkResult(worker_outcome=WorkerOutcome.SKIPPED))
        run(ray, "exec", "mutate.toml", "mutate.sqlite")
        with use_db(copy / "mutate.sqlite", WorkDB.Mode.open) as work:
            items = {item.job_id: item for item in work.work_items}
            results = {job: result for job, result in work.results if result.worker_outcome != WorkerOutcome.SKIPPED}
        survivors = sorted(
            (str(items[job].mutations[0].module_path), items[job].mutations[0].start_pos, job, result.diff or "")
            for job, result in results.items()
            if result.test_outcome is not None and result.test_outcome.value == "survived"
        )
        for module, (line, _), _, diff in survivors:
            changed = [row for row in diff.splitlines() if row[:1] in "+-" and row[:3] not in ("+++", "---")]
            print(f"\n{module.removeprefix('src/sparktop/')}:{line}", *changed, sep="\n  ")
        print(f"\n{name}: {len(results) - len(survivors)} of {len(results)} mutants noticed\n", flush=True)


def _skipped(copy: Path, items: Sequence[Any], limit: int, lines: range) -> Iterator[str]:
    """The jobs that aren't run: elsewhere, in a type, another dress of the same fault, or beyond the limit."""
    wanted = []
    for item in items:
        mutation = item.mutations[0]
        begins = tuple(mutation.start_pos)
        is_typed = any(first <= begins < last for first, last in _annotations(copy / mutation.module_path))
        is_typed |= _at(copy / mutation.module_path, *begins) in ("*,", "/,")
        if _KINDS.fullmatch(mutation.operator_name) and not is_typed and begins[0] in lines:
            wanted.append(item.job_id)
        else:
            yield item.job_id
    if 0 < limit < len(wanted):
        chosen = {wanted[number * len(wanted) // limit] for number in range(limit)}
        yield from (job for job in wanted if job not in chosen)


def _at(module: Path, line: int, column: int) -> str:
    return module.read_text().splitlines()[line - 1][column : column + 2]


@cache
def _annotations(module: Path) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where types and dataclasses' settings stand, which no test notices: (line, column) of begin and end."""
    types: list[ast.expr | None] = []
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.arg | ast.AnnAssign):
            types.append(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            types.append(node.returns)
        elif isinstance(node, ast.ClassDef):
            types += node.decorator_list
    return [
        ((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)) for node in types if node
    ]


if __name__ == "__main__":
    sys.exit(main())
