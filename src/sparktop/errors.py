"""The one exception tree: every error a user can see has a title, a message, a hint and an exit code.

Exit codes are design.md's: 1 findings or a refused action, 2 usage or configuration, 3 unreachable.
"""

from __future__ import annotations


class SparktopError(Exception):
    """What went wrong, why, and what to do next, in words for the operator."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class UsageError(SparktopError):
    """A command line or a target that can't be meant."""

    exit_code = 2


class ConfigError(SparktopError):
    """A configuration, recipe or scenario file that can't be read as one."""

    exit_code = 2


class TransportError(SparktopError):
    """A node that can't be reached; the subclass says at which stage."""

    exit_code = 3


class NoRoute(TransportError):
    """The name doesn't resolve, or no packet gets there: nothing answered TCP."""


class NoNetwork(NoRoute):
    """This machine has no way there at all: offline, or the name service can't be reached."""


class UnknownName(NoRoute):
    """No host is known by that name; says nothing of any host."""


class PortClosed(TransportError):
    """The host answered TCP with a reset: it is up, and no sshd listens there (or not yet)."""


class NoBanner(TransportError):
    """TCP answered and SSH did not: the host is up and its user space is starved or stopped."""


class AuthRefused(TransportError):
    """The host is there and let no offered key or password in; trying again by itself won't help."""


class HostKeyRefused(TransportError):
    """The host key is unknown and was not accepted, or has changed; nothing was sent."""


class LinkLost(TransportError):
    """An established connection ended."""


class ChannelRefused(TransportError):
    """The connection stands, and sshd refused this channel or forward."""


class ProbeError(TransportError):
    """The probe couldn't be started: no python3, a payload that didn't arrive, another protocol version."""
