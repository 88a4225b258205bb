"""Packs the runner for the wire, as `probe.bundle` does the probe: the same stage 0, and nothing on the disk."""

from __future__ import annotations

import functools
import re
import secrets
import zlib
from pathlib import Path

from sparktop.errors import ProbeError
from sparktop.probe import bundle
from sparktop.wire import LEASE_S

NAME = "sparktop-runner"
"""The shell's $0: what a simulated Spark looks for; on the Spark the process calls itself so too."""

PARTS = ("runner", "journal", "program", "docker", "step", "pull", "fetch", "weights", "models", "hub", "asks")
"""What travels behind `runner_start`, to be compiled where it is needed; and the masking of secrets with them."""
_DOCSTRING = re.compile(r'^([ ]*)"""(?:[^"\\]|\\.|"(?!""))*"""\n', re.MULTILINE)
_MASKING_BEGINS = "# --- masking:"
_MASKING_ENDS = "# --- host facts"


def launch(*, lease_s: float = LEASE_S, docker_socket: str = "", state_folder: str = "") -> bundle.Launch:
    """A new launch with a nonce of its own.

    Args:
        lease_s: the runner leaves when it heard nothing for so long; shorter in tests only.
        docker_socket: in place of /var/run/docker.sock.
        state_folder: in place of /run/lock, for journals and the lock; in tests.

    Raises:
        ProbeError: our own source can't be read here.
    """
    payload = _pack()
    digest = f"{zlib.crc32(payload):08x}"
    nonce = secrets.token_hex(8)
    settings = [f"{name}={value}" for name, value in (("docker", docker_socket), ("state", state_folder)) if value]
    arguments = [str(len(payload)), digest, nonce, "0", f"{lease_s:g}", *settings]
    return bundle.Launch(
        argv=("/bin/sh", "-c", bundle.script("runner"), NAME, *arguments),
        payload=payload,
        nonce=nonce,
        digest=digest,
    )


def parse_command(command: str) -> bundle.Arguments | None:
    """The arguments of a runner's command line, as an SSH server gets it; None for any other command."""
    return bundle.parse_command(command, NAME)


def masking_source() -> str:
    """The part of the probe that masks secrets, to be used by itself: there is one set of rules."""
    text = Path(__file__).with_name("remote.py").read_text("utf-8")
    begins, ends = text.index(_MASKING_BEGINS), text.index(_MASKING_ENDS)
    return f"from __future__ import annotations\nimport functools\nimport re\n{text[begins:ends]}"


@functools.cache
def _pack() -> bytes:
    try:
        start = Path(__file__).with_name("runner_start.py").read_bytes()
        texts = {name: Path(__file__).with_name(_file_name(name)).read_bytes() for name in PARTS}
        texts["masking"] = masking_source().encode()
    except OSError as error:
        raise ProbeError(
            f"the runner's source can't be read on this machine: {error}", hint="Install sparktop again."
        ) from error
    parts = {name: zlib.compress(bare(text.decode()).encode(), 9) for name, text in texts.items()}
    head = " ".join(f"{name}:{len(part)}" for name, part in parts.items())
    return b"".join((zlib.compress(start), head.encode(), b"\n", *parts.values()))


def bare(text: str) -> str:
    """A source without its docstrings: a fifth of what has to be sent."""
    return _DOCSTRING.sub(lambda found: found[1] + "0\n" if found.start() else "", text)


def _file_name(part: str) -> str:
    return "runner.py" if part == "runner" else f"runner_{part}.py"
