"""The command line that opens a shell for a person: on a node, or in a container there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

from sparktop.errors import UsageError
from sparktop.transport.ssh.config import terminal_argv
from sparktop.transport.targets import Target


async def shell_argv(
    target: Target, *, container_id: str = "", docker_socket: str = "", config: Path | None = None
) -> list[str]:
    """The argv; without `container_id` of the user's own shell there, as `docker exec` or ssh start it.

    Raises:
        UsageError: a program isn't on this machine, or the id is none.
        TransportError: the ssh configuration can't be read.
    """
    argv = []
    if container_id:
        if not re.fullmatch(r"[0-9a-f]{12,64}", container_id):
            raise UsageError(f"{container_id!r} is no container's id")
        engine = ["-H", f"unix://{docker_socket}"] if docker_socket else []
        argv = ["docker", *engine, "exec", "-it", container_id, "sh"]
    is_local = target.kind == "local"
    argv = argv or ([os.environ.get("SHELL") or "/bin/sh"] if is_local else [])
    needed = argv[0] if is_local else "ssh"
    if shutil.which(needed) is None:
        raise UsageError(f"{needed} isn't on this machine", hint="a shell is opened by it: install it")
    return argv if is_local else await terminal_argv(target, shlex.join(argv), config=config)
