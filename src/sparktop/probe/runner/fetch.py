"""A step that fetches images or files, which takes minutes or hours.

It reports progress about once a second, keeps the newest in a small file for later questions, can be stopped, and
doesn't lock the node. Of two steps with the same transfer, one waits for the other.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from _blake2 import blake2b

from sparktop.probe.runner.docker import DockerLost
from sparktop.probe.runner.journal import Unable, file_name, mark, read_text
from sparktop.probe.runner.pull import ImageStream, as_reference, login_for
from sparktop.probe.runner.step import Failed, StepWork

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Words = dict[str, Any]
    Progress = tuple[int | None, int | None, str]

TELL_S = 1.0
WALK_AT_MOST_S = 5.0
"""How long measuring a folder may take."""
WALK_SHARE = 20
"""Measuring a folder takes at most one part in so many of the time."""
REST_AT_MOST_S = 30.0
"""Between two measurements, at most."""
PROGRESS_BYTES = 1024
FOLLOWS = "waiting for another run's transfer of the same"
ENDED = "the operator stopped it; the part that arrived stays, and the next try continues from there"
ENDED_PULL = "the operator stopped it; Docker keeps complete layers and won't pull them again"


class ToEnd(Exception):
    """The operator has stopped it."""


class FetchWork(StepWork):
    """A step with the two operations that fetch, `pull` and `transfer`."""

    def __init__(self, request: Words, **more: Any) -> None:
        super().__init__(request, **more)
        self.base = file_name(str(request["run"]), str(request["step"]))[:-5]
        self.progress_file = -1
        """Descriptor of the progress file."""
        self.is_heard = True
        """A console receives the progress."""
        self.first: int | None = None
        """Bytes in the transfer's folder when it began."""

    def run(self) -> None:
        super().run()
        for name in (f"{self.base}.progress", f"{self.base}.ending"):
            try:
                os.unlink(name, dir_fd=self.folder)
            except OSError:
                pass

    def is_to_end(self) -> bool:
        """Whether a runner was told to stop this step."""
        return os.access(f"{self.base}.ending", os.F_OK, dir_fd=self.folder, follow_symlinks=False)

    def tell_progress(self, index: int, done: int | None, total: int | None, words: str) -> None:
        """Report progress to the runner, if there is one, and write it to the file."""
        progress: Words = {"index": index, "done": done, "total": total, "words": words[:120]}
        self.is_heard = self.tell({"kind": "progress", **progress}, may_skip=True)
        text = json.dumps({**progress, "heard": self.is_heard, "first": self.first}, separators=(",", ":")).encode()
        try:
            if self.progress_file < 0:
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
                self.progress_file = os.open(f"{self.base}.progress", flags, 0o600, dir_fd=self.folder)
            os.pwrite(self.progress_file, text.ljust(PROGRESS_BYTES)[:PROGRESS_BYTES], 0)
        except OSError:
            pass  # the step goes on without a progress file

    async def _do(self, operation: Words, result: Words, *, is_undo: bool) -> None:
        kind = operation.get("do")
        if kind == "pull":
            await self._pull(operation, result)
        elif kind == "transfer":
            await self._transfer(operation, result)
        else:
            await super()._do(operation, result, is_undo=is_undo)

    # -- an image

    async def _pull(self, operation: Words, result: Words) -> None:
        image = str(operation.get("image") or "")
        name, tag = as_reference(image)
        limit = float(operation.get("limit") or 3600.0)
        until = min(time.monotonic() + limit, self.deadline)
        header, note = login_for(name)
        stream = ImageStream(self.docker, name, tag, header)
        meter = Meter(self, int(result["index"]), stream.progress)
        try:
            while True:
                try:
                    if self._has_image(image):
                        result["was_done"] = not stream.is_begun
                        break
                    if stream.is_begun and not stream.broke:
                        raise Failed(f"Docker reports {image} as pulled, but doesn't have it")
                    meter.stop_if_wanted()
                    result["code"], problem = stream.pull(until, meter.stop_if_wanted)
                except DockerLost as lost:
                    stream.broke = True
                    if lost.late or time.monotonic() >= until:
                        raise Failed(f"{image} didn't arrive within {limit:g} s") from None
                    await self._await_engine(str(lost))
                    await self.rest(TELL_S)
                else:
                    if problem:
                        raise Failed("; ".join(part for part in (problem, note) if part), code=result["code"])
        except ToEnd:
            result["ended"] = True
            raise Failed(ENDED_PULL) from None
        result["bytes"] = stream.layers.brought
        result["output"] = note

    def _has_image(self, image: str) -> bool:
        return self.docker.ask("GET", f"/images/{image}/json", {}, seconds=10.0)[0] == 200

    # -- a command that fetches files

    async def _transfer(self, operation: Words, result: Words) -> None:
        command = operation["command"]
        if command.get("root"):
            raise Unable("sparktop downloads nothing as root; nothing was done")
        total = operation.get("total")
        growth = Growth(os.path.expanduser(str(operation["grows"])), total if isinstance(total, int) else None)
        meter = Meter(self, int(result["index"]), growth.progress)
        try:
            key = self._own_key(str(operation["key"]), growth, meter, self._seconds(command))
            self.tick = meter
            try:
                self.first = growth.begin()
                meter.stop_if_wanted()
                await self._command(command, result)
            except Failed as failure:
                growth.progress(at_once=True)
                result["bytes"], result["free"] = growth.brought, free_bytes(growth.path)
                if meter.is_to_end:
                    result["ended"] = True
                    raise Failed(ENDED, code=failure.code, output=failure.output) from None
                raise
            finally:
                self.tick = None
                os.close(key)
        except ToEnd:
            result["ended"] = True
            raise Failed(ENDED) from None
        self.tell_progress(int(result["index"]), *(growth.progress(at_once=True) or growth.newest))
        result["bytes"] = growth.brought

    def _own_key(self, key: str, growth: Growth, meter: Meter, limit: float) -> int:
        """Lock a transfer's key; the descriptor, and the program that inherits it, hold the lock.

        While another step holds it, this one waits and reports that step's progress; its own program then finds
        everything fetched.

        Raises:
            Failed: the other step wasn't over in time.
            ToEnd: the operator stopped waiting.
        """
        name = f"transfer-{blake2b(key.encode('utf-8', 'replace'), digest_size=16).hexdigest()}.key"
        until = min(time.monotonic() + limit, self.deadline)
        while True:
            held = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self.folder)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(held).st_nlink:  # else `Journals` has removed the file meanwhile
                    os.ftruncate(held, 0)
                    os.pwrite(held, self.base.encode(), 0)
                    os.set_inheritable(held, True)
                    return held
            except BlockingIOError:
                other = os.pread(held, 500, 0).decode("utf-8", "replace")
                growth.follow(self._told_by(other))
                try:
                    meter.stop_if_wanted()
                except ToEnd:
                    self._end_unheard(other)
                    raise
                if time.monotonic() >= until:
                    raise Failed(
                        f"another run has been transferring the same for {limit:g} s, and isn't done"
                    ) from None
                time.sleep(TELL_S / 4)
            except BaseException:
                os.close(held)
                raise
            os.close(held)

    def _told_by(self, base: str) -> Words:
        try:
            words = json.loads(read_text(f"{self.path}/{base}.progress")) if base and "/" not in base else {}
        except (OSError, ValueError):
            return {}
        return words if isinstance(words, dict) else {}

    def _end_unheard(self, base: str) -> None:
        """Stop the other step too, unless a console receives its progress."""
        if self._told_by(base).get("heard") is False:
            try:
                mark(self.folder, f"{base}.ending")
            except OSError:
                pass


class Meter:
    """Reports an operation's progress and checks whether to stop, once a second however often it is called."""

    def __init__(self, work: FetchWork, index: int, progress: Callable[[], Progress | None]) -> None:
        self.work = work
        self.index = index
        self.progress = progress
        self.is_to_end = False
        self.next_at = 0.0

    def __call__(self) -> bool:
        """Whether the operation is to stop."""
        if (now := time.monotonic()) >= self.next_at:
            self.next_at = now + TELL_S
            self.is_to_end = self.is_to_end or self.work.is_to_end()
            if (progress := self.progress()) is not None:
                self.work.tell_progress(self.index, *progress)
        return self.is_to_end

    def stop_if_wanted(self) -> None:
        """Raises ToEnd."""
        if self():
            raise ToEnd


class Growth:
    """How much a folder has grown, and of how much, where its final size is known."""

    def __init__(self, path: str, total: int | None) -> None:
        self.path = path
        self.total = total
        self.first: int | None = None
        """Bytes in it when the transfer began, in this step or in the one it waited for."""
        self.brought: int | None = None
        self.newest: Progress = (None, total, "")
        self.is_following = False
        self.next_at = 0.0

    def begin(self) -> int | None:
        """This step's own transfer begins; returns the bytes that were there first."""
        self.is_following = False
        if self.first is None:
            self.first = folder_bytes(self.path)
        return self.first

    def follow(self, other: Words) -> None:
        """Take the progress of the step that does the same transfer."""
        done, total, first = other.get("done"), other.get("total"), other.get("first")
        self.is_following = True
        self.first = first if isinstance(first, int) else self.first
        self.newest = done if isinstance(done, int) else None, total if isinstance(total, int) else self.total, FOLLOWS

    def progress(self, *, at_once: bool = False) -> Progress | None:
        """(bytes, of how many, in words); None when it is too early to measure again."""
        if self.is_following:
            return self.newest
        began = time.monotonic()
        if began < self.next_at and not at_once:
            return None
        size = folder_bytes(self.path) if self.first is not None else None
        took = time.monotonic() - began
        if size is None:
            self.next_at = began + 1e9
            return None, self.total, "its folder is too large to measure"
        self.next_at = began + min(REST_AT_MOST_S, took * WALK_SHARE)
        self.brought = max(0, size - (self.first or 0))
        return (size if self.total else self.brought), self.total, ""


def free_bytes(path: str) -> int | None:
    """Bytes that this user may still write where the folder is, or will be; None: not known."""
    while True:
        try:
            disk = os.statvfs(path)
        except FileNotFoundError:
            path, before = os.path.dirname(path.rstrip("/")), path
            if path == before:
                return None
        except OSError:
            return None
        else:
            return disk.f_bavail * disk.f_frsize


def folder_bytes(path: str) -> int | None:
    """Bytes that a folder's files take on disk, without links, each inode once; None: too large to measure in time."""
    until = time.monotonic() + WALK_AT_MOST_S
    total, folders = 0, [path]
    linked: set[tuple[int, int]] = set()
    while folders:
        if time.monotonic() > until:
            return None
        try:
            entries = os.scandir(folders.pop())
        except OSError:
            continue  # not there yet, or gone meanwhile
        with entries:
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                        continue
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if status.st_mode & 0o170000 != 0o100000:
                    continue
                if status.st_nlink > 1:
                    if (status.st_dev, status.st_ino) in linked:
                        continue
                    linked.add((status.st_dev, status.st_ino))
                total += status.st_blocks * 512
    return total
