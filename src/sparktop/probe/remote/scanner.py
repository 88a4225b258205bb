"""The process table, read in a child: one pass over /proc on request."""

from __future__ import annotations

import json
import os
import re
import time

from sparktop.masking import mask_argv
from sparktop.probe.remote.children import part_source, requests, tell
from sparktop.probe.remote.host_facts import disks, host_facts
from sparktop.probe.remote.installed import Installed
from sparktop.probe.remote.network import Changes, Network
from sparktop.probe.remote.outbox import encode
from sparktop.probe.remote.parsers import COMPOSITORS, parse_cgroup, parse_process_stat, parse_status
from sparktop.probe.remote.system import boottime, read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_DESKTOP_COMM = re.compile(
    r"gnome-shell|gnome-session|Xorg|Xwayland|mutter|kwin|gdm|sddm|lightdm|plasmashell|cinnamon|xfwm|weston|sway|gjs|nautilus"
)
LARGEST = 25
"""How many processes are shown for their resident memory alone."""


class Scanner:
    """Reads the stat of every process, more of those that are shown, and the argv of an engine once."""

    def __init__(self, marks: dict[str, str], root: str = "/proc") -> None:
        """`marks` tell engines (`probe.engine_marks`)."""
        self.engine_comm, self.engine_title, self.engine_command = (
            re.compile(marks[name], re.IGNORECASE) for name in ("comm", "title", "command")
        )
        self.root = root
        self.argvs: dict[tuple[int, int, str], list[str]] = {}
        """Masked, by (pid, start, comm): exec changes the comm."""
        self.kernel_threads: set[int] = set()
        self.compositors: list[int] = []
        self.service_pids: list[int] = []
        """Engines and clients of Docker: the services that run them are reported."""
        self.forget_at = 0.0
        self.page = os.sysconf("SC_PAGE_SIZE")
        self.ticks = os.sysconf("SC_CLK_TCK")

    def scan(self, gpu_pids: set[int]) -> dict[str, Any]:
        """The `processes` message."""
        now = time.monotonic()
        if now >= self.forget_at:  # a process may get the pid that was a kernel thread's
            self.forget_at = now + 60.0
            self.kernel_threads.clear()
        total = zombies = 0
        stats: dict[int, tuple[str, str, int, int, int]] = {}
        for name in os.listdir(self.root):
            if not name.isdigit():
                continue
            total += 1
            pid = int(name)
            if pid in self.kernel_threads:
                continue
            try:
                stat = parse_process_stat(read_file(f"{self.root}/{name}/stat", 1024))
            except OSError:
                continue
            if stat is None:
                continue
            if stat[4] == 0 and (stat[2] == 2 or pid == 2):  # in a container's namespace pid 2 may be any process
                self.kernel_threads.add(pid)
                continue
            zombies += stat[1] == "Z"
            stats[pid] = stat
        largest = sorted(stats, key=lambda pid: stats[pid][4], reverse=True)[:LARGEST]
        shown = {pid for pid in largest if stats[pid][4]}
        engines: dict[int, list[str]] = {}
        argvs: dict[tuple[int, int, str], list[str]] = {}
        desktop = set()
        for pid, (comm, state, _, start, _) in stats.items():
            if _DESKTOP_COMM.match(comm):
                desktop.add(pid)
            elif state != "Z" and self.engine_comm.match(comm):
                key = (pid, start, comm)
                argv = self.argvs.get(key)
                if argv is None:
                    argv = self._argv(pid)
                argvs[key] = argv
                is_engine = self.engine_title.match(comm) or self.engine_command.search(" ".join(argv))
                if pid in gpu_pids or is_engine:
                    engines[pid] = argv
        self.argvs = argvs
        self.service_pids = [*sorted(engines)[:100], *(pid for pid in stats if stats[pid][0] in ("docker", "podman"))]
        shown.update(sorted(engines)[:100], sorted(desktop)[:40], [pid for pid in gpu_pids if pid in stats])
        rows = []
        room = 96 * 1024
        for pid in sorted(shown):
            row = self._row(pid, stats[pid], wait=pid in engines or pid in desktop)
            if row is None:
                continue
            argv = engines.get(pid) or []
            room -= sum(map(len, argv))
            if argv and room > 0:
                row["argv"] = argv
            rows.append(row)
        self.compositors = sorted(pid for pid in desktop if stats[pid][0] in COMPOSITORS and stats[pid][1] != "Z")
        return {"kind": "processes", "boot": round(boottime(), 3), "total": total, "zombies": zombies, "rows": rows}

    def service_cgroups(self) -> list[str]:
        """Cgroups of the engines and the clients of Docker that the last scan saw."""
        cgroups = []
        for pid in self.service_pids[:200]:
            try:
                cgroups.append(parse_cgroup(read_file(f"{self.root}/{pid}/cgroup", 8192)))
            except OSError:
                continue
        return cgroups

    def _argv(self, pid: int) -> list[str]:
        """A process's argv with secrets masked; a script that Python runs with its folder, which tells whose it is."""
        try:
            raw = read_file(f"{self.root}/{pid}/cmdline", 32768)
        except OSError:
            return []
        parts = raw.rstrip(b"\0").split(b"\0")[:400]
        argv = mask_argv(part.decode("utf-8", "replace")[:4096] for part in parts if part)
        at = next((at for at, word in enumerate(argv[:4]) if word.endswith(".py")), None)
        if at is not None:
            try:
                argv[at] = os.path.join(os.readlink(f"{self.root}/{pid}/cwd"), argv[at])
            except OSError:  # another user's: as it was typed
                pass
        return argv

    def _row(self, pid: int, stat: tuple[str, str, int, int, int], *, wait: bool) -> dict[str, Any] | None:
        """A row of the table; `wait` adds where in the kernel it waits. None: the process has ended."""
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
            row.update(parse_status(read_file(f"{self.root}/{pid}/status", 8192)))
            row["cgroup"] = parse_cgroup(read_file(f"{self.root}/{pid}/cgroup", 8192))[:512]
        except OSError:
            return None
        if wait:
            try:
                channel = read_file(f"{self.root}/{pid}/wchan", 256).decode("utf-8", "replace")
            except OSError:
                channel = ""
            if channel not in ("", "0"):
                row["wchan"] = channel
        return row


def scanner_child(control: int, data: int) -> None:
    """Answer "s FACTS PIDS" with the process table and the network, and with the host's facts when FACTS is 1."""
    marks = json.loads(part_source("engine_marks"))
    scanner = Scanner(marks)
    network = Network(changes=Changes())
    installed = Installed(marks["unit"])
    for wants_facts, pids in requests(control, data):
        tell(data, "data", encode(scanner.scan(set(pids))))
        tell(data, "compositors", ",".join(map(str, scanner.compositors)))
        reading = network.read(time.monotonic())
        if reading is not None:
            tell(data, "data", encode(reading))
        if wants_facts:
            facts = host_facts()
            del facts["gaps"]["disks"]
            facts["disks"] = disks()
            user, uid = facts["user"], facts["uid"]
            slow = installed.read(time.monotonic(), facts["kernel"], user, uid, scanner.service_cgroups())
            slow["gaps"].update(facts["gaps"])
            tell(data, "data", encode({"kind": "facts", **facts, **slow}))
