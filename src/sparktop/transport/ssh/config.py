"""The ssh configuration of a host, from `ssh -G` where OpenSSH is installed, else from asyncssh's parser.

asyncssh reads ~/.ssh/config itself, but fails on a missing IdentityFile, ignores StrictHostKeyChecking and
opens ProxyJump hosts without our checks (docs/facts/reliability.md section 1.5); so values are resolved here and it
gets them explicitly, with `config=None`.

Which files: OpenSSH finds them through the passwd entry and not through $HOME. Where the two differ (sudo -E,
a container, a test), $HOME is what the operator means: `-F $HOME/.ssh/config` is given (or `-F none`, so that
another home's aliases and keys are never used), and defaults under the passwd home are read as under $HOME.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import pwd
import re
import shutil
import signal
import socket
from pathlib import Path
from typing import Literal

from sparktop import sanitise
from sparktop.dataclass import dataclass
from sparktop.errors import TransportError
from sparktop.transport.targets import Target, parse_target

Strictness = Literal["yes", "ask", "accept-new", "no"]
_RESOLVE_LIMIT_S = 3.0
_DEFAULT_IDENTITIES = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk")


@dataclass(frozen=True, slots=True, kw_only=True)
class SshOptions:
    """Everything needed to connect to a host, with no further files or environment to read."""

    host: str
    port: int = 22
    user: str
    family: int = socket.AF_UNSPEC
    identity_files: tuple[Path, ...] = ()
    """Only files that exist."""
    certificate_files: tuple[Path, ...] = ()
    identities_only: bool = False
    agent_socket: str | None = None
    proxy_jump: tuple[str, ...] = ()
    proxy_command: str | None = None
    """Run by the operator's shell, as in OpenSSH; placeholders filled in."""
    user_known_hosts: tuple[Path, ...] = ()
    """New keys are appended to the first file."""
    global_known_hosts: tuple[Path, ...] = ()
    host_key_alias: str | None = None
    strict: Strictness = "ask"
    hash_known_hosts: bool = False
    public_key: bool = True
    password: bool = True
    keyboard_interactive: bool = True
    questions: bool = True
    """False under BatchMode."""


async def resolve(target: Target, *, config: Path | None = None) -> SshOptions:
    """The ssh configuration of a target.

    Raises:
        TransportError: the configuration can't be read, with what the parser said.
    """
    ssh = shutil.which("ssh")
    if ssh is None:
        return _by_asyncssh(target, config or home() / ".ssh/config")
    process = await asyncio.create_subprocess_exec(
        *_openssh(ssh, target, config, "-G"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "LC_ALL": "C"},
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_RESOLVE_LIMIT_S):
            out, err = await process.communicate()
    except TimeoutError:
        raise TransportError(
            f"{target.name}: `ssh -G` did not end within {_RESOLVE_LIMIT_S:.0f} s",
            hint="A `Match exec` line of ~/.ssh/config hangs; see which with: ssh -vG " + target.host,
        ) from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # with what it started, which holds its pipes open
            await process.wait()
    if process.returncode:
        reason = sanitise.line((err.strip().splitlines() or [b"no reason given"])[0], limit=300)
        raise TransportError(
            f"{target.name}: the ssh configuration can't be used: {reason}", hint=f"See it with: ssh -G {target.host}"
        )
    return parse(out.decode("utf-8", "replace"), target)


async def terminal_argv(target: Target, command: str = "", *, config: Path | None = None) -> list[str]:
    """OpenSSH's command line for a terminal on the target, with its login shell there or this command of a shell.

    Raises:
        TransportError: the configuration can't be read.
    """
    options = ["-t", *(["-o", "RemoteCommand=none"] if command else [])]
    if _home_differs():  # else ssh takes the keys and known_hosts of the other home
        found = await resolve(target, config=config)
        options += ["-o", "UserKnownHostsFile=" + " ".join(f'"{path}"' for path in found.user_known_hosts)]
        options += [word for path in found.identity_files for word in ("-i", str(path))]
    return _openssh("ssh", target, config, *options) + ([command] if command else [])


def _openssh(ssh: str, target: Target, config: Path | None, *options: str) -> list[str]:
    user = ["-l", target.user] if target.user is not None else []
    port = ["-p", str(target.port)] if target.port is not None else []
    return [ssh, *options, *_config_flag(config), *user, *port, "--", target.host]


async def is_known(name: str, config: Path | None = None) -> bool:
    """Whether the ssh configuration has this name as an alias, or the resolver an address for it."""
    try:
        found = await resolve(parse_target(name), config=config)
    except TransportError:
        return True  # the connection tells what is wrong with the configuration
    if found.host != name:
        return True
    try:
        await asyncio.get_running_loop().getaddrinfo(name, None)
    except OSError:
        return False
    return True


def home() -> Path:
    """The operator's home, from $HOME."""
    return Path(os.path.expanduser("~"))


def _passwd_home() -> Path | None:
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return None


def _home_differs() -> bool:
    return home() != _passwd_home()


def _config_flag(config: Path | None) -> list[str]:
    if config is not None:
        return ["-F", str(config)]
    if not _home_differs():
        return []
    own = home() / ".ssh/config"
    return ["-F", str(own) if own.is_file() else "none"]


def parse(text: str, target: Target) -> SshOptions:
    """Options from the text `ssh -G` prints: a lower-case keyword, a space, its value."""
    first: dict[str, str] = {}
    many: dict[str, list[str]] = {}
    for line in text.splitlines():
        keyword, _, value = line.strip().partition(" ")
        first.setdefault(keyword.lower(), value.strip())
        many.setdefault(keyword.lower(), []).append(value.strip())
    host = first.get("hostname", target.host)
    user = first.get("user") or target.user or _local_user()
    port = int(first["port"]) if first.get("port", "").isdecimal() else target.port or 22
    fill = _Placeholders(host=host, user=user, port=port, typed=target.host)
    jump = first.get("proxyjump", "none")
    command = first.get("proxycommand", "none")
    return SshOptions(
        host=host,
        port=port,
        user=user,
        family={"inet": socket.AF_INET, "inet6": socket.AF_INET6}.get(
            first.get("addressfamily", "any"), socket.AF_UNSPEC
        ),
        identity_files=fill.existing(many.get("identityfile", [])),
        certificate_files=fill.existing(many.get("certificatefile", [])),
        identities_only=_yes(first.get("identitiesonly", "no")),
        agent_socket=_agent(first.get("identityagent", "SSH_AUTH_SOCK"), fill),
        proxy_jump=() if jump.lower() == "none" else tuple(hop.strip() for hop in jump.split(",") if hop.strip()),
        proxy_command=None if command.lower() == "none" else fill.text(command),
        user_known_hosts=fill.paths(split_paths(first.get("userknownhostsfile", ""))),
        global_known_hosts=fill.paths(split_paths(first.get("globalknownhostsfile", ""))),
        host_key_alias=first.get("hostkeyalias") or None,
        strict=_STRICTNESS.get(first.get("stricthostkeychecking", "").lower(), "ask"),
        hash_known_hosts=_yes(first.get("hashknownhosts", "no")),
        public_key=first.get("pubkeyauthentication", "yes").lower() not in ("no", "false"),
        password=_yes(first.get("passwordauthentication", "yes")),
        keyboard_interactive=_yes(first.get("kbdinteractiveauthentication", "yes")),
        questions=not _yes(first.get("batchmode", "no")),
    )


def split_paths(value: str) -> list[str]:
    """A list of paths as `ssh -G` prints it: unquoted, so a piece that starts no path belongs to the one before.

    NVIDIA Sync keeps its profile under "Library/Application Support" (docs/facts/reliability.md section 1.5).
    """
    paths: list[str] = []
    for piece in value.split(" "):
        if paths and not re.match(r"[/~%$]|none$", piece):
            paths[-1] += " " + piece
        elif piece:
            paths.append(piece)
    return paths


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placeholders:
    """Expands %h and the other tokens of ssh_config(5), and `~`."""

    host: str
    user: str
    port: int
    typed: str

    def text(self, value: str) -> str:
        values = {
            "%": "%",
            "d": str(home()),
            "h": self.host,
            "i": str(os.getuid()),
            "L": socket.gethostname().split(".")[0],
            "l": socket.gethostname(),
            "n": self.typed,
            "p": str(self.port),
            "r": self.user,
            "u": _local_user(),
        }
        return re.sub(r"%(.)", lambda match: values.get(match[1], match[0]), value)

    def path(self, value: str) -> Path:
        path = Path(os.path.expanduser(os.path.expandvars(self.text(value.strip('"')))))
        passwd_home = _passwd_home()
        if passwd_home and _home_differs() and path.is_relative_to(passwd_home / ".ssh"):
            return home() / path.relative_to(passwd_home)
        return path

    def paths(self, values: list[str]) -> tuple[Path, ...]:
        return tuple(self.path(value) for value in values if value.lower() != "none")

    def existing(self, values: list[str]) -> tuple[Path, ...]:
        """Only files that exist: OpenSSH lists its defaults, and a missing one would end asyncssh's connection."""
        return tuple(dict.fromkeys(path for path in self.paths(values) if path.is_file()))


def _agent(value: str, fill: _Placeholders) -> str | None:
    if value.lower() == "none":
        return None
    if value == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK") or None
    if value.startswith("$"):
        return os.environ.get(value[1:].strip("{}")) or None
    return str(fill.path(value))


def _yes(value: str) -> bool:
    return value.lower() in ("yes", "true")


_STRICTNESS: dict[str, Strictness] = {
    "yes": "yes", "true": "yes", "no": "no", "off": "no", "false": "no", "accept-new": "accept-new",
}  # fmt: skip


def _local_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a passwd entry
        return "root" if os.getuid() == 0 else str(os.getuid())


_KEYWORDS = (
    "BatchMode",
    "CertificateFile",
    "GlobalKnownHostsFile",
    "HostKeyAlias",
    "IdentitiesOnly",
    "IdentityAgent",
    "IdentityFile",
    "KbdInteractiveAuthentication",
    "PasswordAuthentication",
    "ProxyCommand",
    "ProxyJump",
    "PubkeyAuthentication",
    "UserKnownHostsFile",
)


def _by_asyncssh(target: Target, config: Path) -> SshOptions:
    """The configuration from asyncssh's parser, in the format of `ssh -G`, for machines without OpenSSH."""
    from asyncssh.config import SSHClientConfig

    try:
        read = SSHClientConfig.load(
            None,
            [config] if config.is_file() else [],
            False,
            False,
            False,
            _local_user(),
            target.user if target.user is not None else (),
            target.host,
            target.port if target.port is not None else (),
        )
    except (OSError, ValueError) as error:
        raise TransportError(
            f"{target.name}: {config} can't be used: {sanitise.line(str(error), limit=300)}",
            hint="No `ssh` was found on this machine, so a smaller parser read it; installing OpenSSH may be enough.",
        ) from None
    values = {
        "userknownhostsfile": [str(home() / ".ssh/known_hosts")],
        "globalknownhostsfile": ["/etc/ssh/ssh_known_hosts"],
        "identityfile": [str(home() / ".ssh" / name) for name in _DEFAULT_IDENTITIES],
    }
    lines = [f"hostname {read.get('Hostname', target.host)}", f"user {read.get('User', target.user or _local_user())}"]
    lines.append(f"port {read.get('Port', target.port or 22)}")
    for keyword in _KEYWORDS:
        value = read.get(keyword, values.get(keyword.lower()))
        if isinstance(value, str) and keyword in ("ProxyCommand", "IdentityAgent"):
            value = value.replace("%", "%%")  # that parser has filled placeholders in already
        if isinstance(value, list) and keyword in ("IdentityFile", "CertificateFile"):
            lines += [f"{keyword} {item}" for item in value]
        elif isinstance(value, list):
            lines.append(f"{keyword} {' '.join(map(str, value)) or 'none'}")
        elif isinstance(value, bool):
            lines.append(f"{keyword} {'yes' if value else 'no'}")
        elif value is not None:
            lines.append(f"{keyword} {value}")
    return parse("\n".join(lines), target)
