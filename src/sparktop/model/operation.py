"""Operations that the runner on a Spark carries out, one after another: argv or a Docker call, never a shell string.

Bodies, contents and environments may hold secrets: they are excluded from every `repr`, and shown only through
`operate.secrets.masking`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from sparktop.dataclass import dataclass


class Privilege(StrEnum):
    """The user that a command must run as."""

    USER = "user"
    ROOT = "root"
    """Already root, `sudo -n`, or sudo with a password that the operator is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One program, killed with its children after `limit_s`."""

    argv: tuple[str, ...]
    privilege: Privilege = Privilege.USER
    limit_s: float = 30.0
    accepts: tuple[int, ...] = (0,)
    """Exit codes that mean success; any other fails the step."""
    otherwise: str = ""
    """What a failure means, for the operator."""
    again_s: float | None = None
    """How long it is repeated, seconds, until it succeeds; None: it is not."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Added to the user's own; how a secret reaches a program. Not for ROOT: sudo drops it."""
    content: str = field(default="", repr=False)
    """Written to a file of mode 0600 in the run's own folder; "{content}" in argv becomes its path. Nothing is ever
    written to a command's standard input."""
    done_when: Command | None = None
    """A read-only command whose success means that this has already been done."""
    saves: str = ""
    """Saves the last line of its output under this name, "KEY0": "{KEY0}" in commands of later steps, on other nodes
    too. Only a public key is put there: a node can't make a command of another node say anything else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """A check of Docker's state: dotted paths into the JSON of GET `path`, with their expected values."""

    path: str
    equals: Mapping[str, Any]
    """{"State.Running": True, "State.StartedAt": "..."}."""
    otherwise: str = ""
    """What a mismatch means, for the operator: "vllm was restarted meanwhile"."""
    within_s: float = 0.0
    """Checked again until it holds, for this long; 0: it must hold at once."""
    has_log: bool = False
    """The path is a container's: where it doesn't hold, the end of its log is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerCall:
    """One request to the node's Docker Engine, on its own socket."""

    method: str
    path: str
    """"/containers/<64 hex>/stop"; "{NAME}" is an id that an earlier call of the same step saved. An undo whose
    {NAME} was never saved has nothing to undo and is skipped."""
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = field(default=None, repr=False)
    archive: str = field(default="", repr=False)
    """Sent instead of a body: a tar.gz, base64."""
    accepts: tuple[int, ...] = (200, 201, 204, 304)
    saves: str = ""
    """Saves the answer's Id under this name: "{NEW}" in later calls of the step, of later steps on that node, and of
    the rollback (`operate.step.placeholders` fills those in)."""
    limit_s: float = 30.0
    done_when: Expect | None = None
    """How to tell that it has been done, where the answer got lost (the daemon restarted meanwhile): checked when it
    is back; if it doesn't hold, the call is repeated."""
    again_s: float | None = None
    """How long the call is repeated, seconds, while Docker answers it with 500; None: it is not."""
    only_where: Expect | None = None
    """Looked at first: the call is left out where it doesn't hold, or can't be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A signal to one process, if it is still that process: never to another one that has reused its pid.

    If the process is gone, or the pid has another start time, the operation counts as done and nothing is sent. The
    runner holds the process (pidfd) from the comparison to the signal, where it may send it itself; as root it runs
    `argv`.
    """

    pid: int
    started_ticks: int
    """Field 22 of /proc/PID/stat: identifies the process together with its pid."""
    signal: str = "TERM"
    """TERM, KILL, HUP, CONT."""
    privilege: Privilege = Privilege.USER
    ends_within_s: float = 0.0
    """How long to wait until the process is gone, or a zombie; 0: don't wait."""
    must_end: bool = False
    """Whether the step fails if the process survives that time; the problem has its state and wait channel."""

    @property
    def argv(self) -> tuple[str, ...]:
        """The command that is run as root, and shown."""
        return ("/usr/bin/kill", "-s", self.signal, str(self.pid))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePull:
    """Pull an image from its registry, with Docker's own progress; layers already there are not pulled again."""

    image: str
    """ "nvcr.io/nvidia/vllm:26.05.post1-py3"."""
    limit_s: float = 4 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A command that downloads or copies files and can be resumed; the folder's growth is its progress. If the same
    transfer of an earlier run is still going on, its progress is followed instead of starting a second one."""

    command: Command
    grows: str
    """The folder whose size is the progress; "~" is the user's home."""
    key: str
    """Identifies the transfer across runs: "model Qwen/Qwen3.6-35B-A3B-FP8@main to /home/x/.cache/huggingface"."""
    total_bytes: int | None = None
    """The folder's final size, including what was there before: progress is then shown against it ("20.1 of 34.6 GB"
    from the first second of a resumed transfer). None: only the growth is shown."""


Operation = Command | DockerCall | Expect | Signal | ImagePull | Transfer
