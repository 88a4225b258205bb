"""A real OpenSSH server for tests: its own port, keys and configuration on loopback, ended with everything it started.

    with Sshd.start(tmp_path) as sshd:           # or the fixture `sshd` (import it into the test module)
        sshd.trust(home)                          # known_hosts of that home
        sshd.alias(home, "spark1")                # ~/.ssh/config of that home
        connector = sshd.connector("spark1")      # everything explicit, no configuration read

Only processes it started are signalled, by pid.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import free_port, needs, other_docker, poll, unavailable

if TYPE_CHECKING:
    from sparktop.transport.ssh.connector import SshConnector


def make_key(path: Path, *, kind: str = "ed25519", passphrase: str = "", form: str = "RFC4716") -> Path:
    """A key pair by ssh-keygen; `path` and `path`.pub; `form` "PEM" for the older format."""
    needs("ssh-keygen", "openssh-client")
    subprocess.run(
        ["ssh-keygen", "-q", "-t", kind, "-m", form, "-N", passphrase, "-C", path.name, "-f", str(path)], check=True
    )
    return path


STARTED: list[Sshd] = []


@dataclass
class Sshd:
    """One running server."""

    folder: Path
    host: str
    port: int
    user: str
    client_key: Path
    host_key: Path
    options: dict[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()
    """What starts it elsewhere, and becomes it: `nsenter ...`."""
    process: subprocess.Popen[bytes] | None = None

    @classmethod
    @contextlib.contextmanager
    def start(
        cls,
        folder: Path,
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        options: dict[str, str] | None = None,
        prefix: tuple[str, ...] = (),
    ) -> Iterator[Sshd]:
        """Run one until the block is left; `options` are lines of sshd_config."""
        program = shutil.which("sshd") or "/usr/sbin/sshd"
        if not os.path.exists(program) or not shutil.which("ssh-keygen"):
            unavailable("no sshd here: apt-get install openssh-server")
        if os.getuid() == 0:
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        user = pwd.getpwuid(os.getuid()).pw_name
        port = port or free_port(host)
        client_key = make_key(folder / "client_key")
        host_key = make_key(folder / "host_key")
        (folder / "authorized_keys").write_bytes(Path(f"{client_key}.pub").read_bytes())
        server = cls(folder, host, port, user, client_key, host_key, dict(options or {}), prefix)
        STARTED.append(server)
        try:
            server.run()
            yield server
        finally:
            STARTED.remove(server)
            server.stop()

    # -- the server

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace") if (self.folder / "log").exists() else ""

    def run(self) -> None:
        """Start it on its port; returns once it says its banner."""
        lines = {
            "Port": str(self.port),
            "ListenAddress": self.host,
            "HostKey": str(self.host_key),
            "PidFile": str(self.folder / "pid"),
            "AuthorizedKeysFile": str(self.folder / "authorized_keys"),
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "PermitRootLogin": "yes",
            "MaxStartups": "100",
            "PrintMotd": "no",
        } | self.options
        # A folder of its own for what runs note there; and sshd gives its sessions a PATH of its own.
        given = {"XDG_STATE_HOME": str(self.state)} | other_docker()
        own = lines.get("SetEnv", "").split()
        lines["SetEnv"] = " ".join((*own, *(f"{name}={value}" for name, value in given.items())))
        config = self.folder / "sshd_config"
        config.write_text("".join(f"{key} {value}\n" for key, value in lines.items()))
        with (self.folder / "log").open("ab") as log:
            program = shutil.which("sshd") or "/usr/sbin/sshd"
            self.process = subprocess.Popen(
                [*self.prefix, program, "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        poll(self._answers, what=f"sshd on {self.host}:{self.port}\n{self.log}")

    def _answers(self) -> bool:
        if self.process is not None and self.process.poll() is not None:
            pytest.fail(f"sshd ended at once:\n{self.log}")
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), timeout=1) as line:
            return line.recv(4) == b"SSH-"
        return False

    def stop(self) -> None:
        """End the listener and every session it started."""
        self.kill_sessions()
        self.stop_listener()

    def stop_listener(self) -> None:
        """End the listener alone, as a reboot begins: sessions stay, new connections are refused."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            self.process.wait(10)
        self.process = None

    def restart(self, *, new_host_key: bool = False) -> None:
        """Listener and sessions end, another listener starts; with another host key, as after a reinstallation."""
        self.stop()
        if new_host_key:
            self.host_key = make_key(self.folder / f"host_key_{time.monotonic_ns()}")
        self.run()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop the listener with SIGSTOP: TCP answers, SSH doesn't; goes on afterwards."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def freeze(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def session_pids(self) -> list[int]:
        """The sshd processes that serve connections: descendants of the listener, itself and commands left out."""
        if self.process is None:
            return []
        found: list[int] = []
        waiting = [self.process.pid]
        while waiting:
            for pid in _children(waiting.pop()):
                waiting.append(pid)
                if _program(pid).startswith("sshd"):
                    found.append(pid)
        return found

    def connection_pids(self) -> list[int]:
        """One process for each connection: the listener's own children. Below them, each command is an sshd too until
        it is executed."""
        return _children(self.process.pid) if self.process is not None else []

    def kill_sessions(self, number: int = signal.SIGKILL) -> list[int]:
        """Signal every session process; the listener lives on."""
        pids = self.session_pids()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return pids

    # -- how clients find it

    @property
    def known_name(self) -> str:
        return self.host if self.port == 22 else f"[{self.host}]:{self.port}"

    @property
    def known_hosts_line(self) -> str:
        kind, key = Path(f"{self.host_key}.pub").read_text().split()[:2]
        return f"{self.known_name} {kind} {key}\n"

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -lf` prints it."""
        out = subprocess.run(["ssh-keygen", "-lf", f"{self.host_key}.pub"], check=True, capture_output=True, text=True)
        return out.stdout.split()[1]

    def trust(self, home: Path | None = None) -> Path:
        """Write its host key to the known_hosts of a home ($HOME unless given)."""
        path = _ssh_folder(home) / "known_hosts"
        with path.open("a") as file:
            file.write(self.known_hosts_line)
        return path

    def alias(self, name: str, home: Path | None = None, **options: str) -> Path:
        """Write a `Host` block to the ~/.ssh/config of a home ($HOME unless given); options override or add lines."""
        path = _ssh_folder(home) / "config"
        lines = {
            "HostName": self.host,
            "Port": str(self.port),
            "User": self.user,
            "IdentityFile": str(self.client_key),
        } | options
        with path.open("a") as file:
            file.write(f"Host {name}\n" + "".join(f"    {key} {value}\n" for key, value in lines.items()))
        return path

    def connector(self, name: str = "spark1") -> SshConnector:
        """A connector with the key and the host key given."""
        from sparktop.transport.ssh.connector import SshConnector

        return SshConnector.direct(
            name, self.host, self.port, self.user, self.client_key, " ".join(self.known_hosts_line.split()[1:])
        )


def _ssh_folder(home: Path | None) -> Path:
    folder = (home or Path(os.path.expanduser("~"))) / ".ssh"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += [int(word) for word in Path(f"/proc/{pid}/task/{thread}/children").read_text().split()]
    return found


def _program(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    """A server for one test, with nothing trusted yet."""
    with Sshd.start(tmp_path / "sshd") as server:
        yield server
