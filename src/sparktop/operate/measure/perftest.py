"""perftest on the two ends of a cable: its commands for one half, and what they print. Pure.

Messages of 64 KiB: larger ones fail falsely on some pairs, and these fill a half (docs/facts/bringup.md section 7).
A text without a result is told from one with it: the reading then says why, and has no figure.
"""

from __future__ import annotations

import math
import re

from sparktop import sanitise
from sparktop.dataclass import dataclass

FIRST_PORT = 18515
"""perftest's own; each half that is loaded at once has the next one."""
START_S = 15.0
"""How long a server may take until it listens, and its client to find it."""
BANDWIDTH, LATENCY = "ib_write_bw", "ib_write_lat"
PACKAGE = "perftest"
_LOAD = ("-q", "4", "-s", "65536", "--report_gbits")
_SMALL = ("-s", "2", "-n", "1000")
HEADERS_BYTES = 28
"""Of IPv4 and ICMP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """One PCIe half of the cable, from the end that sends to the end that receives."""

    device: str
    """RDMA device of the sending end."""
    gid_index: int
    """Of RoCE v2, as read for this plan: it moves when addresses change."""
    ip: str
    peer_device: str
    peer_gid_index: int
    peer_ip: str
    mtu: int | None = None
    """The smaller one of both interfaces; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the cable is loaded with."""

    halves: tuple[Half, ...]
    """One, or the two of one cable at once."""
    is_latency: bool = False
    """The time of small messages instead of the bandwidth."""
    seconds: int = 5


def limit_s(load: Load) -> int:
    """After how many seconds a program is ended, whatever becomes of sparktop."""
    return round(load.seconds + 2 * START_S)


def server_argv(load: Load, half: Half, number: int) -> tuple[str, ...]:
    """The program of the receiving end; it serves one client, and ends."""
    return _argv(load, half.peer_device, half.peer_gid_index, number)


def client_argv(load: Load, half: Half, number: int) -> tuple[str, ...]:
    """The program of the sending end."""
    return (*_argv(load, half.device, half.gid_index, number), half.peer_ip)


def ping_argv(half: Half) -> tuple[str, ...]:
    """Two whole packets that may not be fragmented: they prove the MTU, and the neighbours then know each other."""
    size = () if half.mtu is None else ("-M", "do", "-s", str(half.mtu - HEADERS_BYTES))
    return ("ping", "-c2", "-i0.2", "-W1", "-n", *size, "-I", half.ip, half.peer_ip)


def listens_argv(number: int) -> tuple[str, ...]:
    """Lists who listens on a half's TCP port."""
    return ("ss", "-Hltn", "sport", "=", f":{FIRST_PORT + number}")


def _argv(load: Load, device: str, gid_index: int, number: int) -> tuple[str, ...]:
    program = LATENCY if load.is_latency else BANDWIDTH
    work = _SMALL if load.is_latency else (*_LOAD, "-D", str(load.seconds))
    bound = ("timeout", "-k", "5", str(limit_s(load)))
    return (*bound, program, "-d", device, "-x", str(gid_index), "-p", str(FIRST_PORT + number), "-F", *work)


# --- what they print

_UNITS_GBPS = {"Gb": 1.0, "MB": 8 * 2**20 / 1e9, "MiB": 8 * 2**20 / 1e9}
"""perftest's units in Gb/s. What it calls MB/sec, MiB/sec in newer versions, is 2^20 bytes."""
_BANDWIDTH_HEAD = re.compile(r"^\s*#bytes\s+#iterations\b.*\bBW average\[(\w+)/sec\]", re.MULTILINE)
_LATENCY_HEAD = re.compile(r"^\s*#bytes\s+#iterations\s+(.*\[usec\].*)$", re.MULTILINE)
_COLUMN = re.compile(r"(99% percentile|99\.9% percentile|t_\w+)\[usec\]")
_NUMBERS = re.compile(r"^\s*\d+(?:\s+\d+(?:\.\d+)?)+\s*$")
_MTU = re.compile(r"^\s*Mtu\s*:\s*(\d+)\[B\]", re.MULTILINE)
_TROUBLE = re.compile(
    r"couldn't|could not|unable|failed|not found|error|conflicting|no such|invalid|unsupported|exited|took more",
    re.IGNORECASE,
)
LOST_PEER = re.compile(r"couldn't (connect to|read remote)|unable to (read|write)|exchange data", re.IGNORECASE)
_HARMLESS = re.compile(r"conflicting cpu frequency|cpu frequency is not max", re.IGNORECASE)
"""A remark that `-F` lets pass: the result below it counts."""
PROBLEM_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthReading:
    """A result of `ib_write_bw`, or why there is none."""

    gbps: float | None = None
    """Average, decimal gigabits a second."""
    message_bytes: int = 0
    iterations: int = 0
    mtu_bytes: int | None = None
    """The path MTU of the queue pairs: 4096 where the interfaces have 9000, 1024 at 1500."""
    problem: str = ""

    @property
    def transferred_bytes(self) -> int:
        return self.message_bytes * self.iterations


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyReading:
    """A result of `ib_write_lat`, or why there is none."""

    typical_us: float | None = None
    p99_us: float | None = None
    """None: it wasn't printed, as in runs of a fixed time."""
    message_bytes: int = 0
    problem: str = ""


def parse_bandwidth(text: str) -> BandwidthReading:
    """The last result row, which is of the largest message."""
    head = _BANDWIDTH_HEAD.search(text)
    if head is None:
        return BandwidthReading(problem=_problem(text, "ib_write_bw"))
    per_unit = _UNITS_GBPS.get(head[1])
    if per_unit is None:
        return BandwidthReading(problem=f"ib_write_bw reports {sanitise.name(head[1])}/sec, an unit that is not known")
    row = _last_row(text[head.end() :])
    if len(row) < 4:
        return BandwidthReading(problem=_problem(text, "ib_write_bw"))
    gbps = float(row[3]) * per_unit
    if not math.isfinite(gbps) or gbps <= 0:
        return BandwidthReading(problem="ib_write_bw moved nothing")
    mtu = _MTU.search(text)
    return BandwidthReading(
        gbps=gbps,
        message_bytes=int(row[0]),
        iterations=int(row[1]),
        mtu_bytes=int(mtu[1]) if mtu is not None else None,
    )


def parse_latency(text: str) -> LatencyReading:
    """The last result row; the average where no typical value is printed."""
    head = _LATENCY_HEAD.search(text)
    if head is None:
        return LatencyReading(problem=_problem(text, "ib_write_lat"))
    row = _last_row(text[head.end() :])
    columns = dict(zip(_COLUMN.findall(head[1]), row[2:], strict=False))
    typical = columns.get("t_typical") or columns.get("t_avg")
    if typical is None or not 0 < float(typical) < math.inf:
        return LatencyReading(problem=_problem(text, "ib_write_lat"))
    p99 = columns.get("99% percentile")
    return LatencyReading(
        typical_us=float(typical), p99_us=float(p99) if p99 is not None else None, message_bytes=int(row[0])
    )


def _last_row(text: str) -> list[str]:
    rows = [line.split() for line in text.splitlines() if _NUMBERS.match(line)]
    return rows[-1] if rows else []


def _problem(text: str, program: str) -> str:
    """The first line that names a trouble, else that there is no result."""
    lines = (line.strip() for line in text.splitlines())
    said = next((line for line in lines if _TROUBLE.search(line) and not _HARMLESS.search(line)), "")
    return sanitise.line(said, limit=PROBLEM_CHARS) if said else f"{program} printed no result that can be read"
