"""The first stages of a connection, TCP and the SSH banner, on a socket of our own; each failure gets its own error.

Under thrash TCP still answers while a handshake takes half a minute (docs/facts/reliability.md sections 0 and 1.3):
a short limit for the first and a long one for the second tell a dead host from a starved one.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any, cast

from sparktop import sanitise
from sparktop.errors import NoNetwork, NoRoute, PortClosed, TransportError, UnknownName
from sparktop.model.fleet import Reach
from sparktop.transport.threads import in_thread

TCP_LIMIT_S = 3.0
BANNER_LIMIT_S = 2.0
_NEXT_ADDRESS_S = 0.25
"""Head start of each address over the next (RFC 8305)."""
_OFFLINE = {errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}

_NO_IPV4 = (
    "The name has IPv6 addresses alone, and a firewall of the host may know IPv4 alone: name it by its IPv4 address, "
    "or: ssh -4 (AddressFamily inet in ~/.ssh/config)."
)

_Address = tuple[int, int, int, str, tuple[Any, ...]]


async def open_tcp(
    host: str,
    port: int,
    *,
    family: int = socket.AF_UNSPEC,
    limit_s: float = TCP_LIMIT_S,
    looked_up: Callable[[tuple[str, ...]], None] = lambda addresses: None,
) -> socket.socket:
    """A connected non-blocking socket to the first of the host's addresses that answers; `looked_up` is told of all.

    Raises:
        NoRoute: unknown name, no network, or no answer in time.
        PortClosed: the host answered with a reset.
    """
    addresses: list[_Address] = []
    try:
        async with asyncio.timeout(limit_s):
            addresses = await _look_up(host, port, family)
            looked_up(tuple(dict.fromkeys(str(address[4][0]) for address in addresses)))
            return await _first_to_answer(addresses)
    except TimeoutError as error:
        if not addresses:
            raise NoNetwork(
                f"no answer within {limit_s:.0f} s to who {host} is: the name service can't be reached",
                hint="Check this machine's network; a number instead of a name would show which of the two it is.",
            ) from error
        raise NoRoute(
            f"{_place(host, port)} gave no answer to TCP within {limit_s:.0f} s",
            hint=_NO_IPV4
            if all(address[0] == socket.AF_INET6 for address in addresses)
            else "The host is off, asleep or on another network, or a firewall drops port "
            f"{port}. Check its power and cable, and: ping {host}",
        ) from error
    except OSError as error:
        raise _tcp_failure(error, host, port) from error


def _tcp_failure(error: OSError, host: str, port: int) -> TransportError:
    if isinstance(error, socket.gaierror):
        return UnknownName(
            f"no host is known by the name {host} ({sanitise.line(str(error.strerror or error), limit=100)})",
            hint="Check the spelling, ~/.ssh/config and the network's name service (spark.local needs mDNS).",
        )
    if isinstance(error, ConnectionRefusedError):
        return PortClosed(
            f"{_place(host, port)} refused the connection: the host is up and nothing listens on port {port}",
            hint="It may be booting; else start sshd there (sudo systemctl start ssh), or name another port.",
        )
    if error.errno in _OFFLINE:
        return NoNetwork(
            f"no network leads to {host} ({os.strerror(error.errno or 0)})",
            hint="This machine is offline, or the VPN or interface towards that network is down.",
        )
    if error.errno == errno.EHOSTUNREACH:
        return NoRoute(
            f"{host} doesn't answer on its network (no route to host)",
            hint="The host is off or its address has changed. Check its power and cable.",
        )
    reason = os.strerror(error.errno) if error.errno else str(error)
    return NoRoute(f"{_place(host, port)} can't be reached: {reason}", hint=f"See what ssh says: ssh -p {port} {host}")


def _place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _look_up(host: str, port: int, family: int) -> list[_Address]:
    """getaddrinfo in a daemon thread: in an executor's thread, a hanging resolver would delay the program's exit."""
    with contextlib.suppress(OSError, UnicodeError):
        numeric = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        return cast("list[_Address]", numeric)
    try:
        answer = await in_thread(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM)
    except UnicodeError:  # a label longer than 63 letters
        raise socket.gaierror(socket.EAI_NONAME, "not a possible host name") from None
    return cast("list[_Address]", answer)


async def _first_to_answer(addresses: Sequence[_Address]) -> socket.socket:
    """Dial the addresses one after the other, each a moment after the last; the first connection wins."""
    waiting = list(addresses)
    dialled: list[asyncio.Task[socket.socket]] = []
    pending: set[asyncio.Task[socket.socket]] = set()
    errors: list[OSError] = []
    winner: asyncio.Task[socket.socket] | None = None
    try:
        while waiting or pending:
            if waiting:
                task = asyncio.create_task(_dial(waiting.pop(0)))
                dialled.append(task)
                pending.add(task)
            finished, pending = await asyncio.wait(
                pending, timeout=_NEXT_ADDRESS_S if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in finished:
                error = task.exception()
                if error is None:
                    winner = task
                    return task.result()
                if not isinstance(error, OSError):
                    raise error
                errors.append(error)
        refused = [error for error in errors if isinstance(error, ConnectionRefusedError)]
        raise (refused or errors or [OSError("no address")])[0]
    finally:
        for task in dialled:
            if task is not winner:
                task.cancel()
                task.add_done_callback(_discard)


def _discard(task: asyncio.Task[socket.socket]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


async def _dial(address: _Address) -> socket.socket:
    family, kind, protocol, _, socket_address = address
    line = socket.socket(family, kind, protocol)
    try:
        line.setblocking(False)
        await asyncio.get_running_loop().sock_connect(line, socket_address)
    except BaseException:
        line.close()
        raise
    return line


async def reach_tcp(host: str, port: int, *, family: int = socket.AF_UNSPEC) -> tuple[Reach, str]:
    """Test TCP and the SSH banner of a host now, in 5 s at most; sends nothing."""
    try:
        line = await open_tcp(host, port, family=family)
    except PortClosed as error:
        return Reach.NO_SSHD, error.message
    except (NoNetwork, UnknownName) as error:
        return Reach.NO_NETWORK, error.message
    except TransportError as error:
        return Reach.NO_HOST, error.message
    with line:
        return await reach_banner(line, _place(host, port))


async def reach_banner(line: socket.socket, address: str) -> tuple[Reach, str]:
    """Wait for the SSH banner on a connected socket, for two seconds."""
    heard = b""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(BANNER_LIMIT_S):
            while _banner(heard) is None and len(heard) < 8192:
                piece = await loop.sock_recv(line, 1024)
                if not piece:
                    break
                heard += piece
    except TimeoutError:
        if not heard:
            return Reach.SSH_SILENT, f"{address} answers TCP, but SSH sent nothing within {BANNER_LIMIT_S:.0f} s"
    except OSError as error:
        return Reach.NO_SSHD, f"{address} answered TCP and closed the connection ({os.strerror(error.errno or 0)})"
    if (banner := _banner(heard)) is not None:
        return Reach.ANSWERS, f"{address} answers: {sanitise.line(banner, limit=100)}"
    if heard:
        return Reach.NO_SSHD, f"{address} answers, but with something that is not SSH"
    return (
        Reach.NO_SSHD,
        f"{address} answers TCP and closes the connection at once: sshd is turning connections away, or going down",
    )


def _banner(heard: bytes) -> bytes | None:
    return next((line.rstrip(b"\r") for line in heard.split(b"\n") if line.startswith(b"SSH-")), None)
