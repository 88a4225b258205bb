"""Child processes for what may hang: NVML, per-process files, statvfs, the kernel log, a session bus.

A child writes lines to its data pipe: `data JSON`, `state JSON`, `pids A,B`, `compositors A,B` and, last of an answer,
`cost SECONDS`. It leaves when its control pipe closes, which the kernel does however the main process ends.
"""

from __future__ import annotations

import os
import signal
import time

from sparktop.probe.remote.outbox import encode
from sparktop.probe.remote.system import boottime

TYPE_CHECKING = False  # typing itself would cost memory on the Spark
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RESPAWN_S = 60.0
"""Between the end of a child and its next start, and between two attempts of a child that can't read its source."""

LATER_PARTS = {
    "nvml": ("nvml",),
    "processes": ("masking", "programs", "network", "installed", "scanner"),
    "kernel": ("programs", "kernel_log"),
    "previous": ("programs", "kernel_log", "masking", "previous_boot"),
    "desktop": ("desktop",),
    "guard": ("guard.decision", "guard.journal", "guard.docker", "guard.processes", "guard.guard"),
}
"""What each child, and the guard in the main process, compiles beside the parts that all have, in this order."""
uncompiled: dict[str, bytes] = {}
"""Texts of parts that this process hasn't compiled, each compressed by itself."""


def unpack(packed: bytes) -> dict[str, bytes]:
    """The parts that come behind the start: "name:length ..." in a line, then texts, each compressed by itself."""
    head, _, rest = packed.partition(b"\n")
    parts = {}
    for word in head.split():
        name, _, length = word.partition(b":")
        parts[name.decode()], rest = rest[: int(length)], rest[int(length) :]
    return parts


def load(*names: str) -> None:
    """Compile parts in the process that needs them: compiling costs memory for good. Off a Spark they are imported."""
    for name in names:
        if name in uncompiled:
            exec(compile(part_source(name), "sparktop-probe/" + name, "exec"), globals())
            del uncompiled[name]


def part_source(name: str) -> bytes:
    import zlib

    return zlib.decompress(uncompiled[name])


def tell(data: int, tag: str, body: str) -> None:
    """Write one line to the main process."""
    rest = memoryview(f"{tag} {body}\n".encode("utf-8", "replace"))
    while rest:
        rest = rest[os.write(data, rest) :]


def tell_state(data: int, state: str, detail: str = "") -> None:
    tell(data, "state", encode({"state": state, "detail": detail[:300]}))


def requests(control: int, data: int) -> Iterator[tuple[bool, list[int]]]:
    """The main process's requests, "LETTER FLAG PID,PID" or a letter alone, until it is gone: (flag, pids).

    Each answer's last line, its cost, is written here.
    """
    pending = b""
    while chunk := os.read(control, 4096):
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            _, flag, pids, *_ = line.split() + [b""] * 3
            yield flag == b"1", [int(pid) for pid in pids.split(b",") if pid.isdigit()]
            tell(data, "cost", f"{time.process_time():.4f}")


class Worker:
    """The main process's end of one child."""

    def __init__(self, name: str, body: Callable[[int, int], None], deadline_s: float | None) -> None:
        """`body` runs in the child, given the control pipe to read and the data pipe to write.

        `deadline_s` is how long one answer may take; None: the child isn't asked, it tells by itself.
        """
        self.name = name
        self.body = body
        self.deadline_s = deadline_s
        self.pid = 0
        self.control = self.data = -1
        self.pending = b""
        """The beginning of a line that isn't whole."""
        self.asked_at: float | None = None
        """Since when a request is unanswered (monotonic seconds)."""
        self.asked_boot = 0.0
        self.is_stuck = False
        self.state: tuple[str, str] = ("", "")
        """What the console was told last: (state, detail)."""
        self.cost_s = self.past_cost_s = 0.0
        """CPU seconds of the child that runs, and of those before it."""
        self.start_at = 0.0
        """Not to be started before."""
        self.due_at = 0.0
        """Not to be asked before."""

    def start(self) -> None:
        """Fork the child.

        Raises:
            OSError: no memory for a fork, or no more processes.
        """
        control_read, self.control = os.pipe()
        self.data, data_write = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(control_read)
            os.close(data_write)
            os.set_blocking(self.control, False)
            return
        try:
            # Nothing of the SSH channel may stay open here: a child that hangs would keep the session alive.
            null = os.open("/dev/null", os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(null, standard)
            first, second = sorted((control_read, data_write))
            os.closerange(3, first)
            os.closerange(first + 1, second)
            os.closerange(second + 1, 256)
            for number in (signal.SIGHUP, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            load(*LATER_PARTS[self.name])
            self.body(control_read, data_write)
        except BrokenPipeError:
            pass
        except BaseException as error:
            try:
                tell_state(data_write, "failed", f"{type(error).__name__}: {error}")
            except OSError:
                pass
        finally:
            os._exit(0)

    def ask(self, request: bytes, now: float) -> None:
        """Send one request; its answer ends with a `cost` line."""
        try:
            os.write(self.control, request + b"\n")
        except OSError:  # it has just ended, and its data pipe says so too
            return
        self.asked_at, self.asked_boot = now, boottime()
