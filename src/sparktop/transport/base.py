"""The interfaces of a connection for the layers above: byte channels, forwarded sockets, questions to the operator.

At this layer everything is bytes: one bad UTF-8 byte must not end a connection
(docs/facts/reliability.md section 0, 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sparktop.dataclass import dataclass
from sparktop.model.fleet import Contact, Reach

if TYPE_CHECKING:
    from sparktop.model.survey import PublicKey

PATIENCE_S = 120.0
"""Limit for banner and login together: a handshake took 22-30 s under thrash (docs/facts/reliability.md section 0)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKeyQuestion:
    """Asks the operator whether to trust an unknown host key."""

    host: str
    """The name as it will be written to known_hosts."""
    algorithm: str
    fingerprint: str
    """SHA256:... as `ssh` prints it."""
    known_hosts_path: Path
    same_key_hosts: tuple[str, ...] = ()
    """Other hosts of this session that present the same key (it happens on shipped units)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretQuestion:
    """Asks for a password, a passphrase or a keyboard-interactive answer; it is used once and never stored."""

    host: str
    prompt: str
    """Sanitised: it may be text from the server."""
    echo: bool = False


class Prompter(Protocol):
    """Answers questions: a dialog in the console; without a terminal, a refusal with directions."""

    async def host_key(self, question: HostKeyQuestion) -> bool:
        """True to trust the key and write it to known_hosts."""

    async def secret(self, question: SecretQuestion) -> str | None:
        """The answer; None when the operator cancelled."""


class Channel(Protocol):
    """One running remote command: raw standard input, output and error."""

    async def read(self, limit: int = 65536) -> bytes:
        """Up to `limit` bytes of standard output; b"" at its end.

        Raises:
            LinkLost: the connection ended.
        """

    async def write(self, data: bytes) -> None:
        """Write to standard input, waiting while the channel's window is full.

        Raises:
            LinkLost: the channel or the connection ended.
        """

    def error_tail(self) -> str:
        """The last lines of standard error so far, sanitised."""

    async def exit_status(self) -> int | None:
        """The command's exit code once it ended; None when a signal or a lost connection ended it."""

    async def close(self) -> None:
        """Close standard input and the channel; never raises."""


class Transport(Protocol):
    """An open connection to one node."""

    @property
    def host_key_fingerprint(self) -> str | None:
        """The key the host presented; None where there is none (local)."""

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings about this connection: a skipped known_hosts line, a key accepted without a check."""

    async def run(self, argv: Sequence[str]) -> Channel:
        """Start a command from an argv list, which is quoted here.

        Raises:
            ChannelRefused: sshd gave no session.
            LinkLost: the connection ended.
        """

    def unix_socket(self, remote_path: str) -> AbstractAsyncContextManager[Path]:
        """A local socket path (in a 0700 directory), forwarded to a Unix socket on the node.

        Raises:
            ChannelRefused: forwarding is not permitted.
        """

    def tcp_socket(self, host: str, port: int) -> AbstractAsyncContextManager[Path]:
        """A local Unix socket path (in a 0700 directory), forwarded to host:port as the node sees it."""

    async def wait_closed(self) -> str:
        """Wait until the connection is closed; returns the reason."""

    async def close(self) -> None:
        """End the connection; never raises."""


class Connector(Protocol):
    """Connects to one node, stage by stage, and reports which stage failed."""

    @property
    def name(self) -> str:
        """The node as the operator typed it."""

    @property
    def contact(self) -> Contact:
        """What the newest attempt to connect met."""

    async def connect(self, *, patience_s: float) -> Transport:
        """Open a connection. TCP gets 3 s; the banner and the login get `patience_s` (a hung host
        gets one long attempt and not many short ones).

        Raises:
            NoRoute, PortClosed, NoBanner, TurnedAway, AuthRefused, HostKeyRefused, TransportError: by stage.
        """

    async def reach(self) -> tuple[Reach, str]:
        """Test TCP and the SSH banner on a new socket, within 5 s in all: (what it found, a sentence)."""

    async def own_keys(self) -> tuple[PublicKey, ...]:
        """The operator's public keys that a login there could use: those that ssh would offer come first."""

    async def log_in_with(self, key: PublicKey) -> None:
        """Log in on a connection of its own with this key alone, and leave.

        Raises:
            TransportError: the key isn't accepted, or the node can't be reached.
        """
