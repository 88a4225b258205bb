"""The probe: what outlives a login and not a boot, one claim and one event of the guard (the rest: `remote_guard`)."""

from __future__ import annotations

import json
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Message = dict[str, Any]
if __name__ != "sparktop_probe":  # on a Spark this text runs among the probe's own names
    from sparktop.probe.remote import STATE_FOLDERS, _encode, _read, parse_process_stat

KEPT_S = 24 * 3600.0


class Journal:
    """Small files in a folder of this user alone, in tmpfs; where there can be none, nothing is kept."""

    def __init__(self) -> None:
        self.folder = ""
        try:
            self.boot_id = _read("/proc/sys/kernel/random/boot_id").decode().strip()
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
                found = os.lstat(path)
            except OSError:
                continue
            # All may write beside it: another user may have made it first, or a link in its place.
            if found.st_mode & 0o170077 == 0o040000 and found.st_uid == os.getuid():
                self.folder = path
                break

    def write(self, name: str, body: Message) -> tuple[int, int]:
        """Put it in place whole; by what it is known again, (0, 0) where nothing can be kept."""
        if not self.folder:
            return 0, 0
        path = f"{self.folder}/{name}"
        part = f"{path}.{os.getpid()}"
        text = _encode({**body, "boot_id": self.boot_id, "wall": round(time.time(), 3)}).encode()
        try:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, text)
            finally:
                os.close(descriptor)
            os.rename(part, path)
        except OSError:
            return 0, 0
        return self.key(name)

    def read(self, name: str) -> Message | None:
        """What an earlier probe left in this boot, within a day."""
        try:
            body = json.loads(_read(f"{self.folder}/{name}")) if self.folder else None
            if not isinstance(body, dict) or body["boot_id"] != self.boot_id:
                return None
            return body if -60 < time.time() - float(body["wall"]) < KEPT_S else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def key(self, name: str) -> tuple[int, int]:
        try:
            found = os.lstat(f"{self.folder}/{name}")
        except OSError:
            return 0, 0
        return found.st_ino, found.st_mtime_ns

    def remove(self, name: str) -> None:
        try:
            os.unlink(f"{self.folder}/{name}")
        except OSError:
            pass


def is_held(claim: Message) -> bool:
    """Whether the probe that made this claim is there yet."""
    try:
        stat = parse_process_stat(_read(f"/proc/{int(claim['pid'])}/stat", 1024))
    except (OSError, KeyError, TypeError, ValueError):
        return False
    return stat is not None and stat[1] != "Z" and stat[3] == claim.get("start")
