"""The audit: what was done to the Sparks, by whom and how it ended, as JSON lines under `$XDG_STATE_HOME/sparktop`.

Entries are only added. Kinds: "intent" before a run's first step (on disk before that starts), "step" after each,
"note" between them (a link lost, an abort), "end" with the figures before and after, "guard" when a node's guard
changed. Each has "run" (but guards), "wall_s" and "at". Entries arrive masked (`secrets.masking`) and are written as
they are.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
import re
import socket
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sparktop import sanitise
from sparktop.bounds import json_of
from sparktop.clock import Clock, SystemClock
from sparktop.config import state_home
from sparktop.errors import SparktopError
from sparktop.files import opened, private_folder
from sparktop.transport.threads import in_thread

VERSION = 1
NEW = "{NEW}"
"""Stands in the audit for the id of a container that a step creates."""
READ_AT_MOST_BYTES = 8 << 20
"""Only the end of a longer file is read."""
LATELY_BYTES = 1 << 20
"""How much of the file's end a list of recent names is read from."""
MAX_ENTRY_CHARS = 1 << 20
UNDER_WAY = "under-way"
"""A folder next to the audit: a file for each run, locked by the process that runs it."""
REBOOT_STEP = "reboot"
"""Id of the step that reboots a node."""
STOPPING_ACTIONS = ("stop-engine", "break-restart-loop", "remove-unit")
"""Actions that intend to leave stopped what they stop."""
_CONTAINER_CALL = re.compile(r"POST /containers/([0-9a-f]{64}|\{NEW\})/(stop|kill|start|update)")
_RUN_ID = re.compile(r"\w[\w.-]{0,99}")


class AuditError(SparktopError):
    """The audit can't be written."""


def audit_path() -> Path:
    """The path of the audit file."""
    return state_home() / "audit.jsonl"


def operator() -> str:
    """The operator as user@machine: for the audit, and for others who find the node locked."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        user = f"uid {os.getuid()}"
    return sanitise.name(f"{user}@{socket.gethostname()}")


class Audit:
    """Adds entries to the audit file; several consoles may write to one."""

    def __init__(self, path: Path | None = None, *, clock: Clock | None = None, who: str = "") -> None:
        self._path = path or audit_path()
        self._clock = clock or SystemClock()
        self.who = who or operator()
        self._marks: dict[str, int] = {}

    @property
    def path(self) -> Path:
        return self._path

    async def keep(self, kind: str, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add an entry, and return it when it is on disk.

        Raises:
            AuditError: it could not be written.
        """
        whole = self._whole(kind, entry)
        await in_thread(self._write, whole, is_synced=True)
        return whole

    def note(self, kind: str, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add an entry, without waiting for the disk; returns it.

        Raises:
            AuditError: it couldn't be added.
        """
        whole = self._whole(kind, entry)
        self._write(whole, is_synced=False)
        return whole

    def hold(self, run_id: str) -> None:
        """Mark a run as under way while this process lives: its lock ends with the process."""
        folder = self._path.parent / UNDER_WAY
        try:
            handle = opened(private_folder(folder) / run_id, os.O_RDWR | os.O_CREAT)
        except OSError:
            return  # writing the intent reports a full disk better; a missing mark is no reason to refuse a run
        self._marks[run_id] = handle
        with contextlib.suppress(OSError):  # a file system without locks: the run counts as under way
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def let_go(self, run_id: str) -> None:
        """Remove the mark: the run is over, or left."""
        handle = self._marks.pop(run_id, None)
        if handle is not None:
            with contextlib.suppress(OSError):
                (self._path.parent / UNDER_WAY / run_id).unlink()
            os.close(handle)

    def _whole(self, kind: str, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        wall_s = self._clock.wall()
        at = datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="milliseconds")
        return {"v": VERSION, "kind": kind, "at": at, "wall_s": round(wall_s, 3), "who": self.who, **entry}

    def _line(self, fields: Mapping[str, Any]) -> bytes:
        text = json.dumps(fields, ensure_ascii=True, default=str)  # ASCII: nothing in it can talk to a terminal
        if len(text) > MAX_ENTRY_CHARS:
            short = {
                key: fields[key]
                for key in ("v", "kind", "at", "wall_s", "who", "run", "node", "state")
                if key in fields
            }
            text = json.dumps({**short, "left_out": f"an entry of {len(text)} characters"})
        return text.encode() + b"\n"

    def _write(self, fields: Mapping[str, Any], *, is_synced: bool) -> None:
        line = self._line(fields)
        try:
            private_folder(self._path.parent)
            is_new = not self._path.exists()
            handle = opened(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)  # two consoles write whole lines, one after the other
                os.fchmod(handle, 0o600)
                size = os.fstat(handle).st_size
                torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"  # a disk was full here once
                _write_all(handle, (b"\n" if torn else b"") + line)
                if is_synced:
                    os.fsync(handle)
            finally:
                os.close(handle)
            if is_new and is_synced:
                _sync_folder(self._path.parent)
        except OSError as error:
            raise AuditError(
                f"the audit {self._path} can't be written: {error.strerror or error}",
                hint="free some space, or see who owns the folder; nothing is changed on a Spark without it",
            ) from error


def _write_all(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def entries(path: Path | None = None, *, limit_bytes: int = READ_AT_MOST_BYTES) -> tuple[list[dict[str, Any]], int]:
    """The entries at the end of the file, oldest first, and the number of damaged lines skipped; [] without a file.

    Raises:
        AuditError: the file exists and can't be read.
    """
    file = path or audit_path()
    try:
        return decoded(end_of(file, limit_bytes)[0])
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise AuditError(f"the audit {file} can't be read: {error.strerror or error}") from error


def end_of(file: Path, limit_bytes: int, after: int = 0) -> tuple[bytes, int]:
    """(the file's end from the offset `after` on, in whole lines where that is more than the limit; its size).

    Raises:
        OSError: it can't be read.
    """
    with open(opened(file), "rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        start = stream.seek(max(after, size - limit_bytes))
        raw = stream.read(size - start)
    return raw.partition(b"\n")[2] if start > after else raw, size


def engines_named(path: Path | None = None) -> tuple[str, ...]:
    """The engines that recent runs acted on or stopped, the latest first; () where the audit can't be read."""
    try:
        log_entries = entries(path, limit_bytes=LATELY_BYTES)[0]
    except AuditError:
        return ()
    names = (sanitise.name(str(name or "")) for entry in reversed(log_entries) for name in _engines_of(entry))
    return tuple(dict.fromkeys(name for name in names if name and not name.isdecimal()))  # a number is a process


def _engines_of(entry: Mapping[str, Any]) -> Iterator[object]:
    yield entry.get("target")
    yield from (sanitise.mapping(step).get("stops") for step in sanitise.items(entry.get("steps")))


def container_call(call: Mapping[str, Any]) -> tuple[str, str] | None:
    """(container, verb) of an audited Docker call that stops, kills, starts or updates a container; else None.

    The container is its full id, or "{NEW}" for one that an earlier step created.
    """
    match = _CONTAINER_CALL.fullmatch(str(call.get("docker", "")))
    return (match[1], match[2]) if match is not None else None


def is_under_way(run_id: str, path: Path) -> bool:
    """Whether a process of this machine runs it now, by its mark; a stale mark is removed."""
    if not _RUN_ID.fullmatch(run_id):
        return False
    mark = path.parent / UNDER_WAY / run_id
    try:
        handle = opened(mark, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mark.unlink(missing_ok=True)  # nobody takes this lock again: run ids are unique
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def decoded(raw: bytes) -> tuple[list[dict[str, Any]], int]:
    """The entries in a piece of the file, and the number of damaged lines."""
    decoded_entries: list[dict[str, Any]] = []
    damaged = 0
    for line in raw.split(b"\n"):
        if not line.strip():
            continue
        try:
            entry = json_of(line)
        except ValueError:
            entry = None
        if isinstance(entry, dict) and isinstance(entry.get("kind"), str) and _is_time(entry.get("wall_s")):
            decoded_entries.append(entry)
        else:
            damaged += 1
    return decoded_entries, damaged


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e11
