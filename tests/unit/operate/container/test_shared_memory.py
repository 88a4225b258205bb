"""What an engine leaves in /dev/shm: which files may be its own, and the program that removes them, run for real."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import pictures_support as made
from tests.table import over

from sparktop.model.engine import Containers
from sparktop.operate.container.shared_memory import FOLDER, NAMES, REMOVE, ask, others_there, parse


def test_rows_that_are_engines_files_are_taken_largest_first() -> None:
    found = parse("11\t0\t4096\tsem.mp-x_1\n12\t0\t9999\tpsm_0a1b2c3d\n13\t1000\t5\tnccl-Ab12Cd\n14\t0\t1\tvllm_q.1\n")
    assert [(row.inode, row.name) for row in found] == [
        (12, "psm_0a1b2c3d"), (11, "sem.mp-x_1"), (13, "nccl-Ab12Cd"), (14, "vllm_q.1"),
    ]  # fmt: skip


@over(
    "row",
    [
        "12\t0\t5\tplasma-store", "12\t0\t5\tpsm_0a1b2c3d/../x", "12\t0\t5\tpsm_0a1b2c3d ", "x\t0\t5\tpsm_0a1b2c3d",
        "12\t0\tpsm_0a1b2c3d", "12\t0\t5\t../../etc/passwd", "12\t0\t5\t-rf", "\x1b[2J", "",
    ],
)  # fmt: skip
def test_other_rows_are_left_out(row: str) -> None:
    assert parse(row) == ()


@given(st.text(max_size=200))
def test_any_answer_is_read(text: str) -> None:
    for row in parse(text):
        assert NAMES.fullmatch(row.name)
        assert "/" not in row.name
    assert parse("") == ()


def test_with_another_sharer_the_files_cannot_be_told_apart() -> None:
    box, other = made.container(ipc_mode="host"), made.container("other", ipc_mode="host")
    engine = made.engine(container=box)
    alone = made.node(engines=(engine,))
    both = made.node(engines=(engine,), containers=Containers(containers=(box, other), available=True, detail=""))
    with_process = made.node(engines=(engine, made.engine("vllm:8001", container=None, pids=(5,))))
    assert not others_there(engine, alone)
    assert others_there(engine, both)
    assert others_there(engine, with_process)


@pytest.fixture
def shared() -> Path:
    folder = Path(FOLDER)
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        pytest.skip("no /dev/shm to write to")
    return folder


def run(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", REMOVE, *words], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def test_it_removes_what_nobody_uses_and_nothing_else(shared: Path) -> None:
    made_here = [
        shared / f"psm_{os.getpid():08x}"[:21],
        shared / f"vllm-test-{os.getpid()}-a",
        shared / f"vllm-test-{os.getpid()}-b",
    ]
    unused, mapped, other = made_here
    try:
        for path in made_here:
            path.write_bytes(b"x" * 4096)
        inodes = [path.stat().st_ino for path in made_here]
        with mapped.open("r+b") as opened:
            view = mmap.mmap(opened.fileno(), 4096)
        said = run(
            f"{inodes[0]}:{unused.name}",
            f"{inodes[1]}:{mapped.name}",
            f"{inodes[2] + 1}:{other.name}",
            "1:gone",
            "1:../x",
        )
        assert said == f"removed: {unused.name}\nleft, in use: {mapped.name}\n"
        assert [path.exists() for path in made_here] == [False, True, True]
        view.close()
    finally:
        for path in made_here:
            path.unlink(missing_ok=True)


def test_the_question_is_answered_by_find(shared: Path) -> None:
    path, odd = shared / f"nccl-{os.getpid() % 1_000_000:06d}", shared / f"x{os.getpid()}\n9\t0\t1\tpsm_00000000"
    try:
        path.write_bytes(b"12345")
        odd.write_bytes(b"")
        done = subprocess.run(ask("here").argv, capture_output=True, text=True, timeout=30, check=True)
        rows = {row.name: row for row in parse(done.stdout)}
        assert rows[path.name].size_bytes == 5
        assert rows[path.name].inode == path.stat().st_ino
        assert "psm_00000000" not in rows
    finally:
        path.unlink(missing_ok=True)
        odd.unlink(missing_ok=True)
