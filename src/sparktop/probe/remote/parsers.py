"""Bytes of /proc and lines of logs to values; pure."""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False  # typing itself would cost memory on the Spark
if TYPE_CHECKING:
    from typing import Any

    Row = list[Any]

TEXT_CHARS = 2000
"""Longest log line that is sent, in characters."""
MEMINFO_KEYS = tuple(
    (
        "MemTotal MemFree MemAvailable Buffers Cached SwapCached Active(file) Inactive(file) Unevictable Mlocked "
        "SwapTotal SwapFree Dirty Writeback AnonPages Mapped Shmem KReclaimable SReclaimable SUnreclaim KernelStack "
        "PageTables CommitLimit Committed_AS CmaTotal CmaFree HugePages_Total HugePages_Free Hugepagesize"
    ).split()
)
_MEMINFO_KEYS = frozenset(key.encode() for key in MEMINFO_KEYS)


def parse_meminfo(data: bytes) -> dict[str, int]:
    """/proc/meminfo: the keys of MEMINFO_KEYS that are there, in kB (HugePages_* are counts)."""
    values: dict[str, int] = {}
    for line in data.split(b"\n"):
        key, colon, rest = line.partition(b":")
        if colon and key in _MEMINFO_KEYS:
            digits = rest.split(None, 1)[:1]
            if digits and digits[0].isdigit():
                values[key.decode()] = int(digits[0])
    return values


def parse_pressure(data: bytes) -> list[float] | None:
    """One /proc/pressure file: [some10, some60, full10, full60] percent, and the seconds of `full` since boot; 0 for
    `full` where there is no such line."""
    rows: dict[bytes, list[float]] = {}
    for line in data.splitlines():
        words = line.split()
        if len(words) == 5 and words[1].startswith(b"avg10=") and words[2].startswith(b"avg60="):
            try:
                rows[words[0]] = [float(words[1][6:]), float(words[2][6:]), float(words[4][6:]) / 1e6]
            except ValueError:
                return None
    if b"some" not in rows:
        return None
    return rows[b"some"][:2] + rows.get(b"full", [0.0, 0.0, 0.0])


def parse_vmstat(data: bytes) -> dict[str, int]:
    """/proc/vmstat: pswpin, pswpout, pgmajfault, oom_kill, and allocstall summed over the zones."""
    counters: dict[str, int] = {}
    for line in data.split(b"\n"):
        if line.startswith((b"pswp", b"pgmajfault", b"oom_kill", b"allocstall")):
            key, _, digits = line.partition(b" ")
            if digits.strip().isdigit():
                name = "allocstall" if key.startswith(b"allocstall") else key.decode("ascii", "replace")
                counters[name] = counters.get(name, 0) + int(digits)
    return counters


def parse_cpu(data: bytes) -> list[int] | None:
    """First line of /proc/stat: [busy, total] jiffies of all cores; guest time is inside user already."""
    words = data.partition(b"\n")[0].split()
    if len(words) < 5 or words[0] != b"cpu" or not all(word.isdigit() for word in words[1:]):
        return None
    ticks = [int(word) for word in words[1:9]]
    total = sum(ticks)
    return [total - sum(ticks[3:5]), total]


def parse_load(data: bytes) -> list[float] | None:
    """/proc/loadavg: [1m, 5m, 15m]."""
    try:
        minute, five, fifteen = (float(word) for word in data.split()[:3])
    except ValueError:
        return None
    return [minute, five, fifteen]


def parse_process_stat(data: bytes) -> tuple[str, str, int, int, int] | None:
    """/proc/PID/stat: (comm, state, ppid, start in ticks, resident pages); a comm may hold spaces and brackets."""
    opening, closing = data.find(b"("), data.rfind(b")")
    rest = data[closing + 2 :].split()
    if opening < 0 or closing < opening or len(rest) < 22:
        return None
    try:
        numbers = int(rest[1]), int(rest[19]), int(rest[21])
    except ValueError:
        return None
    return data[opening + 1 : closing].decode("utf-8", "replace"), rest[0].decode("ascii", "replace"), *numbers


def parse_status(data: bytes) -> dict[str, int]:
    """/proc/PID/status: uid (real), and shm (RssFile + RssShmem) and swap in bytes, those that are there."""
    fields: dict[str, int] = {}
    for line in data.split(b"\n"):
        key, _, rest = line.partition(b":")
        name = _STATUS_NAMES.get(key)
        words = rest.split()
        if name and words and words[0].isdigit():
            fields[name] = fields.get(name, 0) + int(words[0]) * (1 if name == "uid" else 1024)
    return fields


_STATUS_NAMES = {b"Uid": "uid", b"RssFile": "shm", b"RssShmem": "shm", b"VmSwap": "swap"}


def parse_cgroup(data: bytes) -> str:
    """/proc/PID/cgroup: the v2 path; on v1 the longest path, which is the container's where there is one."""
    longest = ""
    for line in data.decode("utf-8", "replace").split("\n"):
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        if parts[0] == "0" and len(parts[2]) > 1:
            return parts[2]
        if len(parts[2]) > len(longest):
            longest = parts[2]
    return longest


def parse_driver_version(data: bytes) -> str | None:
    """/proc/driver/nvidia/version: "580.142"."""
    match = re.search(rb"NVRM version:.*?\s(\d{3,}\.\d+(?:\.\d+)?)\s", data)
    return match.group(1).decode() if match else None


def parse_dgx_release(data: bytes) -> str | None:
    """/etc/dgx-release: the last DGX_OTA_VERSION, else DGX_SWBUILD_VERSION; the serial number in it is left alone."""
    ota = re.findall(rb'^DGX_OTA_VERSION="?([^"\n]+)', data, re.MULTILINE)
    image = re.findall(rb'^DGX_SWBUILD_VERSION="?([^"\n]+)', data, re.MULTILINE)
    versions = ota or image
    return versions[-1].decode("utf-8", "replace").strip() if versions else None


def log_text(text: str) -> str:
    """A text without line breaks, in valid UTF-8, cut after TEXT_CHARS."""
    flat = " ".join(text[: TEXT_CHARS * 2].splitlines()) if "\n" in text or "\r" in text else text
    if len(text) > TEXT_CHARS:
        flat = flat[:TEXT_CHARS] + "…"
    return flat.encode("utf-8", "replace").decode("utf-8")


def parse_journal(line: bytes) -> Row | None:
    """One line of `journalctl -o json` to [boot, wall, priority, text]; None for a line of neither kernel nor desktop.

    A kernel line has the kernel's own time stamp: journald receives the lines of early boot late.
    """
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    text = entry.get("MESSAGE")
    if isinstance(text, list):  # how journald gives a message that isn't UTF-8
        try:
            text = bytes(text).decode("utf-8", "replace")
        except (TypeError, ValueError):
            return None
    if not isinstance(text, str):
        return None
    sender = entry.get("SYSLOG_IDENTIFIER")
    if entry.get("_TRANSPORT") == "kernel":
        if sender not in (None, "kernel"):  # written to /dev/kmsg by a program
            text = f"{sender}: {text}"
    elif sender == "gnome-shell" and any(mark in text for mark in DESKTOP_MARKS):
        text = f"gnome-shell: {text}"
    else:
        return None
    wall = _micro(entry.get("__REALTIME_TIMESTAMP"))
    received = _micro(entry.get("__MONOTONIC_TIMESTAMP"))
    boot = _micro(entry.get("_SOURCE_BOOTTIME_TIMESTAMP")) or _micro(entry.get("_SOURCE_MONOTONIC_TIMESTAMP"))
    if boot is None:
        boot = received
    elif wall is not None and received is not None and received > boot:
        wall -= received - boot
    return [boot, wall if wall is None else round(wall, 6), _priority(entry.get("PRIORITY")), log_text(text)]


COMPOSITORS = ("gnome-shell", "kwin_wayland", "kwin_x11", "cinnamon", "mutter", "sway", "weston", "Xorg")
"""Names of processes that draw a desktop, best first: on X11 the shell draws and Xorg only shows."""
DESKTOP_MARKS = ("Failed to post KMS update", "Page flip failed", "page flip")
"""Lines of the GNOME shell with one of these are kept: they tell of the kernel's display driver."""


def _micro(value: object) -> float | None:
    """Microseconds as journald writes them, in seconds."""
    try:
        return int(value) / 1e6 if isinstance(value, (str, int)) else None
    except (ValueError, OverflowError):
        return None


def _priority(value: object) -> int | None:
    return int(value) & 7 if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 4 else None


def parse_kmsg(record: bytes, wall_offset: float) -> tuple[int, Row] | None:
    """One record of /dev/kmsg: (sequence number, [boot, wall, priority, text]); wall is boot + wall_offset."""
    head, semicolon, rest = record.partition(b";")
    fields = head.split(b",")
    if not semicolon or len(fields) < 3:
        return None
    try:
        priority, sequence, boot = int(fields[0]), int(fields[1]), int(fields[2]) / 1e6
    except (ValueError, OverflowError):
        return None
    text = re.sub(rb"\\x([0-9a-f]{2})", _unescape, rest.partition(b"\n")[0]).decode("utf-8", "replace")
    return sequence, [boot, round(boot + wall_offset, 6), priority & 7, log_text(text)]


def _unescape(match: re.Match[bytes]) -> bytes:
    return bytes([int(match.group(1), 16)])


def parse_dmesg(line: bytes, wall_offset: float) -> Row | None:
    """One line of `dmesg --raw`, "<6>[    1.234567] text": [boot, wall, priority, text]."""
    match = re.match(rb"<(\d{1,9})>\[\s*(\d{1,12}\.\d{1,9})\] ?(.*)", line, re.DOTALL)
    if not match:
        return None
    boot = float(match.group(2))
    text = log_text(match.group(3).decode("utf-8", "replace"))
    return [boot, round(boot + wall_offset, 6), int(match.group(1)) & 7, text]
