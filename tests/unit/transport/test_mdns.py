"""Hosts that announce themselves: a real announcement on loopback, heard by the real listener."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from tests.support import unavailable
from zeroconf import InterfaceChoice
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from sparktop.transport import mdns
from sparktop.transport.mdns import announced_hosts

OWN = socket.gethostname().split(".")[0]


@pytest.fixture
async def network() -> AsyncIterator[None]:
    """A network of this machine alone, on which a Spark, a NAS, a name with a control and this machine tell of ssh."""
    try:
        announcer = AsyncZeroconf(interfaces=["127.0.0.1"])
    except OSError as error:
        unavailable(f"no multicast on loopback: {error}")

    async def announce(service: str, server: str) -> None:
        kind = service.split(".", 1)[1]
        info = AsyncServiceInfo(kind, service, port=22, server=server, addresses=[socket.inet_aton("127.0.0.1")])
        await (await announcer.async_register_service(info))

    services = (
        ("spark-1a2b._ssh._tcp.local.", "spark-1a2b.local."),
        ("spark-1a2b [4c:bb]._workstation._tcp.local.", "spark-1a2b.local."),
        ("nas._workstation._tcp.local.", "nas.local."),
        ("printer._ipp._tcp.local.", "printer.local."),
        ("bad._ssh._tcp.local.", "bad\x1b]0;$(id).local."),
        ("this._ssh._tcp.local.", f"{OWN}.local."),
    )
    await asyncio.gather(*(announce(*one) for one in services))
    yield
    await announcer.async_close()


@pytest.mark.usefixtures("network")
async def test_each_host_is_heard_once_and_names_that_are_none_are_left_out() -> None:
    assert await announced_hosts(interfaces=["127.0.0.1"]) == ("nas.local", "spark-1a2b.local")


@pytest.mark.parametrize("error", [OSError(19, "No such device"), RuntimeError("No interfaces to listen on")])
async def test_without_a_network_there_is_none(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(**_: object) -> AsyncZeroconf:
        raise error

    monkeypatch.setattr(mdns, "AsyncZeroconf", unreachable)
    assert await announced_hosts(interfaces=InterfaceChoice.All) == ()
