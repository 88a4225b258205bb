"""Checks of what NCCL, Gloo and the engine were told: RDMA devices, GID index, interfaces, addresses."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

from sparktop.checks.judgement import Judgement, check, failed, passed, unknown, warning
from sparktop.dataclass import dataclass
from sparktop.model.state import State
from sparktop.model.telemetry import Interface, RdmaPort

# --- RDMA devices


@dataclass(frozen=True, slots=True, kw_only=True)
class HcaFacts:
    """NCCL_IB_HCA of one rank, and the devices of its node."""

    value: str | None
    """None: not set, as far as is seen."""
    ports: tuple[RdmaPort, ...] = ()
    """Empty: none, or not read."""
    knows_environment: bool = True
    """False: another place may set it."""
    is_tcp: bool = False
    """Whether NCCL_IB_DISABLE=1 forgoes RDMA."""
    serves: bool = False


def named_items(value: str | None) -> list[str] | None:
    """The devices in NCCL_IB_HCA; None if it is not set or only excludes."""
    if not value or value.startswith("^"):
        return None
    return [item.strip() for item in value.removeprefix("=").split(",") if item.strip()] or None


def named_ports(facts: HcaFacts) -> list[RdmaPort] | None:
    """The node's ports that NCCL_IB_HCA selects; None if it names none or the ports are unknown."""
    items = named_items(facts.value)
    if items is None or not facts.ports:
        return None
    return [port for port in facts.ports if any(_selects(facts, item, port) for item in items)]


def _selects(facts: HcaFacts, item: str, port: RdmaPort) -> bool:
    """Whether NCCL matches a device: by prefix unless the list begins with =, and by port if given."""
    name, _, number = item.partition(":")
    if number.isdecimal() and int(number) != port.port:
        return False
    is_exact = (facts.value or "").startswith("=")
    return port.device == name if is_exact else port.device.startswith(name)


@check("cluster.hca-wrong")
def judge_hca_names(facts: HcaFacts) -> Judgement:
    """Whether NCCL_IB_HCA names devices that are there, and one of them is up."""
    items, ports = named_items(facts.value), named_ports(facts)
    if items is None:
        return passed()
    if ports is None:
        return unknown("the RDMA ports were not read")
    missing = ",".join(item for item in items if not any(_selects(facts, item, port) for port in facts.ports))
    is_dead = not any(port.is_active for port in ports)
    if not missing and not (is_dead and any(port.is_active for port in facts.ports)):
        return passed()
    if is_dead and not facts.serves:
        return failed("dead", missing=missing)
    return warning("dead" if is_dead else "half", missing=missing)


@check("cluster.hca-unset", lint="config.nccl-ib-hca")
def judge_hca_pinned(facts: HcaFacts) -> Judgement:
    """Whether NCCL is left to choose among the RDMA devices."""
    if facts.value is not None or facts.is_tcp:
        return passed()
    if facts.ports and not any(port.is_active for port in facts.ports):
        return passed("none-up")
    return Judgement(state=State.WARNING, is_certain=facts.knows_environment)


# --- GID index


@dataclass(frozen=True, slots=True, kw_only=True)
class GidFacts:
    """NCCL_IB_GID_INDEX of one rank, and the GID tables of the ports it uses."""

    value: str | None
    ports: tuple[RdmaPort, ...] = ()
    """Empty: not read."""
    serves: bool = False


def ports_without_gid(facts: GidFacts) -> list[RdmaPort]:
    """Ports that are up and have no RoCE v2 IPv4 entry at the index."""
    return [
        port
        for port in facts.ports
        if port.is_active and port.roce_v2_gids and int(facts.value or 0) not in dict(port.roce_v2_gids)
    ]


@check("cluster.gid-index", lint="config.nccl-gid-index")
def judge_gid(facts: GidFacts) -> Judgement:
    """Whether the index is a RoCE v2 address of every port in use; left out, NCCL finds it."""
    if not (facts.value or "").isdecimal():
        return passed()
    if ports_without_gid(facts):
        return warning() if facts.serves else failed()
    has_table = any(port.is_active and port.roce_v2_gids for port in facts.ports)
    return passed() if has_table else unknown("the GID tables were not read")


# --- interfaces and addresses

INTERFACE_SETTINGS = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
ADDRESS_SETTINGS = ("VLLM_HOST_IP", "SGLANG_HOST_IP", "RAY_NODE_IP_ADDRESS", "RAY_OVERRIDE_NODE_IP_ADDRESS")
MEETING_SETTINGS = ("--master-addr", "--dist-init-addr", "--nccl-init-addr")
"""Where the ranks meet: the head's address."""
_NOT_REPORTED = ("br", "docker", "veth", "virbr", "tailscale", "wg", "tun", "tap", "cni", "flannel")
"""Interfaces that the probe doesn't report, or that a reading may miss: nothing is claimed about them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceFacts:
    """One setting that tells a rank its interface or address, and the network it is in."""

    setting: str
    value: str
    interfaces: tuple[Interface, ...] = ()
    """Of the rank's node; without addresses nothing is claimed."""
    peer_addresses: frozenset[str] = frozenset()
    head_addresses: frozenset[str] = frozenset()
    is_starting: bool = True
    """False: it came up, or nobody knows; then a fault is a warning."""


@check("cluster.interface-wrong")
def judge_place(facts: PlaceFacts) -> Judgement:
    """Whether the peer can reach the rank where it was told to be."""
    if facts.setting in INTERFACE_SETTINGS:
        case, figures = _interface_fault(facts)
    elif facts.setting in ADDRESS_SETTINGS:
        case, figures = _address_fault(facts)
    else:
        case, figures = _meeting_fault(facts), {}
    if not case:
        return passed()
    return Judgement(
        state=State.FAILED if facts.is_starting else State.WARNING,
        case=case,
        subject=facts.setting,
        figures=figures,
        is_certain=case != "other-network",  # a route could lead there
    )


def reaches_peer(interface: Interface, peer_addresses: frozenset[str]) -> bool:
    """Whether an address of the peer is in one of its networks."""
    return any(
        IPv4Address(text) in network for network in interface.networks for text in peer_addresses if is_ipv4(text)
    )


def _interface_fault(facts: PlaceFacts) -> tuple[str, dict[str, str | float]]:
    names = [name for name in facts.value.removeprefix("=").split(",") if name]
    if not names or facts.value.startswith("^") or not any(interface.addresses for interface in facts.interfaces):
        return "", {}
    if names == ["lo"]:
        return "loopback", {}
    is_exact = facts.setting != "NCCL_SOCKET_IFNAME" or facts.value.startswith("=")
    matching = [
        interface
        for interface in facts.interfaces
        if any(interface.name == name if is_exact else interface.name.startswith(name) for name in names)
    ]
    if not matching:
        return "" if any(name.startswith(_NOT_REPORTED) for name in names) else "no-interface", {}
    up = [interface for interface in matching if interface.is_up is not False]
    addressed = [interface for interface in up if interface.addresses]
    if not addressed:
        return "no-address" if up else "no-link", {}
    if facts.peer_addresses and not any(reaches_peer(interface, facts.peer_addresses) for interface in addressed):
        return "other-network", {"network": _first(addressed[0].networks)}
    return "", {}


def _address_fault(facts: PlaceFacts) -> tuple[str, dict[str, str | float]]:
    if not is_ipv4(facts.value) or not any(interface.addresses for interface in facts.interfaces):
        return "", {}
    interface = next((each for each in facts.interfaces if facts.value in each.plain_addresses), None)
    if interface is None:
        return "peers" if facts.value in facts.peer_addresses else "nobodys", {}
    if interface.is_up is False:
        return "address-no-link", {"interface": interface.name}
    if facts.peer_addresses and not reaches_peer(interface, facts.peer_addresses):
        return "other-network", {"network": _first(interface.networks)}
    return "", {}


def _meeting_fault(facts: PlaceFacts) -> str:
    address = facts.value.rpartition("://")[2].partition(":")[0]
    if not facts.head_addresses or not is_ipv4(address) or address in facts.head_addresses:
        return ""
    if IPv4Address(address).is_unspecified:
        return ""
    return "meets-itself" if IPv4Address(address).is_loopback else "not-head"


def is_ipv4(text: str) -> bool:
    try:
        IPv4Address(text)
    except ValueError:
        return False
    return True


def _first(networks: frozenset[IPv4Network]) -> str:
    return str(next(iter(networks)))
