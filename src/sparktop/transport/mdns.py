"""Hosts that announce themselves on this network by mDNS, as Avahi and macOS do for ssh (RFC 6762, RFC 6763)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

from zeroconf import InterfaceChoice, IPVersion, ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from sparktop import sanitise
from sparktop.errors import UsageError
from sparktop.transport.targets import parse_target

SERVICES = ("_ssh._tcp.local.", "_workstation._tcp.local.")
LISTEN_S = 1.5


async def announced_hosts(
    within_s: float = LISTEN_S, *, interfaces: Sequence[str] | InterfaceChoice = InterfaceChoice.All
) -> tuple[str, ...]:
    """The names of other hosts, as `sparktop` takes them, in order; () where there is no network.

    Args:
        interfaces: the addresses of those that are listened on.
    """
    try:
        listener = AsyncZeroconf(interfaces=interfaces, ip_version=IPVersion.V4Only)
    except (OSError, RuntimeError):  # RuntimeError: no interface has an address
        return ()
    names: set[str] = set()
    resolving: set[asyncio.Task[None]] = set()

    async def resolve(service: str, name: str) -> None:
        info = AsyncServiceInfo(service, name)
        if await info.async_request(listener.zeroconf, within_s * 1000) and info.server:
            names.add(info.server)

    def changed(zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if state_change is ServiceStateChange.Added:
            resolving.add(asyncio.ensure_future(resolve(service_type, name)))

    try:
        browser = AsyncServiceBrowser(listener.zeroconf, list(SERVICES), handlers=[changed])
        await asyncio.sleep(within_s)
        await browser.async_cancel()
        for task in resolving:
            task.cancel()
        await asyncio.gather(*resolving, return_exceptions=True)
    except OSError:
        pass  # the network went away
    finally:
        await listener.async_close()
    own_name = f"{socket.gethostname().split('.')[0]}.local"
    hosts = {name.removesuffix(".") for name in names} - {own_name}
    return tuple(sorted(host for host in hosts if _is_host(host)))


def _is_host(name: str) -> bool:
    """Whether it is a host's name, with nothing in it that a terminal or a shell would take for something else."""
    try:
        return sanitise.name(name) == name and parse_target(name).user is None
    except UsageError:
        return False
