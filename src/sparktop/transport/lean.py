"""Imports a library without the parts of it that nothing here uses: they cost memory and start-up time."""

from __future__ import annotations

import ctypes.util
import sys
import threading
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

UNUSED_PARTS = {
    # Its own command line: Click, Pygments, Rich's progress bars (3 MB).
    "httpx": ("httpx._main",),
    # X.509 certificates, which OpenSSH doesn't know either, and which host_identity trusts none of (1 MB).
    "asyncssh": ("asyncssh.crypto.x509",),
}
"""Library -> modules that it imports only where it can."""
UNUSED_NAMES = {
    "httpx": (),
    "asyncssh": tuple(f"asyncssh.{part}" for part in ("sftp", "scp", "socks", "sshsig", "subprocess", "tuntap", "x11")),
}
"""Library -> modules that it always imports, for names in signatures: copying files, other forwarding (1.4 MB)."""
NEEDED_LATER = {
    "httpx": {},
    # Unlocking a key file that has a passphrase; `Match localnetwork` in an ssh configuration (0.4 MB).
    "asyncssh": {"bcrypt": "kdf", "ifaddr": "get_adapters"},
}
"""Library -> the libraries that it imports for one function, which few sessions call."""
UNUSED_LIBRARIES = ("nettle", "libnettle", "libnettle-6", "oqs", "liboqs")
"""C libraries for UMAC and sntrup761, beside which asyncssh has better algorithms. It looks for them by starting
ldconfig, gcc and ld: a fifth of its import, which each first connection waits for."""


_LOCK = threading.Lock()


def import_lean(library: str) -> ModuleType:
    """Import a library; the first import leaves out its unused parts."""
    with _LOCK:  # a thread beside it would take the half-imported library, or end the leaving out
        if library in sys.modules:
            return sys.modules[library]
        stand_ins: dict[str, Any] = dict.fromkeys(UNUSED_PARTS[library])  # Python's own sign for "can't be imported"
        stand_ins |= {part: _Names(part) for part in UNUSED_NAMES[library]}
        stand_ins |= {
            name: _Later(name, call)
            for name, call in NEEDED_LATER[library].items()
            if name not in sys.modules and find_spec(name)
        }
        sys.modules.update(stand_ins)
        find_library = ctypes.util.find_library
        ctypes.util.find_library = lambda name: None if name in UNUSED_LIBRARIES else find_library(name)
        try:
            return import_module(library)
        finally:
            ctypes.util.find_library = find_library
            for name in stand_ins:
                del sys.modules[name]


@cache
def import_alone(module: str) -> ModuleType:
    """Import a module of a package without all that the package itself imports; the package stays unimported."""
    package = module.partition(".")[0]
    with _LOCK:
        if package in sys.modules:
            return import_module(module)
        bare, spec = ModuleType(package), find_spec(package)
        bare.__path__ = list(spec.submodule_search_locations or ()) if spec else []
        sys.modules[package] = bare
        try:
            return import_module(module)
        finally:
            for name in [name for name in sys.modules if name.partition(".")[0] == package]:
                del sys.modules[name]


class _Names(ModuleType):
    """A module that has every name: a class that nothing is made of, good for a signature."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Later(ModuleType):
    """A module with one function, which imports the real module once it is called."""

    def __init__(self, name: str, call: str) -> None:
        super().__init__(name)

        def importing(*args: Any, **options: Any) -> Any:
            return getattr(import_module(name), call)(*args, **options)

        setattr(self, call, importing)
