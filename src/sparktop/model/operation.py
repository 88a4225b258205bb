"""What a runner on a Spark carries out, one operation after another: argv or a Docker call, never a shell string.

Bodies, contents and environments may hold secrets: they are left out of every `repr`, and shown only through
`operate.masking`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Privilege(StrEnum):
    """Who a command must be."""

    USER = "user"
    ROOT = "root"
    """root already, `sudo -n`, or sudo with a password that the operator is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One program, ended after `limit_s` (its children too)."""

    argv: tuple[str, ...]
    privilege: Privilege = Privilege.USER
    limit_s: float = 30.0
    accepts: tuple[int, ...] = (0,)
    """Exit codes that are well; another fails the step."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Laid over the user's own; how a secret reaches a program. Not for ROOT: sudo drops it."""
    content: str = field(default="", repr=False)
    """Put into a file of mode 0600 in the run's own folder; "{content}" in argv becomes its path. Nothing is ever
    written to a command's standard input."""
    done_when: Command | None = None
    """A harmless question whose success means that this has been done already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """What a Docker answer must say: dotted paths into the JSON of GET `path`."""

    path: str
    equals: Mapping[str, Any]
    """{"State.Running": True, "State.StartedAt": "..."}."""
    otherwise: str = ""
    """What it means when it doesn't, for the operator: "vllm was restarted meanwhile"."""
    within_s: float = 0.0
    """Asked again until it holds; 0: it must hold at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerCall:
    """One request to the Docker Engine of the node, on its own socket."""

    method: str
    path: str
    """ "/containers/<64 hex>/stop"; "{NAME}" is what an earlier call of the same step saved. An undo whose {NAME} was
    never saved has nothing to undo and is left out."""
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = field(default=None, repr=False)
    accepts: tuple[int, ...] = (200, 201, 204, 304)
    saves: str = ""
    """Keeps the answer's Id under this name: "{NEW}" in later calls of the step, and of later steps on that node, of
    the way back too (`operate.saved` fills those in)."""
    limit_s: float = 30.0
    done_when: Expect | None = None
    """How to tell that it has been done, where the answer got lost (the daemon restarted in between): asked when it
    is back; if it doesn't hold, the call is made once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A signal to one process, if it is still that process: never to another that has got its pid since.

    A process that is gone, or is another by its start time, has it behind it: done, nothing is sent. The runner holds
    the process (pidfd) from the comparison to the signal, where it may send it itself; as root it runs `argv`.
    """

    pid: int
    started_ticks: int
    """Field 22 of /proc/PID/stat: with the pid, what tells it from any other of this boot."""
    signal: str = "TERM"
    """TERM, KILL, HUP, CONT."""
    privilege: Privilege = Privilege.USER
    ends_within_s: float = 0.0
    """Waited for so long until it is gone, or a zombie; 0: it is only sent."""
    must_end: bool = False
    """Whether a process that outlives that fails the step; the problem says its state and wait channel."""

    @property
    def argv(self) -> tuple[str, ...]:
        """What is run as root, and what is shown."""
        return ("/usr/bin/kill", "-s", self.signal, str(self.pid))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePull:
    """An image from its registry, with Docker's own progress; what has come already is not fetched again."""

    image: str
    """ "nvcr.io/nvidia/vllm:26.05.post1-py3"."""
    limit_s: float = 4 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A command that fetches or copies files and can be begun again where it was cut off; how far it is, is told by how
    the folder grows. The same transfer that runs already, of an earlier run, is followed, not begun twice."""

    command: Command
    grows: str
    """The folder whose size is the progress; "~" is the user's home."""
    key: str
    """What it is, the same in every run: "model Qwen/Qwen3.6-35B-A3B-FP8@main to /home/x/.cache/huggingface"."""
    total_bytes: int | None = None
    """What the folder takes when all is there, what was there before included: then that is told of it ("20.1 of 34.6
    GB" from the first second of one that is gone on with). None: only how much it has grown is."""


Operation = Command | DockerCall | Expect | Signal | ImagePull | Transfer
