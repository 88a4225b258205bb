"""The processes of an engine that runs in no container: what the guard asks of Docker is asked of them.

A process is known again by its pid and its start, so that none is signalled that only got its pid. The server gets
SIGTERM, which lets it end its workers itself; what is left of it and of its children after GRACE_S gets SIGKILL.
"""

from __future__ import annotations

import json
import os
import signal
import time

from sparktop.probe.remote.parsers import parse_process_stat
from sparktop.probe.remote.system import read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Answer = tuple[str, int, bytes]

GRACE_S = 1.0
"""Memory may fall by some GiB meanwhile: the floor has room for that."""
FAMILY_AT_MOST = 200


def started(pid: int) -> int:
    """When a process started, in ticks of the boot; 0 where it is gone, or has ended and waits for its parent."""
    try:
        stat = parse_process_stat(read_file(f"/proc/{pid}/stat", 1024))
    except OSError:
        return 0
    return stat[3] if stat is not None and stat[1] not in "ZX" else 0


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for parent in found:
        try:
            for thread in os.listdir(f"/proc/{parent}/task"):
                children = read_file(f"/proc/{parent}/task/{thread}/children", 4096)
                found += [int(child) for child in children.split()]
        except OSError:  # it has just ended
            continue
        if len(found) > FAMILY_AT_MOST:
            break
    return found


class ProcessLine:
    """Has the face of `DockerLine`; its answers are there at once, but for that to a kill."""

    noun = "process"
    silence = "its processes haven't ended"
    socket = None
    descriptor = -1
    problem = ""

    def __init__(self, target: str, name: str) -> None:
        """`target`: "pid:PID:START", the start in ticks."""
        _, pid, start = target.split(":")
        self.target, self.name = target, name
        self.pid, self.start = int(pid), int(start)
        self.poll: Any = None
        self.asked: list[tuple[str, float]] = []
        self.killing: dict[int, int] = {}
        """Starts by pid, of those that are to end."""
        self.killed_at = 0.0

    def open(self) -> bool:
        return True

    def close(self) -> None:
        self.asked = []

    def ask(self, request: bytes, word: str, now: float) -> None:
        """Do what the word says; `request` is Docker's."""
        self.asked.append((word, now))
        if word != "kill":
            return
        killing = {pid: started(pid) for pid in family(self.pid)}  # before: it may leave them to another parent
        if self._signal(self.pid, self.start, signal.SIGTERM):
            self.killing, self.killed_at = killing, time.monotonic()

    def take(self) -> list[Answer]:
        """Answers that are there."""
        answers = []
        for word, _ in self.asked:
            answer = self._ended() if word == "kill" and self.killing else self._look()
            if answer is not None:
                answers.append((word, *answer))
        if answers:
            self.asked = []
        return answers

    def _look(self) -> tuple[int, bytes]:
        """As Docker's answer about a container."""
        if started(self.pid) != self.start:
            return 404, b""
        try:
            os.kill(self.pid, 0)
        except OSError:
            why = f"pid {self.pid} runs as another user, and this login may not kill it"
            return 403, json.dumps({"message": why}).encode()
        return 200, json.dumps({"Id": self.target, "Name": self.name, "State": {"Running": True}}).encode()

    def _ended(self) -> tuple[int, bytes] | None:
        """204 once all are gone; None until then, with SIGKILL after the grace."""
        left = {pid: start for pid, start in self.killing.items() if start and started(pid) == start}
        if not left:
            return 204, b""
        if time.monotonic() - self.killed_at >= GRACE_S:
            for pid, start in left.items():
                self._signal(pid, start, signal.SIGKILL)
        return None

    def _signal(self, pid: int, start: int, number: int) -> bool:
        """Whether this very process got the signal."""
        if started(pid) != start:
            return False
        try:
            os.kill(pid, number)
        except OSError:
            return False
        return True
