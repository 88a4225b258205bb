"""The runner's start: what stage 0 calls, and how the other parts are compiled."""

from __future__ import annotations

import marshal
import os
import signal
import sys
import zlib

TYPE_CHECKING = False  # typing itself would cost memory on the Spark
if TYPE_CHECKING:
    from typing import NoReturn

uncompiled: dict[str, bytes] = {}
"""Texts of parts that this process hasn't compiled, each compressed by itself."""


def unpack(packed: bytes) -> None:
    """Take the parts that come behind this one: "name:length ..." in a line, then texts, each compressed by itself."""
    head, _, rest = packed.partition(b"\n")
    for word in head.split():
        name, _, length = word.partition(b":")
        uncompiled[name.decode()], rest = rest[: int(length)], rest[int(length) :]


def load(*names: str, apart: bool = False) -> None:
    """Compile parts in the process that needs them, among one set of names. Off a Spark they are imported.

    The compiler leaves 1.5 MB behind for good: for a process that stays, it works in a child (`apart`).
    """
    for name in names:
        if name in uncompiled:
            text = zlib.decompress(uncompiled.pop(name))
            code = _compiled_apart(name, text) if apart else b""
            exec(marshal.loads(code) if code else compile(text, "sparktop-runner/" + name, "exec"), globals())


def _compiled_apart(name: str, text: bytes) -> bytes:
    """A part's code, marshalled by a child that compiled it; empty where no child can be forked."""
    read, write = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(read)
        os.close(write)
        return b""
    if not child:
        try:
            rest = memoryview(marshal.dumps(compile(text, "sparktop-runner/" + name, "exec", optimize=2)))
            while rest:
                rest = rest[os.write(write, rest) :]
        finally:
            os._exit(0)
    os.close(write)
    code = b""
    while piece := os.read(read, 65536):
        code += piece
    os.close(read)
    os.waitpid(child, 0)
    return code


def main(packed: bytes, digest: str, nonce: str, _interval_s: float, lease_s: float) -> NoReturn:
    """What stage 0 calls: `packed` holds the other parts; "name=value" words of the command line are settings."""
    out = os.dup(1)
    os.dup2(2, 1)  # whatever else prints, prints to standard error
    os.write(out, f"SPARKTOP {nonce}\n".encode())
    status = 70
    reason = ""
    try:
        if not sys.platform.startswith("linux"):
            status, reason = 95, f"this is {sys.platform}, not Linux"
        else:
            try:
                with open("/proc/self/comm", "w") as name:
                    name.write("sparktop-runner")
            except OSError:
                pass
            os.set_blocking(out, False)
            # posix_spawnp looks for a program in this process's own PATH, which over SSH may lack these
            os.environ["PATH"] = os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin") + ":/usr/sbin:/sbin"
            for number in (signal.SIGHUP, signal.SIGTERM):
                signal.signal(number, lambda *_: os._exit(0))
            unpack(packed)
            del packed
            load("journal", "main", apart=True)
            settings = dict(word.partition("=")[::2] for word in sys.argv[6:])
            globals()["Runner"](out, digest, lease_s, settings).run()
    except BaseException as error:
        reason = f"the runner failed: {type(error).__name__}: {error}"
        sys.stderr.write(f"sparktop: {reason}\n")
        sys.stderr.flush()
    try:
        os.write(out, b'{"kind":"bye","reason":"%b"}\n' % reason.encode("ascii", "replace").replace(b'"', b"'"))
    except OSError:
        pass
    os._exit(status)
