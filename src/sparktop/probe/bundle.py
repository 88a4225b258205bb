"""Packs the probe for the wire, and reads what a Spark says when it can't be started.

Stage 0 is a fixed text: a shell looks for python3, which reads exactly so many bytes of source from standard input,
checks them and runs them. Nothing is written to the Spark's disk; what follows the source is the protocol
(`sparktop.wire`). The command line holds lengths and a nonce, never a secret.
"""

from __future__ import annotations

import functools
import importlib.util
import secrets
import shlex
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sparktop import sanitise
from sparktop.errors import ProbeError
from sparktop.wire import LEASE_S

NAME = "sparktop-probe"
"""The shell's $0: what `ps` shows, and what a simulated Spark looks for."""

PARTS = ("network", "installed", "desktop", "decide", "journal", "docker", "guard")
"""What of the probe travels beside its source, to be compiled where it is needed: in one child, or for the guard."""

OLD_PYTHON_EXIT = 96
NO_PYTHON_EXIT = 97
CUT_EXIT = 98
NOT_LINUX_EXIT = 95
FAILED_EXIT = 70
NO_PYTHON_MARK = b"SPARKTOP-NOPY"
OLD_PYTHON_MARK = b"SPARKTOP-OLDPY"

# No single quote may stand in it (the shell's script holds it in some), and any Python 3 must be able to parse it.
# "@" is what it starts: the probe, or the runner.
_STAGE_0 = f"""
import os,sys,zlib
if sys.version_info<(3,10):
    print("{OLD_PYTHON_MARK.decode()} "+sys.version.split()[0]);sys.stdout.flush();sys.exit({OLD_PYTHON_EXIT})
n,c,k,i=sys.argv[1:5];n=int(n);b=b""
while len(b)<n:
    d=os.read(0,n-len(b))
    if not d:break
    b+=d
if len(b)<n or zlib.crc32(b)!=int(c,16):
    sys.stderr.write("sparktop: the @ arrived damaged: %d of %d bytes\\n"%(len(b),n));sys.exit({CUT_EXIT})
z=zlib.decompressobj();g={{"__name__":"sparktop_@"}}
exec(compile(z.decompress(b),"sparktop-@","exec"),g)
b=z.unused_data;del z
g["main"](b,c,k,float(i),float((sys.argv[5:]+["{LEASE_S:g}"])[0]))
""".strip()

_FIND_PYTHON = f"command -v python3 >/dev/null 2>&1 || {{ echo {NO_PYTHON_MARK.decode()}; exit {NO_PYTHON_EXIT}; }}; "


def script(what: str) -> str:
    """The shell's text that starts what is sent to it: "probe" or "runner"."""
    return f"{_FIND_PYTHON}exec python3 -I -S -B -c '{_STAGE_0.replace('@', what)}' \"$@\""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start a probe or a runner: run `argv`, write `payload` to its input, wait for `SPARKTOP <nonce>`."""

    argv: tuple[str, ...]
    payload: bytes
    nonce: str
    """Differs each time, so that a login banner or an older connection can't be mistaken for this probe."""
    digest: str
    """crc32 of the payload in hex, as `hello` repeats it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What the command line of a probe says, for whoever stands in for one."""

    length: int
    crc: int
    """`f"{crc:08x}"` is the digest that `hello` must carry."""
    nonce: str
    interval_s: float
    lease_s: float = LEASE_S


def launch(
    *, interval_s: float, lease_s: float = LEASE_S, nvml_source: str | None = None, docker_socket: str = ""
) -> Launch:
    """A new launch with a nonce of its own.

    Args:
        interval_s: seconds between samples.
        lease_s: the probe leaves when it heard nothing for so long; shorter in tests only.
        nvml_source: stands in for nvidia-ml-py's module, in tests.
        docker_socket: in place of /var/run/docker.sock.

    Raises:
        ProbeError: nvidia-ml-py or our own source can't be read here.
    """
    payload = _pack(nvml_source)
    digest = f"{zlib.crc32(payload):08x}"
    nonce = secrets.token_hex(8)
    arguments = [str(len(payload)), digest, nonce, f"{interval_s:g}"]
    if lease_s != LEASE_S or docker_socket:
        arguments.append(f"{lease_s:g}")
    if docker_socket:
        arguments.append(f"docker={docker_socket}")
    return Launch(
        argv=("/bin/sh", "-c", script("probe"), NAME, *arguments),
        payload=payload,
        nonce=nonce,
        digest=digest,
    )


@functools.cache
def _pack(nvml_source: str | None) -> bytes:
    """The probe's source, then its children's parts and NVML's module: only the child that needs one unpacks it."""
    try:
        remote = Path(__file__).with_name("remote.py").read_bytes()
        texts = {name: Path(__file__).with_name(f"remote_{name}.py").read_bytes() for name in PARTS}
        texts["nvml"] = _nvml_module() if nvml_source is None else nvml_source.encode()
    except OSError as error:
        raise ProbeError(
            f"the probe's source can't be read on this machine: {error}", hint="Install sparktop again."
        ) from error
    parts = {name: zlib.compress(text) for name, text in texts.items()}  # harder: 1 % less, 13 ms more
    head = " ".join(f"{name}:{len(part)}" for name, part in parts.items())
    return b"".join((zlib.compress(remote), head.encode(), b"\n", *parts.values()))


def _nvml_module() -> bytes:
    found = importlib.util.find_spec("pynvml")
    if found is None or found.origin is None:
        raise ProbeError(
            "nvidia-ml-py is not installed on this machine: its module is sent to the Spark",
            hint="Install sparktop again, or: pip install nvidia-ml-py",
        )
    return Path(found.origin).read_bytes()


def parse_command(command: str, name: str = NAME) -> Arguments | None:
    """The arguments of a probe's command line, as an SSH server gets it; None for any other command."""
    try:
        words = shlex.split(command)
        return _arguments(words[words.index(name) + 1 :])
    except (ValueError, IndexError):
        return None


def _arguments(words: Sequence[str]) -> Arguments:
    length, crc, nonce, interval = words[:4]
    return Arguments(
        length=int(length),
        crc=int(crc, 16),
        nonce=nonce,
        interval_s=float(interval),
        lease_s=float(words[4]) if len(words) > 4 else LEASE_S,
    )


def explain_failure(exit_status: int | None, stderr_tail: str, stdout_head: bytes, what: str = "probe") -> str:
    """Why no probe (or runner) came up, and what to do, in a sentence or two for the operator.

    Args:
        exit_status: of the remote command; None when it ended by a signal or the line broke.
        stderr_tail: its last words on standard error.
        stdout_head: the first bytes it printed in place of `SPARKTOP <nonce>`.
    """
    said = sanitise.line((stderr_tail.strip().splitlines() or [""])[-1], limit=200).strip()
    printed = sanitise.line(stdout_head[:400].strip().partition(b"\n")[0], limit=200).strip()
    if exit_status == NO_PYTHON_EXIT or NO_PYTHON_MARK in stdout_head:
        return f"There is no python3 on that machine, and the {what} needs one. Install it: `sudo apt install python3`."
    if exit_status == OLD_PYTHON_EXIT or OLD_PYTHON_MARK in stdout_head:
        _, _, version = stdout_head.partition(OLD_PYTHON_MARK)
        which = sanitise.name(version.strip().partition(b"\n")[0])
        return f"Its python3 is {which or 'too old'}; the {what} needs 3.10 or newer. Install that as python3 there."
    if exit_status == CUT_EXIT:
        detail = said or "cut short"
        return f"The {what}'s source arrived damaged ({detail}): something on the way changes what is sent. Try again."
    if exit_status == NOT_LINUX_EXIT:
        return "That machine is not Linux; sparktop reads /proc and can only watch Linux machines."
    if exit_status in (126, 127):
        detail = said or f"exit status {exit_status}"
        return f"Its login shell couldn't start /bin/sh ({detail}); log in by hand and look why."
    if "not available" in printed.lower() or "nologin" in said.lower():
        return f"That account has no shell ({printed or said}); use one that may run commands."
    words = f": {said or printed}" if said or printed else ""
    if exit_status is None:
        return f"The {what} was ended before it said anything{words}. Is the machine out of memory, or the line broken?"
    if exit_status == 0 and not said and printed:
        return f"It ran something else in place of the {what}{words}. A forced command for this key, or a login script?"
    return f"The {what} ended with exit status {exit_status}{words}. Try `ssh HOST python3 -V` by hand."
