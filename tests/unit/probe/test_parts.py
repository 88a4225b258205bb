"""What a part of the probe or the runner must be: Python 3.10, the standard library, and at home among the others."""

from __future__ import annotations

import ast
import subprocess
import sys
import zlib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop import masking
from sparktop.probe import bundle, remote, runner
from sparktop.probe.remote.children import LATER_PARTS, unpack
from sparktop.probe.runner.main import FETCH_PARTS, QUESTION_PARTS, STEP_PARTS

MASKING = Path(masking.__file__)
FOLDERS = {"probe": Path(remote.__file__).parent, "runner": Path(runner.__file__).parent}
PACKAGES = {"probe": "sparktop.probe.remote", "runner": "sparktop.probe.runner"}
PARTS = {
    "probe": (*bundle.PROBE_START, *bundle.PROBE_LATER),
    "runner": (*bundle.RUNNER_START, *bundle.RUNNER_LATER),
}
LOADED: dict[tuple[bundle.Program, str], tuple[str, ...]] = {
    ("probe", "main process"): bundle.PROBE_START,
    **{("probe", name): (*bundle.PROBE_START, *parts) for name, parts in LATER_PARTS.items()},
    ("runner", "main process"): (*bundle.RUNNER_START, "journal", "main"),
    ("runner", "question"): (*bundle.RUNNER_START, "journal", "main", *QUESTION_PARTS),
    ("runner", "step"): (*bundle.RUNNER_START, "journal", "main", *STEP_PARTS),
    ("runner", "fetching step"): (*bundle.RUNNER_START, "journal", "main", *STEP_PARTS, *FETCH_PARTS),
}
"""What each process of theirs has compiled, in order."""
DEFERRED = {("probe", "main"), ("probe", "kernel_log"), ("runner", "main")}
"""Parts that name others' functions and classes before those are compiled: they load them first."""
EACH = [(program, name) for program, names in PARTS.items() for name in names]
HEAVY = {
    "hashlib", "subprocess", "ctypes", "threading", "typing", "asyncio", "socket", "logging", "tempfile", "pathlib",
}  # fmt: skip


def path_of(program: str, name: str) -> Path:
    return MASKING if name == "masking" else FOLDERS[program] / f"{name.replace('.', '/')}.py"


def sent(program: bundle.Program) -> dict[str, bytes]:
    start, later = bundle.sources(program)
    return {**start, **later}


def imported(tree: ast.AST) -> set[str]:
    """Top names of all modules a tree imports at run time."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add((node.module or "").partition(".")[0])
    return names


def without_typing(tree: ast.Module) -> ast.Module:
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING")
    ]
    return tree


def own_imports(program: str, name: str) -> dict[str, set[str]]:
    """Parts that a part imports at its top, with the names it takes."""
    found: dict[str, set[str]] = {}
    for node in ast.parse(path_of(program, name).read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sparktop."):
            assert node.module
            assert all(alias.asname is None for alias in node.names), "there they have their own names alone"
            if node.module == "sparktop.masking":
                part = "masking"
            else:
                assert node.module.startswith(PACKAGES[program] + "."), node.module
                part = node.module.removeprefix(PACKAGES[program] + ".")
            found[part] = {alias.name for alias in node.names}
    return found


def defined(tree: ast.Module) -> set[str]:
    """Names that a source defines at its top; what it imports, and types, are left out."""
    found = set()
    for node in tree.body:
        targets: list[ast.expr] = []
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            found |= {name.id for name in ast.walk(target) if isinstance(name, ast.Name)}
    return found - {"TYPE_CHECKING"}


@over("program", ["probe", "runner"])
def test_every_part_is_sent_and_no_two_define_the_same_name(program: bundle.Program) -> None:
    folder = FOLDERS[program]
    files = {".".join(path.relative_to(folder).with_suffix("").parts) for path in folder.rglob("*.py")}
    files = {name for name in files if not name.endswith("__init__")}
    assert sorted(PARTS[program]) == sorted(files | {"masking"})
    owners: dict[str, str] = {}
    for part in PARTS[program]:
        for name in defined(ast.parse(path_of(program, part).read_text())):
            assert name not in owners, (name, part, owners[name])
            owners[name] = part


@over("program, name", EACH)
def test_a_part_is_python_3_10_and_the_standard_library_alone(program: bundle.Program, name: str) -> None:
    tree = without_typing(ast.parse(sent(program)[name], feature_version=(3, 10)))
    assert imported(tree) <= sys.stdlib_module_names
    # What a child alone needs, it may import inside its functions.
    top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not imported(ast.Module(top, [])) & HEAVY


@over("program, name", EACH)
def test_a_part_travels_without_docstrings_and_own_imports_and_each_line_keeps_its_number(
    program: bundle.Program, name: str
) -> None:
    def statements(text: str) -> list[tuple[int, str]]:
        """Every statement but docstrings and own imports, with its line."""
        return [
            (node.lineno, ast.dump(node) if not hasattr(node, "body") else type(node).__name__)
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.stmt)
            and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
            and not (isinstance(node, ast.ImportFrom) and node.col_offset == 0 and "sparktop" in (node.module or ""))
        ]

    text = path_of(program, name).read_text()
    travelling = sent(program)[name].decode()
    assert statements(travelling) == statements(text)
    assert travelling.count("\n") == text.count("\n")
    constants = [node for node in ast.walk(ast.parse(travelling)) if isinstance(node, ast.Expr)]
    assert not [node for node in constants if isinstance(node.value, ast.Constant) and node.value.value != 0]
    assert not imported(without_typing(ast.parse(travelling))) & {"sparktop"}


@over(
    "text, travelling",
    [
        ("from sparktop.probe.remote.system import boottime\nx = 1\n", "\nx = 1\n"),
        ("from sparktop.masking import (\n    mask_argv,\n    mask_text,\n)\nx = 1\n", "\n\n\n\nx = 1\n"),
        ("import os\nfrom sparktops import x\n", "import os\nfrom sparktops import x\n"),
        ("if T:\n    from sparktop.model import x\n", "if T:\n    from sparktop.model import x\n"),
        ('"""A module\'s.\n\nTwo lines.\n"""\nx = 1\n', "\n\n\n\nx = 1\n"),
        ('class A(B):\n    """Its only\n    words."""\n', "class A(B):\n    0\n\n"),
        ('x = f("""a\n"b""")\n', 'x = f("""a\n"b""")\n'),
        ("", ""),
    ],
)
def test_what_is_left_out_on_the_way(text: str, travelling: str) -> None:
    assert bundle.travelling(text) == travelling


@over("program, process", LOADED)
def test_what_a_part_imports_here_is_there_when_it_is_compiled(program: bundle.Program, process: str) -> None:
    parts = LOADED[program, process]
    assert len(set(parts)) == len(parts)
    there: set[str] = set()
    for part in parts:
        for origin, names in own_imports(program, part).items():
            assert names <= defined(ast.parse(path_of(program, origin).read_text())), (part, origin)
            if (program, part) not in DEFERRED:
                assert origin in parts, (part, origin)
                assert origin in there or not _uses_at_once(program, part, names), (part, origin)
        there.add(part)


def _uses_at_once(program: str, part: str, names: set[str]) -> bool:
    """Whether compiling it reads the names: as a base class, in a constant."""
    for node in ast.parse(path_of(program, part).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ImportFrom | ast.If):
            continue
        looked_at = [*node.bases, *node.decorator_list] if isinstance(node, ast.ClassDef) else [node]
        if any(isinstance(name, ast.Name) and name.id in names for top in looked_at for name in ast.walk(top)):
            return True
    return False


@over("program", ["probe", "runner"])
def test_together_they_have_all_names_they_use(program: bundle.Program) -> None:
    names: dict[str, object] = {"__name__": f"sparktop_{program}"}
    for name, text in sent(program).items():
        exec(compile(text, name, "exec"), names)
    for part in PARTS[program]:
        for origin, taken in own_imports(program, part).items():
            assert taken <= set(names), (part, origin)


def test_at_its_start_the_probe_imports_only_what_is_cheap() -> None:
    script = (
        "import sys; before = set(sys.modules); g = {'__name__': 'sparktop_probe'}; "
        "[exec(compile(text, 'x', 'exec'), g) for text in sys.stdin.read().split(chr(0))]; "
        "print(*sorted(set(sys.modules) - before))"
    )
    start, _ = bundle.sources("probe")
    source = b"\0".join(start.values()).decode()
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script], input=source, capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "json" in loaded
    assert not loaded & (HEAVY | {"zlib"})


def test_what_masks_on_the_spark_is_what_masks_here() -> None:
    text = "HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz --api-key x://u:p@h Bearer abcdefgh"
    for program in ("probe", "runner"):
        names: dict[str, object] = {"__name__": f"sparktop_{program}"}
        exec(sent(program)["masking"], names)
        mask = names["mask_text"]
        assert callable(mask)
        assert mask(text) == masking.mask_text(text) != text


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,12}", fullmatch=True), st.binary(max_size=80), max_size=4))
def test_what_is_packed_is_unpacked(parts: dict[str, bytes]) -> None:
    opened = zlib.decompressobj()
    assert opened.decompress(bundle.pack({"a": b"x = 1", "b": b""}, parts)) == b"a\nx = 1\0b\n"
    assert {name: zlib.decompress(packed) for name, packed in unpack(opened.unused_data).items()} == parts
