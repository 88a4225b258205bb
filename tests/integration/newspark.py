"""A Spark as it comes out of its box, for what its owner's login has: a namespace with its own /etc, a user with a
password and an empty home, and a real OpenSSH server that looks in that home for keys.

    with NewSpark.start("spark1", "127.0.0.2") as spark:
        spark.sshd.alias("spark1", IdentityFile="none")
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.integration.spark import _child, _end, _namespace
from tests.integration.sshd import Sshd
from tests.support import unavailable

PASSWORD = "first-boot-4711"
USER, USER_ID = "owner", 4711


@dataclass
class NewSpark:
    """One of them."""

    name: str
    sshd: Sshd
    home: Path
    inside: tuple[str, ...]
    """What runs a program in it, as root."""

    @property
    def ssh_folder(self) -> Path:
        return self.home / ".ssh"

    @property
    def authorized_keys(self) -> Path:
        return self.ssh_folder / "authorized_keys"

    def run(self, *argv: str, as_owner: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a program there, by default as its owner at home."""
        who = ("setpriv", f"--reuid={USER_ID}", f"--regid={USER_ID}", "--clear-groups") if as_owner else ()
        environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(self.home), "USER": USER}
        program = [*self.inside, *who, *argv]
        return subprocess.run(program, capture_output=True, text=True, check=False, env=environment, cwd="/")

    def write(self, path: Path, text: str, mode: int = 0o600) -> None:
        """A file of the owner's."""
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        for each in (path.parent, path):
            os.chown(each, USER_ID, USER_ID)

    def known_as(self, name: str = "") -> None:
        """The operator's ssh knows it by this name and its host key, and has no key for it."""
        self.sshd.trust()
        self.sshd.alias(name or self.name, User=USER, IdentityFile="none")

    @classmethod
    @contextlib.contextmanager
    def start(cls, name: str, host: str, *, port: int | None = None, **options: str) -> Iterator[NewSpark]:
        """Start it; `options` are lines of sshd_config."""
        for program in ("unshare", "nsenter", "openssl", "setpriv"):
            if shutil.which(program) is None:
                unavailable(f"no {program} here: apt-get install util-linux openssl")
        if os.geteuid() != 0:
            unavailable("namespaces need root")
        root = Path(tempfile.mkdtemp(prefix="spk-new-", dir="/tmp"))
        root.chmod(0o755)
        home = root / "home" / USER
        home.mkdir(parents=True)
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, root, ignore_errors=True)
            init = _namespace(root)
            stack.callback(_end, init)
            _add_owner(root / "etc", home)
            os.chown(home, USER_ID, USER_ID)
            home.chmod(0o750)
            (root / "etc/hostname").write_text(f"{name}-host\n")
            inside = ("nsenter", "--target", str(_child(init)), "--mount", "--pid")
            own = {
                "PasswordAuthentication": "yes",
                "StrictModes": "yes",
                "AuthorizedKeysFile": ".ssh/authorized_keys",
            }
            sshd = stack.enter_context(
                Sshd.start(root / "sshd", host=host, port=port, options=own | options, prefix=(*inside, "--no-fork"))
            )
            yield cls(name, sshd, home, inside)


def _add_owner(etc: Path, home: Path) -> None:
    made = subprocess.run(["openssl", "passwd", "-6", PASSWORD], capture_output=True, text=True, check=True)
    with (etc / "passwd").open("a") as file:
        file.write(f"{USER}:x:{USER_ID}:{USER_ID}:owner:{home}:/bin/sh\n")
    with (etc / "group").open("a") as file:
        file.write(f"{USER}:x:{USER_ID}:\n")
    with (etc / "shadow").open("a") as file:
        file.write(f"{USER}:{made.stdout.strip()}:20000:0:99999:7:::\n")
