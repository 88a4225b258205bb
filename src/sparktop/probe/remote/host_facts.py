"""Facts about the host that change rarely, and its disks."""

from __future__ import annotations

import os
import re
import sys

from sparktop.probe.remote.parsers import parse_dgx_release, parse_driver_version
from sparktop.probe.remote.system import gap_reason, read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FACTS_S = 60.0
"""Seconds between two readings of the facts."""


def host_facts() -> dict[str, Any]:
    """Facts from files that can't hang; the scanner's child fills in the disks, because statvfs can hang."""
    gaps: dict[str, str] = {"disks": "not read yet"}

    def take(field: str, path: str, parse: Callable[[bytes], str | None]) -> str | None:
        try:
            value = parse(read_file(path))
        except OSError as error:
            gaps[field] = gap_reason(error)
            return None
        if not value:
            gaps[field] = "not found"
        return value or None

    def text(data: bytes) -> str:
        return data.decode("utf-8", "replace").strip()

    def pretty_name(data: bytes) -> str | None:
        match = re.search(rb'^PRETTY_NAME="?([^"\n]+)', data, re.MULTILINE)
        return text(match.group(1)) if match else None

    def digest(data: bytes) -> str | None:
        import zlib

        # 32 of 128 bits: enough to see that two nodes are clones, too few to reveal the id.
        return f"{zlib.crc32(data.strip()):08x}" if data.strip() else None

    kernel = os.uname()
    return {
        "hostname": kernel.nodename,
        "boot_id": take("boot_id", "/proc/sys/kernel/random/boot_id", text) or "",
        "machine_digest": take("machine_digest", "/etc/machine-id", digest),
        "kernel": kernel.release,
        "arch": kernel.machine,
        "os": take("os", "/etc/os-release", pretty_name),
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
    """[[mount, total, free]] in bytes of /, /home, Docker's store and the logs, each filesystem once. May hang."""
    rows: list[list[Any]] = []
    seen = set()
    for mount in ("/", "/home", "/var/lib/docker", "/var/log"):
        try:
            device = os.stat(mount).st_dev
            space = os.statvfs(mount)
        except OSError:
            continue
        if device not in seen:
            seen.add(device)
            rows.append([mount, space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize])
    return rows
