"""The guard's files, which survive a logout and not a reboot: its claim, and what it did, told to each console anew."""

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
    """Small JSON files in a folder of this user alone: in tmpfs, or in /tmp where that is full or not to be had."""

    def __init__(self) -> None:
        self.folders: list[str] = []
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
                self.folders.append(path)

    def write(self, name: str, body: Message) -> tuple[int, int]:
        """Write a file, whole or not at all; returns its key, (0, 0) where nothing can be kept."""
        text = encode({**body, "boot_id": self.boot_id, "wall": round(time.time(), 3)}).encode()
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        old = self.path_of(name)
        for folder in self.folders:
            path = f"{folder}/{name}"
            unfinished = f"{path}.{os.getpid()}"
            try:
                descriptor = os.open(unfinished, flags, 0o600)
                try:
                    is_whole = os.write(descriptor, text) == len(text)
                finally:
                    os.close(descriptor)
                if is_whole:
                    os.rename(unfinished, path)
                    if old not in ("", path):
                        os.unlink(old)
                    return self.key(name)
                os.unlink(unfinished)
            except OSError:
                pass  # full
        return 0, 0

    def path_of(self, name: str) -> str:
        """Where a file is; empty where there is none."""
        return next((path for folder in self.folders if os.path.lexists(path := f"{folder}/{name}")), "")

    def read(self, name: str) -> Message | None:
        """A file of this boot that is at most a day old; None where there is none."""
        try:
            body = json.loads(read_file(self.path_of(name)))
            if not isinstance(body, dict) or body["boot_id"] != self.boot_id:
                return None
            return body if -60 < time.time() - float(body["wall"]) < KEPT_S else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def key(self, name: str) -> tuple[int, int]:
        """(inode, time of change): tells whether a file is still the one that was written."""
        try:
            status = os.lstat(self.path_of(name))
        except OSError:
            return 0, 0
        return status.st_ino, status.st_mtime_ns

    def remove(self, name: str) -> None:
        try:
            os.unlink(self.path_of(name))
        except OSError:
            pass


def is_held(claim: Message) -> bool:
    """Whether the probe that wrote this claim still runs."""
    try:
        stat = parse_process_stat(read_file(f"/proc/{int(claim['pid'])}/stat", 1024))
    except (OSError, KeyError, TypeError, ValueError):
        return False
    return stat is not None and stat[1] != "Z" and stat[3] == claim.get("start")
