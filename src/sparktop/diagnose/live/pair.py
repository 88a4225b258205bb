"""Two Sparks that belong together: by an engine whose ranks run on both, or by a cable between them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Interface, IPv4Network

from sparktop.diagnose.enginecommand import of_container
from sparktop.diagnose.live.ranks import Rank, flag, is_alive, spans_nodes, teams
from sparktop.diagnose.live.window import is_current
from sparktop.diagnose.rule import Rule, RuleKind
from sparktop.model.engine import EngineState
from sparktop.model.event import Severity
from sparktop.model.finding import Evidence
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.telemetry import Interface, RdmaPort

MASK = "<masked>"
_UP = (EngineState.READY, EngineState.SERVING)
_COMING = (EngineState.STARTING, EngineState.LOADING, EngineState.CAPTURING)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pair:
    """One engine over two nodes, at least one of its ranks alive; both nodes' figures are of now."""

    head: Rank
    """The rank that serves requests."""
    worker: Rank
    nodes: tuple[str, str]
    """As the fleet has them."""

    @property
    def ranks(self) -> tuple[Rank, Rank]:
        return (self.head, self.worker)

    @property
    def name(self) -> str:
        """The head's, by which the operator calls it."""
        return self.head.engine.name

    @property
    def is_whole(self) -> bool:
        """Whether both ranks live."""
        return all(is_alive(rank.engine) for rank in self.ranks)

    @property
    def is_up(self) -> bool:
        """Whether it has come up: what would have kept it from that isn't so."""
        return self.is_whole and self.head.engine.state in _UP

    @property
    def is_coming(self) -> bool:
        """Whether it is on its way up."""
        return self.is_whole and not self.is_up and any(rank.engine.state in _COMING for rank in self.ranks)

    def other(self, rank: Rank) -> Rank:
        return self.worker if rank is self.head else self.head


@dataclass(frozen=True, slots=True, kw_only=True)
class Cable:
    """An RDMA port of each of two nodes whose addresses lie in one network."""

    network: IPv4Network
    ports: tuple[RdmaPort, RdmaPort]
    interfaces: tuple[Interface, Interface]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Two:
    """The two nodes of a picture, where they belong together."""

    nodes: tuple[NodeView, NodeView]
    cables: tuple[Cable, ...]
    pair: Pair | None

    @property
    def names(self) -> tuple[str, str]:
        return (self.nodes[0].name, self.nodes[1].name)


@lru_cache(maxsize=2)
def pair_of(fleet: FleetState) -> Pair | None:
    """The engine that runs on both nodes; None where there is none, or a node's figures are old."""
    for team in teams(fleet):
        if len(team) != 2 or not all(is_current(rank.node) for rank in team):
            continue
        if not any(spans_nodes(rank.engine) and not fits_here(rank) for rank in team):
            continue
        head, worker = sorted(team, key=is_worker)
        names = [node.name for node in fleet.nodes if node in (head.node, worker.node)]
        return Pair(head=head, worker=worker, nodes=(names[0], names[1]))
    return None


@lru_cache(maxsize=2)
def two_of(fleet: FleetState) -> Two | None:
    """The two nodes watched, where a cable or an engine joins them; two machines apart may differ as they like."""
    if len(fleet.nodes) != 2 or not all(is_current(node) for node in fleet.nodes):
        return None
    one, other = fleet.nodes
    if one.facts is not None and other.facts is not None and one.facts.boot_id == other.facts.boot_id:
        return None  # one machine under two names
    joined = tuple(cables(one, other))
    pair = pair_of(fleet)
    return Two(nodes=(one, other), cables=joined, pair=pair) if joined or pair else None


def cables(one: NodeView, other: NodeView) -> Iterator[Cable]:
    """Every RDMA port of one that has an address in the network of a port of the other."""
    for port, interface, networks in _fabric(one):
        for far_port, far_interface, far_networks in _fabric(other):
            shared = next((network for network in networks if network in far_networks), None)
            if shared is not None:
                yield Cable(network=shared, ports=(port, far_port), interfaces=(interface, far_interface))


def _fabric(node: NodeView) -> Iterator[tuple[RdmaPort, Interface, frozenset[IPv4Network]]]:
    if node.network is None:
        return
    for port in node.network.rdma_ports:
        interface = next((one for one in node.network.interfaces if one.name == port.interface), None)
        if interface is not None and interface.addresses:
            yield port, interface, networks_of(interface)


def networks_of(interface: Interface) -> frozenset[IPv4Network]:
    """The networks its addresses lie in."""
    return frozenset(address.network for text in interface.addresses if (address := _address(text)) is not None)


@lru_cache(maxsize=256)
def _address(text: str) -> IPv4Interface | None:
    try:
        return IPv4Interface(text)
    except ValueError:
        return None


def addresses_of(node: NodeView) -> frozenset[str]:
    """Every IPv4 address that was told of a node, without prefix."""
    interfaces = node.network.interfaces if node.network else ()
    return frozenset(text.partition("/")[0] for one in interfaces for text in one.addresses)


def variables(rank: Rank) -> Mapping[str, str]:
    """The rank's environment, as far as its container's shows it; an engine may have been given more on its way."""
    box = rank.engine.container
    pairs = rank.engine.environment or (box.environment if box else ())
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


def knows_all_variables(rank: Rank) -> bool:
    """Whether a variable that isn't seen isn't there: not where a shell or `docker exec` may have added some."""
    engine = rank.engine
    if "environment" in engine.gaps or not (engine.environment or (engine.container and engine.container.environment)):
        return False
    started = engine.container.argv if engine.container else engine.argv
    return not any(re.search(r"\s(?:export\s|vllm\s|-m\s)|\.sh\b|^export\s", part) for part in started)


def said(rank: Rank, text: str) -> Evidence:
    """What an engine says or was given, as evidence."""
    return Evidence(source=f"{rank.engine.name} @ {rank.node.name}", text=text)


def card(
    rule: str, title: str, severity: Severity, *sources: str, scope: str = "two nodes joined by cable or engine"
) -> Rule:
    """A card of this area."""
    return Rule(id=f"cluster.{rule}", kind=RuleKind.LIVE, title=title, severity=severity, scope=scope, sources=sources)


def is_worker(rank: Rank) -> bool:
    """Whether it is a further rank, which serves no HTTP."""
    number = flag(rank.engine.argv, "--node-rank", "-r")
    headless = "--headless" in rank.engine.argv
    if number is None and rank.engine.endpoint is None:
        return headless or of_container(rank.engine.argv) is None  # a server that ended listens nowhere either
    return headless or number not in (None, "", "0")


def fits_here(rank: Rank) -> bool:
    """A machine with as many GPUs as the engine is wide runs it alone; a Spark has one."""
    nodes = flag(rank.engine.argv, "--nnodes")
    if nodes is not None and nodes.isdecimal() and int(nodes) > 1:
        return False
    width = flag(rank.engine.argv, "--tensor-parallel-size", "-tp", "--tp", "--tp-size") or "1"
    count = len(rank.node.gpu.gpus) if rank.node.gpu else 1
    return width.isdecimal() and 1 < int(width) <= count
