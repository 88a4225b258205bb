"""The real probe, started by the real launch on a real python3: what it says, and that nothing of it stays behind."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tests.nvml_stand_ins import BROKEN_NVML, GB10_NVML
from tests.probe_support import RunningProbe, processes_of
from tests.support import poll, unavailable

from sparktop.model.telemetry import (
    Bye,
    Collector,
    CollectorState,
    GapReason,
    GpuReading,
    HostFacts,
    NetworkReading,
    ProcessTable,
    Sample,
)
from sparktop.probe import bundle

Start = Callable[..., RunningProbe]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts probes that sample ten times a second, and ends them after the test."""
    if not sys.platform.startswith("linux"):
        unavailable("the probe reads /proc, which only Linux has")
    started: list[RunningProbe] = []

    def begin(
        *,
        interval_s: float = 0.1,
        lease_s: float = 30.0,
        nvml: str | None = BROKEN_NVML.format(value=12),
        **more: object,
    ) -> RunningProbe:
        launch = bundle.launch(interval_s=interval_s, lease_s=lease_s, nvml_source=nvml)
        started.append(RunningProbe(launch, **more))  # type: ignore[arg-type]
        return started[-1]

    yield begin
    for probe in started:
        probe.close()
    for probe in started:
        poll(lambda probe=probe: not processes_of(probe.launch), what="the end of every process of the probe")  # type: ignore[misc]


def test_it_says_hello_and_then_samples_of_this_machine(start: Start) -> None:
    probe = start(nvml=None)  # the real nvidia-ml-py
    hello = probe.hello()
    assert probe.marker == b"SPARKTOP " + probe.launch.nonce.encode()
    assert hello.probe_digest == probe.launch.digest
    assert hello.protocol == 1
    assert hello.pid == probe.process.pid
    assert hello.facts.kernel == os.uname().release
    assert hello.facts.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert hello.facts.gaps["disks"] is GapReason.NOT_YET
    machine_id = Path("/etc/machine-id")
    if machine_id.exists():
        assert machine_id.read_text().strip() not in str(probe.lines)

    samples = probe.more_samples(4)
    assert [s.sequence for s in samples] == sorted({s.sequence for s in samples})
    assert all(0.05 < later.boot_s - earlier.boot_s < 5 for earlier, later in pairwise(samples))
    assert abs(samples[-1].boot_s - time.clock_gettime(time.CLOCK_BOOTTIME)) < 5
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    assert samples[0].memory.total_bytes == total
    assert 0 < samples[0].memory.available_bytes < total
    assert samples[0].interval_s == pytest.approx(0.1)
    assert samples[0].cpu_total_ticks
    assert samples[0].load_1m is not None
    assert samples[0].probe_resident_bytes
    assert samples[-1].probe_cpu_s
    assert samples[-1].major_faults is not None

    facts = probe.first(HostFacts)
    assert facts.disks[0].mount == "/"
    assert facts.disks[0].total_bytes >= facts.disks[0].free_bytes > 0
    assert "disks" not in facts.gaps


@pytest.mark.parametrize("version", ["3.10", "3.12", "3.13"])
def test_it_runs_by_the_other_pythons_that_a_spark_may_have(start: Start, tmp_path: Path, version: str) -> None:
    found = shutil.which(f"python{version}")
    if found is None or subprocess.run([found, "-c", ""], capture_output=True).returncode:
        pytest.skip(f"there is no python{version} here")
    (tmp_path / "python3").symlink_to(found)
    probe = start(nvml=GB10_NVML.format(hold=""), env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert probe.hello().facts.python_version.startswith(f"{version}.")
    probe.more_samples(2)
    for kind in (ProcessTable, NetworkReading, GpuReading):
        probe.first(kind)


def test_the_process_table_shows_engines_with_their_secrets_masked(start: Start) -> None:
    sleeper = [sys.executable, "-c", "import time; time.sleep(120)"]
    engine = subprocess.Popen([*sleeper, "vllm", "serve", "m", "--api-key", "c4n4ry", "--port", "8000"])
    other = subprocess.Popen([*sleeper, "some-private-argument"])
    try:
        probe = start()
        table = probe.first(ProcessTable, lambda table: any(row.pid == engine.pid for row in table.processes))
        row = next(row for row in table.processes if row.pid == engine.pid)
        assert row.argv[-6:] == ("serve", "m", "--api-key", "<masked>", "--port", "8000")
        assert row.parent_pid == os.getpid()
        assert row.user_id == os.getuid()
        assert row.resident_bytes > 1 << 20
        assert row.state == "S"
        uptime = time.clock_gettime(time.CLOCK_BOOTTIME) - row.started_boot_s
        assert -1 < uptime < 60
        assert table.total_count >= len(table.processes) > 1
        assert all(row.argv == () for row in table.processes if row.pid == other.pid)
        assert b"c4n4ry" not in b"".join(probe.lines)
        assert b"some-private-argument" not in b"".join(probe.lines)
    finally:
        for child in (engine, other):
            child.kill()
            child.wait(10)


def test_it_tells_of_this_machines_network_and_of_its_next_boot(start: Start) -> None:
    probe = start()
    reading = probe.first(NetworkReading)
    names = set(os.listdir("/sys/class/net"))
    assert {one.name for one in reading.interfaces} <= names - {"lo"}
    for one in reading.interfaces:
        assert one.mtu == int(Path(f"/sys/class/net/{one.name}/mtu").read_text())
    devices = Path("/sys/class/infiniband")
    assert {port.device for port in reading.rdma_ports} == (
        {p.name for p in devices.iterdir()} if devices.exists() else set()
    )

    facts = probe.first(HostFacts)
    if not Path("/run/systemd/system").exists():
        assert facts.gaps["units"] is GapReason.NOT_FOUND
        assert facts.is_lingering is None
    else:
        assert facts.removes_ipc is not None
    if not Path(f"/lib/modules/{os.uname().release}/modules.dep").exists():
        assert facts.driver_installed is None
        assert facts.gaps["driver_installed"] is GapReason.NOT_FOUND


def test_nothing_is_forked_for_a_sample(start: Start) -> None:
    probe = start()
    probe.first(ProcessTable)
    probe.first(Collector, lambda c: c.name == "kernel")
    probe.more_samples(2)

    def family() -> tuple[set[int], bytes]:
        stat = Path(f"/proc/{probe.process.pid}/stat").read_bytes().rpartition(b")")[2].split()
        return processes_of(probe.launch), stat[8] + b" " + stat[10]  # cminflt, cmajflt: move when a child is reaped

    before = family()
    probe.more_samples(15)
    assert family() == before
    assert len(before[0]) == 4


# --- the window


def test_three_unacknowledged_samples_and_no_more(start: Start) -> None:
    probe = start(acknowledge=False)
    probe.until(lambda: len(probe.of(Sample)) >= 3, what="three samples")
    quiet_until = time.monotonic() + 1.0
    while time.monotonic() < quiet_until:
        probe.send(b'{"beat":1}\n')
        probe.take(0.1)
    assert len(probe.of(Sample)) == 3
    probe.acknowledge = True
    probe.send(b'{"ack":%d}\n' % max(json.loads(line).get("seq", 0) for line in probe.lines[1:]))
    sample = probe.more_samples(1)[0]
    assert sample.skipped >= 5


def test_a_line_that_only_partly_fits_is_completed_before_the_next(start: Start) -> None:
    probe = start(nvml=GB10_NVML.format(hold=""))
    fcntl.fcntl(probe.out, fcntl.F_SETPIPE_SZ, 4096)
    deadline = time.monotonic() + 60
    while len(probe.of(Sample)) < 12 and time.monotonic() < deadline:
        time.sleep(0.12)  # a slow reader; every line must still decode, which `take` asserts
        probe.take()
    assert len(probe.of(Sample)) >= 12
    assert probe.of(ProcessTable)


def test_the_interval_can_be_changed(start: Start) -> None:
    probe = start(interval_s=30.0)
    probe.first(Sample)
    probe.send(b'nonsense\n[1]\n{"ack":"x"}\n{"interval":"x"}\n{"later":1}\n{"interval":0.1}\n')
    assert probe.more_samples(3)[-1].interval_s == pytest.approx(0.1)


def test_the_hosts_facts_are_read_at_once_when_they_are_asked_for(start: Start) -> None:
    probe = start(interval_s=0.5)
    probe.first(HostFacts)
    told = len(probe.of(HostFacts))
    probe.send(b'{"facts":1}\n')
    deadline = time.monotonic() + 30  # a minute is between two of them
    while len(probe.of(HostFacts)) == told and time.monotonic() < deadline:
        probe.take()
    assert len(probe.of(HostFacts)) > told


# --- its ends: each must leave nothing behind (the fixture asks for that after every test, too)


def test_it_leaves_when_its_input_closes(start: Start) -> None:
    probe = start()
    probe.more_samples(1)
    assert processes_of(probe.launch)
    probe.hang_up()
    probe.acknowledge = False
    assert probe.drain() == 0
    poll(lambda: not processes_of(probe.launch))


def test_it_leaves_when_asked_to_and_says_so(start: Start) -> None:
    probe = start()
    probe.more_samples(1)
    probe.send(b'{"bye":1}\n')
    assert probe.drain() == 0
    assert probe.of(Bye)[0].reason == "asked to"
    poll(lambda: not processes_of(probe.launch))


def test_it_leaves_when_nothing_comes_for_the_length_of_its_lease(start: Start) -> None:
    probe = start(lease_s=1.5)
    probe.more_samples(20)  # beats and acknowledgements keep it
    probe.acknowledge = False
    assert probe.drain() == 0
    assert "1.5 s" in probe.of(Bye)[0].reason
    poll(lambda: not processes_of(probe.launch))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_killed_probe_leaves_no_children(start: Start, number: int) -> None:
    probe = start(nvml=GB10_NVML.format(hold=""))
    probe.first(GpuReading)
    poll(lambda: len(processes_of(probe.launch)) == 4)  # one more while the kernel's child starts a program
    probe.process.send_signal(number)
    poll(lambda: not processes_of(probe.launch) - {probe.process.pid}, what="the children's end")


def test_it_leaves_when_nobody_reads(start: Start) -> None:
    probe = start()
    probe.more_samples(1)
    assert probe.process.stdout is not None
    probe.process.stdout.close()
    assert probe.process.wait(10) == 0


def test_a_stopped_probe_goes_on_where_it_was(start: Start) -> None:
    probe = start(lease_s=1.5)
    probe.more_samples(2)
    probe.process.send_signal(signal.SIGSTOP)
    resume_at = time.monotonic() + 2.0
    while time.monotonic() < resume_at:
        probe.send(b'{"beat":1}\n')
        time.sleep(0.1)
    probe.process.send_signal(signal.SIGCONT)
    probe.more_samples(3)
    assert probe.process.poll() is None


def test_a_payload_cut_short_is_refused_with_a_message(start: Start) -> None:
    launch = bundle.launch(interval_s=1.0)
    probe = start(payload=launch.payload[:5000])
    probe.hang_up()
    probe.acknowledge = False
    assert probe.drain() == bundle.CUT_EXIT
    assert "damaged: 5000 of" in probe.error()


def test_a_damaged_payload_is_refused(start: Start) -> None:
    launch = bundle.launch(interval_s=1.0, nvml_source=BROKEN_NVML.format(value=12))
    probe = start(payload=launch.payload[:-1] + bytes([launch.payload[-1] ^ 1]), acknowledge=False)
    assert probe.drain() == bundle.CUT_EXIT


def test_a_machine_without_python_says_so(tmp_path: Path) -> None:
    launch = bundle.launch(interval_s=1.0)
    done = subprocess.run(
        launch.argv, input=launch.payload, capture_output=True, env={"PATH": str(tmp_path)}, check=False
    )
    assert done.returncode == bundle.NO_PYTHON_EXIT
    assert done.stdout.strip() == bundle.NO_PYTHON_MARK
    assert "apt install python3" in bundle.explain_failure(done.returncode, "", done.stdout)


# --- NVML through stand-ins


def test_a_gb10_reads_as_one(start: Start) -> None:
    probe = start(nvml=GB10_NVML.format(hold=""))
    gpu = probe.first(GpuReading).gpus[0]
    assert gpu.is_gb10
    assert (gpu.utilisation_percent, gpu.power_w, gpu.sm_clock_mhz, gpu.sm_clock_max_mhz) == (96.0, 38.25, 2405, 3003)
    assert (gpu.temperature_c, gpu.performance_state, gpu.driver_version) == (55, "P0", "580.142")
    assert gpu.throttle_reasons == ("software thermal",)
    assert gpu.memory_total_bytes is None
    assert gpu.gaps["memory_total_bytes"] is GapReason.NOT_SUPPORTED
    assert gpu.gaps["bandwidth_percent"] is GapReason.NOT_SUPPORTED
    assert gpu.processes is not None
    assert [(p.pid, p.kind, p.used_bytes) for p in gpu.processes] == [
        (probe.process.pid, "C", 107610112000),
        (1, "G", None),
    ]
    assert gpu.processes[0].name  # NVML didn't know it, /proc did
    probe.first(Collector, lambda c: c.name == "nvml" and c.state is CollectorState.OK)
    # The scanner is told who uses the GPU, and shows them whatever they are.
    probe.first(ProcessTable, lambda t: {probe.process.pid, 1} <= {p.pid for p in t.processes})


def test_an_nvml_that_hangs_is_stuck_and_not_killed_while_sampling_goes_on(start: Start, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    probe = start(nvml=GB10_NVML.format(hold=str(hold)))
    stuck = probe.first(Collector, lambda c: c.name == "nvml" and c.state is CollectorState.STUCK)
    assert 0 < stuck.since_boot_s < time.clock_gettime(time.CLOCK_BOOTTIME) - 4
    family = processes_of(probe.launch)
    samples = probe.more_samples(10)
    assert samples[-1].boot_s - stuck.since_boot_s > 5
    assert processes_of(probe.launch) == family
    assert not probe.of(GpuReading)
    hold.unlink()
    probe.first(GpuReading)
    probe.first(Collector, lambda c: c.name == "nvml" and c.state is CollectorState.OK)
    assert processes_of(probe.launch) == family


def test_a_hung_child_does_not_hold_the_channel_open(start: Start, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    probe = start(nvml=GB10_NVML.format(hold=str(hold)))
    probe.first(ProcessTable)
    probe.more_samples(3)
    try:
        probe.send(b'{"bye":1}\n')
        assert probe.drain() == 0  # standard output ended, and standard error did: sshd may close the session
        assert probe.process.stderr is not None
        assert select.select([probe.process.stderr], [], [], 10)[0]
        poll(lambda: len(processes_of(probe.launch)) == 1, what="the end of all but the hung child")
    finally:
        hold.unlink()
    assert probe.error() == ""
    poll(lambda: not processes_of(probe.launch), what="the end of the child once it can answer")


@pytest.mark.parametrize(
    ("value", "state", "words"),
    [
        (12, CollectorState.MISSING, "no NVIDIA driver is installed"),
        (4, CollectorState.DENIED, "denies access"),
        (18, CollectorState.FAILED, "versions differ"),
        (9, CollectorState.FAILED, "isn't loaded"),
        (999, CollectorState.FAILED, "error 999"),
    ],
)
def test_an_nvml_that_cannot_be_opened_says_why(start: Start, value: int, state: CollectorState, words: str) -> None:
    probe = start(nvml=BROKEN_NVML.format(value=value))
    told = probe.first(Collector, lambda c: c.name == "nvml")
    assert told.state is state
    assert words in told.detail
    probe.more_samples(2)


def test_a_module_that_is_no_python_ends_nothing_but_itself(start: Start) -> None:
    probe = start(nvml="this is (no python")
    told = probe.first(Collector, lambda c: c.name == "nvml")
    assert told.state is CollectorState.FAILED
    assert "SyntaxError" in told.detail
    probe.more_samples(2)
