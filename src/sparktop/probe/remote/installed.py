"""Slow facts, read in the scanner's child: the next boot's kernel and driver, logind, services that run engines."""

from __future__ import annotations

import os
import re

from sparktop.probe.remote.programs import capture
from sparktop.probe.remote.system import gap_reason, list_folder, read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    Row = list[Any]

_UNIT_NAME = re.compile(r"[A-Za-z0-9_@:.-]{1,200}\.service")
_UNIT_FIELDS = "Id,ActiveState,SubState,Result,NRestarts,Restart,RestartUSec,MainPID,ExecMainStatus"
_SPANS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
COMMAND_S = 3.0
REFUSED_S = 600.0
"""How long a program isn't run again after it was missing or took longer than COMMAND_S."""


def parse_span(text: str) -> float | None:
    """systemd's "1min 30s" in seconds; None for "infinity" and anything else."""
    if text == "0":
        return 0.0
    total = 0.0
    parts = text.split()
    for part in parts:
        match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,9})?)([a-z]{1,5})", part)
        if not match or match.group(2) not in _SPANS:
            return None
        total += float(match.group(1)) * _SPANS[match.group(2)]
    return total if parts else None


def parse_units(output: bytes) -> list[dict[str, str]]:
    """Units that `systemctl show -p ...` prints: KEY=value lines, a blank line between units."""
    units: list[dict[str, str]] = []
    for block in output.decode("utf-8", "replace").split("\n\n"):
        pairs = (line.partition("=") for line in block.split("\n") if "=" in line)
        unit = {key: value for key, _, value in pairs if key in _UNIT_FIELDS.split(",")}
        if unit.get("Id") and unit not in units:
            units.append(unit)
    return units


def unit_row(unit: dict[str, str]) -> Row:
    """[name, active, sub, result, restarts, restart, delay in seconds, main pid, exit status], None where unknown."""

    def count(key: str) -> int | None:
        return int(unit[key]) if unit.get(key, "").isdecimal() else None

    words = [unit.get(key, "") for key in ("Id", "ActiveState", "SubState", "Result")]
    delay = parse_span(unit.get("RestartUSec", ""))
    pid = count("MainPID") or None
    return [*words, count("NRestarts"), unit.get("Restart", ""), delay, pid, count("ExecMainStatus")]


def newest_kernel(names: Iterable[str]) -> str | None:
    """The release that the boot loader sorts last: 6.17.0-1026-nvidia after 6.17.0-999-nvidia."""

    def order(name: str) -> Row:
        return [[0, int(part), ""] if part.isdecimal() else [1, 0, part] for part in re.findall(r"\d+|\D+", name)]

    return max((name for name in names if name[:1].isdecimal()), key=order, default=None)


def removes_ipc(root: str = "") -> bool:
    """RemoveIPC as logind reads it: the last setting in its file and drop-ins; True where none sets it."""
    main = [f"{root}{folder}/systemd/logind.conf" for folder in ("/usr/lib", "/etc")]
    parts: dict[str, str] = {}
    for folder in ("/usr/lib", "/run", "/etc"):
        below = f"{root}{folder}/systemd/logind.conf.d"
        parts.update((name, f"{below}/{name}") for name in list_folder(below) if name.endswith(".conf"))
    value = b"yes"
    for path in [*main, *(parts[name] for name in sorted(parts))]:
        try:
            settings = re.findall(rb"^\s*RemoveIPC\s*=\s*(\w+)", read_file(path), re.MULTILINE)
        except OSError:
            continue
        value = settings[-1] if settings else value
    return value.lower() in (b"yes", b"true", b"on", b"1", b"y", b"t")


def unit_of(cgroup: str) -> tuple[str, bool] | None:
    """(service, whether the user's own systemd runs it) of a process's cgroup; None outside of services."""
    services = [part for part in cgroup.split("/") if _UNIT_NAME.fullmatch(part)]
    own = bool(services) and services[0].startswith("user@")  # the user's systemd, which holds the apps of sessions too
    services = services[1:] if own else services
    return (services[0], own) if services else None


class Installed:
    """The slow facts, once a minute. Most come from files; programs are run for the driver's version (modinfo, when the
    modules have changed) and for the state of services (systemctl, where systemd runs)."""

    def __init__(
        self, starts: str, root: str = "", run: Callable[[list[str], float], tuple[int | None, bytes]] | None = None
    ) -> None:
        """`starts`: the regular expression of commands that may start an engine (`probe.engine_marks`)."""
        command = rf"^\s*ExecStart\w*\s*=(?:[^\n\\]|\\.|\\\n)*?(?:{starts})"
        self.starts_engine = re.compile(command.encode(), re.MULTILINE | re.IGNORECASE)
        self.root = root
        self.run = run or capture
        self.driver: tuple[object, str | None] = (None, None)
        self.refused: dict[str, float] = {}

    def read(self, now: float, release: str, user: str, uid: int, cgroups: Iterable[str]) -> dict[str, Any]:
        """The fields that `facts` has and `hello` hasn't; `cgroups` are those of engines and Docker's clients."""
        gaps: dict[str, str] = {}
        facts: dict[str, Any] = {"installed": self._driver(now, release, gaps)}
        kernel = newest_kernel(
            name[8:] for name in list_folder(self.root + "/boot") if name.startswith("vmlinuz-")
        ) or newest_kernel(list_folder(self.root + "/lib/modules"))
        facts["next_kernel"] = kernel
        facts["next_driver"] = None if kernel is None else bool(self._modules(kernel))
        if kernel is None:
            gaps["next_kernel"] = gaps["next_driver"] = "not found"
        facts.update(lingers=None, removes_ipc=None, graphical=None, units=[])
        if not os.path.isdir(self.root + "/run/systemd/system"):
            for field in ("lingers", "removes_ipc", "graphical", "units"):
                gaps[field] = "not found"
        else:
            facts["lingers"] = os.path.exists(f"{self.root}/var/lib/systemd/linger/{user}")
            facts["removes_ipc"] = removes_ipc(self.root)
            self._services(now, uid, cgroups, facts, gaps)
        facts["gaps"] = gaps
        return facts

    def _modules(self, release: str) -> list[str]:
        """The NVIDIA kernel modules that depmod lists for a kernel."""
        try:
            known = read_file(f"{self.root}/lib/modules/{release}/modules.dep", 1 << 23)
        except OSError:
            return []
        return re.findall(r"(?m)^(\S*/nvidia\.ko[.a-z0-9]*):", known.decode("utf-8", "replace"))

    def _driver(self, now: float, release: str, gaps: dict[str, str]) -> str | None:
        try:
            changed = (release, os.stat(f"{self.root}/lib/modules/{release}/modules.dep").st_mtime_ns)
        except OSError as error:
            gaps["installed"] = gap_reason(error)
            return None
        if self.driver[0] != changed:
            version = None
            if self._modules(release):
                output = self._output(now, ["modinfo", "-F", "version", "-k", release, "nvidia"])
                match = re.match(rb"\s*(\d{3,}\.\d+(?:\.\d+)?)\s", output or b"")
                version = match.group(1).decode() if match else None
            self.driver = (changed, version)
        if self.driver[1] is None:
            gaps["installed"] = "not found"
        return self.driver[1]

    def _services(
        self, now: float, uid: int, cgroups: Iterable[str], facts: dict[str, Any], gaps: dict[str, str]
    ) -> None:
        running = {unit for unit in map(unit_of, cgroups) if unit is not None}
        system = {name for name, own in running if not own} | self._starters("/etc/systemd/system")
        home = os.environ.get("HOME") or "/nonexistent"
        mine = {name for name, own in running if own} | self._starters(home + "/.config/systemd/user")
        show = ["show", "--no-pager", "-p", _UNIT_FIELDS]
        # Units by name, and any that failed or restart: one question to systemd.
        link = self.root + "/etc/systemd/system/display-manager.service"  # Debian enables graphical.target without one
        desktop = [os.path.basename(os.path.realpath(link))] if os.path.lexists(link) else []
        names = ["*.service", *sorted(system)[:60], *desktop]
        output = self._output(now, ["systemctl", *show, "--state=failed,activating", "--", *names])
        if output is None:
            gaps["units"] = gaps["graphical"] = "failed"
            return
        units = parse_units(output)
        facts["graphical"] = False
        runtime = f"/run/user/{uid}"
        if mine and os.path.exists(f"{self.root}{runtime}/systemd/private"):
            own = self._output(
                now, ["env", "XDG_RUNTIME_DIR=" + runtime, "systemctl", "--user", *show, "--", *sorted(mine)[:60]]
            )
            units += parse_units(own or b"")
        rows = []
        for unit in units:
            if unit["Id"] in desktop:
                facts["graphical"] = unit.get("ActiveState") == "active"
            elif unit["Id"] in system | mine or (
                unit.get("ActiveState") in ("failed", "activating") and unit.get("NRestarts", "0") != "0"
            ):
                rows.append(unit_row(unit))
        facts["units"] = rows[:60]

    def _starters(self, folder: str) -> set[str]:
        """Services in a folder whose ExecStart names docker, podman, vllm, sglang or llama."""
        names = set()
        for name in list_folder(self.root + folder)[:400]:
            if _UNIT_NAME.fullmatch(name) and "@." not in name:  # a template has no state, only its instances
                try:
                    if self.starts_engine.search(read_file(f"{self.root}{folder}/{name}", 16384)):
                        names.add(name)
                except OSError:
                    continue
        return names

    def _output(self, now: float, argv: list[str]) -> bytes | None:
        """A program's output; None where it fails without any, or doesn't answer, and then for REFUSED_S."""
        key = " ".join(argv[:3])
        if now < self.refused.get(key, 0.0):
            return None
        status, output = self.run(argv, COMMAND_S)
        if status is None:
            self.refused[key] = now + REFUSED_S
            return None
        return None if status and not output else output
