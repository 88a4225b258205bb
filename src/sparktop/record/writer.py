"""Writes one host's tape: in files of half an hour, the oldest of the host's removed beyond an age and a size.

Never raises: what can't be written is told (`problem`), and tried again a minute later.
"""

from __future__ import annotations

import errno
import os
import time
import zlib
from collections import deque
from collections.abc import Callable
from pathlib import Path

from sparktop import files, sanitise
from sparktop.dataclass import dataclass
from sparktop.record.tape import SUFFIX, Entry, file_of, folder_of, heading

FILE_S = 1800.0
FILE_BYTES = 16 << 20
FLUSH_S = 2.0
"""What a kill can cost; zlib's own block would hold back a minute."""
AGAIN_S = 60.0
ASLEEP_S = 30.0
"""The wall clock is so far ahead of the monotonic one at once: the machine slept, which the latter doesn't count."""
GZIP = 31
"""zlib's `wbits` for a gzip member."""


def _new_packer() -> zlib._Compress:
    """It takes 128 KiB a node, not zlib's own 256, and 3 % more of the disk."""
    return zlib.compressobj(wbits=GZIP - 1, memLevel=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one host's recordings may take."""

    days: float = 7.0
    total_bytes: int = 2 << 30


class TapeWriter:
    """One host's tape. Its first file is made with the first entry."""

    def __init__(
        self,
        host: str,
        *,
        limits: Limits,
        product: str,
        home: Path | None = None,
        wall: Callable[[], float] = time.time,
        lead_s: float | None = None,
    ) -> None:
        """`lead_s`: what makes seconds since the epoch of the times that `put` is given."""
        self._host = host
        self._limits = limits
        self._product = product
        self._folder = folder_of(host, home)
        self._wall = wall
        self._lead_s = wall() - time.monotonic() if lead_s is None else lead_s
        self._ahead_s = float("inf")
        self._session = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(wall())) + f"-{os.getpid()}"
        self._number = 0
        self._handle: int | None = None
        self._packer = _new_packer()
        self._opened_s = self._flushed_s = 0.0
        self._next_try_s = float("-inf")
        self._kept: dict[str, deque[Entry]] = {}
        """What a new file begins with, by `kept`."""
        self._file_bytes = 0
        self.written_bytes = 0
        """Of this recording, compressed."""
        self.problem = ""
        """Why nothing is recorded."""

    def put(self, at_s: float, kind: str, payload: bytes, *, kept: str = "", most: int = 1) -> None:
        """Append what came.

        Args:
            at_s: monotonic clock.
            kept: the newest `most` entries of this name begin each later file; empty: none.
        """
        ahead_s = self._wall() - at_s
        if ahead_s > self._ahead_s + ASLEEP_S:
            self._lead_s += ahead_s - self._ahead_s
            self.close()
        self._ahead_s = ahead_s
        entry = Entry(at_s=at_s + self._lead_s, kind=kind, payload=payload)
        try:
            if self._is_open(at_s):
                self._write(entry.encoded(), at_s)
        except OSError as error:
            self._fail(error, at_s)
        if kept:
            self._kept.setdefault(kept, deque(maxlen=most)).append(entry)

    def close(self) -> None:
        """End the file."""
        try:
            if self._handle is not None:
                self._out(self._packer.flush())
        except OSError:
            pass  # whole up to the last flush
        finally:
            self._release()

    def _is_open(self, at_s: float) -> bool:
        is_full = self._file_bytes >= FILE_BYTES or at_s - self._opened_s >= FILE_S
        if self._handle is not None and is_full:
            self.close()
        if self._handle is None and at_s >= self._next_try_s:
            self._open(at_s)
        return self._handle is not None

    def _open(self, at_s: float) -> None:
        files.private_folder(self._folder)
        self._make_room()
        path = file_of(self._folder, self._session, self._number)
        self._handle = files.opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        self._number += 1
        self._packer, self._file_bytes = _new_packer(), 0
        self._opened_s = self._flushed_s = at_s
        self.problem = ""
        began = heading(self._host, at_s + self._lead_s, self._product)
        earlier = sorted((entry for rows in self._kept.values() for entry in rows), key=lambda entry: entry.at_s)
        for entry in (began, *earlier):
            self._out(self._packer.compress(entry.encoded()))
        self._out(self._packer.flush(zlib.Z_SYNC_FLUSH))

    def _write(self, line: bytes, at_s: float) -> None:
        self._out(self._packer.compress(line))
        if at_s - self._flushed_s >= FLUSH_S:
            self._flushed_s = at_s
            self._out(self._packer.flush(zlib.Z_SYNC_FLUSH))

    def _out(self, data: bytes) -> None:
        while data and self._handle is not None:
            count = os.write(self._handle, data)
            self._file_bytes += count
            self.written_bytes += count
            data = data[count:]

    def _fail(self, error: OSError, at_s: float) -> None:
        self._release()
        self._next_try_s = at_s + AGAIN_S
        reason = "the disk is full" if error.errno == errno.ENOSPC else sanitise.line(error.strerror or str(error))
        self.problem = f"{self._host} is not recorded: {reason}"

    def _release(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def _make_room(self) -> None:
        """Remove the host's oldest files beyond the limits; another console may do the same."""
        rows = []
        for path in self._folder.glob(f"*{SUFFIX}"):
            try:
                stat = path.lstat()
            except OSError:
                continue
            rows.append((stat.st_mtime, stat.st_size, path))
        total, oldest_s = FILE_BYTES, self._wall() - self._limits.days * 86_400.0
        for changed_s, size, path in sorted(rows, reverse=True):
            total += size
            if changed_s < oldest_s or total > self._limits.total_bytes:
                try:
                    path.unlink()
                except OSError:
                    continue
