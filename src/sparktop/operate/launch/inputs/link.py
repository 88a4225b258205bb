"""The link that Sparks share: address, interface, RDMA devices and GID of each end. Pure.

The ranks meet in a network that has all nodes: that of the cable or the switch where there is one. The cables of a ring
have networks of their own, so there it is another, such as the office's, and RDMA devices lead to the neighbours alone.

Interface names depend on the port that holds the cable, and the GID index on the addresses that an interface has had,
so the nodes may differ in all of them (docs/facts/gb10.md section 5). The probe's reading tells them. Where the nodes
have no network in common, each is asked for the address that the operator's own connection reaches it by.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network

from sparktop.dataclass import dataclass
from sparktop.engines.pair import addresses_of
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.survey import Output, Question, Survey, looked_up
from sparktop.model.telemetry import Interface, RdmaPort
from sparktop.text.sentences import listed

_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_WIRELESS = ("wl", "wwan")


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """One node's address in a network, and what has it."""

    node: str
    ip: str = ""
    """IPv4 address; empty: none."""
    own: Interface = Interface(name="")
    port: RdmaPort | None = None
    """The RDMA device of the interface, one that is up where it has several; None: none."""

    @property
    def interface(self) -> str:
        return self.own.name

    @property
    def mtu(self) -> int | None:
        return self.own.mtu

    @property
    def device(self) -> str:
        return self.port.device if self.port is not None else ""

    @property
    def own_gid(self) -> int | None:
        """Its device's GID index of RoCE v2 for the address; None: there is no entry for it."""
        return _port_gid(self.port, {self.ip}) if self.port is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric(End):
    """One node's end of the link that all nodes share; without an address `problems` say why."""

    hcas: tuple[str, ...] = ()
    """RDMA devices that are up and lead to another node, by name."""
    neighbours: tuple[str, ...] = ()
    """The nodes that they lead to."""
    is_ring: bool = False
    """They lead there in networks of their own: none has all nodes, as on a switch."""
    gid_index: int | None = None
    """GID index of RoCE v2 for the address, the same for all `hcas`; None: see `gid_reason`, and NCCL picks it."""
    gid_reason: str = ""
    has_several_gids: bool = False
    """Each of `hcas` has another index for its address: NCCL must pick them."""
    rate_gbps: float | None = None
    """Rate of the slowest of `hcas`."""
    is_same_network: bool = True
    """Whether all addresses are in one network; False: they are those of the operator's connections."""
    problems: tuple[str, ...] = ()
    """Shortcomings of the link, each a sentence."""
    idle_devices: tuple[str, ...] = ()
    """Why each further RDMA device that is up leads nowhere, while others do."""
    is_unread: bool = False
    """The network of one of the nodes hasn't been read yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rail:
    """Two RDMA devices in one network: a PCIe half of the cable."""

    near: End
    far: End


def reached_question(node: str) -> Output:
    """Asks sshd for its connection: client address and port, own address and port."""
    return Output(node=node, argv=("printenv", "SSH_CONNECTION"))


def questions(nodes: Sequence[str], picture: FleetState) -> tuple[Question, ...]:
    """Questions about the link that the state doesn't answer; none for one node."""
    return looked_up(Survey(), lambda look_ups: fabrics(nodes, picture, look_ups))


def fabrics(nodes: Sequence[str], picture: FleetState, survey: Survey) -> Mapping[str, Fabric]:
    """Every end of the link by node; empty for one node."""
    if len(nodes) < 2:
        return {}
    views = _read_views(nodes, picture)
    if not views:
        silent = [node for node in nodes if (view := picture.node(node)) is None or view.network is None]
        why = f"the network of {listed(silent)} has not been read yet"
        return {node: Fabric(node=node, problems=(why,), is_unread=True) for node in nodes}
    common_ends = _best_ends(views)
    ends = common_ends if common_ends is not None else _reached_ends(views, survey)
    if ends is None:
        why = f"{listed(nodes)} have no IPv4 addresses in one network that could connect them"
        return {view.name: _fabric_without_address(view, why) for view in views}
    is_ring = len(views) > 2 and not frozenset.intersection(*map(_active_networks, views))
    return {
        view.name: _fabric(view, views, end, is_ring=is_ring, is_same_network=common_ends is not None)
        for view, end in zip(views, ends, strict=True)
    }


def rails(nodes: Sequence[str], picture: FleetState) -> tuple[Rail, ...]:
    """The halves over which both nodes' RDMA devices reach each other, by the first node's device; none but for two.

    Two devices of a node in one network are no two rails: which of them answers is left to the kernel.
    """
    views = _read_views(nodes, picture)
    if len(views) != 2:
        return ()
    near, far = map(_rail_ends, views)
    return tuple(
        sorted(
            (Rail(near=near[network], far=far[network]) for network in near.keys() & far.keys()),
            key=lambda rail: (rail.near.device.lower(), rail.near.device),
        )
    )


def _rail_ends(view: NodeView) -> Mapping[IPv4Network, End]:
    """The ends of devices that are up, by network; the first where a network has several."""
    ends: dict[IPv4Network, End] = {}
    for end, network in _ends(view):
        if end.port is not None and end.port.is_active and _DEVICE.fullmatch(end.device):
            ends.setdefault(network, end)
    return ends


# --- addresses


def _best_ends(views: Sequence[NodeView]) -> tuple[End, ...] | None:
    """The best address of each node in one network: with RDMA first, then up, then fast; None: no network has all."""
    owners = Counter(address for view in views for address in addresses_of(view))
    ends_of: list[dict[IPv4Network, End]] = []
    for view in views:
        best: dict[IPv4Network, End] = {}
        for end, network in _ends(view):
            if owners[end.ip] < 2:  # an address on two nodes reaches neither
                best[network] = max(best.get(network, end), end, key=lambda each: _merit((each,)))
        ends_of.append(best)
    common = set.intersection(*(set(best) for best in ends_of))
    return max((tuple(best[network] for best in ends_of) for network in common), key=_merit, default=None)


def _ends(view: NodeView) -> Iterator[tuple[End, IPv4Network]]:
    for interface in view.interfaces:
        ports = [port for port in view.rdma_ports if port.interface == interface.name]
        port = next(iter(sorted(ports, key=lambda port: not port.is_active)), None)
        for address in interface.ipv4:
            if address.network.prefixlen < 32 and not address.is_loopback:
                yield End(node=view.name, ip=str(address.ip), own=interface, port=port), address.network


def _merit(ends: tuple[End, ...]) -> tuple[object, ...]:
    """Sort key, greater is better; the last entries only make the choice deterministic."""
    names = [end.interface for end in ends]
    return (
        all(end.port is not None and end.port.is_active for end in ends),
        all(end.own.is_up is not False for end in ends),
        all(end.port is not None for end in ends),
        not any(name.startswith(_WIRELESS) for name in names),
        min(end.own.speed_mbps or 0 for end in ends),
        # A port has two interfaces; usually the one without a second PCI domain in its name has the address.
        -sum("P" in name for name in names),
        len(set(names)) == 1,
        [[-ord(letter) for letter in name] for name in names],
        [-int(IPv4Address(end.ip)) for end in ends],
    )


def _reached_ends(views: Sequence[NodeView], survey: Survey) -> tuple[End, ...] | None:
    """The addresses that the operator's own connections reach."""
    ends = tuple(end for view in views if (end := _reached_end(view, survey)) is not None)
    return ends if len({end.ip for end in ends}) == len(views) else None


def _reached_end(view: NodeView, survey: Survey) -> End | None:
    words = (survey.text(reached_question(view.name)) or "").split()
    try:
        address = IPv4Address(words[2].removeprefix("::ffff:"))
    except (IndexError, ValueError):
        return None
    has_it = (interface for interface in view.interfaces if str(address) in interface.plain_addresses)
    unseen = Interface(name="lo" if address.is_loopback else "")
    return End(node=view.name, ip=str(address), own=next(has_it, unseen))


# --- ports and GIDs of a node


def _active_networks(view: NodeView) -> frozenset[IPv4Network]:
    """The networks of the RDMA ports that are up."""
    return frozenset[IPv4Network]().union(*(networks for port, networks in _fabric_ports(view) if port.is_active))


def _connected_ports(view: NodeView, views: Sequence[NodeView]) -> list[RdmaPort]:
    """RDMA ports that are up and share a network with one that is up on another node, by name."""
    far = frozenset[IPv4Network]().union(*(_active_networks(other) for other in views if other is not view))
    ports_by_device = {port.device: port for port, networks in _fabric_ports(view) if port.is_active and networks & far}
    return sorted(ports_by_device.values(), key=lambda port: (port.device.lower(), port.device))


def _fabric_ports(view: NodeView) -> Iterator[tuple[RdmaPort, frozenset[IPv4Network]]]:
    for port in view.rdma_ports:
        if _DEVICE.fullmatch(port.device):
            yield port, view.interface_of(port).networks


def _fabric(view: NodeView, views: Sequence[NodeView], end: End, *, is_ring: bool, is_same_network: bool) -> Fabric:
    ports = _connected_ports(view, views)
    others = " or ".join(other.name for other in views if other is not view)
    own = _active_networks(view)
    rates = [port.rate_gbps for port in ports if port.rate_gbps is not None]
    gid_index, gid_reason, has_several_gids = _gid(view, ports)
    return Fabric(
        node=view.name,
        ip=end.ip,
        own=end.own,
        port=end.port,
        hcas=tuple(port.device for port in ports),
        neighbours=tuple(other.name for other in views if other is not view and own & _active_networks(other)),
        is_ring=is_ring and bool(ports),
        gid_index=gid_index,
        gid_reason=gid_reason,
        has_several_gids=has_several_gids,
        rate_gbps=min(rates) if rates else None,
        is_same_network=is_same_network,
        problems=tuple(_problems(view, others, end, ports)),
        idle_devices=tuple(_idle_devices(view, others, ports)),
    )


def _fabric_without_address(view: NodeView, why: str) -> Fabric:
    """An end without an address: no link, but it names the devices that are up."""
    active = [port.device for port, _ in _fabric_ports(view) if port.is_active]
    ports_text = (
        f"up on {view.name} without one: {', '.join(active)}" if active else f"no RDMA port of {view.name} is up"
    )
    return Fabric(node=view.name, problems=(f"{why}; {ports_text}",), gid_reason="no address on a link")


def _problems(view: NodeView, others: str, end: End, ports: Sequence[RdmaPort]) -> Iterator[str]:
    if end.own.is_up is False:
        yield f"{end.interface} of {view.name} has no link"
    if not ports:
        down = [f"{port.device} {port.state or 'not known'}" for port, _ in _fabric_ports(view)]
        yield (
            f"no RDMA device of {view.name} leads to {others}: {', '.join(down)}"
            if down
            else f"{view.name} has no RDMA devices"
        )


def _idle_devices(view: NodeView, others: str, ports: Sequence[RdmaPort]) -> Iterator[str]:
    leading = {port.device for port in ports}
    for port, networks in _fabric_ports(view):
        if ports and port.is_active and port.device not in leading:
            lacks = "no address in a network of" if networks else "no address, so no way to"
            yield f"{port.device} is up, but {port.interface or 'its interface'} has {lacks} {others}"


def _gid(view: NodeView, ports: Sequence[RdmaPort]) -> tuple[int | None, str, bool]:
    """(index, reason where there is none, whether it is because they differ) of all ports' RoCE v2 entries."""
    if not ports:
        return None, "no RDMA device leads to another node", False
    indices: dict[str, int] = {}
    for port in ports:
        own_addresses = view.interface_of(port).plain_addresses
        index = _port_gid(port, own_addresses)
        if index is None:
            return None, f"{port.device} has no RoCE v2 entry for {' '.join(sorted(own_addresses))}", False
        indices[port.device] = index
    if len(set(indices.values())) > 1:
        texts = ", ".join(f"{index} on {device}" for device, index in indices.items())
        return None, f"the indices differ: {texts}", True
    return next(iter(indices.values())), "", False


def _port_gid(port: RdmaPort, addresses: Collection[str]) -> int | None:
    """The first RoCE v2 entry of the port that is one of its own addresses."""
    return min((index for index, address in port.roce_v2_gids if address in addresses), default=None)


def _read_views(nodes: Sequence[str], picture: FleetState) -> tuple[NodeView, ...]:
    """All nodes; none for a single one, or where the network of one hasn't been read."""
    views = tuple(view for node in nodes if (view := picture.node(node)) is not None and view.network is not None)
    return views if 1 < len(nodes) == len(views) else ()
