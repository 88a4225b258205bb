"""What is asked of a node for evidence, and in which ways where one may be closed: the log as the user, then as root.

Root is used only where sudo asks nothing (`sudo -n`): collecting evidence never asks for a password, for it comes
before steps that can't wait for one. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sparktop.model.engine import Engine
from sparktop.model.fleet import NodeView
from sparktop.model.telemetry import CollectorState
from sparktop.operate.archive import file_name
from sparktop.operate.privilege import Way, program, root_way
from sparktop.operate.survey import Ask, DockerGet, DockerLog, FileText, Output, Privileges

CONTAINER_ID = re.compile(r"[0-9a-f]{64}")
CONTAINERS_AT_MOST = 24
PIDS_AT_MOST = 24
KERNEL_LINES = 20_000
EARLIER_LINES = 3_000
UNITS_AT_MOST = 6
UNIT_LINES = 2000
SPARKRUN_LOG = "/tmp/sparkrun_serve.log"  # noqa: S108 - a path inside a container, where sparkrun writes
KERNEL_BYTES = 3 << 20
_NOTHING = re.compile(r"\s*(?:-- No entries --)?\s*")
_UNIT = re.compile(r"[A-Za-z0-9][\w@.:-]{0,200}")
_HEAD = "/usr/bin/head"

_FILES = (
    ("memory/meminfo.txt", "/proc/meminfo"),
    ("memory/vmstat.txt", "/proc/vmstat"),
    ("memory/buddyinfo.txt", "/proc/buddyinfo"),
    ("memory/pressure-memory.txt", "/proc/pressure/memory"),
    ("memory/pressure-io.txt", "/proc/pressure/io"),
    ("memory/pressure-cpu.txt", "/proc/pressure/cpu"),
    ("system/loadavg.txt", "/proc/loadavg"),
    ("system/kernel-command-line.txt", "/proc/cmdline"),
    ("system/mounts.txt", "/proc/mounts"),
)
_MAY_LACK = (
    ("system/nvidia-driver.txt", "/proc/driver/nvidia/version"),
    ("system/dgx-release.txt", "/etc/dgx-release"),
)
_OUTPUTS = (
    (
        "processes/ps.txt",
        ("ps", "-eo", "pid,ppid,user:20,stat,etimes,rss,nlwp,wchan:32,comm", "--sort=-rss"),
    ),
    ("network/addresses.json.txt", ("ip", "-j", "addr")),
    ("network/links.json.txt", ("ip", "-j", "-s", "link")),
    ("network/rdma.json.txt", ("rdma", "-j", "link")),
    ("system/disk-space.txt", ("df", "-hT", "-x", "tmpfs", "-x", "overlay", "-x", "squashfs")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One file of the archive, and how it may be had."""

    name: str
    ways: tuple[Ask, ...]
    """The first that gives something is taken."""
    note: str = ""
    """Why a better way was not gone."""
    is_optional: bool = False
    """That it isn't there is no gap."""


def tables(node: str, view: NodeView | None, privileges: Privileges) -> tuple[Question, ...]:
    """Everything but containers and metrics, in the order in which it is asked: what passes soonest first."""
    return (
        *(Question(name=name, ways=(FileText(node=node, path=path),)) for name, path in _FILES),
        *(Question(name=name, ways=(FileText(node=node, path=path),), is_optional=True) for name, path in _MAY_LACK),
        _as_root(node, "memory/slabinfo.txt", privileges, ("/proc/slabinfo",)),
        *_stacks(node, view, privileges),
        *_kernel(node, privileges),
        *_units(node, view, privileges),
        *(Question(name=name, ways=(Output(node=node, argv=argv, limit_s=8.0),)) for name, argv in _OUTPUTS),
        _nvidia(node, view),
    )


def _as_root(node: str, name: str, privileges: Privileges, paths: tuple[str, ...]) -> Question:
    """Files that only root reads; each with its name above it where there are several."""
    argv = (_HEAD, "-v", "-n", "60", "--", *paths) if len(paths) > 1 else (program("cat"), "--", *paths)
    plain = Output(node=node, argv=argv, limit_s=8.0, limit_bytes=512 * 1024)
    if privileges.is_root:
        return Question(name=name, ways=(plain,))
    if root_way(privileges, (argv,)) is Way.FREE:
        sudo = Output(node=node, argv=("sudo", "-n", "--", *argv), limit_s=8.0, limit_bytes=512 * 1024)
        return Question(name=name, ways=(sudo,))
    return Question(name=name, ways=(), note="only root reads it, and sudo would ask for a password")


def _stacks(node: str, view: NodeView | None, privileges: Privileges) -> Iterator[Question]:
    """Where engines' processes wait: only what is read without the lock of their memory map, which may be held."""
    engines = view.engines if view is not None else ()
    pids = list(dict.fromkeys(pid for engine in engines for pid in engine.pids if pid > 0))[:PIDS_AT_MOST]
    if view is not None and view.desktop is not None and view.desktop.pid:
        pids.append(view.desktop.pid)
    if not pids:
        return
    paths = tuple(f"/proc/{pid}/{part}" for pid in pids for part in ("stat", "wchan", "status"))
    argv = (_HEAD, "-v", "-n", "80", "--", *paths)
    yield Question(name="processes/engines.txt", ways=(Output(node=node, argv=argv, limit_s=8.0),))
    yield _as_root(node, "processes/kernel-stacks.txt", privileges, tuple(f"/proc/{pid}/stack" for pid in pids))


def _kernel(node: str, privileges: Privileges) -> Iterator[Question]:
    journal = ("journalctl", "--no-pager", "-q", "-o", "short-iso-precise", "-k")
    for name, boot, lines, with_dmesg in (
        ("kernel/this-boot.log", "--boot=0", KERNEL_LINES, True),
        ("kernel/previous-boot.log", "--boot=-1", EARLIER_LINES, False),
    ):
        plain = (*journal, boot, "-n", str(lines))
        as_root = (program("journalctl"), *plain[1:])
        ways = [plain, *((("dmesg", "--time-format", "iso"), ("dmesg",)) if with_dmesg else ())]
        if not privileges.is_root:
            ring = (program("dmesg"),)
            rooted = [as_root, *((ring,) if with_dmesg else ())]
            ways += [("sudo", "-n", "--", *argv) for argv in rooted if root_way(privileges, (argv,)) is Way.FREE]
        yield Question(
            name=name,
            ways=tuple(
                Output(node=node, argv=argv, limit_s=10.0, limit_bytes=KERNEL_BYTES, is_tail=True) for argv in ways
            ),
        )


def _units(node: str, view: NodeView | None, privileges: Privileges) -> Iterator[Question]:
    """The journal of services that run an engine: where an engine without a container says what ails it."""
    units = view.facts.units if view is not None and view.facts is not None else ()
    for name in [unit.name for unit in units if _UNIT.fullmatch(unit.name)][:UNITS_AT_MOST]:
        plain = ("journalctl", "--no-pager", "-q", "-o", "short-iso-precise", "-n", str(UNIT_LINES), "-u", name)
        rooted = (program("journalctl"), *plain[1:])
        ways: list[tuple[str, ...]] = [plain]
        if not privileges.is_root and root_way(privileges, (rooted,)) is Way.FREE:
            ways.append(("sudo", "-n", "--", *rooted))
        yield Question(
            name=f"units/{file_name(name)}.log",
            ways=tuple(Output(node=node, argv=argv, limit_s=10.0, limit_bytes=1 << 20, is_tail=True) for argv in ways),
        )


def own_log_file(node: str, engine: Engine) -> Question | None:
    """An engine that sparkrun started in its container writes to a file there, and nothing to the container's log."""
    box = engine.container
    if box is None or not box.name.startswith("sparkrun_") or not CONTAINER_ID.fullmatch(box.container_id):
        return None
    argv = ("docker", "exec", box.container_id, "tail", "-n", str(UNIT_LINES), SPARKRUN_LOG)
    return Question(
        name=f"logs/{file_name(box.name)}-{box.container_id[:12]}-serve.log",
        ways=(Output(node=node, argv=argv, limit_s=8.0, limit_bytes=1 << 20, is_tail=True),),
    )


def _nvidia(node: str, view: NodeView | None) -> Question:
    """One more client of a driver that hangs would hang too, and could not be ended."""
    name = "gpu/nvidia-smi.txt"
    nvml = view.collectors.get("nvml") if view is not None else None
    if nvml is not None and nvml.state is CollectorState.STUCK:
        return Question(name=name, ways=(), note="left out: the driver already leaves another question unanswered")
    return Question(name=name, ways=(Output(node=node, argv=("nvidia-smi", "-q"), limit_s=10.0),))


# --- answers


def limit_s(ask: Ask) -> float:
    return ask.limit_s if isinstance(ask, Output | DockerLog) else 6.0


def is_empty(text: str) -> bool:
    """Nothing, or journalctl's word for it: a user who may not read the kernel's log gets that and no error."""
    return _NOTHING.fullmatch(text) is not None


def whole_lines(ask: Ask, text: str) -> str:
    """Without the line that a limit has cut: half a secret is known by no rule."""
    if isinstance(ask, DockerGet):
        return text
    limit = ask.limit_bytes if isinstance(ask, Output | DockerLog) else 256 * 1024
    if len(text.encode("utf-8", "replace")) < limit * 0.98:
        return text
    if isinstance(ask, DockerLog) or (isinstance(ask, Output) and ask.is_tail):
        return "[the beginning is left out]\n" + text.partition("\n")[2]
    return text.rpartition("\n")[0] + "\n[the end is left out]\n"
