"""The kernel log through the real probe: /dev/kmsg itself, and the journal and sudo forms through stand-ins."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.nvml_stand_ins import BROKEN_NVML
from tests.probe_support import RunningProbe, processes_of
from tests.support import poll, unavailable

from sparktop.model.telemetry import Collector, CollectorState, KernelLines, LogLine, Sample
from sparktop.probe import bundle
from sparktop.probe.remote import kernel_log
from sparktop.probe.remote.parsers import log_text

NOBODY = 65534


@pytest.fixture
def bin_folder() -> Iterator[Path]:
    """A folder of stand-in programs that any user may run; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="sparktop-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)


def probe_with(folder: Path | None, *, user: int | None = None, interval_s: float = 0.1) -> RunningProbe:
    launch = bundle.launch(interval_s=interval_s, nvml_source=BROKEN_NVML.format(value=12))
    path = "/usr/local/bin:/usr/bin:/bin"
    return RunningProbe(launch, env={"PATH": f"{folder}:{path}" if folder else path}, user=user)


def lines_of(probe: RunningProbe) -> list[LogLine]:
    return [line for batch in probe.of(KernelLines) for line in batch.lines]


def line_with(probe: RunningProbe, text: str) -> LogLine:
    return probe.until(lambda: [line for line in lines_of(probe) if text in line.text], what=f"a line with {text!r}")[0]


def entry(text: str, *, boot_s: float, **more: str) -> str:
    return json.dumps(
        {
            "MESSAGE": text,
            "_TRANSPORT": "kernel",
            "SYSLOG_IDENTIFIER": "kernel",
            "PRIORITY": "3",
            "__REALTIME_TIMESTAMP": str(int((1757000000 + boot_s) * 1e6)),
            "__MONOTONIC_TIMESTAMP": str(int(boot_s * 1e6)),
            **more,
        }
    )


def journalctl(folder: Path, entries: list[str], *, refuse: str = "") -> Path:
    """A journalctl that gives `entries`, and then follows; it leaves its process id in the file returned."""
    (folder / "entries").write_text("".join(line + "\n" for line in entries))
    pid_file = folder / "pid"
    program(
        folder,
        "journalctl",
        f"""{refuse}
case " $* " in
*" -f "*) echo $$ >{pid_file}.new; mv {pid_file}.new {pid_file}; cat {folder}/entries; exec sleep 600;;
*) head -n 1 {folder}/entries;;
esac
""",
    )
    return pid_file


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.integration
def test_a_line_written_to_kmsg_comes_back() -> None:
    try:
        with open("/dev/kmsg", "rb+", buffering=0) as kmsg:
            text = f"sparktop-test {os.getpid()} {time.monotonic_ns()}: NVRM: Xid (PCI:000f:01:00): 43, pid=1, name=a b"
            with probe_with(None) as probe:
                probe.first(Collector, lambda c: c.name == "kernel" and c.state is CollectorState.OK)
                probe.first(KernelLines)
                kmsg.write(f"<11>{text}\n".encode())
                line = line_with(probe, text)
    except OSError as error:
        unavailable(f"/dev/kmsg can't be read and written here: {error}")
    assert line.priority == 3
    assert line.boot_s is not None
    assert line.wall_s is not None
    assert abs(line.wall_s - time.time()) < 30
    assert abs(line.boot_s - time.clock_gettime(time.CLOCK_MONOTONIC)) < 30
    assert all(batch.source in ("kmsg", "journal") for batch in probe.of(KernelLines))


@pytest.mark.parametrize("ending", ["bye", "kill"])
def test_the_journal_is_followed_and_its_follower_ends_with_the_probe(bin_folder: Path, ending: str) -> None:
    pid_file = journalctl(
        bin_folder,
        [
            entry("Linux version 6.14.0-1015-nvidia", boot_s=0.5),
            entry("session opened", boot_s=9.0, _TRANSPORT="syslog", SYSLOG_IDENTIFIER="sshd"),
            entry("Window manager warning", boot_s=9.1, _TRANSPORT="journal", SYSLOG_IDENTIFIER="gnome-shell"),
            entry(
                "Failed to post KMS update: Permission denied",
                boot_s=9.2,
                _TRANSPORT="journal",
                SYSLOG_IDENTIFIER="gnome-shell",
            ),
            entry("NVRM: Xid (PCI:000f:01:00): 119, pid=3849, name=KMS thread, Timeout after 45s", boot_s=10.0),
        ],
    )
    with probe_with(bin_folder) as probe:
        xid = line_with(probe, "Xid (PCI:000f:01:00): 119")
        assert (xid.boot_s, xid.wall_s, xid.priority) == (10.0, 1757000010.0, 3)
        assert [line.text.partition(":")[0] for line in lines_of(probe)] == [
            "Linux version 6.14.0-1015-nvidia",
            "gnome-shell",
            "NVRM",
        ]
        assert probe.of(KernelLines)[0].source == "journal"
        follower = int(pid_file.read_text())
        assert alive(follower)
        if ending == "bye":
            probe.send(b'{"bye":1}\n')
        else:
            for pid in processes_of(probe.launch):
                os.kill(pid, signal.SIGKILL)
        poll(lambda: not alive(follower), what="the follower's end")


def test_a_backlog_of_kernel_lines_is_whole_ordered_and_delays_no_sample(bin_folder: Path) -> None:
    count = 5000
    journalctl(bin_folder, [entry(f"line {n} of the boot, {'é' * 40}", boot_s=n / 100) for n in range(1, count + 1)])
    with probe_with(bin_folder) as probe:
        probe.until(lambda: len(lines_of(probe)) >= count, within_s=60, what="the whole backlog")
        numbers = [int(line.text.split()[1]) for line in lines_of(probe)]
        assert numbers == list(range(1, count + 1))
        assert sum(batch.dropped for batch in probe.of(KernelLines)) == 0
        assert max(map(len, probe.lines)) <= 16 * 1024
        last = probe.more_samples(2)[-1]
        assert last.skipped < last.sequence / 4  # a busy machine skips some; a loop that read them itself, most


def test_kernel_lines_wait_until_what_was_sent_before_has_arrived(bin_folder: Path) -> None:
    journalctl(bin_folder, [entry(f"line {n}", boot_s=n) for n in range(1, 2000)])
    launch = bundle.launch(interval_s=0.1, nvml_source=BROKEN_NVML.format(value=12))
    with RunningProbe(launch, env={"PATH": f"{bin_folder}:{os.environ['PATH']}"}, acknowledge=False) as probe:
        probe.until(lambda: len(probe.of(Sample)) >= 3)
        quiet_until = time.monotonic() + 0.7
        while time.monotonic() < quiet_until:
            probe.take(0.1)
        assert not probe.of(KernelLines)
        probe.acknowledge = True
        probe.send(b'{"ack":%d}\n' % max(json.loads(line).get("seq", 0) for line in probe.lines[1:]))
        probe.until(lambda: len(lines_of(probe)) == 1999)


def test_without_a_journal_the_kernels_own_buffer_is_read(bin_folder: Path) -> None:
    program(bin_folder, "journalctl", "echo 'No journal files were found.' >&2\nexit 0\n")
    if not os.access("/dev/kmsg", os.R_OK) or os.getuid() != 0:
        unavailable("/dev/kmsg can't be read by this user")
    with probe_with(bin_folder) as probe:
        assert probe.first(KernelLines).source == "kmsg"


# --- as a user who may not


def as_nobody(folder: Path) -> RunningProbe:
    if os.getuid() != 0:
        unavailable("only root can start a probe as another user")
    if Path("/proc/sys/kernel/dmesg_restrict").read_text().strip() != "1":
        unavailable("kernel.dmesg_restrict is off here, so everybody may read the kernel log")
    return probe_with(folder, user=NOBODY)


REFUSE = "echo 'No journal files were opened due to insufficient permissions.' >&2; exit 1"


def test_where_nothing_is_permitted_it_names_the_command_that_would_permit_it(bin_folder: Path) -> None:
    program(bin_folder, "journalctl", REFUSE)
    program(bin_folder, "sudo", "echo 'sudo: a password is required' >&2; exit 1")
    with as_nobody(bin_folder) as probe:
        told = probe.first(Collector, lambda c: c.name == "kernel")
        assert told.state is CollectorState.DENIED
        assert "sudo usermod -aG systemd-journal $USER" in told.detail
        assert not probe.of(KernelLines)
        probe.more_samples(2)


def test_sudo_without_a_password_is_used_where_the_journal_is_closed(bin_folder: Path) -> None:
    pid_file = journalctl(
        bin_folder,
        [entry("oom-kill:constraint=CONSTRAINT_NONE", boot_s=77.0)],
        refuse=f'[ -n "$AS_ROOT" ] || {{ {REFUSE}; }}',
    )
    bin_folder.chmod(0o777)  # "root" is nobody here, and writes its pid
    program(bin_folder, "sudo", '[ "$1" = -n ] || exit 1; shift; AS_ROOT=1 exec "$@"')
    with as_nobody(bin_folder) as probe:
        assert line_with(probe, "oom-kill").boot_s == 77.0
        assert probe.of(KernelLines)[0].source == "sudo journal"
        follower = int(pid_file.read_text())
        assert alive(follower)
        for pid in processes_of(probe.launch):
            os.kill(pid, signal.SIGKILL)
        poll(lambda: not alive(follower), what="the end of what sudo started")


def test_dmesg_under_sudo_comes_last(bin_folder: Path) -> None:
    program(bin_folder, "journalctl", REFUSE)
    program(bin_folder, "sudo", '[ "$1" = -n ] || exit 1; shift; exec "$@"')
    program(
        bin_folder,
        "dmesg",
        'echo "<3>[   12.500000] NVRM: RmInitAdapter failed! (0x62:0x65:2028)"; [ "$2" = --follow ] && exec sleep 9\n',
    )
    with as_nobody(bin_folder) as probe:
        line = line_with(probe, "RmInitAdapter")
        assert (line.boot_s, line.priority) == (12.5, 3)
        assert probe.of(KernelLines)[0].source == "sudo dmesg"


# --- the follower's own bounds


def told(data: int) -> list[dict[str, object]]:
    os.set_blocking(data, False)
    raw = b""
    while True:
        try:
            chunk = os.read(data, 1 << 20)
        except BlockingIOError:
            break
        raw += chunk
    return [json.loads(line.partition(b" ")[2]) for line in raw.splitlines() if line.startswith(b"data ")]


def test_a_flood_is_bounded_and_does_not_displace_the_lines_that_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "KERNEL_BACKLOG", 100)
    read, write = os.pipe()
    try:
        batches = kernel_log.Batches(write, "kmsg")
        kept = [batches.wants(b"audit: type=1400 noise") for _ in range(20_000)]
        assert 100 <= sum(kept) < 10_000
        assert batches.wants(b"NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus.")
        batches.add([1.0, 2.0, 3, "NVRM: Xid"])
        batches.flush()
        (message,) = told(read)
        assert message["dropped"] == 20_000 - sum(kept)
        assert message["lines"] == [[1.0, 2.0, 3, "NVRM: Xid"]]
    finally:
        os.close(read)
        os.close(write)


def test_a_batch_never_exceeds_sixteen_kibibytes() -> None:
    read, write = os.pipe()
    try:
        batches = kernel_log.Batches(write, "journal")
        for _ in range(3):
            batches.add([1.0, 2.0, 3, log_text("\x01é𝄞" * 5000)])
        batches.flush()
        messages = told(read)
        assert sum(len(message["lines"]) for message in messages) == 3  # type: ignore[arg-type]
        assert all(len(json.dumps(message, ensure_ascii=False).encode()) <= 16 * 1024 for message in messages)
    finally:
        os.close(read)
        os.close(write)
