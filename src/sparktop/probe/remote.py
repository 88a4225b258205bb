"""The probe: the one file that runs on a Spark, sent over the channel and never written to its disk.

Python 3.10+ and the standard library alone; it imports nothing of ours, and little of that, because a monitor must
not hurt a dying host: the main process preads /proc files it opened at the start and forks nothing per sample.
Whatever can hang (NVML, per-process files, statvfs, the kernel log) lives in children tied to it by pipes; one that is
stuck is said to be stuck, and is neither killed nor started again: a killed NVML client has frozen a GPU
(facts/reliability.md section 0, 10). The protocol is described in `sparktop.wire`.

Sections: parsers (pure) - masking - host facts - the children: nvml, processes, kernel - pace - main. What one child
alone needs travels beside this file and is compiled there: `remote_network`, `remote_installed`, `remote_desktop`. The
guard is compiled in the main process, when the first order comes: `remote_guard` and what it stands on.
"""

from __future__ import annotations

import errno
import functools
import gc
import json
import os
import re
import select
import signal
import sys
import time

TYPE_CHECKING = False  # typing itself would cost memory on the Spark
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, NoReturn

    Row = list[Any]

PROTOCOL = 1
WINDOW = 3
FAST_S = 0.25
NVML_DEADLINE_S = 5.0
SCAN_DEADLINE_S = 10.0
DESKTOP_DEADLINE_S = 20.0
RESPAWN_S = 60.0
FACTS_S = 60.0
BATCH_BYTES = 14 * 1024
TEXT_CHARS = 2000
PAUSE_PRESSURE = 20.0
"""PSI memory full avg10, percent: per-process files aren't read above it (their locks slow who is being read)."""
KERNEL_BACKLOG = 20_000
STATE_FOLDERS = ("/run/lock", "/tmp")
"""tmpfs that outlives a login, first; in it a folder of the user's own, `sparktop-UID`."""
CLAIM, EVENT = "guard", "guard-event"
"""There: that a guard is armed, and what one did that no console has heard of."""

_encode = json.JSONEncoder(separators=(",", ":")).encode
_encode_text = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


# --- parsers: bytes of /proc and of logs to values, pure --------------------------------------------------------------

MEMINFO_KEYS = tuple(
    (
        "MemTotal MemFree MemAvailable Buffers Cached SwapCached Active(file) Inactive(file) Unevictable Mlocked "
        "SwapTotal SwapFree Dirty Writeback AnonPages Mapped Shmem KReclaimable SReclaimable SUnreclaim KernelStack "
        "PageTables CommitLimit Committed_AS CmaTotal CmaFree HugePages_Total HugePages_Free Hugepagesize"
    ).split()
)
_MEMINFO_WANTED = frozenset(key.encode() for key in MEMINFO_KEYS)


def parse_meminfo(data: bytes) -> dict[str, int]:
    """/proc/meminfo: the keys of MEMINFO_KEYS that are there, in kB (HugePages_* are counts)."""
    found: dict[str, int] = {}
    for line in data.split(b"\n"):
        key, colon, rest = line.partition(b":")
        if colon and key in _MEMINFO_WANTED:
            digits = rest.split(None, 1)[:1]
            if digits and digits[0].isdigit():
                found[key.decode()] = int(digits[0])
    return found


def parse_pressure(data: bytes) -> list[float] | None:
    """One /proc/pressure file: [some10, some60, full10, full60] percent; 0 for `full` where there is no such line."""
    rows: dict[bytes, list[float]] = {}
    for line in data.splitlines():
        words = line.split()
        if len(words) >= 3 and words[1].startswith(b"avg10=") and words[2].startswith(b"avg60="):
            try:
                rows[words[0]] = [float(words[1][6:]), float(words[2][6:])]
            except ValueError:
                return None
    if b"some" not in rows:
        return None
    return rows[b"some"] + rows.get(b"full", [0.0, 0.0])


def parse_vmstat(data: bytes) -> dict[str, int]:
    """/proc/vmstat: pswpin, pswpout, pgmajfault, oom_kill, and allocstall summed over the zones."""
    found: dict[str, int] = {}
    for line in data.split(b"\n"):
        if line.startswith((b"pswp", b"pgmajfault", b"oom_kill", b"allocstall")):
            key, _, digits = line.partition(b" ")
            if digits.strip().isdigit():
                name = "allocstall" if key.startswith(b"allocstall") else key.decode("ascii", "replace")
                found[name] = found.get(name, 0) + int(digits)
    return found


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
        one, five, fifteen = (float(word) for word in data.split()[:3])
    except ValueError:
        return None
    return [one, five, fifteen]


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
    found: dict[str, int] = {}
    for line in data.split(b"\n"):
        key, _, rest = line.partition(b":")
        name = _STATUS_NAMES.get(key)
        words = rest.split()
        if name and words and words[0].isdigit():
            found[name] = found.get(name, 0) + int(words[0]) * (1 if name == "uid" else 1024)
    return found


_STATUS_NAMES = {b"Uid": "uid", b"RssFile": "shm", b"RssShmem": "shm", b"VmSwap": "swap"}


def parse_cgroup(data: bytes) -> str:
    """/proc/PID/cgroup: the v2 path; on v1 the longest path, which is the container's where there is one."""
    best = ""
    for line in data.decode("utf-8", "replace").split("\n"):
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        if parts[0] == "0" and len(parts[2]) > 1:
            return parts[2]
        if len(parts[2]) > len(best):
            best = parts[2]
    return best


def parse_driver_version(data: bytes) -> str | None:
    """/proc/driver/nvidia/version: "580.142"."""
    found = re.search(rb"NVRM version:.*?\s(\d{3,}\.\d+(?:\.\d+)?)\s", data)
    return found.group(1).decode() if found else None


def parse_dgx_release(data: bytes) -> str | None:
    """/etc/dgx-release: the last DGX_OTA_VERSION, else DGX_SWBUILD_VERSION; its serial number is never looked at."""
    ota = re.findall(rb'^DGX_OTA_VERSION="?([^"\n]+)', data, re.MULTILINE)
    image = re.findall(rb'^DGX_SWBUILD_VERSION="?([^"\n]+)', data, re.MULTILINE)
    found = ota or image
    return found[-1].decode("utf-8", "replace").strip() if found else None


def log_text(text: str) -> str:
    """One line of log text: no line breaks, valid UTF-8, bounded."""
    flat = " ".join(text[: TEXT_CHARS * 2].splitlines()) if "\n" in text or "\r" in text else text
    if len(text) > TEXT_CHARS:
        flat = flat[:TEXT_CHARS] + "…"
    return flat.encode("utf-8", "replace").decode("utf-8")


def parse_journal(line: bytes) -> Row | None:
    """One line of `journalctl -o json` to [boot, wall, priority, text]; None for what is neither kernel nor desktop.

    Kernel lines are dated by the kernel's own stamp, because journald receives those of the early boot late.
    """
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    text = entry.get("MESSAGE")
    if isinstance(text, list):  # journald's form of a message that is no UTF-8
        try:
            text = bytes(text).decode("utf-8", "replace")
        except (TypeError, ValueError):
            return None
    if not isinstance(text, str):
        return None
    sender = entry.get("SYSLOG_IDENTIFIER")
    if entry.get("_TRANSPORT") == "kernel":
        if sender not in (None, "kernel"):  # written to /dev/kmsg by somebody
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


DESKTOP_MARKS = ("Failed to post KMS update", "Page flip failed", "page flip")


def _micro(value: object) -> float | None:
    try:
        return int(value) / 1e6 if isinstance(value, (str, int)) else None
    except (ValueError, OverflowError):
        return None


def _priority(value: object) -> int | None:
    return int(value) & 7 if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 4 else None


def parse_kmsg(record: bytes, wall_offset: float) -> tuple[int, Row] | None:
    """One record of /dev/kmsg to (sequence number, [boot, wall, priority, text]); wall is boot + wall_offset."""
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


def _unescape(found: re.Match[bytes]) -> bytes:
    return bytes([int(found.group(1), 16)])


def parse_dmesg(line: bytes, wall_offset: float) -> Row | None:
    """One line of `dmesg --raw`: "<6>[    1.234567] text"."""
    found = re.match(rb"<(\d{1,9})>\[\s*(\d{1,12}\.\d{1,9})\] ?(.*)", line, re.DOTALL)
    if not found:
        return None
    boot = float(found.group(2))
    text = log_text(found.group(3).decode("utf-8", "replace"))
    return [boot, round(boot + wall_offset, 6), int(found.group(1)) & 7, text]


# --- masking: secrets leave the Spark in no argv ----------------------------------------------------------------------

MASK = "<masked>"
_SECRET_WORDS = frozenset(
    "token secret secrets password passwd passphrase pass pwd apikey credential credentials cookie bearer auth "
    "authorization accesskey privatekey".split()
)
_SECRET_PAIRS = (
    ["api", "key"],
    ["api", "keys"],
    ["access", "key"],
    ["private", "key"],
    ["secret", "key"],
    ["auth", "key"],
)
_PATTERNS = tuple(
    (needles.split(), re.compile(pattern), replacement)
    for needles, pattern, replacement in (
        (
            "hf_ nvapi- gh akia xox",
            r"\b(?:hf_[A-Za-z0-9]{16,}|nvapi-[\w-]{12,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|AKIA[0-9A-Z]{12,}|xox[abpr]-[\w-]{8,})",
            MASK,
        ),
        ("sk-", r"(?<![A-Za-z0-9])sk-[\w-]{12,}", MASK),
        ("eyj", r"\beyJ[\w-]{6,}\.[\w-]+(?:\.[\w-]*)?", MASK),
        # "Basic information" is prose: base64 has capitals or digits.
        (
            "bearer basic",
            r"(?i)\b(bearer|basic(?=\s+(?-i:[\w.~+/=-]*[A-Z0-9])))\s+[\w.~+/=-]{6,}",
            r"\1 " + MASK,
        ),
        ("://", r"://[^/\s@]+@", "://" + MASK + "@"),
    )
)
"""What a text in lower case must have a piece of, what is masked then, and by what."""
# Every piece is linear in the length of the text: whoever may start a process may name it to slow a scanner down.
_NAMED = [word for word in {*_SECRET_WORDS, "key"} if not any(one in word for one in {*_SECRET_WORDS, "key"} - {word})]
"""Whatever names a secret has one of these in it."""
_NAMING = re.compile("|".join(_NAMED), re.IGNORECASE)
_WORD_CHARS = re.compile(r"[\w.-]*")
_COUNT = re.compile(r"\d{1,9}(?![\w.~+/=-])")
"""What SGLang writes after `#new-token:`."""
_UNSET = re.compile(r"(?:None|null|True|False|\.{3})(?![\w.~+/=-])")
"""What an engine that tells its arguments writes after `hf_token=`, and a remedy in place of what is to be typed."""
_ASSIGNS = re.compile(r"""[\\"'\]]{0,4}\s{0,8}[=:]\s{0,8}""")
_SPACE = re.compile(r"\s{1,8}")
_VALUE = re.compile(
    r"""\[[^\]]*|\\["'][^"'\\]*|"(?:[^"\\]|\\.)*|'(?:[^'\\]|\\.)*|(?:(?:bearer|basic|token)\s{1,8})?[^\s"',;}&]*""",
    re.IGNORECASE | re.DOTALL,
)


@functools.lru_cache(maxsize=512)
def is_secret_name(name: str) -> bool:
    """Whether a flag, variable or JSON key names a secret: `--hf-token` does, `--max-tokens` and `--tokenizer` not."""
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().replace("-", "_").replace(".", "_").split("_")
    words = [word for word in words if word]
    if words[-1:] in (["id"], ["ids"], ["file"], ["path"]):
        return False
    return any(word in _SECRET_WORDS for word in words) or any(
        words[index : index + 2] in _SECRET_PAIRS for index in range(len(words) - 1)
    )


def mask_text(text: str) -> str:
    """One argument with secrets masked: by pattern, and by name inside KEY=VALUE, JSON and whole command lines.

    An engine's log brings thousands of lines a second: what has no piece of a secret costs next to nothing.
    """
    lower = text.lower()
    for needles, pattern, replacement in _PATTERNS:
        if any(needle in lower for needle in needles):
            text = pattern.sub(replacement, text)
    if not any(word in lower for word in _NAMED):
        return text
    masked, done, at = "", 0, 0
    while found := _NAMING.search(text, at):
        start = found.start()
        while start > at and _is_of_word(text[start - 1]):
            start -= 1
        at = _WORD_CHARS.match(text, found.end()).end()  # type: ignore[union-attr]
        name = text[start:at][-100:]
        if is_secret_name(name):
            gap = _ASSIGNS.match(text, at) or (_SPACE.match(text, at) if name.startswith("--") else None)
            value = _VALUE.match(text, gap.end()) if gap else None
            is_count = value and name.endswith("token") and _COUNT.match(text, value.start())
            if value and value.group() and not is_count and not _UNSET.match(text, value.start()):
                opening = value.group().lstrip("\\")[:1]
                masked += text[done : value.start()] + (opening if opening in "\"'[" else "") + MASK
                done = at = value.end()
    return masked + text[done:]


def _is_of_word(char: str) -> bool:
    return char.isalnum() or char in "_.-"


def mask_argv(argv: Iterable[str]) -> list[str]:
    """An argv with secrets masked; what follows a secret flag is masked too (all of it for `--api-key a b`)."""
    masked: list[str] = []
    hide = 0  # arguments still to be hidden
    for argument in argv:
        if argument.startswith("-"):
            name, equals, _ = argument.partition("=")
            secret = is_secret_name(name)
            if secret and equals:
                argument = f"{name}={MASK}"
            elif secret:
                hide = 1000 if name.replace("_", "-").endswith("api-key") else 1
                masked.append(argument)
                continue
            elif hide == 1:  # a value that begins with a dash is a value all the same
                argument = MASK if not argument.startswith("--") else mask_text(argument)
            else:
                argument = mask_text(argument)
            hide = 0
        elif hide:
            hide -= 1
            argument = MASK
        else:
            argument = mask_text(argument)
        masked.append(argument)
    return masked


# --- host facts -------------------------------------------------------------------------------------------------------


def _read(path: str, limit: int = 65536) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, limit)
    finally:
        os.close(descriptor)


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _gap(error: OSError) -> str:
    return "no permission" if isinstance(error, PermissionError) else "not found"


def host_facts() -> dict[str, Any]:
    """What changes rarely, from files that can't hang; disks come from the scanner, because statvfs can."""
    gaps: dict[str, str] = {"disks": "not read yet"}

    def take(field: str, path: str, parse: Callable[[bytes], str | None]) -> str | None:
        try:
            value = parse(_read(path))
        except OSError as error:
            gaps[field] = _gap(error)
            return None
        if not value:
            gaps[field] = "not found"
        return value or None

    def text(data: bytes) -> str:
        return data.decode("utf-8", "replace").strip()

    def pretty(data: bytes) -> str | None:
        found = re.search(rb'^PRETTY_NAME="?([^"\n]+)', data, re.MULTILINE)
        return text(found.group(1)) if found else None

    def digest(data: bytes) -> str | None:
        import zlib

        # 32 of 128 bits: enough to see that two nodes are clones of one another, too few to be the id.
        return f"{zlib.crc32(data.strip()):08x}" if data.strip() else None

    kernel = os.uname()
    return {
        "hostname": kernel.nodename,
        "boot_id": take("boot_id", "/proc/sys/kernel/random/boot_id", text) or "",
        "machine_digest": take("machine_digest", "/etc/machine-id", digest),
        "kernel": kernel.release,
        "arch": kernel.machine,
        "os": take("os", "/etc/os-release", pretty),
        "dgx": take("dgx", "/etc/dgx-release", parse_dgx_release),
        "product": take("product", "/sys/class/dmi/id/product_family", text),
        "driver": take("driver", "/proc/driver/nvidia/version", parse_driver_version),
        "cpus": os.cpu_count() or 0,
        "python": sys.version.split()[0],
        "user": os.environ.get("USER") or os.environ.get("LOGNAME") or str(os.getuid()),
        "uid": os.getuid(),
        "disks": [],
        "gaps": gaps,
    }


def disks() -> list[list[Any]]:
    """[[mount, total, free]] in bytes of /, /home and Docker's store, each filesystem once. May hang."""
    rows: list[list[Any]] = []
    seen = set()
    for mount in ("/", "/home", "/var/lib/docker"):
        try:
            device = os.stat(mount).st_dev
            space = os.statvfs(mount)
        except OSError:
            continue
        if device not in seen:
            seen.add(device)
            rows.append([mount, space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize])
    return rows


# --- children: what may hang ------------------------------------------------------------------------------------------
# A child answers in lines on its data pipe: `data JSON`, `state JSON`, `pids a,b` and, last, `cost SECONDS`.
# It leaves when its control pipe closes, which the kernel does for us however the main process ends.


def unpack(packed: bytes) -> dict[str, bytes]:
    """What came behind this source: "name:length ..." in a line, then texts, each compressed by itself."""
    head, _, rest = packed.partition(b"\n")
    parts = {}
    for word in head.split():
        name, _, length = word.partition(b":")
        parts[name.decode()], rest = rest[: int(length)], rest[int(length) :]
    return parts


def part(name: str, parts: dict[str, bytes], base: dict[str, Any] | None = None) -> dict[str, Any]:
    """The names of a part, with those of `base`: compiled where it is needed, since that costs memory for good."""
    import zlib

    names = {**globals(), **(base or {}), "__name__": "sparktop_probe"}
    exec(compile(zlib.decompress(parts.pop(name)), "sparktop-" + name, "exec"), names)
    return names


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def tell(data: int, tag: str, body: str) -> None:
    rest = memoryview(f"{tag} {body}\n".encode("utf-8", "replace"))
    while rest:
        rest = rest[os.write(data, rest) :]


def tell_state(data: int, state: str, detail: str = "") -> None:
    tell(data, "state", _encode({"state": state, "detail": detail[:300]}))


def requests(control: int) -> Iterator[bytes]:
    """Requests of the main process, one a line, until it is gone."""
    pending = b""
    while True:
        chunk = os.read(control, 4096)
        if not chunk:
            return
        *lines, pending = (pending + chunk).split(b"\n")
        yield from lines


# nvml: nvidia-ml-py's module, in a process of its own

_NVML_GAPS = {2: "failed", 3: "not supported", 4: "no permission", 6: "not found", 10: "timed out", 13: "not supported"}
"""NVMLError.value to a gap's reason (nvml.h); 13 is FUNCTION_NOT_FOUND, an older driver."""
_NVML_STATES = {
    4: ("denied", "NVML gives no permission: is this user allowed to open /dev/nvidia*?"),
    9: ("failed", "the NVIDIA kernel driver isn't loaded: `sudo modprobe nvidia`, or look for it in the kernel log"),
    12: ("missing", "libnvidia-ml.so.1 is not there: no NVIDIA driver is installed"),
    18: ("failed", "NVIDIA driver and library versions differ, as after an update: reboot this machine"),
}


def nvml_gap(error: BaseException) -> str:
    if isinstance(error, AttributeError):  # nvidia-ml-py lacks the function
        return "not supported"
    return _NVML_GAPS.get(getattr(error, "value", None) or 0, "failed")


def nvml_failure(error: BaseException) -> tuple[str, str]:
    """Why NVML as a whole can't be read, as (collector state, sentence)."""
    known = _NVML_STATES.get(getattr(error, "value", None) or 0)
    return known or ("failed", f"NVML: {type(error).__name__}: {error}")


def _as_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _nvml_process_name(nvml: Any, pid: int) -> str:
    try:
        return _as_text(nvml.nvmlSystemGetProcessName(pid))
    except Exception:
        try:
            return _as_text(_read(f"/proc/{pid}/comm")).strip()
        except OSError:
            return ""


def gpu_processes(nvml: Any, handle: Any) -> list[Row]:
    """[[pid, name, bytes|None, "C"|"G"]]; a process listed as both counts once, as compute."""
    rows: dict[int, Row] = {}
    failure: Exception | None = None
    listed = False
    for kind, function in (
        ("C", "nvmlDeviceGetComputeRunningProcesses"),
        ("G", "nvmlDeviceGetGraphicsRunningProcesses"),
    ):
        try:
            processes = getattr(nvml, function)(handle)
        except Exception as error:
            failure = error
            continue
        listed = True
        for process in processes[:256]:
            if process.pid not in rows:
                name = _nvml_process_name(nvml, process.pid)[:256]
                rows[process.pid] = [process.pid, name, process.usedGpuMemory, kind]
    if not listed and failure is not None:
        raise failure
    return list(rows.values())


class GpuReader:
    """NVML opened once: what never changes is read at the start, the process list every second time."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
        if not count:
            raise RuntimeError("no devices were found")
        self.handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(min(count, 16))]
        self.fixed: list[dict[str, Any]] = []
        for handle in self.handles:
            self.fixed.append(self._fixed(handle))
        self.listed: list[tuple[list[Row] | None, str]] = [(None, "not read yet")] * len(self.handles)
        self.turn = 0

    def _fixed(self, handle: Any) -> dict[str, Any]:
        nvml = self.nvml
        row: dict[str, Any] = {"name": _as_text(nvml.nvmlDeviceGetName(handle))}
        row["gaps"] = _take(
            row,
            uuid=lambda: _as_text(nvml.nvmlDeviceGetUUID(handle)),
            driver=lambda: _as_text(nvml.nvmlSystemGetDriverVersion()),
            sm_max_mhz=lambda: int(nvml.nvmlDeviceGetMaxClockInfo(handle, 1)),
        )
        return row

    def read(self) -> dict[str, Any]:
        """The `gpu` message; fields that can't be read are gaps. An error only when no GPU gives anything."""
        gpus = []
        for index, handle in enumerate(self.handles):
            if self.turn % 2 == 0:
                try:
                    self.listed[index] = gpu_processes(self.nvml, handle), ""
                except Exception as error:
                    self.listed[index] = None, nvml_gap(error)
            gpus.append(self._one(self.fixed[index], handle, *self.listed[index]))
        self.turn += 1
        return {"kind": "gpu", "boot": round(boottime(), 3), "gpus": gpus}

    def _one(self, fixed: dict[str, Any], handle: Any, listed: list[Row] | None, reason: str) -> dict[str, Any]:
        nvml = self.nvml
        row = dict(fixed)
        errors: list[BaseException] = []

        def throttle() -> int:
            read = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
            return int((read or nvml.nvmlDeviceGetCurrentClocksThrottleReasons)(handle))

        def pstate() -> int:
            state = int(nvml.nvmlDeviceGetPerformanceState(handle))
            if state > 15:
                raise AttributeError("unknown")
            return state

        def both(names: tuple[str, str], read: Callable[[], Any], fields: tuple[str, str]) -> None:
            try:
                value = read()
                row[names[0]], row[names[1]] = int(getattr(value, fields[0])), int(getattr(value, fields[1]))
            except Exception as error:
                errors.append(error)
                gaps[names[0]] = gaps[names[1]] = nvml_gap(error)

        gaps = dict(fixed["gaps"])
        gaps.update(
            _take(
                row,
                errors,
                power_mw=lambda: int(nvml.nvmlDeviceGetPowerUsage(handle)),
                sm_mhz=lambda: int(nvml.nvmlDeviceGetClockInfo(handle, 1)),
                temp_c=lambda: int(nvml.nvmlDeviceGetTemperature(handle, 0)),
                pstate=pstate,
                throttle=throttle,
            )
        )
        both(("util", "mem_util"), lambda: nvml.nvmlDeviceGetUtilizationRates(handle), ("gpu", "memory"))
        both(("mem_total", "mem_used"), lambda: nvml.nvmlDeviceGetMemoryInfo(handle), ("total", "used"))
        if (
            len(errors) == 7 and "util" in gaps and gaps["util"] == "failed"
        ):  # the GPU is lost, not merely sparing of words
            raise errors[0]
        if listed is None:
            gaps["procs"] = reason
        else:
            row["procs"] = listed
        row["gaps"] = gaps
        return row


def _take(row: dict[str, Any], errors: list[BaseException] | None = None, **reads: Callable[[], Any]) -> dict[str, str]:
    """Fill a row field by field; the gaps of those that fail."""
    gaps = {}
    for field, read in reads.items():
        try:
            row[field] = read()
        except Exception as error:
            gaps[field] = nvml_gap(error)
            if errors is not None:
                errors.append(error)
    return gaps


def _give_back_memory() -> None:
    """Compiling 8,000 lines leaves 11 MB behind, on a machine where memory is what runs out."""
    gc.collect()
    try:
        import ctypes  # loaded by then: nvidia-ml-py is made of it

        ctypes.CDLL(None).malloc_trim(0)
    except (ImportError, OSError, AttributeError):  # a C library without it
        pass


def nvml_child(control: int, data: int, packed: bytes) -> None:
    """Answers every request with one reading, or with why there is none; opens NVML again after a minute without it."""
    reader: GpuReader | None = None
    nvml: Any = None
    retry_at = 0.0
    for _ in requests(control):
        try:
            if nvml is None:
                import types
                import zlib

                nvml = types.ModuleType("pynvml")
                sys.modules["pynvml"] = nvml  # its classes look their module up
                exec(compile(zlib.decompress(packed), "pynvml.py", "exec"), nvml.__dict__)
                packed = b""
                _give_back_memory()
            if reader is None and time.monotonic() >= retry_at:
                retry_at = time.monotonic() + RESPAWN_S
                reader = GpuReader(nvml)
            if reader is not None:
                message = reader.read()
                pids = {row[0] for gpu in message["gpus"] for row in gpu.get("procs") or ()}
                tell(data, "pids", ",".join(map(str, sorted(pids))))
                tell(data, "data", _encode(message))
        except BrokenPipeError:
            return
        except Exception as error:
            reader = None
            retry_at = time.monotonic() + RESPAWN_S
            tell_state(data, *nvml_failure(error))
        tell(data, "cost", f"{time.process_time():.4f}")


# processes: one pass over /proc on request

ENGINE_COMMAND = r"\bvllm serve\b|\bvllm\.entrypoints\b|\bsglang\.launch_server\b|\bsglang serve\b"
_ENGINE_COMM = re.compile(r"VLLM::|sglang::", re.IGNORECASE)
_CANDIDATE_COMM = re.compile(r"python|pypy|vllm|sglang|ray|pt_main_thread|uvicorn|uv$", re.IGNORECASE)
_DESKTOP_COMM = re.compile(
    r"gnome-shell|gnome-session|Xorg|Xwayland|mutter|kwin|gdm|sddm|lightdm|plasmashell|cinnamon|xfwm|weston|sway|gjs|nautilus"
)
COMPOSITORS = ("gnome-shell", "kwin_wayland", "kwin_x11", "cinnamon", "mutter", "sway", "weston", "Xorg")
"""Best first: on X11 the shell draws and Xorg only shows."""
LARGEST = 25


class Scanner:
    """Reads every process's stat, and more only of those that are shown; argvs are read once per process."""

    def __init__(self, root: str = "/proc") -> None:
        self.root = root
        self.argvs: dict[tuple[int, int, str], list[str]] = {}
        self.kernel_threads: set[int] = set()
        self.compositors: list[int] = []
        self.forget_at = 0.0
        self.page = os.sysconf("SC_PAGE_SIZE")
        self.ticks = os.sysconf("SC_CLK_TCK")

    def scan(self, gpu_pids: set[int]) -> dict[str, Any]:
        """The `processes` message."""
        now = time.monotonic()
        if now >= self.forget_at:  # a kernel thread's number may pass to a process
            self.forget_at = now + 60.0
            self.kernel_threads.clear()
        total = zombies = 0
        found: dict[int, tuple[str, str, int, int, int]] = {}
        for name in os.listdir(self.root):
            if not name.isdigit():
                continue
            total += 1
            pid = int(name)
            if pid in self.kernel_threads:
                continue
            try:
                stat = parse_process_stat(_read(f"{self.root}/{name}/stat", 1024))
            except OSError:
                continue
            if stat is None:
                continue
            if stat[4] == 0 and (stat[2] == 2 or pid == 2):  # in a container's namespace 2 is anybody
                self.kernel_threads.add(pid)
                continue
            zombies += stat[1] == "Z"
            found[pid] = stat
        largest = sorted(found, key=lambda pid: found[pid][4], reverse=True)[:LARGEST]
        shown = {pid for pid in largest if found[pid][4]}
        engines: dict[int, list[str]] = {}
        fresh: dict[tuple[int, int, str], list[str]] = {}
        desktop = set()
        for pid, (comm, state, _, start, _) in found.items():
            if _DESKTOP_COMM.match(comm):
                desktop.add(pid)
            elif state != "Z" and _CANDIDATE_COMM.match(comm):
                key = (pid, start, comm)
                argv = self.argvs.get(key)
                if argv is None:
                    argv = self._argv(pid)
                fresh[key] = argv
                if pid in gpu_pids or _ENGINE_COMM.match(comm) or re.search(ENGINE_COMMAND, " ".join(argv)):
                    engines[pid] = argv
        self.argvs = fresh
        self.of_interest = [*sorted(engines)[:100], *(pid for pid in found if found[pid][0] in ("docker", "podman"))]
        shown.update(sorted(engines)[:100], sorted(desktop)[:40], [pid for pid in gpu_pids if pid in found])
        rows = []
        room = 96 * 1024
        for pid in sorted(shown):
            row = self._row(pid, found[pid], wait=pid in engines or pid in desktop)
            if row is None:
                continue
            argv = engines.get(pid) or []
            room -= sum(map(len, argv))
            if argv and room > 0:
                row["argv"] = argv
            rows.append(row)
        self.compositors = sorted(pid for pid in desktop if found[pid][0] in COMPOSITORS and found[pid][1] != "Z")
        return {"kind": "processes", "boot": round(boottime(), 3), "total": total, "zombies": zombies, "rows": rows}

    def service_cgroups(self) -> list[str]:
        """The cgroups of engines and of Docker's clients as the last scan saw them: their services are of interest."""
        found = []
        for pid in self.of_interest[:200]:
            try:
                found.append(parse_cgroup(_read(f"{self.root}/{pid}/cgroup", 8192)))
            except OSError:
                continue
        return found

    def _argv(self, pid: int) -> list[str]:
        try:
            raw = _read(f"{self.root}/{pid}/cmdline", 32768)
        except OSError:
            return []
        parts = raw.rstrip(b"\0").split(b"\0")[:400]
        return mask_argv(part.decode("utf-8", "replace")[:4096] for part in parts if part)

    def _row(self, pid: int, stat: tuple[str, str, int, int, int], *, wait: bool) -> dict[str, Any] | None:
        comm, state, parent, start, pages = stat
        row: dict[str, Any] = {
            "pid": pid,
            "ppid": parent,
            "comm": comm,
            "state": state,
            "rss": pages * self.page,
            "start": round(start / self.ticks, 2),
        }
        try:
            row.update(parse_status(_read(f"{self.root}/{pid}/status", 8192)))
            row["cgroup"] = parse_cgroup(_read(f"{self.root}/{pid}/cgroup", 8192))[:512]
        except OSError:
            return None  # it has ended meanwhile
        if wait:
            try:
                channel = _read(f"{self.root}/{pid}/wchan", 256).decode("utf-8", "replace")
            except OSError:
                channel = ""
            if channel not in ("", "0"):
                row["wchan"] = channel
        return row


def scanner_child(control: int, data: int, parts: dict[str, bytes]) -> None:
    """Answers "s FACTS PIDS" with the process table, and with the host's facts when FACTS is 1."""
    scanner = Scanner()
    network = part("network", parts)["Network"]()
    installed = part("installed", parts)["Installed"]()
    for request in requests(control):
        words = request.split()
        pids = {int(word) for word in (words[2].split(b",") if len(words) > 2 else ()) if word.isdigit()}
        tell(data, "data", _encode(scanner.scan(pids)))
        tell(data, "compositors", ",".join(map(str, scanner.compositors)))
        reading = network.read(time.monotonic())
        if reading is not None:
            tell(data, "data", _encode(reading))
        if words[1:2] == [b"1"]:
            facts = host_facts()
            del facts["gaps"]["disks"]
            facts["disks"] = disks()
            user, uid = facts["user"], facts["uid"]
            slow = installed.read(time.monotonic(), facts["kernel"], user, uid, scanner.service_cgroups())
            slow["gaps"].update(facts["gaps"])
            tell(data, "data", _encode({"kind": "facts", **facts, **slow}))
        tell(data, "cost", f"{time.process_time():.4f}")


# kernel: the kernel log, followed from the start of the boot

_MATCHES = ["_TRANSPORT=kernel", "+", "SYSLOG_IDENTIFIER=gnome-shell"]
_FIELDS = "MESSAGE PRIORITY SYSLOG_IDENTIFIER _TRANSPORT _SOURCE_MONOTONIC_TIMESTAMP _SOURCE_BOOTTIME_TIMESTAMP"
_JOURNAL = ["journalctl", "-b", "-o", "json", "--no-pager", "-q", "--output-fields=" + _FIELDS.replace(" ", ",")]
_TETHER = '"$@" & p=$!; exec >/dev/null 2>&1; read -r x; kill "$p"'
"""Runs a follower that ends with us: our end of its shell's standard input closes however we end, root or not."""
DENIED = (
    "this user may not read the kernel log; to permit it: `sudo usermod -aG systemd-journal $USER`, then log in again"
)


def _environment() -> dict[str, str]:
    path = os.environ.get("PATH") or "/usr/bin:/bin"
    return {"PATH": path + ":/usr/sbin:/sbin", "LC_ALL": "C", "HOME": os.environ.get("HOME") or "/"}


def _which(name: str) -> bool:
    return any(os.access(f"{folder}/{name}", os.X_OK) for folder in _environment()["PATH"].split(":"))


def spawn(argv: list[str]) -> tuple[int, int, int]:
    """Start a program: (pid, its standard input, its standard output)."""
    input_read, input_write = os.pipe()
    output_read, output_write = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, input_read, 0), (os.POSIX_SPAWN_DUP2, output_write, 1)]
    try:
        pid = os.posix_spawnp(argv[0], argv, _environment(), file_actions=actions, setsigdef=[signal.SIGPIPE])
    except OSError:
        os.close(input_write)
        os.close(output_read)
        raise
    finally:
        os.close(input_read)
        os.close(output_write)
    return pid, input_write, output_read


def capture(argv: list[str], timeout_s: float = 10.0) -> tuple[int | None, bytes]:
    """Run a short command: (exit status, standard output); status None when it isn't there or took too long."""
    try:
        pid, standard_input, output = spawn(argv)
    except OSError:
        return None, b""
    os.close(standard_input)
    deadline = time.monotonic() + timeout_s
    collected = b""
    poll = select.poll()
    poll.register(output, select.POLLIN)
    try:
        while poll.poll(max(0, int((deadline - time.monotonic()) * 1000))):
            chunk = os.read(output, 65536)
            if not chunk:
                return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), collected
            collected = (collected + chunk)[:65536]
        try:
            os.kill(pid, signal.SIGTERM)
        except OSError:  # sudo's process is root's; it ends by itself
            pass
        return None, collected
    finally:
        os.close(output)


class Budget:
    """So many lines at once, then so many a second; a flood costs the Spark no more than that."""

    def __init__(self, burst: float, per_s: float) -> None:
        self.left = burst
        self.per_s = per_s
        self.at = time.monotonic()

    def take(self, now: float) -> bool:
        if self.left < self.per_s * 4:
            self.left = min(self.per_s * 4, self.left + (now - self.at) * self.per_s)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


MARKED = (b"NVRM", b"Xid", b"oom", b"Out of memory", b"mlx5", b"nvme", b"AER", b"hung task", b"blocked for more")
"""Lines that have a budget of their own: a flood of others must not displace them."""


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
        self.told_dropped_at = 0.0

    def wants(self, raw: bytes) -> bool:
        """Whether a line is within its budget; counts it when it isn't."""
        now = time.monotonic()
        marked = any(mark in raw for mark in MARKED)
        if (self.marked_budget if marked else self.budget).take(now):
            return True
        self.dropped += 1
        return False

    def add(self, row: Row) -> None:
        text = _encode_text(row)
        size = len(text.encode()) + 1
        if self.size + size > BATCH_BYTES:
            self.flush()
        self.rows.append(text)
        self.size += size

    def flush(self) -> None:
        now = time.monotonic()
        if not self.rows and (not self.dropped or now - self.told_dropped_at < 1.0):
            return
        self.told_dropped_at = now
        head = f'{{"kind":"kernel","source":{_encode(self.source)},"dropped":{self.dropped},"lines":['
        tell(self.data, "data", f"{head}{','.join(self.rows)}]}}")
        self.rows, self.size, self.dropped = [], 0, 0


def kernel_sources() -> Iterator[tuple[str, list[str]]]:
    """(name, argv) of every follower this user may use, best first; each is tried before it is offered."""
    pdeathsig = (
        ["setpriv", "--pdeathsig", "TERM"] if _which("setpriv") else ["/bin/sh", "-c", _TETHER, "sparktop-tether"]
    )
    one = [*_JOURNAL, "-n", "1", "_TRANSPORT=kernel"]
    follow = [*_JOURNAL, "-f", "-n", str(KERNEL_BACKLOG), *_MATCHES]
    journal = _which("journalctl")
    if journal and _can_read(one):
        yield "journal", [*pdeathsig, *follow]
    # Asked once in a session: each refusal is a line in the node's auth log.
    if os.getuid() != 0 and _which("sudo") and capture(["sudo", "-n", "true"])[0] == 0:
        tethered = ["sudo", "-n", "/bin/sh", "-c", _TETHER, "sparktop-tether"]
        if journal and _can_read(["sudo", "-n", *one]):
            yield "sudo journal", [*tethered, *follow]
        if _which("dmesg"):
            yield "sudo dmesg", [*tethered, "dmesg", "--raw", "--follow"]


def _can_read(argv: list[str]) -> bool:
    status, output = capture(argv)
    return status == 0 and parse_journal(output.partition(b"\n")[0]) is not None


def kernel_child(control: int, data: int) -> None:
    """Follows the first source that may be read; starts it again, from where it was, when it ends."""
    after = -1.0
    while True:
        followed = False
        for source, argv in kernel_sources():
            tell_state(data, "ok", source)
            followed, after = True, _follow(control, data, source, argv, after)
            tell_state(data, "failed", f"{source} ended; it is started again in a minute")
            break
        if not followed:
            try:
                kmsg = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                os.lseek(kmsg, 0, os.SEEK_SET)  # the oldest record still held
            except PermissionError:
                tell_state(data, "denied", DENIED)
                _wait(control, None)
            except OSError as error:
                tell_state(data, "missing", f"no kernel log here: {error}")
                _wait(control, None)
            else:
                tell_state(data, "ok", "kmsg")
                _follow_kmsg(control, data, kmsg, after)
        _wait(control, RESPAWN_S)


def _wait(control: int, seconds: float | None) -> None:
    """Wait, or leave when the main process is gone."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    if poll.poll(None if seconds is None else int(seconds * 1000)) and not os.read(control, 4096):
        os._exit(0)


def _wall_offset() -> float:
    return time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)


def _follow(control: int, data: int, source: str, argv: list[str], after: float) -> float:
    """Follow one program until it ends; the boot time of the last line, so that a new start repeats nothing."""
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
        if control in ready and not os.read(control, 4096):
            os._exit(0)
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
    try:
        words = _read(f"/proc/{pid}/stat", 1024).rpartition(b")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def _follow_kmsg(control: int, data: int, kmsg: int, after: float) -> NoReturn:
    """Follow /dev/kmsg for ever; records the ring lost before we came to them are counted by their numbers."""
    batches = Batches(data, "kmsg")
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(kmsg, select.POLLIN)
    expected: int | None = None
    cost_at = 0.0
    while True:
        ready = dict(poll.poll(30_000))
        if control in ready and not os.read(control, 4096):
            os._exit(0)
        offset = _wall_offset()
        for _ in range(500):
            try:
                record = os.read(kmsg, 8192)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in (
                    errno.EPIPE,
                    errno.EINVAL,
                ):  # overrun, the next read goes on; a record over the buffer
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


# --- pace: how often to sample ----------------------------------------------------------------------------------------


class Pace:
    """Faster while memory is low and moving, or falling fast; slower when sampling itself is slow."""

    FALL_KB_PER_S = 1_500_000.0
    STIR_KB_PER_S = 100_000.0
    LOW, CALM = 0.08, 0.10
    HOLD_S = 10.0
    SLOW_S, QUICK_S = 0.25, 0.1

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._last: tuple[float, int] | None = None
        self._low = False
        self.guarded = False
        """A guard is armed: fast all the time."""
        self._fast_until = -1.0
        self._quick_samples = 3

    def saw(self, boot_s: float, available_kb: int, total_kb: int) -> None:
        """A sample's figures: a serving Spark rests at 6 % available, so low alone and still is no reason."""
        rate = 0.0
        if self._last is not None and boot_s > self._last[0]:
            rate = (self._last[1] - available_kb) / (boot_s - self._last[0])
        self._last = boot_s, available_kb
        share = available_kb / total_kb if total_kb else 1.0
        was_low = self._low
        self._low = share < (self.CALM if was_low else self.LOW)
        if rate > self.FALL_KB_PER_S or (self._low and (not was_low or abs(rate) > self.STIR_KB_PER_S)):
            self._fast_until = boot_s + self.HOLD_S

    def took(self, seconds: float) -> None:
        """What the last sample cost in time."""
        if seconds > self.SLOW_S:
            self._quick_samples = 0
        elif seconds < self.QUICK_S:
            self._quick_samples = min(3, self._quick_samples + 1)

    def next_s(self, boot_s: float) -> float:
        if self._quick_samples < 3:
            return min(60.0, self.interval_s * 5)
        return min(self.interval_s, FAST_S) if self.guarded or boot_s < self._fast_until else self.interval_s


# --- main -------------------------------------------------------------------------------------------------------------


class Worker:
    """The main process's end of one child."""

    def __init__(self, name: str, body: Callable[[int, int], None], deadline_s: float | None) -> None:
        self.name = name
        self.body = body
        self.deadline_s = deadline_s
        self.pid = 0
        self.control = self.data = -1
        self.pending = b""
        self.asked: float | None = None
        self.asked_boot = 0.0
        self.stuck = False
        self.state: tuple[str, str] = ("", "")
        self.cost = self.past_cost = 0.0
        self.respawn_at = 0.0
        self.due = 0.0

    def start(self) -> None:
        control_read, self.control = os.pipe()
        self.data, data_write = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(control_read)
            os.close(data_write)
            os.set_blocking(self.control, False)
            return
        try:
            # Nothing of the SSH channel may stay open here: a child that hangs would keep the session alive.
            null = os.open("/dev/null", os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(null, standard)
            first, second = sorted((control_read, data_write))
            os.closerange(3, first)
            os.closerange(first + 1, second)
            os.closerange(second + 1, 256)
            for number in (signal.SIGHUP, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            self.body(control_read, data_write)
        except BrokenPipeError:
            pass
        except BaseException as error:
            try:
                tell_state(data_write, "failed", f"{type(error).__name__}: {error}")
            except OSError:
                pass
        finally:
            os._exit(0)

    def ask(self, request: bytes, now: float) -> None:
        try:
            os.write(self.control, request + b"\n")
        except OSError:  # it has just ended; its data pipe says so too
            return
        self.asked, self.asked_boot = now, boottime()


FILES = ("meminfo", "vmstat", "stat", "loadavg", "pressure/memory", "pressure/io", "pressure/cpu", "self/statm")
LIMITS = {"sample": WINDOW, "gpu": WINDOW}
"""How many of a kind may be unacknowledged; one of any other."""


class Probe:
    """The main loop: one poll over standard input, the children and, while a write waits, the way out."""

    def __init__(self, out: int, digest: str, parts: dict[str, bytes], interval_s: float, lease_s: float) -> None:
        self.out = out
        self.lease_s = lease_s
        self.digest = digest
        self.pace = Pace(interval_s)
        self.settings: dict[str, str] = {}
        """"name=value" words of the command line."""
        self.files: dict[str, int] = {}
        self.unsent = b""
        self.heard_at = time.monotonic()
        self.input = b""
        self.sequence = 0
        self.acked = 0
        self.in_flight: dict[str, list[int]] = {}
        self.slots: dict[str, bytes] = {}
        self.kernel: list[bytes] = []
        self.kernel_after = 0
        self.skipped = 0
        self.resident_kb: int | None = None
        self.resident_at = 0.0
        self.pressure = 0.0
        self.gpu_pids = b""
        self.compositors = b""
        """As the scanner found them; while there are none, no child watches the desktop."""
        self.desktop_turn = False
        self.facts_at = 0.0
        self.started_at = self.tick_at = self.heard_at
        self.workers = [
            Worker("nvml", lambda control, data: nvml_child(control, data, parts["nvml"]), NVML_DEADLINE_S),
            Worker("processes", lambda control, data: scanner_child(control, data, parts), SCAN_DEADLINE_S),
            Worker("kernel", kernel_child, None),
            Worker(
                "desktop",
                lambda control, data: part("desktop", parts)["desktop_child"](control, data),
                DESKTOP_DEADLINE_S,
            ),
        ]
        self.poll = select.poll()
        self.parts = parts
        self.guard: Any = None

    # out

    def queue(self, key: str, line: bytes) -> None:
        """Put one message on the wire with the next sequence number; `line` is a JSON object in bytes."""
        self.sequence += 1
        self.in_flight.setdefault(key, []).append(self.sequence)
        self.unsent += b'{"seq":%d,%b\n' % (self.sequence, line[1:])

    def flush(self) -> None:
        """Write what can be written; what is left keeps its place, so a line is never cut by another."""
        if self.unsent:
            try:
                self.unsent = self.unsent[os.write(self.out, self.unsent) :]
            except BlockingIOError:
                pass
            except OSError:
                self.leave("the reader is gone", say=False)

    def crowded(self, key: str) -> bool:
        flying = self.in_flight.get(key)
        if not flying:
            return False
        flying[:] = [number for number in flying if number > self.acked]
        return len(flying) >= LIMITS.get(key, 1)

    def send_waiting(self) -> None:
        """The newest of each kind, then one batch of kernel lines if all before it arrived."""
        if self.unsent:
            return
        for key in list(self.slots):
            if not self.crowded(key):
                self.queue(key, self.slots.pop(key))
        if self.kernel and self.acked >= self.kernel_after:
            self.queue("kernel", self.kernel.pop(0))
            self.kernel_after = self.sequence
        self.flush()

    def collector(self, worker: Worker, state: str, detail: str = "", since: float | None = None) -> None:
        if worker.state != (state, detail):
            worker.state = (state, detail)
            since = boottime() if since is None else since
            body = {
                "kind": "collector",
                "name": worker.name,
                "state": state,
                "detail": detail,
                "since": round(since, 3),
            }
            self.slots["collector " + worker.name] = _encode(body).encode()

    def leave(self, reason: str, *, say: bool = True) -> NoReturn:
        if say:
            try:
                os.write(self.out, self.unsent + _encode({"kind": "bye", "reason": reason}).encode() + b"\n")
            except OSError:
                pass
        if self.guard is not None:
            self.guard.stand()
        os._exit(0)  # closes the children's control pipes; they leave, each as soon as it can

    # in

    def hear(self) -> None:
        try:
            chunk = os.read(0, 65536)
        except BlockingIOError:
            return
        if not chunk:
            self.leave("standard input closed", say=False)
        self.heard_at = time.monotonic()
        *lines, self.input = (self.input + chunk).split(b"\n")
        if len(self.input) > 65536:
            self.leave("what came in is no protocol of ours")
        for line in lines:
            try:
                message = json.loads(line)
                if "ack" in message:
                    self.acked = max(self.acked, min(int(message["ack"]), self.sequence))
                elif "interval" in message:
                    self.pace.interval_s = min(60.0, max(0.1, float(message["interval"])))
                    self.tick_at = min(self.tick_at, time.monotonic() + self.pace.interval_s)
                elif "guard" in message:
                    self.guarding().take(message["guard"])
                elif "bye" in message:
                    self.leave("asked to")
            except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
                continue  # a later version's word
            except (OSError, ImportError) as error:  # the guard lacks something of this machine's
                body = {"kind": "guard", "phase": "failed", "detail": f"it can't be armed here: {error}"}
                self.slots["guard"] = _encode(body).encode()

    def guarding(self) -> Any:
        """The guard, compiled when it is first needed."""
        if self.guard is None:
            names: dict[str, Any] = {}
            for name in ("decide", "journal", "docker", "guard"):
                names = part(name, self.parts, names)
            self.guard = names["Guard"](self)
        return self.guard

    def read_worker(self, worker: Worker) -> None:
        chunk = os.read(worker.data, 65536)
        if not chunk:
            self.lost(worker)
            return
        *lines, worker.pending = (worker.pending + chunk).split(b"\n")
        for line in lines:
            tag, _, body = line.partition(b" ")
            if tag == b"data":
                if worker.name == "kernel":
                    if not self.kernel:
                        self.kernel_after = self.sequence
                        self.poll.unregister(worker.data)  # let it wait; the journal keeps its place
                    self.kernel.append(body)
                else:
                    kind = body[9 : body.index(b'"', 9)].decode()  # {"kind":"gpu",...
                    self.slots[kind] = body
                    self.collector(worker, "ok")
            elif tag == b"state":
                told = json.loads(body)
                self.collector(worker, told["state"], told["detail"])
            elif tag == b"pids":
                self.gpu_pids = body
            elif tag == b"compositors":
                self.compositors = body
            elif tag == b"cost":
                worker.cost = float(body)
                worker.asked = None
                worker.stuck = False

    def lost(self, worker: Worker) -> None:
        self.poll.unregister(worker.data)
        os.close(worker.data)
        os.close(worker.control)
        worker.data = worker.control = -1
        worker.asked, worker.pending = None, b""
        worker.past_cost += worker.cost
        worker.cost = 0.0
        worker.respawn_at = time.monotonic() + RESPAWN_S
        if worker.state[0] in ("", "ok", "stuck", "paused"):
            self.collector(worker, "failed", "this part of the probe ended; it is started again in a minute")

    # the sample

    def pread(self, name: str, limit: int, until: bytes = b"") -> bytes:
        descriptor = self.files.get(name)
        data = b""
        try:
            while descriptor is not None:
                chunk = os.pread(descriptor, limit, len(data))
                data += chunk
                if not chunk or until in data:  # the kernel gives a page at a time of some files
                    break
        except OSError:  # pressure files exist and refuse where PSI is compiled in and switched off
            pass
        return data

    def sample(self, now: float) -> None:
        boot = boottime()
        meminfo = parse_meminfo(self.pread("meminfo", 8192))
        psi = {}
        for name in ("memory", "io", "cpu"):
            row = parse_pressure(self.pread("pressure/" + name, 512))
            if row is not None:
                psi[name] = row
        if now >= self.resident_at:
            self.resident_at = now + 10.0
            words = self.pread("self/statm", 128).split()
            self.resident_kb = int(words[1]) * (os.sysconf("SC_PAGE_SIZE") // 1024) if len(words) > 1 else None
        self.pressure = psi["memory"][2] if "memory" in psi else 0.0
        self.pace.saw(boot, meminfo.get("MemAvailable", 0), meminfo.get("MemTotal", 0))
        spent = time.process_time() + sum(worker.cost + worker.past_cost for worker in self.workers)
        body = {
            "kind": "sample",
            "boot": round(boot, 4),
            "wall": round(time.time(), 4),
            "interval": self.pace.next_s(boot),
            "meminfo": meminfo,
            "psi": psi,
            "vmstat": parse_vmstat(self.pread("vmstat", 32768, b"\noom_kill ")),
            "cpu": parse_cpu(self.pread("stat", 512)),
            "load": parse_load(self.pread("loadavg", 128)),
            "cost": [round(spent, 4), self.resident_kb],
            "skipped": self.skipped,
        }
        self.queue("sample", _encode(body).encode())
        self.flush()

    def tend(self, worker: Worker, now: float) -> None:
        """Ask a child when it is due, mark it when it doesn't answer, start it again when it has ended."""
        if worker.data < 0:
            if worker.pid:
                try:
                    if os.waitpid(worker.pid, os.WNOHANG)[0]:
                        worker.pid = 0
                except ChildProcessError:
                    worker.pid = 0
            elif now >= worker.respawn_at and (worker.name != "desktop" or self.compositors):
                self.start(worker)
            return
        if worker.deadline_s is None:
            return
        if worker.asked is not None:
            if now - worker.asked > worker.deadline_s and not worker.stuck:
                worker.stuck = True
                detail = f"no answer within {worker.deadline_s:g} s; it is left alone until it answers"
                self.collector(worker, "stuck", detail, worker.asked_boot)
            return
        if now < worker.due:
            return
        if worker.name == "nvml":
            worker.due = now + max(0.9, self.pace.interval_s * 0.9)
            worker.ask(b"g", now)
            return
        paused = worker.state[0] == "paused"
        if self.pressure > (PAUSE_PRESSURE / 2 if paused else PAUSE_PRESSURE):
            self.collector(worker, "paused", "memory pressure is high; looking at processes would add to it")
            return
        if worker.name == "desktop":  # a look each time, a question every second time
            self.desktop_turn = not self.desktop_turn
            worker.due = now + 4.9
            worker.ask(b"d %d %b" % (self.desktop_turn, self.compositors), now)
            return
        worker.due = now + (1.9 if now - self.started_at < 20.0 else 4.9)
        facts = now >= self.facts_at
        if facts:
            self.facts_at = now + FACTS_S
        worker.ask(b"s %d %b" % (facts, self.gpu_pids), now)

    def start(self, worker: Worker) -> None:
        try:
            worker.start()
        except OSError as error:  # no memory for a fork, or no more processes
            worker.pid = 0
            worker.respawn_at = time.monotonic() + RESPAWN_S
            self.collector(worker, "failed", f"this part of the probe couldn't be started: {error}")
            return
        self.poll.register(worker.data, select.POLLIN)

    # the loop

    def run(self) -> NoReturn:
        facts = host_facts()
        hello = {"kind": "hello", "protocol": PROTOCOL, "pid": os.getpid(), "digest": self.digest, "facts": facts}
        self.unsent += _encode(hello).encode() + b"\n"
        self.flush()
        for name in FILES:
            try:
                self.files[name] = os.open("/proc/" + name, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
        if "meminfo" not in self.files:
            self.leave("/proc/meminfo can't be read here")
        gc.freeze()
        gc.disable()
        self.tick_at = time.monotonic() + self.pace.interval_s
        self.sample(time.monotonic())
        for worker in self.workers[:3]:  # the desktop's, when there is one
            self.start(worker)
        self.poll.register(0, select.POLLIN)
        own = [f"{root}/sparktop-{os.getuid()}/{name}" for root in STATE_FOLDERS for name in (CLAIM, EVENT)]
        if any(os.path.lexists(path) for path in own):
            self.guarding().look_back()
        tending = True
        watched_out = False
        while True:
            now = time.monotonic()
            if tending:
                tending = False
                for worker in self.workers:
                    self.tend(worker, now)
            kernel_waited = bool(self.kernel)
            self.send_waiting()
            if kernel_waited and not self.kernel and self.workers[2].data >= 0:
                self.poll.register(self.workers[2].data, select.POLLIN)
            if bool(self.unsent) != watched_out:
                watched_out = not watched_out
                if watched_out:
                    self.poll.register(self.out, select.POLLOUT)
                else:
                    self.poll.unregister(self.out)
            until = min(self.tick_at, self.heard_at + self.lease_s)
            if self.guard is not None:
                until = min(until, self.guard.due_at)
            ready = self.poll.poll(max(0, int((until - now) * 1000) + 1))
            for descriptor, events in ready:
                if descriptor == 0:
                    self.hear()
                elif descriptor == self.out:
                    if events & (select.POLLERR | select.POLLHUP):
                        self.leave("the reader is gone", say=False)
                    self.flush()
                elif self.guard is not None and descriptor == self.guard.line.descriptor:
                    self.guard.ready()
                else:
                    for worker in self.workers:
                        if worker.data == descriptor:
                            self.read_worker(worker)
            now = time.monotonic()
            if self.guard is not None:
                self.guard.turn(now)
            if now - self.heard_at >= self.lease_s:
                if select.select([0], [], [], 0)[0]:  # we were stopped, and not forgotten
                    self.hear()
                else:
                    self.leave(f"nothing came for {self.lease_s:g} s")
            if now >= self.tick_at:
                self.tick(now)
                tending = True

    def tick(self, now: float) -> None:
        if self.unsent or self.crowded("sample"):
            self.skipped += 1
        else:
            self.sample(now)
            self.pace.took(time.monotonic() - now)
        interval = self.pace.next_s(boottime())
        self.tick_at += interval
        if self.tick_at <= now:  # fell behind: go on from here, don't catch up
            self.tick_at = now + interval


def main(packed: bytes, digest: str, nonce: str, interval_s: float, lease_s: float) -> NoReturn:
    """What stage 0 calls: `packed` holds the children's own parts and nvidia-ml-py's module (`unpack`)."""
    out = os.dup(1)
    os.dup2(2, 1)  # whatever else prints, prints to standard error
    os.write(out, f"SPARKTOP {nonce}\n".encode())
    status = 70
    try:
        if not sys.platform.startswith("linux"):
            reason = f"this is {sys.platform}, not Linux: there is no /proc to read"
            os.write(out, _encode({"kind": "bye", "reason": reason}).encode() + b"\n")
            status = 95
        else:
            os.set_blocking(out, False)
            for number in (signal.SIGHUP, signal.SIGTERM):
                signal.signal(number, lambda *_: os._exit(0))
            probe = Probe(out, digest, unpack(packed), interval_s, lease_s)
            probe.settings = dict(word.partition("=")[::2] for word in sys.argv[6:])
            probe.run()
    except BaseException as error:
        reason = f"the probe failed: {type(error).__name__}: {error}"
        try:
            os.write(out, _encode({"kind": "bye", "reason": reason}).encode() + b"\n")
        except OSError:
            pass
        sys.stderr.write(f"sparktop: {reason}\n")
        sys.stderr.flush()
    os._exit(status)
