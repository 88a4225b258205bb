"""Libraries without their unused parts: left out, really there to be left out, and the rest works."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.table import over

from sparktop.transport.lean import NEEDED_LATER, UNUSED_NAMES, UNUSED_PARTS


@over("library", UNUSED_PARTS)
def test_a_part_that_is_left_out_exists(library: str) -> None:
    """Renamed in a newer version, it would be imported again and nobody would see it."""
    assert all(find_spec(part) for part in (*UNUSED_PARTS[library], *UNUSED_NAMES[library]))


@over(
    "library, absent, works",
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
    left_out = (*absent, *UNUSED_PARTS[library], *UNUSED_NAMES[library], *NEEDED_LATER[library])
    code = (
        f"import sys; from sparktop.transport.lean import import_lean; library = import_lean({library!r})"
        f"\n{works}\nassert import_lean({library!r}) is library"
        f"\nprint(*(name for name in {left_out!r} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_key_with_a_passphrase_is_unlocked_by_the_library_that_comes_then() -> None:
    code = """
import sys
from sparktop.transport.lean import import_lean
asyncssh = import_lean("asyncssh")
key = asyncssh.generate_private_key("ssh-ed25519")
locked = key.export_private_key("openssh", passphrase="open sesame")
assert "bcrypt" in sys.modules
print(asyncssh.import_private_key(locked, "open sesame").export_public_key() == key.export_public_key())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"]


def test_a_match_by_local_network_is_read_by_the_library_that_comes_then(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Match localnetwork 127.0.0.0/8\n  User me\n")
    code = f"""
import sys
from sparktop.transport.lean import import_lean
asyncssh = import_lean("asyncssh")
options = asyncssh.SSHClientConnectionOptions(host="spark1", config={str(config)!r})
print(options.username, "ifaddr" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["me", "True"]


def test_asyncssh_looks_for_no_library_that_it_does_without() -> None:
    """Each look starts ldconfig, gcc and ld."""
    code = (
        "import ctypes.util; from sparktop.transport.lean import import_lean; looked = []; "
        "found = ctypes.util.find_library; ctypes.util.find_library = lambda name: looked.append(name) or found(name); "
        "mine = ctypes.util.find_library; import_lean('asyncssh'); print(*looked, ctypes.util.find_library is mine)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"]


def test_a_module_comes_without_its_package() -> None:
    code = (
        "import sys; from sparktop.transport.lean import import_alone"
        "\nparser = import_alone('prometheus_client.parser')"
        "\nassert [family.name for family in parser.text_string_to_metric_families('up 1\\n')] == ['up']"
        "\nprint(*(name for name in ('prometheus_client', 'http.server', 'wsgiref') if name in sys.modules))"
        "\nimport prometheus_client; prometheus_client.CollectorRegistry()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
