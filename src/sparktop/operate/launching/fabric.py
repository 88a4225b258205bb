"""The link that two Sparks share: address, interface, RDMA devices, GID of each, found there, never assumed. Pure.

The names depend on the port that holds the cable, and the GID's index on the addresses an interface has had, so the two
nodes of one pair may differ in all of them (facts/gb10.md section 5). The probe's reading tells nearly everything; a
node is asked for the GID table where that shows none, and, where no network is common to both, for the address that the
operator's own connection reaches it by.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from sparktop.diagnose.live.hca import is_active
from sparktop.diagnose.live.pair import addresses_of, networks_of
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.telemetry import Interface, RdmaPort
from sparktop.operate.survey import Ask, Output, Survey
from sparktop.probe.remote_network import parse_gid

GIDS_AT_MOST = 16
"""Entries asked for of a port: the table is filled from the front."""
_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_ROW = re.compile(r"(/sys/class/infiniband/[^/:]+/ports/\d+)/(gids|gid_attrs/types)/(\d+):(.*)")
_WIRELESS = ("wl", "wwan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """One node's end of it."""

    node: str
    ip: str = ""
    """Its IPv4 address there; empty: none was found, and `problems` say why."""
    interface: str = ""
    hcas: tuple[str, ...] = ()
    """RDMA devices that are up and lead to the other node, in the order of their names."""
    gid_index: int | None = None
    """Of RoCE v2 with these addresses, the same for all of `hcas`; None: see `gid_reason`, and leave it to NCCL."""
    gid_reason: str = ""
    mtu: int | None = None
    rate_gbps: float | None = None
    """Of the slowest of `hcas`."""
    speed_mbps: int | None = None
    """Of the interface."""
    is_up: bool | None = None
    """Its carrier; None: not told."""
    is_same_network: bool = True
    """Whether both addresses lie in one network; False: they are those that the operator's connections reach."""
    problems: tuple[str, ...] = ()
    """What is less than it could be, each a sentence."""


def gid_ask(node: str, port: RdmaPort) -> Output | None:
    """The front of a port's GID table; None for a device whose name is none."""
    if not _DEVICE.fullmatch(port.device):
        return None
    folder = f"/sys/class/infiniband/{port.device}/ports/{port.port}"
    kinds = ("gids", "gid_attrs/types")
    paths = tuple(f"{folder}/{kind}/{index}" for index in range(GIDS_AT_MOST) for kind in kinds)
    return Output(node=node, argv=("grep", "-sH", ".", "--", *paths))


def reached_ask(node: str) -> Output:
    """What sshd says of the connection that the questions come by: client, its port, own address, own port."""
    return Output(node=node, argv=("printenv", "SSH_CONNECTION"))


def asks(nodes: Sequence[str], picture: FleetState) -> tuple[Ask, ...]:
    """What the picture doesn't tell of a pair's link; nothing for one node."""
    views = _two(nodes, picture)
    if views is None:
        return ()
    way = _best(*views)
    if way is None:
        return tuple(reached_ask(node) for node in nodes)
    found: list[Ask] = []
    for view, other in (views, views[::-1]):
        for port in _leading(view, other):
            ask = gid_ask(view.name, port) if not port.roce_v2_gids else None
            if ask is not None:
                found.append(ask)
    return tuple(found)


def fabrics(nodes: Sequence[str], picture: FleetState, survey: Survey) -> Mapping[str, Fabric]:
    """By node, both ends; empty for one node."""
    if len(nodes) != 2:
        return {}
    views = _two(nodes, picture)
    if views is None:
        return {node: Fabric(node=node, problems=(_unread(node, picture),)) for node in nodes}
    way = _best(*views)
    ends = way if way is not None else _reached(views, survey)
    if ends is None:
        why = f"{nodes[0]} and {nodes[1]} have no IPv4 addresses in one network that could connect them"
        return {view.name: _bare(view, other, why) for view, other in (views, views[::-1])}
    return {
        view.name: _found(view, other, end, survey, is_same_network=way is not None)
        for view, other, end in zip(views, views[::-1], ends, strict=True)
    }


# --- which addresses


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    ip: str
    interface: Interface
    port: RdmaPort | None = None


def _best(one: NodeView, other: NodeView) -> tuple[_End, _End] | None:
    """The pair of addresses in one network that is best to talk by: RDMA first, then what is up, fast, and no twin."""
    ways = list(_ways(one, other))
    return max(ways, key=_merit) if ways else None


def _ways(one: NodeView, other: NodeView) -> Iterator[tuple[_End, _End]]:
    taken = addresses_of(one) & addresses_of(other)  # an address that both have leads to neither
    for here, network in _ends(one):
        for there, far_network in _ends(other):
            if network == far_network and here.ip not in taken and there.ip not in taken:
                yield here, there


def _ends(view: NodeView) -> Iterator[tuple[_End, IPv4Network]]:
    reading = view.network
    for interface in reading.interfaces if reading else ():
        ports = [port for port in (reading.rdma_ports if reading else ()) if port.interface == interface.name]
        for text in interface.addresses:
            try:
                address = IPv4Interface(text)
            except ValueError:
                continue
            if address.network.prefixlen < 32 and not address.is_loopback:
                port = next(iter(sorted(ports, key=lambda port: not is_active(port))), None)
                yield _End(ip=str(address.ip), interface=interface, port=port), address.network


def _merit(way: tuple[_End, _End]) -> tuple[object, ...]:
    """Greater is better; the last parts only make it one and the same choice each time."""
    names = [end.interface.name for end in way]
    return (
        all(end.port is not None and is_active(end.port) for end in way),
        all(end.interface.is_up is not False for end in way),
        all(end.port is not None for end in way),
        not any(name.startswith(_WIRELESS) for name in names),
        min(end.interface.speed_mbps or 0 for end in way),
        # A port shows twice; by custom the first of the two, whose name has no second PCI domain in it, has the address
        # that ranks meet at.
        -sum("P" in name for name in names),
        names[0] == names[1],
        [[-ord(letter) for letter in name] for name in names],
        [-int(IPv4Address(end.ip)) for end in way],
    )


def _reached(views: tuple[NodeView, NodeView], survey: Survey) -> tuple[_End, _End] | None:
    """The addresses that the operator's own connections end at."""
    found = [_reached_end(view, survey) for view in views]
    one, other = found
    return (one, other) if one is not None and other is not None and one.ip != other.ip else None


def _reached_end(view: NodeView, survey: Survey) -> _End | None:
    said = survey.value(reached_ask(view.name))
    words = said.split() if isinstance(said, str) else []
    try:
        address = IPv4Address(words[2].removeprefix("::ffff:"))
    except (IndexError, ValueError):
        return None
    interfaces = view.network.interfaces if view.network else ()
    has_it = (one for one in interfaces if str(address) in {text.partition("/")[0] for text in one.addresses})
    unseen = Interface(name="lo" if address.is_loopback else "")
    return _End(ip=str(address), interface=next(has_it, unseen))


# --- what there is on a node


def _leading(view: NodeView, other: NodeView) -> list[RdmaPort]:
    """RDMA ports that are up and have an address in a network of one that is up on the other node; by name."""
    far = {network for port, networks in _fabric_ports(other) if is_active(port) for network in networks}
    found = {port.device: port for port, networks in _fabric_ports(view) if is_active(port) and networks & far}
    return sorted(found.values(), key=lambda port: (port.device.lower(), port.device))


def _fabric_ports(view: NodeView) -> Iterator[tuple[RdmaPort, frozenset[IPv4Network]]]:
    reading = view.network
    for port in reading.rdma_ports if reading else ():
        interface = next((one for one in reading.interfaces if one.name == port.interface), None) if reading else None
        if _DEVICE.fullmatch(port.device):
            yield port, networks_of(interface) if interface is not None else frozenset()


def _found(view: NodeView, other: NodeView, end: _End, survey: Survey, *, is_same_network: bool) -> Fabric:
    ports = _leading(view, other)
    rates = [port.rate_gbps for port in ports if port.rate_gbps is not None]
    gid_index, gid_reason = _gid(view, ports, survey)
    return Fabric(
        node=view.name,
        ip=end.ip,
        interface=end.interface.name,
        hcas=tuple(port.device for port in ports),
        gid_index=gid_index,
        gid_reason=gid_reason,
        mtu=end.interface.mtu,
        rate_gbps=min(rates) if rates else None,
        speed_mbps=end.interface.speed_mbps,
        is_up=end.interface.is_up,
        is_same_network=is_same_network,
        problems=tuple(_problems(view, other, end, ports)),
    )


def _bare(view: NodeView, other: NodeView, why: str) -> Fabric:
    """Without an address there is no link, but the devices that are up can be told."""
    active = [port.device for port, _ in _fabric_ports(view) if is_active(port)]
    told = f"up on {view.name} without one: {', '.join(active)}" if active else f"no RDMA port of {view.name} is up"
    return replace(Fabric(node=view.name), problems=(f"{why}; {told}",), gid_reason="no address on a link")


def _problems(view: NodeView, other: NodeView, end: _End, ports: Sequence[RdmaPort]) -> Iterator[str]:
    if end.interface.is_up is False:
        yield f"{end.interface.name} of {view.name} has no link"
    if not ports:
        down = [f"{port.device} {port.state or 'not known'}" for port, _ in _fabric_ports(view)]
        yield (
            f"no RDMA device of {view.name} leads to {other.name}: {', '.join(down)}"
            if down
            else f"{view.name} has no RDMA devices"
        )
    leading = {port.device for port in ports}
    for port, networks in _fabric_ports(view):
        if ports and is_active(port) and port.device not in leading:
            lacks = "no address in a network of" if networks else "no address, so no way to"
            yield f"{port.device} is up, but {port.interface or 'its interface'} has {lacks} {other.name}"


def _gid(view: NodeView, ports: Sequence[RdmaPort], survey: Survey) -> tuple[int | None, str]:
    """(index, why there is none): the one entry of RoCE v2 that all ports have for their address."""
    if not ports:
        return None, "no RDMA device leads to the other node"
    found: dict[str, int] = {}
    for port in ports:
        own = {
            text.partition("/")[0]
            for interface in (view.network.interfaces if view.network else ())
            if interface.name == port.interface
            for text in interface.addresses
        }
        entries = port.roce_v2_gids or _asked(view.name, port, survey)
        index = min((index for index, address in entries if address in own), default=None)
        if index is None:
            return None, f"{port.device} has no RoCE v2 entry for {' '.join(sorted(own))}"
        found[port.device] = index
    if len(set(found.values())) > 1:
        return None, "the indices differ: " + ", ".join(f"{index} on {device}" for device, index in found.items())
    return next(iter(found.values())), ""


def _asked(node: str, port: RdmaPort, survey: Survey) -> Sequence[tuple[int, str]]:
    ask = gid_ask(node, port)
    return parse_gids(survey.value(ask)) if ask is not None else ()


def parse_gids(text: object) -> tuple[tuple[int, str], ...]:
    """What grep printed of one port's table: the RoCE v2 entries that hold an IPv4 address."""
    gids: dict[int, str] = {}
    kinds: dict[int, str] = {}
    for line in text.splitlines() if isinstance(text, str) else ():
        if match := _ROW.fullmatch(line):
            index = int(match[3])
            if match[2] == "gids":
                gids[index] = parse_gid(match[4].encode()) or ""
            else:
                kinds[index] = match[4].strip()
    return tuple(
        (index, address) for index, address in sorted(gids.items()) if address and kinds.get(index) == "RoCE v2"
    )


def _two(nodes: Sequence[str], picture: FleetState) -> tuple[NodeView, NodeView] | None:
    """Both nodes, where the network of both has been read."""
    views = [picture.node(node) for node in nodes]
    if len(views) != 2 or any(view is None or view.network is None for view in views):
        return None
    one, other = views
    return (one, other) if one is not None and other is not None else None


def _unread(node: str, picture: FleetState) -> str:
    silent = [view.name for view in picture.nodes if view.network is None] or [node]
    return f"the network of {' and '.join(silent)} has not been read yet"
