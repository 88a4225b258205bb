"""Libraries without their unused parts: left out, really there to be left out, and the rest works."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from sparktop.transport.lean import UNUSED_PARTS


@pytest.mark.parametrize("library", UNUSED_PARTS)
def test_a_part_that_is_left_out_exists(library: str) -> None:
    """Renamed in a newer version, it would be imported again and nobody would see it."""
    assert all(find_spec(part) for part in UNUSED_PARTS[library])


@pytest.mark.parametrize(
    ("library", "absent", "works"),
    [
        ("httpx", ("click", "pygments"), "library.AsyncClient()"),
        (
            "asyncssh",
            ("cryptography.x509",),
            "key = library.generate_private_key('ssh-ed25519'); key.generate_user_certificate(key, 'me')",
        ),
    ],
)
def test_a_library_works_without_them(library: str, absent: tuple[str, ...], works: str) -> None:
    code = (
        f"import sys; from sparktop.transport.lean import UNUSED_PARTS, import_lean; library = import_lean({library!r})"
        f"\n{works}\nassert import_lean({library!r}) is library"
        f"\nprint(*(name for name in {(*absent, *UNUSED_PARTS[library])!r} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_asyncssh_looks_for_no_library_that_it_does_without() -> None:
    """Each look starts ldconfig, gcc and ld; ifaddr, which it needs, looks for libc."""
    code = (
        "import ctypes.util; from sparktop.transport.lean import import_lean; looked = []; "
        "found = ctypes.util.find_library; ctypes.util.find_library = lambda name: looked.append(name) or found(name); "
        "mine = ctypes.util.find_library; import_lean('asyncssh'); print(*looked, ctypes.util.find_library is mine)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["c", "True"]
