"""Imports a library without the optional parts of it that nothing here uses: they cost memory and start-up time."""

from __future__ import annotations

import ctypes.util
import sys
import threading
from importlib import import_module
from types import ModuleType

UNUSED_PARTS = {
    # Its own command line: Click, Pygments, Rich's progress bars (3 MB).
    "httpx": ("httpx._main",),
    # X.509 certificates, which OpenSSH doesn't know either, and which host_identity trusts none of (1 MB).
    "asyncssh": ("asyncssh.crypto.x509",),
}
"""Library -> modules that it imports only where it can."""
UNUSED_LIBRARIES = ("nettle", "libnettle", "libnettle-6", "oqs", "liboqs")
"""C libraries for UMAC and sntrup761, beside which asyncssh has better algorithms. It looks for them by starting
ldconfig, gcc and ld: a fifth of its import, which each first connection waits for."""


_LOCK = threading.Lock()


def import_lean(library: str) -> ModuleType:
    """Import a library; the first import leaves out its unused parts."""
    with _LOCK:  # a thread beside it would take the half-imported library, or end the leaving out
        if library in sys.modules:
            return sys.modules[library]
        for part in UNUSED_PARTS[library]:
            sys.modules[part] = None  # type: ignore[assignment] # Python's own sign for "can't be imported"
        find_library = ctypes.util.find_library
        ctypes.util.find_library = lambda name: None if name in UNUSED_LIBRARIES else find_library(name)
        try:
            return import_module(library)
        finally:
            ctypes.util.find_library = find_library
            for part in UNUSED_PARTS[library]:
                del sys.modules[part]
