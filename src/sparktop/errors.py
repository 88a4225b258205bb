"""The exception tree: every error a user can see has a message, a hint and an exit code.

Exit codes: 1 findings or a refused action, 2 usage or configuration, 3 unreachable.
"""

from __future__ import annotations

from collections.abc import Iterable


class SparktopError(Exception):
    """An error for the operator: what went wrong, why, and what to do next."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class UsageError(SparktopError):
    """An invalid command line or target."""

    exit_code = 2


class ConfigError(SparktopError):
    """A configuration, recipe or scenario file that is missing or invalid."""

    exit_code = 2


class TransportError(SparktopError):
    """A node that can't be reached; the subclass says at which stage."""

    exit_code = 3


class NoRoute(TransportError):
    """The name doesn't resolve, or no packet arrives: nothing answered TCP."""


class NoNetwork(NoRoute):
    """This machine is offline, or its name service can't be reached."""


class UnknownName(NoRoute):
    """The name service knows no such host."""


class PortClosed(TransportError):
    """The host answered TCP with a reset: it is up, but no sshd listens there (yet)."""


class NoBanner(TransportError):
    """TCP answered but SSH did not: the host is up, its user space starved or stopped."""


class TurnedAway(TransportError):
    """TCP answered and was closed before SSH said anything: sshd is there and takes no connection now."""


class AuthRefused(TransportError):
    """The host accepted none of the offered keys or passwords; retrying without a change won't help."""


class HostKeyRefused(TransportError):
    """The host key is unknown and was not accepted, or has changed; nothing was sent."""


class LinkLost(TransportError):
    """An established connection ended."""


class NoAnswer(TransportError):
    """A node's runner gave no answer, or none that can be read; its connection stands."""


class ChannelRefused(TransportError):
    """The connection works, but sshd refused this channel or forward."""


class ProbeError(TransportError):
    """The probe couldn't be started: no python3, an incomplete payload, another protocol version."""


def nearest(name: str, known: Iterable[str], *, least: float = 0.6) -> str:
    """The known name that was probably meant by one that nobody knows; empty where none is similar."""
    return next(iter(nearest_names(name, known, least=least, most=1)), "")


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """A hint for a name that nobody knows: "did you mean NAME?", or another one where none is similar."""
    near = nearest(name, known, least=0.5)
    return f"did you mean {near}?" if near else otherwise


def nearest_names(name: str, known: Iterable[str], *, least: float, most: int) -> tuple[str, ...]:
    """The known names that are most similar, the nearest first.

    Args:
        least: how similar they must be, 0 to 1; the same letters in another order always are.
    """
    from difflib import get_close_matches  # only for what is refused

    names, letters = sorted(set(known)), sorted(name[:128].lower())
    swapped = [each for each in names if sorted(each.lower()) == letters]
    return tuple(swapped[:most] or get_close_matches(name[:128], names, n=most, cutoff=least))
