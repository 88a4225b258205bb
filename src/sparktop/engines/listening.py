"""Where an engine listens, by its command. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from sparktop.cmdline.engine_argv import values_of
from sparktop.model.engine import EngineKind

ANYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - compared, never bound


def listen_host(argv: Sequence[str], kind: EngineKind) -> str:
    """The host that it is told to listen on, or its default."""
    return values_of(argv, kind).get("host", kind.traits.host)


def is_loopback(host: str) -> bool:
    """Whether only its own machine reaches a port on this host."""
    if host in ANYWHERE:
        return False
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
