"""Imports a library without the parts of it that nothing here uses: they cost memory and start-up time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

UNUSED_PARTS = {
    # TLS: what goes over a network is SSH's, and httpx brings its own (0.9 MB).
    "asyncio": ("ssl",),
    # OpenSSL's hashes, beside the same ones of Python's own and a second OpenSSL in cryptography (1.6 MB).
    "hmac": ("_hashlib",) if find_spec("_md5") and find_spec("_sha1") else (),
    # Its own command line: Click, Pygments, Rich's progress bars (3 MB).
    "httpx": ("httpx._main",),
    # X.509 certificates, which OpenSSH doesn't know either, and which host_identity trusts none of (1 MB).
    "asyncssh": ("asyncssh.crypto.x509",),
}
"""Library -> modules that it imports only where it can."""
UNUSED_NAMES = {
    "asyncssh": (
        *(f"asyncssh.{part}" for part in ("sftp", "scp", "socks", "sshsig", "subprocess", "tuntap", "x11")),
        *("asyncssh.editor", "asyncssh.server", "cryptography.hazmat.primitives.serialization.ssh"),
    ),
    "docker": (
        *("docker.client", "docker.context", "docker.credentials", "docker.models", "docker.tls", "docker.utils.build"),
        *(f"docker.api.{part}" for part in ("build", "config", "image", "network", "plugin")),
        *(f"docker.api.{part}" for part in ("secret", "service", "swarm", "volume")),
    ),
    # Other formats, and the description of types: its core converts.
    "msgspec": tuple(f"msgspec.{part}" for part in ("inspect", "json", "msgpack", "structs", "toml", "yaml")),
    "textual.app": tuple(f"textual.widgets.{part}" for part in ("_directory_tree", "_placeholder", "_select")),
}
"""Library -> modules that it always imports, for names in signatures: copying files, other forwarding, being a server,
what of Docker is neither a container nor run in one (3.3 MB), widgets that textual.types names (0.4 MB)."""
NEEDED_LATER = {
    # Unlocking a key file that has a passphrase; `Match localnetwork` in an ssh configuration (0.4 MB).
    "asyncssh": {"bcrypt": "kdf", "ifaddr": "get_adapters"},
    # Which name was meant by one that a style sheet has wrong (0.2 MB).
    "textual.app": {"difflib": "get_close_matches"},
    # Guessing what an answer is written in that doesn't say so (3 MB).
    "docker": {"charset_normalizer": "detect"},
}
"""Library -> the libraries that it imports for one function, which few sessions call."""
UNUSED_LIBRARIES = {"asyncssh": ("nettle", "libnettle", "libnettle-6", "oqs", "liboqs")}
"""Library -> C libraries for UMAC and sntrup761, beside which asyncssh has better algorithms. It looks for them by
starting ldconfig, gcc and ld: a fifth of its import, which each first connection waits for."""


_LOCK = threading.Lock()


def import_lean(library: str) -> ModuleType:
    """Import a library; the first import leaves out its unused parts."""
    with _LOCK:  # a thread beside it would take the half-imported library, or end the leaving out
        if library in sys.modules:
            return sys.modules[library]
        stand_ins: dict[str, Any] = dict.fromkeys(
            UNUSED_PARTS.get(library, ())
        )  # Python's sign for "can't be imported"
        stand_ins |= {part: _Names(part) for part in UNUSED_NAMES.get(library, ())}
        stand_ins |= {
            name: _Later(name, call) for name, call in NEEDED_LATER.get(library, {}).items() if find_spec(name)
        }
        stand_ins = {name: one for name, one in stand_ins.items() if name not in sys.modules}
        sys.modules.update(stand_ins)
        try:
            with _nowhere(UNUSED_LIBRARIES.get(library, ())):
                return import_module(library)
        finally:
            for name in stand_ins:
                del sys.modules[name]


@contextmanager
def _nowhere(libraries: Sequence[str]) -> Iterator[None]:
    """No C library of these names is found."""
    if not libraries:
        yield
        return
    import ctypes.util  # some 5 ms that the first paint need not wait for

    find_library = ctypes.util.find_library
    ctypes.util.find_library = lambda name: None if name in libraries else find_library(name)
    try:
        yield
    finally:
        ctypes.util.find_library = find_library


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

    def __getattr__(self, name: str) -> str:
        if name != "__version__":
            raise AttributeError(name)
        from importlib.metadata import version

        return version(self.__name__)
