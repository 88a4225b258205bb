"""Parse a target of the command line: an ssh alias, user@host[:port], or `local`."""

from __future__ import annotations

import ipaddress
import re
from typing import Literal

from sparktop.dataclass import dataclass
from sparktop.errors import UsageError

_FORMS = "A host is an alias of ~/.ssh/config, HOST, USER@HOST, USER@HOST:PORT, [IPV6]:PORT, or `local`."


# What OpenSSH refuses in names since 9.6: they end up in ProxyCommand and Match exec lines, which a shell reads.
_UNSAFE = re.compile(r"""[\s'"`$\\;&<>|(){}\x00-\x1f\x7f-\x9f]""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One machine to watch, before its ssh configuration is resolved."""

    name: str
    """As the operator typed it."""
    kind: Literal["ssh", "local"] = "ssh"
    host: str
    user: str | None = None
    """None: the configuration's, or the operator's login name."""
    port: int | None = None
    """None: the configuration's, or 22."""


def parse_target(text: str) -> Target:
    """The target of one word of the command line (or of a ProxyJump line).

    Raises:
        UsageError: invalid; the hint has the nearest valid form.
    """
    if text == "local":
        return Target(name=text, kind="local", host="localhost")
    if not text:
        raise UsageError("an empty host name", hint=_FORMS)
    if text != text.strip() or re.search(r"\s", text):
        raise UsageError(f"{text!r} has a space in it", hint=f"Name hosts one by one, as separate words. {_FORMS}")
    if text.startswith("-"):
        raise UsageError(
            f"{text!r} looks like an option",
            hint=f"Options of ssh go into ~/.ssh/config (-p 2222 is HOST:2222). {_FORMS}",
        )
    address = text.removeprefix("ssh://").rstrip("/") if text.startswith("ssh://") else text
    user: str | None = None
    if "@" in address:
        user, address = address.rsplit("@", 1)
        if not user or user.startswith("-") or _UNSAFE.search(user):
            raise UsageError(f"{text!r} has no usable user name before the @", hint=_FORMS)
    host, port = _host_and_port(address, text)
    if host.startswith("-") or _UNSAFE.search(host) or "/" in host:
        raise UsageError(f"{text!r} has characters no host name has", hint=_FORMS)
    return Target(name=text, host=host, user=user, port=port)


def _host_and_port(address: str, text: str) -> tuple[str, int | None]:
    if address.startswith("["):
        host, bracket, tail = address[1:].partition("]")
        if not bracket or (tail and not tail.startswith(":")) or not _is_ipv6(host):
            raise UsageError(f"{text!r} is no IPv6 address in brackets", hint="Write [fe80::1]:22.")
        return host, _port(tail[1:], text) if tail else None
    if address.count(":") > 1:
        if _is_ipv6(address):
            return address, None
        raise UsageError(
            f"{text!r} has more than one colon", hint="An IPv6 address with a port is written [fe80::1]:22."
        )
    host, colon, port = address.partition(":")
    if not host:
        raise UsageError(f"{text!r} names no host", hint=_FORMS)
    return host, _port(port, text) if colon else None


def _port(digits: str, text: str) -> int:
    if re.fullmatch(r"[0-9]{1,5}", digits) and 0 < int(digits) < 65536:
        return int(digits)
    raise UsageError(f"{text!r} has no port number after the colon", hint="A port is a number from 1 to 65535.")


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True
