"""What everything above sees of a connection: byte channels, forwarded sockets, and questions to the operator.

At this layer everything is bytes: one bad UTF-8 byte must not end a connection (facts/reliability.md section 0, 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKeyQuestion:
    """A first contact: nothing is known of this host, and the operator decides."""

    host: str
    """As it will stand in known_hosts."""
    algorithm: str
    fingerprint: str
    """SHA256:... as `ssh` prints it."""
    known_hosts_path: Path
    same_key_hosts: tuple[str, ...] = ()
    """Other hosts of this session that present the same key (it happens on shipped units)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretQuestion:
    """A password, a passphrase or a keyboard-interactive prompt; the answer is used once and kept nowhere."""

    host: str
    prompt: str
    """Sanitised: it may be the server's text."""
    echo: bool = False


class Prompter(Protocol):
    """Who answers questions: a dialog in the console, a refusal with directions without a terminal."""

    async def host_key(self, question: HostKeyQuestion) -> bool:
        """True to trust the key and write it to known_hosts."""

    async def secret(self, question: SecretQuestion) -> str | None:
        """The answer, or None when the operator gave up."""


class Channel(Protocol):
    """One running remote command: raw standard input, output and error."""

    async def read(self, limit: int = 65536) -> bytes:
        """Up to `limit` bytes of standard output; b"" at its end.

        Raises:
            LinkLost: the connection ended.
        """

    async def write(self, data: bytes) -> None:
        """Write to standard input, waiting while the line is full.

        Raises:
            LinkLost: the channel or the connection ended.
        """

    def error_tail(self) -> str:
        """The last lines of standard error so far, sanitised."""

    async def exit_status(self) -> int | None:
        """The command's exit code once it ended; None when it ended by a signal or the line broke."""

    async def close(self) -> None:
        """Close standard input and the channel; never raises."""


class Transport(Protocol):
    """An open connection to one node."""

    @property
    def host_key_fingerprint(self) -> str | None:
        """The key the host presented; None where there is none (local)."""

    @property
    def warnings(self) -> Sequence[str]:
        """What the operator should know of this connection: a skipped known_hosts line, a key accepted unseen."""

    async def run(self, argv: Sequence[str]) -> Channel:
        """Start a command from an argv list (quoted here, never a shell string from above).

        Raises:
            ChannelRefused: sshd gave no session.
            LinkLost: the connection ended.
        """

    def unix_socket(self, remote_path: str) -> AbstractAsyncContextManager[Path]:
        """A local socket path (in a 0700 directory) that leads to a Unix socket on the node.

        Raises:
            ChannelRefused: forwarding is not permitted.
        """

    def tcp_socket(self, host: str, port: int) -> AbstractAsyncContextManager[Path]:
        """A local Unix socket path (in a 0700 directory) that leads to host:port as the node sees it."""

    async def wait_closed(self) -> str:
        """Wait until the connection is gone; the reason."""

    async def close(self) -> None:
        """End the connection; never raises."""


class Connector(Protocol):
    """Knows how to reach one node, stage by stage, and to say which stage failed."""

    @property
    def name(self) -> str:
        """The node as the operator typed it."""

    async def connect(self, *, patience_s: float) -> Transport:
        """Open a connection. TCP gets 3 s; the banner and the login get `patience_s` (design.md: a hung host
        gets one long attempt and not many short ones).

        Raises:
            NoRoute, PortClosed, NoBanner, AuthRefused, HostKeyRefused, TransportError: by stage.
        """

    async def reach(self) -> tuple[str, str]:
        """Ask TCP and the SSH banner on a fresh socket, within 5 s in all: (a Reach value, a sentence)."""
