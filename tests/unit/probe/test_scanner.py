"""The process table, from a folder laid out like /proc."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparktop import masking
from sparktop.probe.engine_marks import engine_marks
from sparktop.probe.remote.outbox import encode
from sparktop.probe.remote.scanner import LARGEST, Scanner

CONTAINER = "c" * 64
MARKS = dict(engine_marks())


class FakeProc:
    """A /proc with as many processes as a test lays down."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cmdline_reads: list[int] = []

    def add(
        self,
        pid: int,
        comm: str,
        *,
        argv: tuple[str, ...] = (),
        pages: int = 100,
        parent: int = 1,
        state: str = "S",
        wchan: str = "0",
        start: int = 5000,
        cgroup: str = "0::/user.slice\n",
    ) -> None:
        folder = self.root / str(pid)
        folder.mkdir(exist_ok=True)
        fields = [state, str(parent), *["0"] * 17, str(start), "1", str(pages), "0", "0"]
        (folder / "stat").write_text(f"{pid} ({comm}) {' '.join(fields)}\n")
        (folder / "status").write_text("Uid:\t1000\t0\t0\t0\nRssFile:\t4 kB\nRssShmem:\t0 kB\nVmSwap:\t12 kB\n")
        (folder / "cgroup").write_text(cgroup)
        (folder / "cmdline").write_bytes(b"".join(part.encode() + b"\0" for part in argv))
        (folder / "wchan").write_text(wchan)


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    (tmp_path / "meminfo").touch()
    fake = FakeProc(tmp_path)
    fake.add(1, "systemd", parent=0)
    fake.add(2, "kthreadd", parent=0, pages=0)
    fake.add(40, "kworker/0:1", parent=2, pages=0)
    return fake


def rows(table: dict[str, object]) -> dict[int, dict[str, object]]:
    return {row["pid"]: row for row in table["rows"]}  # type: ignore[attr-defined]


def test_engines_the_desktop_gpu_users_and_the_largest_are_shown(proc: FakeProc) -> None:
    proc.add(
        100,
        "vllm",
        argv=("/usr/bin/python3", "/usr/local/bin/vllm", "serve", "m", "--api-key", "s3cret"),
        cgroup=f"0::/system.slice/docker-{CONTAINER}.scope\n",
        wchan="ep_poll",
    )
    proc.add(101, "VLLM::Worker_TP", argv=("VLLM::Worker_TP0",), state="R")
    proc.add(102, "python3", argv=("python3", "-m", "sglang.launch_server", "--port", "30000"))
    proc.add(103, "python3", argv=("python3", "manage.py", "runserver"))
    proc.add(107, "python3", argv=("python3", "-u", "launch_server.py"))
    (proc.root / "107/cwd").symlink_to("/srv/sglang")
    proc.add(104, "gnome-shell", state="D", wchan="drm_atomic_helper_wait_for_fences")
    proc.add(105, "bash", argv=("bash", "-c", "vllm serve m"))
    proc.add(106, "ollama", argv=("ollama", "runner"), pages=0)
    for pid in range(200, 260):
        proc.add(pid, "filler", pages=1000 + pid)
    proc.add(300, "defunct", state="Z", pages=0)
    table = Scanner(MARKS, str(proc.root)).scan({106, 4242})
    found = rows(table)
    assert table["total"] == 72
    assert table["zombies"] == 1
    assert {100, 101, 102, 104, 106} <= set(found)
    assert found[107]["argv"] == ["python3", "-u", "/srv/sglang/launch_server.py"]
    assert not {1, 2, 40, 103, 105, 300} & set(found)
    assert len([pid for pid in found if pid >= 200]) == LARGEST
    assert min(pid for pid in found if pid >= 200) == 260 - LARGEST
    assert found[100] == {
        "pid": 100,
        "ppid": 1,
        "comm": "vllm",
        "state": "S",
        "rss": 100 * os.sysconf("SC_PAGE_SIZE"),
        "start": 5000 / os.sysconf("SC_CLK_TCK"),
        "uid": 1000,
        "shm": 4096,
        "swap": 12288,
        "cgroup": f"/system.slice/docker-{CONTAINER}.scope",
        "wchan": "ep_poll",
        "argv": ["/usr/bin/python3", "/usr/local/bin/vllm", "serve", "m", "--api-key", masking.MASK],
    }
    assert found[104]["wchan"] == "drm_atomic_helper_wait_for_fences"
    assert "argv" not in found[104]
    assert "wchan" not in found[250]


def test_a_command_line_is_read_once_a_process_and_again_after_exec(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc.add(100, "python3", argv=("python3", "-m", "vllm.entrypoints.openai.api_server"))
    scanner = Scanner(MARKS, str(proc.root))
    reads: list[int] = []
    real = scanner._argv
    monkeypatch.setattr(scanner, "_argv", lambda pid: (reads.append(pid), real(pid))[1])
    for _ in range(3):
        assert rows(scanner.scan(set()))[100]["argv"]
    assert reads == [100]
    proc.add(100, "vllm", argv=("vllm", "serve", "other"))
    assert rows(scanner.scan(set()))[100]["argv"] == ["vllm", "serve", "other"]
    proc.add(100, "vllm", argv=("vllm", "serve", "third"), start=9999)
    assert rows(scanner.scan(set()))[100]["argv"] == ["vllm", "serve", "third"]
    assert reads == [100, 100, 100]


def test_a_process_that_ends_during_the_scan_is_left_out(proc: FakeProc) -> None:
    proc.add(100, "vllm", argv=("vllm", "serve", "m"))
    (proc.root / "100" / "status").unlink()
    (proc.root / "101").mkdir()
    table = Scanner(MARKS, str(proc.root)).scan(set())
    assert 100 not in rows(table)


def test_the_table_stays_within_a_line_of_the_wire(proc: FakeProc) -> None:
    for pid in range(1000, 1200):
        proc.add(pid, "python3", argv=("python3", "-m", "sglang.launch_server", "x" * 4000, "y" * 4000))
    table = Scanner(MARKS, str(proc.root)).scan(set())
    assert len(encode(table)) < 256 * 1024


def test_compositors_are_told_to_who_watches_the_desktop(proc: FakeProc) -> None:
    proc.add(104, "gnome-shell", state="D")
    proc.add(105, "gnome-shell-cal")
    proc.add(106, "Xorg")
    proc.add(107, "gnome-shell", state="Z", pages=0)
    scanner = Scanner(MARKS, str(proc.root))
    assert scanner.compositors == []
    scanner.scan(set())
    assert scanner.compositors == [104, 106]
