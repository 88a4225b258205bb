"""The runner: a step that brings things to this machine, which takes minutes or hours (the rest: `runner`).

It tells how far it is about once a second, keeps the newest of that in one small file for whoever asks later, can be
asked to end, and doesn't hold the node's lock. Two steps that would do the same follow one another.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from _blake2 import blake2b

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Words = dict[str, Any]
    Told = tuple[int | None, int | None, str]
if __name__ != "sparktop_runner":  # on a Spark this text runs among the runner's own names
    from sparktop.probe.runner_docker import DockerLost
    from sparktop.probe.runner_journal import Unable, file_name, mark, read_text
    from sparktop.probe.runner_pull import ImageStream, as_reference, login_for
    from sparktop.probe.runner_step import Failed, StepWork

TELL_S = 1.0
WALK_AT_MOST_S = 5.0
WALK_SHARE = 20
"""Looking at a folder takes at most one part of so many of the time."""
REST_AT_MOST_S = 30.0
PROGRESS_BYTES = 1024
FOLLOWS = "waiting for the same transfer of another run"
ENDED = "it was ended at the operator's word; what has come stays, and it goes on from there next time"
ENDED_PULL = "it was ended at the operator's word; what Docker keeps of it is not fetched again"


class ToEnd(Exception):
    """The operator wants no more of it."""


class FetchWork(StepWork):
    """As any step, with the two operations that fetch."""

    def __init__(self, request: Words, **more: Any) -> None:
        super().__init__(request, **more)
        self.base = file_name(str(request["run"]), str(request["step"]))[:-5]
        self.progress = -1
        self.is_heard = True
        """Somebody listens to what is told."""
        self.first: int | None = None
        """What the folder of a transfer held when it began."""

    def run(self) -> None:
        super().run()
        for name in (f"{self.base}.progress", f"{self.base}.ending"):
            try:
                os.unlink(name, dir_fd=self.folder)
            except OSError:
                pass

    def is_to_end(self) -> bool:
        return os.access(f"{self.base}.ending", os.F_OK, dir_fd=self.folder, follow_symlinks=False)

    def tell_progress(self, index: int, done: int | None, total: int | None, words: str) -> None:
        """To the runner, where there is one, and into the file."""
        told: Words = {"index": index, "done": done, "total": total, "words": words[:120]}
        self.is_heard = self.tell({"kind": "progress", **told}, may_skip=True)
        text = json.dumps({**told, "heard": self.is_heard, "first": self.first}, separators=(",", ":")).encode()
        try:
            if self.progress < 0:
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
                self.progress = os.open(f"{self.base}.progress", flags, 0o600, dir_fd=self.folder)
            os.pwrite(self.progress, text.ljust(PROGRESS_BYTES)[:PROGRESS_BYTES], 0)
        except OSError:
            pass  # it goes on unseen

    def _do(self, operation: Words, result: Words, *, is_undo: bool) -> None:
        kind = operation.get("do")
        if kind == "pull":
            self._pull(operation, result)
        elif kind == "transfer":
            self._transfer(operation, result)
        else:
            super()._do(operation, result, is_undo=is_undo)

    # -- an image

    def _pull(self, operation: Words, result: Words) -> None:
        image = str(operation.get("image") or "")
        name, tag = as_reference(image)
        limit = float(operation.get("limit") or 3600.0)
        until = min(time.monotonic() + limit, self.deadline)
        header, note = login_for(name)
        stream = ImageStream(self.docker, name, tag, header)
        meter = Meter(self, int(result["index"]), stream.layers_told)
        try:
            while True:
                try:
                    if self._has_image(image):
                        result["was_done"] = not stream.is_begun
                        break
                    if stream.is_begun and not stream.broke:
                        raise Failed(f"Docker says that {image} has come, and doesn't have it")
                    meter.stop_if_wanted()
                    result["code"], problem = stream.pull(until, meter.stop_if_wanted)
                except DockerLost as lost:
                    stream.broke = True
                    if lost.late or time.monotonic() >= until:
                        raise Failed(f"{image} has not come within {limit:g} s") from None
                    self._await_engine(str(lost))
                    time.sleep(TELL_S)
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

    def _transfer(self, operation: Words, result: Words) -> None:
        command = operation["command"]
        if command.get("root"):
            raise Unable("nothing is fetched as root; nothing was done")
        total = operation.get("total")
        growth = Growth(os.path.expanduser(str(operation["grows"])), total if isinstance(total, int) else None)
        meter = Meter(self, int(result["index"]), growth.told)
        try:
            key = self._own_key(str(operation["key"]), growth, meter, self._seconds(command))
            self.tick = meter
            try:
                self.first = growth.begin()
                meter.stop_if_wanted()
                self._command(command, result)
            except Failed as failure:
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
        self.tell_progress(int(result["index"]), *(growth.told(at_once=True) or growth.newest))
        result["bytes"] = growth.brought

    def _own_key(self, key: str, growth: Growth, meter: Meter, limit: float) -> int:
        """A descriptor that says that this transfer is ours, as long as it or a program that inherited it is there.

        Another step that does the same is followed until it is over; what this one does then finds all there.

        Raises:
            Failed: the other was not over in time.
            ToEnd: nobody wants to wait for it.
        """
        name = f"transfer-{blake2b(key.encode('utf-8', 'replace'), digest_size=16).hexdigest()}.key"
        until = min(time.monotonic() + limit, self.deadline)
        while True:
            held = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self.folder)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(held).st_nlink:  # else it has been tidied away in between
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
                        f"the same transfer of another run has gone on for {limit:g} s, and is not over"
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
        """What nobody listens to any more is ended with its follower; else that console may go on with it."""
        if self._told_by(base).get("heard") is False:
            try:
                mark(self.folder, f"{base}.ending")
            except OSError:
                pass


class Meter:
    """Tells how far one operation is, and hears that it is to end; both once a second, however often it is called."""

    def __init__(self, work: FetchWork, index: int, told: Callable[[], Told | None]) -> None:
        self.work = work
        self.index = index
        self.told = told
        self.is_to_end = False
        self.next = 0.0

    def __call__(self) -> bool:
        """Whether it is to end."""
        if (now := time.monotonic()) >= self.next:
            self.next = now + TELL_S
            self.is_to_end = self.is_to_end or self.work.is_to_end()
            if (told := self.told()) is not None:
                self.work.tell_progress(self.index, *told)
        return self.is_to_end

    def stop_if_wanted(self) -> None:
        """Raises ToEnd."""
        if self():
            raise ToEnd


class Growth:
    """How much a folder has grown, and where its size in the end is known, how far it is."""

    def __init__(self, path: str, total: int | None) -> None:
        self.path = path
        self.total = total
        self.first: int | None = None
        """What was there when it began: with this step, or with the one that it followed."""
        self.brought: int | None = None
        self.newest: Told = (None, total, "")
        self.is_following = False
        self.next = 0.0

    def begin(self) -> int | None:
        """From here on it is ours that grows; what it held at first."""
        self.is_following = False
        if self.first is None:
            self.first = folder_bytes(self.path)
        return self.first

    def follow(self, other: Words) -> None:
        done, total, first = other.get("done"), other.get("total"), other.get("first")
        self.is_following = True
        self.first = first if isinstance(first, int) else self.first
        self.newest = done if isinstance(done, int) else None, total if isinstance(total, int) else self.total, FOLLOWS

    def told(self, *, at_once: bool = False) -> Told | None:
        """(bytes, of how many, in words); None when it is too early to look again."""
        if self.is_following:
            return self.newest
        began = time.monotonic()
        if began < self.next and not at_once:
            return None
        size = folder_bytes(self.path) if self.first is not None else None
        took = time.monotonic() - began
        if size is None:
            self.next = began + 1e9
            return None, self.total, "its folder is too large to be measured"
        self.next = began + min(REST_AT_MOST_S, took * WALK_SHARE)
        self.brought = max(0, size - (self.first or 0))
        return (size if self.total else self.brought), self.total, ""


def folder_bytes(path: str) -> int | None:
    """What its files take on the disk, links left aside and a file with several names once; None: it takes too long."""
    until = time.monotonic() + WALK_AT_MOST_S
    total, folders = 0, [path]
    several: set[tuple[int, int]] = set()
    while folders:
        if time.monotonic() > until:
            return None
        try:
            entries = os.scandir(folders.pop())
        except OSError:
            continue  # not there yet, or gone by now
        with entries:
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                        continue
                    found = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if found.st_mode & 0o170000 != 0o100000:
                    continue
                if found.st_nlink > 1:
                    if (found.st_dev, found.st_ino) in several:
                        continue
                    several.add((found.st_dev, found.st_ino))
                total += found.st_blocks * 512
    return total
