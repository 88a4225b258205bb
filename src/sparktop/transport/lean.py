"""Imports a library without the optional parts of it that nothing here uses: they cost memory and start-up time."""

from __future__ import annotations

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


_LOCK = threading.Lock()


def import_lean(library: str) -> ModuleType:
    """Import a library; the first import leaves out its unused parts."""
    with _LOCK:  # a thread beside it would take the half-imported library, or end the leaving out
        if library in sys.modules:
            return sys.modules[library]
        for part in UNUSED_PARTS[library]:
            sys.modules[part] = None  # type: ignore[assignment] # Python's own sign for "can't be imported"
        try:
            return import_module(library)
        finally:
            for part in UNUSED_PARTS[library]:
                del sys.modules[part]
