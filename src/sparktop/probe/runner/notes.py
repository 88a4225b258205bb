"""What consoles note on a Spark of the runs that change it: read by any console, from any machine, after a reboot too.

A run has one file, RUN.jsonl, in a folder of this user alone, by default below ~/.local/state: the entries of its
console's audit (`operate/audit_file`), from which secrets are masked before they come.
"""

from __future__ import annotations

import os
import re
import time

from sparktop.probe.runner.journal import GROUP_LOCK_NAME, LOCK_NAME, holder_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Words = dict[str, Any]

RUNS_AT_MOST = 40
RUN_KEPT_S = 30 * 24 * 3600.0
RUN_BYTES = 1 << 20
ALL_BYTES = 2 << 20
"""Of the newest runs, when all are asked for."""
_RUN_NAME = re.compile(r"\w[\w-]{0,79}", re.ASCII)
_LOCK_MARK = re.compile(r"\[([\w-]+)\]$", re.ASCII)
"""The end of what a run says in the node's lock."""


def _folder() -> str:
    """Survives a reboot, unlike the journals'."""
    return os.path.join(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"), "sparktop/runs")


def note(run: str, entry: str) -> str:
    """Add one entry to a run's file; why it wasn't, else ""."""
    folder = _folder()
    if not _RUN_NAME.fullmatch(run) or "\n" in entry:
        return "no entry of a run"
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        is_new = not os.path.exists(f"{folder}/{run}.jsonl")
        if is_new:
            _tidy(folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        file = os.open(f"{folder}/{run}.jsonl", flags, 0o600)
        try:
            line = entry.encode() + b"\n"
            if os.fstat(file).st_size + len(line) > RUN_BYTES:
                return f"its file has {RUN_BYTES >> 20} MiB already"
            if os.write(file, line) < len(line):
                return "no space left on device"
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def noted(locks: tuple[str, ...], journals: list[str]) -> list[Words]:
    """The runs, newest first: {run, held (it is under way, by somebody's console), entries [text]}; `locks` and
    `journals`: the folders with the node's lock, and with the journals of steps."""
    held = _held_runs(locks, journals)
    folder = _folder()
    runs, left = [], ALL_BYTES
    for _, name in _by_age(folder):
        try:
            with open(f"{folder}/{name}", "rb") as file:
                text = file.read(min(left, RUN_BYTES))
        except OSError:
            continue
        left -= len(text)
        run = name.rpartition(".")[0]
        lines = text.decode("utf-8", "replace").split("\n")[:-1]
        runs.append({"run": run, "held": run in held, "entries": lines})
        if left <= 0:
            break
    return runs


def _by_age(folder: str) -> list[tuple[float, str]]:
    """(when it was changed, name) of each file, newest first."""
    ages = []
    try:
        for entry in os.scandir(folder):
            if entry.name.endswith(".jsonl") and entry.is_file(follow_symlinks=False):
                ages.append((entry.stat(follow_symlinks=False).st_mtime, entry.name))
    except OSError:
        return []
    return sorted(ages, reverse=True)


def _tidy(folder: str) -> None:
    now = time.time()
    for number, (changed, name) in enumerate(_by_age(folder), 1):
        if number >= RUNS_AT_MOST or now - changed > RUN_KEPT_S:
            os.unlink(f"{folder}/{name}")


def _held_runs(roots: tuple[str, ...], journals: list[str]) -> set[str]:
    """The runs that hold the node's lock now, or a step of which is at work: by the kernel's list of locks."""
    try:
        with open("/proc/locks") as file:
            inodes = {line.split()[5].rpartition(":")[2] for line in file if " FLOCK " in line}
    except (OSError, IndexError):
        return set()
    held = set()
    for root in roots:
        for name in _names(root):
            if name.startswith((LOCK_NAME, GROUP_LOCK_NAME)) and (what := _locked_words(f"{root}/{name}", inodes)):
                held |= set(_LOCK_MARK.findall(what))
    for folder in journals:
        for name in _names(folder):
            if name.endswith(".step") and _inode(f"{folder}/{name}") in inodes:
                held.add(name.partition(".")[0])
    return held


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _inode(path: str) -> str:
    try:
        return str(os.stat(path, follow_symlinks=False).st_ino)
    except OSError:
        return ""


def _locked_words(path: str, inodes: set[str]) -> str:
    """What the holder of a lock's file does; "" where nobody holds it."""
    if _inode(path) not in inodes:
        return ""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        what: str = holder_words(file)["what"]
        return what
    finally:
        os.close(file)
