"""The probe: what the next boot loads, what logind takes away, services that run engines (the rest: `remote`)."""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    Row = list[Any]
if __name__ != "sparktop_probe":  # on a Spark this text runs among the probe's own names
    from sparktop.probe.remote import _gap, _listed, _read, capture

_UNIT_NAME = re.compile(r"[A-Za-z0-9_@:.-]{1,200}\.service")
_STARTS_ENGINE = re.compile(
    rb"^\s*ExecStart\w*\s*=(?:[^\n\\]|\\.|\\\n)*?(?:\bdocker\b|\bpodman\b|vllm|sglang)", re.MULTILINE
)
_UNIT_FIELDS = [
    "Id",
    "ActiveState",
    "SubState",
    "Result",
    "NRestarts",
    "Restart",
    "RestartUSec",
    "MainPID",
    "ExecMainStatus",
]
_SPANS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
COMMAND_S = 3.0
REFUSED_S = 600.0
"""So long a program isn't asked again that didn't answer in time."""


def parse_span(text: str) -> float | None:
    """systemd's "1min 30s" in seconds; None for "infinity" and what can't be read."""
    if text == "0":
        return 0.0
    total = 0.0
    parts = text.split()
    for part in parts:
        found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,9})?)([a-z]{1,5})", part)
        if not found or found.group(2) not in _SPANS:
            return None
        total += float(found.group(1)) * _SPANS[found.group(2)]
    return total if parts else None


def parse_units(output: bytes) -> list[dict[str, str]]:
    """What `systemctl show -p ...` prints for several units: KEY=value lines, a blank line between units."""
    units: list[dict[str, str]] = []
    for block in output.decode("utf-8", "replace").split("\n\n"):
        pairs = (line.partition("=") for line in block.split("\n") if "=" in line)
        unit = {key: value for key, _, value in pairs if key in _UNIT_FIELDS}
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
    """The release that sorts last as the boot loader's list is sorted: 6.17.0-1026-nvidia after 6.17.0-999-nvidia."""

    def order(name: str) -> Row:
        return [[0, int(part), ""] if part.isdecimal() else [1, 0, part] for part in re.findall(r"\d+|\D+", name)]

    return max((name for name in names if name[:1].isdecimal()), key=order, default=None)


def removes_ipc(root: str = "") -> bool:
    """RemoveIPC as logind reads it: the last word of its file and drop-ins; yes where none says."""
    main = [f"{root}{folder}/systemd/logind.conf" for folder in ("/usr/lib", "/etc")]
    parts: dict[str, str] = {}
    for folder in ("/usr/lib", "/run", "/etc"):
        below = f"{root}{folder}/systemd/logind.conf.d"
        parts.update((name, f"{below}/{name}") for name in _listed(below) if name.endswith(".conf"))
    value = b"yes"
    for path in [*main, *(parts[name] for name in sorted(parts))]:
        try:
            said = re.findall(rb"^\s*RemoveIPC\s*=\s*(\w+)", _read(path), re.MULTILINE)
        except OSError:
            continue
        value = said[-1] if said else value
    return value.lower() in (b"yes", b"true", b"on", b"1", b"y", b"t")


def unit_of(cgroup: str) -> tuple[str, bool] | None:
    """(service, whether it is the user's own manager's) that a process's cgroup lies in; None outside of services."""
    services = [part for part in cgroup.split("/") if _UNIT_NAME.fullmatch(part)]
    own = bool(services) and services[0].startswith("user@")  # the user's manager, which holds sessions' apps too
    services = services[1:] if own else services
    return (services[0], own) if services else None


class Installed:
    """The slow facts, once a minute: mostly files; a program is run for the driver's version (when the modules have
    changed) and for the state of services (where systemd runs)."""

    def __init__(
        self, root: str = "", run: Callable[[list[str], float], tuple[int | None, bytes]] | None = None
    ) -> None:
        self.root = root
        self.run = run or capture
        self.driver: tuple[object, str | None] = (None, None)
        self.refused: dict[str, float] = {}

    def read(self, now: float, release: str, user: str, uid: int, cgroups: Iterable[str]) -> dict[str, Any]:
        """The fields that `facts` has beyond `hello`'s; `cgroups` are those of engines and docker clients."""
        gaps: dict[str, str] = {}
        facts: dict[str, Any] = {"installed": self._driver(now, release, gaps)}
        kernel = newest_kernel(
            name[8:] for name in _listed(self.root + "/boot") if name.startswith("vmlinuz-")
        ) or newest_kernel(_listed(self.root + "/lib/modules"))
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
        """The NVIDIA kernel modules that depmod knows of for a kernel."""
        try:
            known = _read(f"{self.root}/lib/modules/{release}/modules.dep", 1 << 23)
        except OSError:
            return []
        return re.findall(r"(?m)^(\S*/nvidia\.ko[.a-z0-9]*):", known.decode("utf-8", "replace"))

    def _driver(self, now: float, release: str, gaps: dict[str, str]) -> str | None:
        try:
            changed = (release, os.stat(f"{self.root}/lib/modules/{release}/modules.dep").st_mtime_ns)
        except OSError as error:
            gaps["installed"] = _gap(error)
            return None
        if self.driver[0] != changed:
            version = None
            if self._modules(release):
                output = self._asked(now, ["modinfo", "-F", "version", "-k", release, "nvidia"])
                found = re.match(rb"\s*(\d{3,}\.\d+(?:\.\d+)?)\s", output or b"")
                version = found.group(1).decode() if found else None
            self.driver = (changed, version)
        if self.driver[1] is None:
            gaps["installed"] = "not found"
        return self.driver[1]

    def _services(
        self, now: float, uid: int, cgroups: Iterable[str], facts: dict[str, Any], gaps: dict[str, str]
    ) -> None:
        held = {unit for unit in map(unit_of, cgroups) if unit is not None}
        system = {name for name, own in held if not own} | self._starters("/etc/systemd/system")
        home = os.environ.get("HOME") or "/nonexistent"
        mine = {name for name, own in held if own} | self._starters(home + "/.config/systemd/user")
        show = ["show", "--no-pager", "-p", ",".join(_UNIT_FIELDS)]
        # Of units not named only those that failed or are about to be started again: one question to systemd.
        output = self._asked(
            now,
            [
                "systemctl",
                *show,
                "--state=failed,activating",
                "--",
                "*.service",
                *sorted(system)[:60],
                "graphical.target",
            ],
        )
        if output is None:
            gaps["units"] = gaps["graphical"] = "failed"
            return
        units = parse_units(output)
        runtime = f"/run/user/{uid}"
        if mine and os.path.exists(f"{self.root}{runtime}/systemd/private"):
            own = self._asked(
                now, ["env", "XDG_RUNTIME_DIR=" + runtime, "systemctl", "--user", *show, "--", *sorted(mine)[:60]]
            )
            units += parse_units(own or b"")
        rows = []
        for unit in units:
            if unit["Id"] == "graphical.target":
                facts["graphical"] = unit.get("ActiveState") == "active"
            elif unit["Id"] in system | mine or (
                unit.get("ActiveState") in ("failed", "activating") and unit.get("NRestarts", "0") != "0"
            ):
                rows.append(unit_row(unit))
        facts["units"] = rows[:60]

    def _starters(self, folder: str) -> set[str]:
        """Services of a folder whose ExecStart names docker, podman, vllm or sglang."""
        found = set()
        for name in _listed(self.root + folder)[:400]:
            if _UNIT_NAME.fullmatch(name) and "@." not in name:  # of a template only instances have a state
                try:
                    if _STARTS_ENGINE.search(_read(f"{self.root}{folder}/{name}", 16384)):
                        found.add(name)
                except OSError:
                    continue
        return found

    def _asked(self, now: float, argv: list[str]) -> bytes | None:
        """A program's output; None where it says nothing, and for a while longer where it didn't answer in time."""
        key = " ".join(argv[:3])
        if now < self.refused.get(key, 0.0):
            return None
        status, output = self.run(argv, COMMAND_S)
        if status is None:
            self.refused[key] = now + REFUSED_S
            return None
        return output or None
