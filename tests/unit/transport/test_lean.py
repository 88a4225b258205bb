"""Libraries without their unused parts: left out, really there to be left out, and the rest works."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.table import over

from sparktop.transport.lean import NEEDED_LATER, UNUSED_NAMES, UNUSED_PARTS

CALLED = ("version", "containers", "inspect_container", "exec_create", "exec_start", "exec_inspect", "get")
"""What transport.docker calls of the SDK's client."""
LIBRARIES = sorted({*UNUSED_PARTS, *UNUSED_NAMES})


def left_out(library: str) -> tuple[str, ...]:
    return (*UNUSED_PARTS.get(library, ()), *UNUSED_NAMES.get(library, ()))


@over("library", LIBRARIES)
def test_a_part_that_is_left_out_exists(library: str) -> None:
    """Renamed in a newer version, it would be imported again and nobody would see it."""
    assert all(find_spec(part) for part in left_out(library))


@over(
    "library, absent, works",
    [
        (
            "asyncio",
            (),
            "library.run(library.sleep(0)); import ssl; ssl.create_default_context(); sys.modules.pop('ssl')",
        ),
        (
            "docker",
            ("charset_normalizer",),
            f"library.errors\nassert all(hasattr(library.APIClient, name) for name in {CALLED})\nimport docker.auth",
        ),
        ("hmac", (), "assert library.digest(b'k', b'm', 'sha1') == library.new(b'k', b'm', 'sha1').digest()"),
        (
            "textual.app",
            ("textual.widgets._tree",),
            "app = library.App(); app.call_later(app.exit, 7); assert app.run(headless=True) == 7",
        ),
        ("msgspec", (), "assert library.convert({'a': [1]}, dict[str, tuple[int, ...]]) == {'a': (1,)}"),
        ("httpx", ("click", "pygments"), "library.AsyncClient()"),
        (
            "asyncssh",
            ("cryptography.x509",),
            "key = library.generate_private_key('ssh-ed25519'); key.generate_user_certificate(key, 'me')",
        ),
    ],
)
def test_a_library_works_without_them(library: str, absent: tuple[str, ...], works: str) -> None:
    unused = (*absent, *left_out(library), *NEEDED_LATER.get(library, ()))
    code = (
        f"import sys; from sparktop.transport.lean import import_lean; library = import_lean({library!r})"
        f"\n{works}\nassert import_lean({library!r}) is library"
        f"\nprint(*(name for name in {unused!r} if name in sys.modules))"
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


def test_the_widgets_and_suggestions_that_the_screen_left_out_come_with_their_first_use() -> None:
    code = """
from sparktop.transport.lean import import_lean
import_lean("textual.app")
from textual.suggestions import get_suggestion
from textual.widgets import Select
print(get_suggestion("rde", ["red"]), Select([("one", 1)]).value is Select.NULL)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["red", "True"]


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
