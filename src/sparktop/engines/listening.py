"""Where an engine listens, by its command. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from sparktop.cmdline.engine_argv import value_of
from sparktop.model.engine import EngineKind

ANYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - compared, never bound


def listen_host(argv: Sequence[str], kind: EngineKind) -> str:
    """The host that it is told to listen on, or its default: vLLM's is every interface, SGLang's 127.0.0.1."""
    host = value_of(argv, "host")
    return host if host is not None else "127.0.0.1" if kind is EngineKind.SGLANG else ""


def is_loopback(host: str) -> bool:
    """Whether only its own machine reaches a port on this host."""
    if host in ANYWHERE:
        return False
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
