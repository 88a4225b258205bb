"""The process table from a folder laid out like /proc, the pace of sampling, and gaps in NVML's answers."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparktop.probe import remote

CONTAINER = "c" * 64


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
    proc.add(104, "gnome-shell", state="D", wchan="drm_atomic_helper_wait_for_fences")
    proc.add(105, "bash", argv=("bash", "-c", "vllm serve m"))
    proc.add(106, "ollama", argv=("ollama", "runner"), pages=0)
    for pid in range(200, 260):
        proc.add(pid, "filler", pages=1000 + pid)
    proc.add(300, "defunct", state="Z", pages=0)
    table = remote.Scanner(str(proc.root)).scan({106, 4242})
    found = rows(table)
    assert table["total"] == 71
    assert table["zombies"] == 1
    assert {100, 101, 102, 104, 106} <= set(found)
    assert not {1, 2, 40, 103, 105, 300} & set(found)
    assert len([pid for pid in found if pid >= 200]) == remote.LARGEST
    assert min(pid for pid in found if pid >= 200) == 260 - remote.LARGEST
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
        "argv": ["/usr/bin/python3", "/usr/local/bin/vllm", "serve", "m", "--api-key", remote.MASK],
    }
    assert found[104]["wchan"] == "drm_atomic_helper_wait_for_fences"
    assert "argv" not in found[104]
    assert "wchan" not in found[250]


def test_a_command_line_is_read_once_a_process_and_again_after_exec(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc.add(100, "python3", argv=("python3", "-m", "vllm.entrypoints.openai.api_server"))
    scanner = remote.Scanner(str(proc.root))
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
    table = remote.Scanner(str(proc.root)).scan(set())
    assert 100 not in rows(table)


def test_the_table_stays_within_a_line_of_the_wire(proc: FakeProc) -> None:
    for pid in range(1000, 1200):
        proc.add(pid, "python3", argv=("python3", "-m", "sglang.launch_server", "x" * 4000, "y" * 4000))
    table = remote.Scanner(str(proc.root)).scan(set())
    assert len(remote._encode(table)) < 256 * 1024


# --- pace

TOTAL = 127_535_276


def run(pace: remote.Pace, available: list[int], step_s: float = 1.0, start_s: float = 0.0) -> list[float]:
    intervals = []
    for index, kb in enumerate(available):
        boot_s = start_s + index * step_s
        pace.saw(boot_s, kb, TOTAL)
        intervals.append(pace.next_s(boot_s))
    return intervals


def test_a_steep_fall_quickens_sampling_and_calm_slows_it_again() -> None:
    pace = remote.Pace(1.0)
    assert run(pace, [90_000_000, 89_500_000, 80_000_000]) == [1.0, 1.0, remote.FAST_S]
    assert run(pace, [80_000_000] * 11, start_s=3.0) == [remote.FAST_S] * 9 + [1.0] * 2


def test_low_memory_quickens_sampling_while_it_moves_but_not_at_rest() -> None:
    pace = remote.Pace(1.0)
    rest = 8_134_368  # 6.4 %: how a serving Spark rests
    assert run(pace, [rest] * 20)[-1] == 1.0
    assert run(pace, [rest - 200_000], start_s=20.0) == [remote.FAST_S]
    assert run(remote.Pace(1.0), [rest]) == [remote.FAST_S]
    # Up and down across the mark is not a new alarm each time.
    edge = int(TOTAL * 0.08)
    wobble = [edge - 1000 if n % 2 else edge + 1000 for n in range(30)]
    assert run(remote.Pace(1.0), wobble)[-1] == 1.0


def test_a_rate_faster_than_that_is_kept() -> None:
    pace = remote.Pace(0.1)
    assert run(pace, [90_000_000, 70_000_000])[-1] == pytest.approx(0.1)


def test_a_sample_that_takes_long_slows_sampling_until_three_were_quick() -> None:
    pace = remote.Pace(1.0)
    pace.took(0.3)
    assert pace.next_s(0.0) == 5.0
    pace.took(0.01)
    pace.took(0.15)  # neither slow nor quick
    pace.took(0.01)
    assert pace.next_s(0.0) == 5.0
    pace.took(0.01)
    assert pace.next_s(0.0) == 1.0


# --- NVML


class Refusal(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Refusal(3), "not supported"),
        (Refusal(4), "no permission"),
        (Refusal(6), "not found"),
        (Refusal(10), "timed out"),
        (Refusal(13), "not supported"),
        (Refusal(999), "failed"),
        (AttributeError("nvmlNew"), "not supported"),
        (OSError("x"), "failed"),
    ],
)
def test_gap_reasons(error: Exception, reason: str) -> None:
    assert remote.nvml_gap(error) == reason


def stand_in(**changes: object) -> SimpleNamespace:
    """A module where everything but the essentials fails, changed as a test wants."""

    def refuse(*_: object) -> None:
        raise Refusal(15)

    functions = [
        *("nvmlDeviceGetUUID", "nvmlSystemGetDriverVersion", "nvmlDeviceGetMaxClockInfo"),
        *("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetClockInfo"),
        *("nvmlDeviceGetTemperature", "nvmlDeviceGetPerformanceState", "nvmlDeviceGetCurrentClocksEventReasons"),
        *("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeRunningProcesses"),
        *("nvmlDeviceGetGraphicsRunningProcesses", "nvmlSystemGetProcessName"),
    ]
    base: dict[str, object] = dict.fromkeys(functions, refuse)
    base.update(nvmlInit=lambda: None, nvmlDeviceGetCount=lambda: 1, nvmlDeviceGetHandleByIndex=lambda index: index)
    base["nvmlDeviceGetName"] = lambda handle: b"NVIDIA GB10"
    base.update(changes)
    return SimpleNamespace(**base)


def test_a_lost_gpu_is_an_error_and_not_a_row_of_gaps() -> None:
    reader = remote.GpuReader(stand_in())
    with pytest.raises(Refusal):
        reader.read()


def test_a_gpu_that_says_little_is_a_row_with_gaps() -> None:
    reader = remote.GpuReader(stand_in(nvmlDeviceGetPowerUsage=lambda handle: 15200))
    gpu = reader.read()["gpus"][0]
    assert gpu["power_mw"] == 15200
    assert gpu["gaps"]["util"] == "failed"
    assert gpu["gaps"]["procs"] == "failed"
    assert "procs" not in gpu


def test_no_device_at_all_is_said() -> None:
    with pytest.raises(RuntimeError, match="no devices"):
        remote.GpuReader(stand_in(nvmlDeviceGetCount=lambda: 0))


def test_processes_are_listed_every_second_time_and_shown_each_time() -> None:
    asked: list[int] = []

    def compute(handle: int) -> list[SimpleNamespace]:
        asked.append(handle)
        return [SimpleNamespace(pid=7, usedGpuMemory=1 << 30)]

    module = stand_in(
        nvmlDeviceGetComputeRunningProcesses=compute,
        nvmlDeviceGetGraphicsRunningProcesses=lambda handle: [SimpleNamespace(pid=7, usedGpuMemory=None)],
        nvmlSystemGetProcessName=lambda pid: b"VLLM::Worker_TP0",
        nvmlDeviceGetPowerUsage=lambda handle: 1,
    )
    reader = remote.GpuReader(module)
    for _ in range(4):
        assert reader.read()["gpus"][0]["procs"] == [[7, "VLLM::Worker_TP0", 1 << 30, "C"]]
    assert len(asked) == 2


def test_compositors_are_told_to_who_watches_the_desktop(proc: FakeProc) -> None:
    proc.add(104, "gnome-shell", state="D")
    proc.add(105, "gnome-shell-cal")
    proc.add(106, "Xorg")
    proc.add(107, "gnome-shell", state="Z", pages=0)
    scanner = remote.Scanner(str(proc.root))
    assert scanner.compositors == []
    scanner.scan(set())
    assert scanner.compositors == [104, 106]
