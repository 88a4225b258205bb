"""The questions to a node whose evidence is collected. Pure.

Root is used only where sudo asks for no password (`sudo -n`): collecting evidence comes before steps that can't wait
for one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparktop.dataclass import dataclass
from sparktop.diagnose.kernel.findings import GPU_GONE, rule_of
from sparktop.engines.labels import SPARKRUN_LOG
from sparktop.model.engine import Engine
from sparktop.model.fleet import NodeView
from sparktop.model.survey import DockerGet, DockerLog, FileText, Output, Privileges, Question
from sparktop.model.telemetry import CollectorState
from sparktop.operate.evidence.archive import file_name
from sparktop.operate.secrets.sudo import RootAccess, program, root_access

CONTAINER_ID = re.compile(r"[0-9a-f]{64}")
CONTAINERS_AT_MOST = 24
PIDS_AT_MOST = 24
KERNEL_LINES = 20_000
EARLIER_LINES = 3_000
UNITS_AT_MOST = 6
UNIT_LINES = 2000
KERNEL_BYTES = 3 << 20
_EMPTY = re.compile(r"\s*(?:-- No entries --)?\s*")
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
_OPTIONAL_FILES = (
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
class ArchiveFile:
    """One file of the archive, and the ways to get it."""

    name: str
    ways: tuple[Question, ...]
    """Tried in order; the first that gives something is used."""
    note: str = ""
    """Why a better way was not tried."""
    is_optional: bool = False
    """Its absence is not reported."""


def tables(node: str, view: NodeView | None, privileges: Privileges) -> tuple[ArchiveFile, ...]:
    """All questions but those about containers and metrics, in the order asked: what passes soonest first."""
    return (
        *(ArchiveFile(name=name, ways=(FileText(node=node, path=path),)) for name, path in _FILES),
        *(
            ArchiveFile(name=name, ways=(FileText(node=node, path=path),), is_optional=True)
            for name, path in _OPTIONAL_FILES
        ),
        _root_question(node, "memory/slabinfo.txt", privileges, ("/proc/slabinfo",)),
        *_stack_questions(node, view, privileges),
        *_kernel_questions(node, privileges),
        *_unit_questions(node, view, privileges),
        *(ArchiveFile(name=name, ways=(Output(node=node, argv=argv, limit_s=8.0),)) for name, argv in _OUTPUTS),
        _nvidia_question(node, view),
    )


def _root_question(node: str, name: str, privileges: Privileges, paths: tuple[str, ...]) -> ArchiveFile:
    """Files that only root can read; each under its name where there are several."""
    argv = (_HEAD, "-v", "-n", "60", "--", *paths) if len(paths) > 1 else (program("cat"), "--", *paths)
    plain = Output(node=node, argv=argv, limit_s=8.0, limit_bytes=512 * 1024)
    if privileges.is_root:
        return ArchiveFile(name=name, ways=(plain,))
    if root_access(privileges, (argv,)) is RootAccess.FREE:
        sudo = Output(node=node, argv=("sudo", "-n", "--", *argv), limit_s=8.0, limit_bytes=512 * 1024)
        return ArchiveFile(name=name, ways=(sudo,))
    return ArchiveFile(name=name, ways=(), note="only root reads it, and sudo would ask for a password")


def _stack_questions(node: str, view: NodeView | None, privileges: Privileges) -> Iterator[ArchiveFile]:
    """Where the engines' processes wait. Only files read without their memory-map lock, which may be held."""
    engines = view.engines if view is not None else ()
    pids = list(dict.fromkeys(pid for engine in engines for pid in engine.pids if pid > 0))[:PIDS_AT_MOST]
    if view is not None and view.desktop is not None and view.desktop.pid:
        pids.append(view.desktop.pid)
    if not pids:
        return
    paths = tuple(f"/proc/{pid}/{part}" for pid in pids for part in ("stat", "wchan", "status"))
    argv = (_HEAD, "-v", "-n", "80", "--", *paths)
    yield ArchiveFile(name="processes/engines.txt", ways=(Output(node=node, argv=argv, limit_s=8.0),))
    yield _root_question(node, "processes/kernel-stacks.txt", privileges, tuple(f"/proc/{pid}/stack" for pid in pids))


def _kernel_questions(node: str, privileges: Privileges) -> Iterator[ArchiveFile]:
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
            ways += [
                ("sudo", "-n", "--", *argv) for argv in rooted if root_access(privileges, (argv,)) is RootAccess.FREE
            ]
        yield ArchiveFile(
            name=name,
            ways=tuple(
                Output(node=node, argv=argv, limit_s=10.0, limit_bytes=KERNEL_BYTES, is_tail=True) for argv in ways
            ),
        )


def _unit_questions(node: str, view: NodeView | None, privileges: Privileges) -> Iterator[ArchiveFile]:
    """The journals of services that run an engine: an engine without a container logs there."""
    units = view.facts.units if view is not None and view.facts is not None else ()
    for name in [unit.name for unit in units if _UNIT.fullmatch(unit.name)][:UNITS_AT_MOST]:
        plain = ("journalctl", "--no-pager", "-q", "-o", "short-iso-precise", "-n", str(UNIT_LINES), "-u", name)
        rooted = (program("journalctl"), *plain[1:])
        ways: list[tuple[str, ...]] = [plain]
        if not privileges.is_root and root_access(privileges, (rooted,)) is RootAccess.FREE:
            ways.append(("sudo", "-n", "--", *rooted))
        yield ArchiveFile(
            name=f"units/{file_name(name)}.log",
            ways=tuple(Output(node=node, argv=argv, limit_s=10.0, limit_bytes=1 << 20, is_tail=True) for argv in ways),
        )


def own_log_file(node: str, engine: Engine) -> ArchiveFile | None:
    """The log file inside an engine's container where sparkrun started it: the container's own log is empty then."""
    container = engine.container
    if (
        container is None
        or not container.name.startswith("sparkrun_")
        or not CONTAINER_ID.fullmatch(container.container_id)
    ):
        return None
    argv = ("docker", "exec", container.container_id, "tail", "-n", str(UNIT_LINES), SPARKRUN_LOG)
    return ArchiveFile(
        name=f"logs/{file_name(container.name)}-{container.container_id[:12]}-serve.log",
        ways=(Output(node=node, argv=argv, limit_s=8.0, limit_bytes=1 << 20, is_tail=True),),
    )


def _nvidia_question(node: str, view: NodeView | None) -> ArchiveFile:
    """nvidia-smi, unless the driver or the GPU hangs: one more client would hang too, and could not be killed."""
    name = "gpu/nvidia-smi.txt"
    nvml = view.collectors.get("nvml") if view is not None else None
    if nvml is not None and nvml.state is CollectorState.STUCK:
        return ArchiveFile(name=name, ways=(), note="left out: the driver already leaves another question unanswered")
    if view is not None and any(rule_of(event) in GPU_GONE for event in view.kernel_events):
        return ArchiveFile(name=name, ways=(), note="left out: by the kernel log the GPU doesn't answer its driver")
    return ArchiveFile(name=name, ways=(Output(node=node, argv=("nvidia-smi", "-q"), limit_s=10.0),))


# --- answers


def limit_s(question: Question) -> float:
    return question.limit_s if isinstance(question, Output | DockerLog) else 6.0


def is_empty(text: str) -> bool:
    """Whether it is empty, or journalctl's text for that: a user without access gets it instead of an error."""
    return _EMPTY.fullmatch(text) is not None


def whole_lines(question: Question, text: str) -> str:
    """The text without the line that a limit has cut: half a secret matches no rule."""
    if isinstance(question, DockerGet):
        return text
    limit = question.limit_bytes if isinstance(question, Output | DockerLog) else 256 * 1024
    if len(text.encode("utf-8", "replace")) < limit * 0.98:
        return text
    if isinstance(question, DockerLog) or (isinstance(question, Output) and question.is_tail):
        return "[the beginning is left out]\n" + text.partition("\n")[2]
    return text.rpartition("\n")[0] + "\n[the end is left out]\n"
