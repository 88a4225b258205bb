"""The kernel log: a child follows it, from the start of the boot."""

from __future__ import annotations

import errno
import json
import os
import select
import time

from sparktop.probe.remote.children import LATER_PARTS, RESPAWN_S, load, tell, tell_state
from sparktop.probe.remote.outbox import encode
from sparktop.probe.remote.parsers import DESKTOP_MARKS, parse_dmesg, parse_journal, parse_kmsg
from sparktop.probe.remote.previous_boot import previous_boot
from sparktop.probe.remote.programs import capture, is_program, may_sudo, spawn
from sparktop.probe.remote.system import read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, NoReturn

    Row = list[Any]

BATCH_BYTES = 14 * 1024
KERNEL_BACKLOG = 20_000
"""Lines of this boot that are read at the start, at most."""
_MATCHES = ["_TRANSPORT=kernel", "+", "SYSLOG_IDENTIFIER=gnome-shell"]
_FIELDS = "MESSAGE PRIORITY SYSLOG_IDENTIFIER _TRANSPORT _SOURCE_MONOTONIC_TIMESTAMP _SOURCE_BOOTTIME_TIMESTAMP"
_JOURNAL = ["journalctl", "-b", "-o", "json", "--no-pager", "-q", "--output-fields=" + _FIELDS.replace(" ", ",")]
_TETHER = '"$@" & p=$!; exec >/dev/null 2>&1; read -r x; kill "$p"'
"""Shell that kills a follower when its standard input closes: ours closes however this child ends, and root's too."""
DENIED = (
    "this user may not read the kernel log; to allow it: `sudo usermod -aG systemd-journal $USER`, then log in again"
)
_encode_text = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class Budget:
    """Rate limit of lines: `burst` at once, then `per_s`, so that a flood of lines costs the Spark no more."""

    def __init__(self, burst: float, per_s: float) -> None:
        self.left = burst
        self.per_s = per_s
        self.at = time.monotonic()

    def take(self, now: float) -> bool:
        """Whether one more line is within the limit; counts it."""
        if self.left < self.per_s * 4:
            self.left = min(self.per_s * 4, self.left + (now - self.at) * self.per_s)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


MARKED = (b"NVRM", b"Xid", b"oom", b"Out of memory", b"mlx5", b"nvme", b"AER", b"hung task", b"blocked for more")
"""Lines with one of these have a budget of their own: a flood of others must not displace them."""


class Batches:
    """Collects kernel lines into `kernel` messages of at most 16 KiB."""

    def __init__(self, data: int, source: str) -> None:
        self.data = data
        self.source = source
        self.rows: list[str] = []
        self.size = 0
        self.dropped = 0
        self.budget = Budget(KERNEL_BACKLOG, 500)
        self.marked_budget = Budget(KERNEL_BACKLOG, 500)
        self.sent_at = 0.0

    def wants(self, raw: bytes) -> bool:
        """Whether a line is within its budget; counts those that aren't."""
        now = time.monotonic()
        marked = any(mark in raw for mark in MARKED)
        if (self.marked_budget if marked else self.budget).take(now):
            return True
        self.dropped += 1
        return False

    def add(self, row: Row) -> None:
        """Add a line, [boot, wall, priority, text]; sends the batch first if it would grow too large."""
        text = _encode_text(row)
        size = len(text.encode()) + 1
        if self.size + size > BATCH_BYTES:
            self.flush()
        self.rows.append(text)
        self.size += size

    def flush(self) -> None:
        """Send the batch; a count of dropped lines alone is sent once a second."""
        now = time.monotonic()
        if not self.rows and (not self.dropped or now - self.sent_at < 1.0):
            return
        self.sent_at = now
        head = f'{{"kind":"kernel","source":{encode(self.source)},"dropped":{self.dropped},"lines":['
        tell(self.data, "data", f"{head}{','.join(self.rows)}]}}")
        self.rows, self.size, self.dropped = [], 0, 0


def kernel_sources() -> Iterator[tuple[str, list[str]]]:
    """(name, argv) of the followers this user may run, best first; each is tested before it is yielded."""
    tether = (
        ["setpriv", "--pdeathsig", "TERM"] if is_program("setpriv") else ["/bin/sh", "-c", _TETHER, "sparktop-tether"]
    )
    newest = [*_JOURNAL, "-n", "1", "_TRANSPORT=kernel"]
    follow = [*_JOURNAL, "-f", "-n", str(KERNEL_BACKLOG), *_MATCHES]
    has_journal = is_program("journalctl")
    if has_journal and _can_read(newest):
        yield "journal", [*tether, *follow]
    if may_sudo():
        root_tether = ["sudo", "-n", "/bin/sh", "-c", _TETHER, "sparktop-tether"]
        if has_journal and _can_read(["sudo", "-n", *newest]):
            yield "sudo journal", [*root_tether, *follow]
        if is_program("dmesg"):
            yield "sudo dmesg", [*root_tether, "dmesg", "--raw", "--follow"]


def _can_read(argv: list[str]) -> bool:
    status, output = capture(argv)
    return status == 0 and parse_journal(output.partition(b"\n")[0]) is not None


def kernel_child(control: int, data: int) -> None:
    """Follow the first source this user may read; when it ends, start again a minute later, after its last line."""
    after = -1.0
    while True:
        followed = False
        for source, argv in kernel_sources():
            tell_state(data, "ok", source)
            followed, after = True, _follow(control, data, source, argv, after)
            tell_state(data, "failed", f"{source} exited; it restarts in a minute")
            break
        if not followed:
            try:
                kmsg = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                os.lseek(kmsg, 0, os.SEEK_SET)  # the oldest record still held
            except PermissionError:
                tell_state(data, "denied", DENIED)
                _wait(control, data, None)
            except OSError as error:
                tell_state(data, "missing", f"no kernel log here: {error}")
                _wait(control, data, None)
            else:
                tell_state(data, "ok", "kmsg")
                _follow_kmsg(control, data, kmsg, after)
        _wait(control, data, RESPAWN_S)


def _wait(control: int, data: int, seconds: float | None) -> None:
    """Wait, for ever where `seconds` is None; leave when the main process is gone."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    until = None if seconds is None else time.monotonic() + seconds
    while poll.poll(None if until is None else max(0, int((until - time.monotonic()) * 1000))):
        _hear(control, data)


def _hear(control: int, data: int) -> None:
    """Answer the main process, which asks only for the previous boot; leave when it is gone."""
    if not os.read(control, 4096):
        os._exit(0)
    try:
        pid = os.fork()  # what is compiled and read for one answer goes with it
    except OSError as error:
        tell(data, "previous", encode({"kind": "previous", "reason": f"no process could be started: {error}"}))
        return
    if pid:
        os.waitpid(pid, 0)
        return
    status = 1
    try:
        load(*LATER_PARTS["previous"])
        tell(data, "previous", encode(previous_boot()))
        status = 0
    finally:
        os._exit(status)


def _wall_offset() -> float:
    """What to add to the kernel's stamps to get wall time."""
    return time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)


def _follow(control: int, data: int, source: str, argv: list[str], after: float) -> float:
    """Follow one program until it ends; returns the boot time of its last line, so that the next start repeats none."""
    pid, tether, output = spawn(argv)
    batches = Batches(data, source)
    pending = b""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(output, select.POLLIN)
    last, cost_at = after, 0.0
    offset = _wall_offset()
    dmesg = source.endswith("dmesg")
    while True:
        ready = dict(poll.poll(30_000))
        if control in ready:
            _hear(control, data)
        if output in ready:
            chunk = os.read(output, 65536)
            if not chunk:
                break
            *lines, pending = (pending + chunk).split(b"\n")
            if len(pending) > 1 << 20:
                pending = b""
            for line in lines:
                if not dmesg and b'"gnome-shell"' in line and not any(mark.encode() in line for mark in DESKTOP_MARKS):
                    continue
                if not batches.wants(line):
                    continue
                row = parse_dmesg(line, offset) if dmesg else parse_journal(line)
                if row is None or (row[0] is not None and row[0] <= after):
                    continue
                last = max(last, row[0] or last)
                batches.add(row)
            batches.flush()
        elif dmesg:
            offset = _wall_offset()
        now = time.monotonic()
        if now >= cost_at:
            cost_at = now + 30.0
            tell(data, "cost", f"{time.process_time() + _cpu_of(pid):.4f}")
    os.close(tether)
    os.close(output)
    os.waitpid(pid, 0)
    return last


def _cpu_of(pid: int) -> float:
    """CPU seconds of a process; 0 where they can't be read."""
    try:
        words = read_file(f"/proc/{pid}/stat", 1024).rpartition(b")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def _follow_kmsg(control: int, data: int, kmsg: int, after: float) -> NoReturn:
    """Follow /dev/kmsg for ever; records that the ring lost before they were read are counted by their numbers."""
    batches = Batches(data, "kmsg")
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(kmsg, select.POLLIN)
    expected: int | None = None
    cost_at = 0.0
    while True:
        ready = dict(poll.poll(30_000))
        if control in ready:
            _hear(control, data)
        offset = _wall_offset()
        for _ in range(500):
            try:
                record = os.read(kmsg, 8192)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in (errno.EPIPE, errno.EINVAL):  # overrun: the next read goes on; record over our buffer
                    continue
                raise
            parsed = parse_kmsg(record, offset)
            if parsed is None or parsed[1][0] <= after:
                continue
            if expected is not None and parsed[0] > expected:
                batches.dropped += parsed[0] - expected
            expected = parsed[0] + 1
            if batches.wants(record):
                batches.add(parsed[1])
        batches.flush()
        now = time.monotonic()
        if now >= cost_at:
            cost_at = now + 30.0
            tell(data, "cost", f"{time.process_time():.4f}")
