"""The runner: what stage 0 runs, and how the rest, which travels behind it, becomes code (the rest: `runner`)."""

from __future__ import annotations

import marshal
import os
import signal
import sys
import zlib

TYPE_CHECKING = False  # typing itself would cost memory on the Spark
if TYPE_CHECKING:
    from typing import NoReturn

_parts: dict[str, bytes] = {}


def unpack(packed: bytes) -> None:
    """What came behind this source: "name:length ..." in a line, then texts, each compressed by itself."""
    head, _, rest = packed.partition(b"\n")
    for word in head.split():
        name, _, length = word.partition(b":")
        _parts[name.decode()], rest = rest[: int(length)], rest[int(length) :]


def load(*names: str, apart: bool = False) -> None:
    """Compile parts among our own names, where they are needed.

    The compiler leaves 1.5 MB behind for good: for what stays, it works in a child (`apart`).
    """
    for name in names:
        if name in _parts:
            text = zlib.decompress(_parts.pop(name))
            code = _compiled_apart(name, text) if apart else b""
            exec(marshal.loads(code) if code else compile(text, "sparktop-runner-" + name, "exec"), globals())


def _compiled_apart(name: str, text: bytes) -> bytes:
    """Code as the child hands it over; empty where there can be no child."""
    read, write = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(read)
        os.close(write)
        return b""
    if not child:
        try:
            rest = memoryview(marshal.dumps(compile(text, "sparktop-runner-" + name, "exec", optimize=2)))
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
    """What stage 0 calls: `packed` holds the parts; "name=value" words of the command line are settings."""
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
            for number in (signal.SIGHUP, signal.SIGTERM):
                signal.signal(number, lambda *_: os._exit(0))
            unpack(packed)
            del packed
            load("journal", "runner", apart=True)
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
