"""What /proc says of processes: who belongs to a probe, what they cost, and whether they are still there."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROBE_MARK = b"sparktop-probe"
_NONCE = re.compile(rb"\x00([0-9a-f]{16})\x00")
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    """/proc/PID/stat from the state on: [0] state, [1] parent, ... field N of proc(5) is [N - 3]."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found, waiting = [], [pid]
    while waiting:
        found.append(one := waiting.pop())
        waiting += children(one)
    return found


def born(pid: int) -> int | None:
    """Its start in ticks since boot, which with the pid names a process for ever; None when it is gone or a zombie."""
    try:
        fields = _stat(pid)
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def nonce_of(pid: int) -> bytes | None:
    """The nonce of the probe this process belongs to by its command line."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    found = _NONCE.search(words) if PROBE_MARK in words else None
    return found[1] if found else None


def probe_of(server_pid: int) -> int | None:
    """The main process of the newest probe that runs under an sshd, past the shells that start it."""
    mains = []
    for pid in family(server_pid):
        with contextlib.suppress(OSError):
            is_python = Path(f"/proc/{pid}/comm").read_text().startswith("python")
            if is_python and nonce_of(pid) and nonce_of(int(_stat(pid)[1])) != nonce_of(pid):
                mains.append((born(pid) or 0, pid))
    return max(mains)[1] if mains else None


def with_nonces(nonces: Iterable[bytes]) -> set[int]:
    """Every living process of these probes, wherever it hangs in the tree."""
    wanted = set(nonces)
    return {
        int(one) for one in os.listdir("/proc") if one.isdigit() and nonce_of(int(one)) in wanted and born(int(one))
    }


def resident_mb(pid: int) -> float:
    """VmRSS in MB of 10^6 bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def proportional_mb(pid: int) -> float:
    """PSS: pages it shares with others are counted by their share."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """CPU time of some processes up to a moment."""

    by_pid: dict[int, int]
    """Nanoseconds on a CPU, all threads, from schedstat."""
    reaped_ns: int
    """User and system time of children that have ended and were waited for, in ticks of 10 ms."""
    reaped_faults: int
    """Page faults of such children; changes with each child that ends, however short it lived."""


def spent(pids: Iterable[int]) -> Spent:
    by_pid: dict[int, int] = {}
    reaped_ns = reaped_faults = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = _stat(pid)
            by_pid[pid] = sum(
                int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0])
                for thread in os.listdir(f"/proc/{pid}/task")
            )
            reaped_ns += (int(fields[13]) + int(fields[14])) * _TICK_NS
            reaped_faults += int(fields[8]) + int(fields[10])
    return Spent(by_pid=by_pid, reaped_ns=reaped_ns, reaped_faults=reaped_faults)


def process_cpu_ns(pid: int) -> int:
    """User and system time of a process with its ended threads, in ticks of 10 ms."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) * _TICK_NS
