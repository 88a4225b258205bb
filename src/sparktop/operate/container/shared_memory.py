"""Files that a stopped engine left in /dev/shm: which may be its own, and the step that removes them. Pure.

Only with `--ipc=host` are they the host's: another container's shared memory vanishes with it. Names alone don't
prove whose they are, so the step compares the inode with the one seen, and leaves every file that a living process
has open or mapped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sparktop.dataclass import dataclass
from sparktop.model.engine import Engine, EngineState
from sparktop.model.fleet import NodeView
from sparktop.model.operation import Command, Privilege
from sparktop.model.survey import Output
from sparktop.operate.acts.remote import Remote
from sparktop.operate.step.plan import OnFailure, Step
from sparktop.text.units import gib

FOLDER = "/dev/shm"  # noqa: S108 - the thing itself
FILES_AT_MOST = 64
NAMES = re.compile(r"(?:psm_[0-9a-f]{8}|vllm[A-Za-z0-9_.-]{0,64}|sem\.[A-Za-z0-9_.-]{1,64}|nccl-[A-Za-z0-9]{6})")
"""Python's shared memory, vLLM's own, semaphores, NCCL's segments."""
_ROW = re.compile(r"(\d{1,20})\t(\d{1,10})\t(\d{1,20})\t([A-Za-z0-9_.-]{1,100})")
REMOVE = """\
import os, sys
folder = "/dev/shm/"
wanted = {}
for word in sys.argv[1:]:
    inode, _, name = word.partition(":")
    if name and "/" not in name:
        wanted[name] = int(inode)
used = set()
for pid in filter(str.isdecimal, os.listdir("/proc")):
    base = "/proc/" + pid
    seen = []
    try:
        with open(base + "/maps", errors="replace") as maps:
            seen += [line.rstrip("\\n") for line in maps if "/dev/shm/" in line]
        seen += [os.readlink(base + "/fd/" + fd) for fd in os.listdir(base + "/fd")]
    except OSError:
        pass  # it ended, or is another user's: whose files are 0600 and not ours to remove
    for text in seen:
        used.add(text.partition("/dev/shm/")[2].partition(" (deleted)")[0])
for name, inode in wanted.items():
    try:
        if name in used:
            print("left, in use: " + name)
        elif os.lstat(folder + name).st_ino == inode:
            os.unlink(folder + name)
            print("removed: " + name)
    except FileNotFoundError:
        pass
"""
"""Put into a file and run on the node, as root where the files are root's: `rm` could not see who uses them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFile:
    """One file of the node's /dev/shm."""

    inode: int
    user_id: int
    size_bytes: int
    name: str


def ask(node: str) -> Output:
    """The files in /dev/shm; a name that could forge a row isn't listed."""
    return Output(
        node=node,
        argv=(
            "find",
            FOLDER,
            "-maxdepth",
            "1",
            "-type",
            "f",
            "-regextype",
            "posix-extended",
            "-regex",
            f"{FOLDER}/[A-Za-z0-9_.-]+",
            "-printf",
            r"%i\t%U\t%s\t%f\n",
        ),
    )


def parse(text: str) -> tuple[SharedFile, ...]:
    """The files that are engines' by their names, largest first; other rows are left out."""
    rows = []
    for line in text.split("\n"):
        match = _ROW.fullmatch(line)
        if match and NAMES.fullmatch(match[4]):
            rows.append(SharedFile(inode=int(match[1]), user_id=int(match[2]), size_bytes=int(match[3]), name=match[4]))
    rows.sort(key=lambda row: (-row.size_bytes, row.name))
    return tuple(rows[:FILES_AT_MOST])


def others_there(engine: Engine, node: NodeView) -> bool:
    """Whether another running container or engine shares the host's /dev/shm: the files can't be told apart then."""
    own = engine.container.container_id if engine.container else ""
    containers = node.containers.containers
    if any(
        container.ipc_mode == "host" and container.status == "running" and container.container_id != own
        for container in containers
    ):
        return True
    return any(
        other.key != engine.key and other.container is None and other.pids and other.state is not EngineState.EXITED
        for other in node.engines
    )


def step(engine: Engine, node: NodeView, files: Sequence[SharedFile], mark: str) -> Step | None:
    """Remove what the engine left of these; None where there is nothing, or its owner can't be told."""
    container = engine.container
    if not files or container is None or container.ipc_mode != "host" or others_there(engine, node):
        return None
    own = node.facts.user_id if node.facts else None
    privilege = Privilege.USER if own is not None and all(row.user_id == own for row in files) else Privilege.ROOT
    command = Command(
        argv=("/usr/bin/python3", "-I", "-S", "{content}", *(f"{row.inode}:{row.name}" for row in files)),
        privilege=privilege,
        limit_s=30.0,
        content=REMOVE,
    )
    size = gib(sum(row.size_bytes for row in files))
    return Step(
        id=f"shm{mark}",
        title=f"Remove up to {len(files)} files ({size}) from /dev/shm if unused: {engine.name} or others left them",
        node=node.name,
        act=Remote(operations=(command,)),
        limit_s=60.0,
        verifies="each is gone, or in use and left",
        on_failure=OnFailure.GO_ON,
    )
