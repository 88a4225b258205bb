"""Programs that children run: log followers and short commands."""

from __future__ import annotations

import os
import select
import signal
import time


def program_environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": os.environ.get("HOME") or "/"}


def is_program(name: str) -> bool:
    """Whether there is such a program on the path."""
    return any(os.access(f"{folder}/{name}", os.X_OK) for folder in program_environment()["PATH"].split(":"))


def spawn(argv: list[str]) -> tuple[int, int, int]:
    """Start a program: (pid, descriptor of its standard input, of its standard output).

    Raises:
        OSError: there is no such program, or no memory for a process.
    """
    input_read, input_write = os.pipe()
    output_read, output_write = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, input_read, 0), (os.POSIX_SPAWN_DUP2, output_write, 1)]
    try:
        pid = os.posix_spawnp(argv[0], argv, program_environment(), file_actions=actions, setsigdef=[signal.SIGPIPE])
    except OSError:
        os.close(input_write)
        os.close(output_read)
        raise
    finally:
        os.close(input_read)
        os.close(output_write)
    return pid, input_write, output_read


def capture(argv: list[str], timeout_s: float = 10.0, most_bytes: int = 65536) -> tuple[int | None, bytes]:
    """Run a short command: (exit status, standard output); None: no such program, or it took too long."""
    try:
        pid, standard_input, output = spawn(argv)
    except OSError:
        return None, b""
    os.close(standard_input)
    deadline = time.monotonic() + timeout_s
    collected = b""
    poll = select.poll()
    poll.register(output, select.POLLIN)
    try:
        while poll.poll(max(0, int((deadline - time.monotonic()) * 1000))):
            chunk = os.read(output, 65536)
            if not chunk:
                return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), collected
            collected = (collected + chunk)[:most_bytes]
        try:
            os.kill(pid, signal.SIGTERM)
        except OSError:  # sudo's process is root's and ends by itself
            pass
        return None, collected
    finally:
        os.close(output)


_sudo: list[bool] = []


def may_sudo() -> bool:
    """Whether sudo asks this user for no password; asked once a session: a refusal is a line in the node's auth log."""
    if not _sudo:
        _sudo.append(os.getuid() != 0 and is_program("sudo") and capture(["sudo", "-n", "true"])[0] == 0)
    return _sudo[0]
