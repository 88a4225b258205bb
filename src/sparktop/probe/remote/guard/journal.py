"""The guard's files, which survive a logout and not a reboot: its claim, and the event no console has received."""

from __future__ import annotations

import json
import os
import time

from sparktop.probe.remote.outbox import encode
from sparktop.probe.remote.parsers import parse_process_stat
from sparktop.probe.remote.system import STATE_FOLDERS, read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Message = dict[str, Any]

KEPT_S = 24 * 3600.0
"""Older files are ignored."""


class Journal:
    """Small JSON files in tmpfs, in a folder of this user alone; without such a folder nothing is kept."""

    def __init__(self) -> None:
        self.folder = ""
        try:
            self.boot_id = read_file("/proc/sys/kernel/random/boot_id").decode().strip()
        except OSError:
            self.boot_id = ""
        for root in STATE_FOLDERS:
            path = f"{root}/sparktop-{os.getuid()}"
            try:
                os.mkdir(path, 0o700)
            except FileExistsError:
                pass
            except OSError:
                continue
            try:
                status = os.lstat(path)
            except OSError:
                continue
            # Every user may create files there: another may have created this folder, or a link in its place.
            if status.st_mode & 0o170077 == 0o040000 and status.st_uid == os.getuid():
                self.folder = path
                break

    def write(self, name: str, body: Message) -> tuple[int, int]:
        """Write a file, whole or not at all; returns its key, (0, 0) where nothing can be kept."""
        if not self.folder:
            return 0, 0
        path = f"{self.folder}/{name}"
        unfinished = f"{path}.{os.getpid()}"
        text = encode({**body, "boot_id": self.boot_id, "wall": round(time.time(), 3)}).encode()
        try:
            descriptor = os.open(
                unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
            try:
                os.write(descriptor, text)
            finally:
                os.close(descriptor)
            os.rename(unfinished, path)
        except OSError:
            return 0, 0
        return self.key(name)

    def read(self, name: str) -> Message | None:
        """A file of this boot that is at most a day old; None where there is none."""
        try:
            body = json.loads(read_file(f"{self.folder}/{name}")) if self.folder else None
            if not isinstance(body, dict) or body["boot_id"] != self.boot_id:
                return None
            return body if -60 < time.time() - float(body["wall"]) < KEPT_S else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def key(self, name: str) -> tuple[int, int]:
        """(inode, time of change): tells whether a file is still the one that was written."""
        try:
            status = os.lstat(f"{self.folder}/{name}")
        except OSError:
            return 0, 0
        return status.st_ino, status.st_mtime_ns

    def remove(self, name: str) -> None:
        try:
            os.unlink(f"{self.folder}/{name}")
        except OSError:
            pass


def is_held(claim: Message) -> bool:
    """Whether the probe that wrote this claim still runs."""
    try:
        stat = parse_process_stat(read_file(f"/proc/{int(claim['pid'])}/stat", 1024))
    except (OSError, KeyError, TypeError, ValueError):
        return False
    return stat is not None and stat[1] != "Z" and stat[3] == claim.get("start")
