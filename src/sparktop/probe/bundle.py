"""Packs the probe and the runner for the wire, and explains why one of them didn't start on a Spark.

Stage 0 is a fixed text: a shell looks for python3, which reads exactly so many bytes of source from standard input,
checks them and runs them. Nothing is written to the Spark's disk; what follows the source is the protocol
(`sparktop.wire` for the probe, `probe.runner.main` for the runner). The command line holds lengths and a nonce, never
a secret.

What is sent: the parts that stage 0 compiles at once, as one compressed text, because that is smaller; then a line with
the names and lengths of the others, each compressed by itself and compiled in the process that needs it. All run among
one set of names there, so a part travels without its imports of other parts, and without docstrings.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import re
import secrets
import shlex
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

from sparktop import sanitise
from sparktop.dataclass import dataclass
from sparktop.errors import ProbeError
from sparktop.probe.engine_marks import engine_marks
from sparktop.wire import LEASE_S

NAME = "sparktop-probe"
"""The shell's $0: what `ps` shows, and what a simulated Spark looks for."""
RUNNER_NAME = "sparktop-runner"
"""As NAME, for the runner; on a Spark its process calls itself so too."""

PROBE_START = ("parsers", "system", "host_facts", "pace", "outbox", "children", "main")
"""Parts of the probe that its main process compiles at the start, in this order."""
PROBE_LATER = (
    *("masking", "programs", "network", "installed", "scanner", "nvml", "kernel_log", "previous_boot", "desktop"),
    *("guard.decision", "guard.journal", "guard.docker", "guard.processes", "guard.guard"),
)
"""Parts of the probe that are compiled where they are needed (`probe.remote.children.LATER_PARTS`)."""
RUNNER_START = ("start",)
RUNNER_LATER = (
    *(
        "main",
        "journal",
        "program",
        "docker",
        "step",
        "pull",
        "fetch",
        "weights",
        "models",
        "hub",
        "notes",
        "questions",
    ),
    "masking",
)

GREETING_LIMIT_BYTES = 64 * 1024
"""The most that a shell may print before our first line."""
SLOW_START_HINT = "Its memory may be full, or its shell's start-up files (~/.bashrc) wait or read standard input."
OLD_PYTHON_EXIT = 96
NO_PYTHON_EXIT = 97
CUT_EXIT = 98
NOT_LINUX_EXIT = 95
NO_PYTHON_MARK = b"SPARKTOP-NOPY"
OLD_PYTHON_MARK = b"SPARKTOP-OLDPY"

Program = Literal["probe", "runner"]

# No single quote may stand in it (the shell's script holds it in some), and any Python 3 must be able to parse it.
# "@" is what it starts: the probe, or the runner. It keeps no reference to what it has read, which main unpacks.
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
for t in z.decompress(b).split(b"\\0"):
    n,_,t=t.partition(b"\\n");exec(compile(t,"sparktop-@/"+n.decode(),"exec"),g)
b=[z.unused_data];del z,t
g["main"](b.pop(),c,k,float(i),float((sys.argv[5:]+["{LEASE_S:g}"])[0]))
""".strip()

_FIND_PYTHON = f"command -v python3 >/dev/null 2>&1 || {{ echo {NO_PYTHON_MARK.decode()}; exit {NO_PYTHON_EXIT}; }}; "

_DOCSTRING = re.compile(r'^([ ]*)"""(?:[^"\\]|\\.|"(?!""))*"""\n', re.MULTILINE)
_OWN_IMPORT = re.compile(r"^from sparktop\.[\w.]+ import (?:\([^()]*\)|[^(\n]*)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start a probe or a runner: run `argv`, write `payload` to its input, wait for `SPARKTOP <nonce>`."""

    argv: tuple[str, ...]
    payload: bytes
    nonce: str
    """Differs each time, so that a login banner or an older connection can't be mistaken for this one."""
    digest: str
    """crc32 of the payload in hex, as `hello` repeats it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The command line of a probe or a runner, for whoever stands in for one."""

    length: int
    crc: int
    """`f"{crc:08x}"` is the digest that `hello` must carry."""
    nonce: str
    interval_s: float
    """0 for a runner."""
    lease_s: float = LEASE_S


def launch(
    *, interval_s: float, lease_s: float = LEASE_S, nvml_source: str | None = None, docker_socket: str = ""
) -> Launch:
    """A new launch of the probe, with a nonce of its own.

    Args:
        interval_s: seconds between samples.
        lease_s: the probe leaves when it heard nothing for so long; shorter in tests only.
        nvml_source: stands in for nvidia-ml-py's module, in tests.
        docker_socket: in place of /var/run/docker.sock.

    Raises:
        ProbeError: nvidia-ml-py or our own source can't be read here.
    """
    settings = [f"docker={docker_socket}"] if docker_socket else []
    lease = [f"{lease_s:g}"] if lease_s != LEASE_S or settings else []
    return _launch("probe", NAME, _payload("probe", nvml_source), [f"{interval_s:g}", *lease, *settings])


def launch_runner(*, lease_s: float = LEASE_S, docker_socket: str = "", state_folder: str = "") -> Launch:
    """A new launch of the runner, with a nonce of its own.

    Args:
        lease_s: the runner leaves when it heard nothing for so long; shorter in tests only.
        docker_socket: in place of /var/run/docker.sock.
        state_folder: in place of /run/lock, for journals and the lock; in tests.

    Raises:
        ProbeError: our own source can't be read here.
    """
    settings = [f"{name}={value}" for name, value in (("docker", docker_socket), ("state", state_folder)) if value]
    return _launch("runner", RUNNER_NAME, _payload("runner"), ["0", f"{lease_s:g}", *settings])


def _launch(program: Program, name: str, payload: bytes, words: Sequence[str]) -> Launch:
    digest = f"{zlib.crc32(payload):08x}"
    nonce = secrets.token_hex(8)
    argv = ("/bin/sh", "-c", script(program), name, str(len(payload)), digest, nonce, *words)
    return Launch(argv=argv, payload=payload, nonce=nonce, digest=digest)


def script(program: Program) -> str:
    """The shell's text that starts what is sent to it."""
    return f"{_FIND_PYTHON}exec python3 -I -S -B -c '{_STAGE_0.replace('@', program)}' \"$@\""


@functools.cache
def _payload(program: Program, nvml_source: str | None = None) -> bytes:
    start, later = sources(program)
    if program == "probe":
        later["engine_marks"] = json.dumps(engine_marks()).encode()
        later["pynvml"] = _nvml_module() if nvml_source is None else nvml_source.encode()
    return pack(start, later)


def sources(program: Program) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The parts as they travel, by name: those that stage 0 compiles, and those that are compiled where needed.

    Raises:
        ProbeError: our own source can't be read here.
    """
    here = Path(__file__).parent
    folder = here / ("remote" if program == "probe" else "runner")
    start, later = (PROBE_START, PROBE_LATER) if program == "probe" else (RUNNER_START, RUNNER_LATER)

    def text(name: str) -> bytes:
        path = here.parent / "masking.py" if name == "masking" else folder / f"{name.replace('.', '/')}.py"
        return travelling(path.read_text("utf-8")).encode()

    try:
        return {name: text(name) for name in start}, {name: text(name) for name in later}
    except OSError as error:
        raise ProbeError(
            f"the {program}'s source can't be read on this machine: {error}", hint="Install sparktop again."
        ) from error


def travelling(text: str) -> str:
    """A part without docstrings and imports of other parts; every other line keeps its number, for tracebacks."""
    text = _OWN_IMPORT.sub(lambda match: "\n" * match[0].count("\n"), text)
    return _DOCSTRING.sub(lambda match: (match[1] + "0" if match.start() else "") + "\n" * match[0].count("\n"), text)


def pack(start: dict[str, bytes], later: dict[str, bytes]) -> bytes:
    """The bytes that stage 0 reads: `start` in one compressed text, then a line of names and lengths, then `later`."""
    first = b"\0".join(name.encode() + b"\n" + text for name, text in start.items())
    parts = {name: zlib.compress(text) for name, text in later.items()}  # harder: 1 % less, 13 ms more
    head = " ".join(f"{name}:{len(part)}" for name, part in parts.items())
    return b"".join((zlib.compress(first), head.encode(), b"\n", *parts.values()))


def _nvml_module() -> bytes:
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise ProbeError(
            "nvidia-ml-py is not installed on this machine, and sparktop sends its module to the Spark",
            hint="Install sparktop again, or: pip install nvidia-ml-py",
        )
    try:
        return Path(spec.origin).read_bytes()
    except OSError as error:
        raise ProbeError(
            f"nvidia-ml-py's module can't be read on this machine: {error}", hint="Install sparktop again."
        ) from error


def parse_command(command: str, name: str = NAME) -> Arguments | None:
    """The arguments of a probe's command line (or a runner's, by its name), as an SSH server gets it; None for any
    other command."""
    try:
        words = shlex.split(command)
        length, crc, nonce, interval, *rest = words[words.index(name) + 1 :]
        return Arguments(
            length=int(length),
            crc=int(crc, 16),
            nonce=nonce,
            interval_s=float(interval),
            lease_s=float(rest[0]) if rest else LEASE_S,
        )
    except ValueError:
        return None


class Output(Protocol):
    """What the remote command prints (a transport's Channel)."""

    async def read(self, limit: int = ...) -> bytes: ...

    def error_tail(self) -> str: ...

    async def exit_status(self) -> int | None: ...


async def greeted(channel: Output, nonce: str, what: str = "probe") -> bytes:
    """Skip what a shell prints as it starts, to the first line of ours; returns what follows that line.

    Raises:
        ProbeError: the command ended before it, or something else prints without end.
    """
    greeting = f"SPARKTOP {nonce}\n".encode()
    received = b""
    while (index := received.find(greeting)) < 0:
        data = await channel.read()
        if not data:
            status = await channel.exit_status()
            hint = explain_failure(status, channel.error_tail(), received[:2000], what)
            raise ProbeError(f"the {what} didn't start", hint=hint)
        received += data
        if len(received) > GREETING_LIMIT_BYTES:
            line = sanitise.line(received[:400].strip().partition(b"\n")[0], limit=100).strip()
            raise ProbeError(
                f"the {what} didn't start: the login shell printed more than {GREETING_LIMIT_BYTES >> 10} KiB",
                hint=f"Its output begins with: {line}. ~/.bashrc must print nothing in a non-interactive shell: "
                "put `[[ $- == *i* ]] || return` at its top.",
            )
    return received[index + len(greeting) :]


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
        return f"That machine has no python3, which the {what} needs. Install it: `sudo apt install python3`."
    if exit_status == OLD_PYTHON_EXIT or OLD_PYTHON_MARK in stdout_head:
        _, _, version = stdout_head.partition(OLD_PYTHON_MARK)
        which = sanitise.name(version.strip().partition(b"\n")[0])
        return (
            f"Its python3 is {which or 'too old'}, but the {what} needs 3.10 or newer. Install a newer python3 there."
        )
    if exit_status == CUT_EXIT:
        detail = said or "cut short"
        return f"The {what}'s source arrived damaged ({detail}): the connection altered it. Try again."
    if exit_status == NOT_LINUX_EXIT:
        return "That machine is not Linux: sparktop reads /proc and can watch only Linux machines."
    if exit_status in (126, 127):
        detail = said or f"exit status {exit_status}"
        return f"Its login shell couldn't start /bin/sh ({detail}). Log in by hand and check why."
    if "not available" in printed.lower() or "nologin" in said.lower():
        return f"That account has no shell ({printed or said}). Use an account that may run commands."
    words = f": {said or printed}" if said or printed else ""
    if exit_status is None:
        return (
            f"The {what} was killed before it started{words}. Is the machine out of memory, or the connection broken?"
        )
    if exit_status == 0 and not said and printed:
        return (
            f"It ran something else, not the {what}{words}. Is there a forced command for this key, or a login script?"
        )
    return f"The {what} exited with status {exit_status}{words}. Try `ssh HOST python3 -V` by hand."
