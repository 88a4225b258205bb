"""Two Sparks that belong together: by an engine with ranks on both, or by a cable between them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from ipaddress import IPv4Network

from sparktop.dataclass import dataclass
from sparktop.engines.ranks import EngineRank, is_alive, teams
from sparktop.model.engine import Engine, EngineState
from sparktop.model.finding import Evidence, LogPlace
from sparktop.model.fleet import FleetState, NodeView, is_current
from sparktop.model.telemetry import Interface, RdmaPort

MASK = "<masked>"
_UP = (EngineState.READY, EngineState.SERVING)
_COMING = (EngineState.STARTING, EngineState.LOADING, EngineState.CAPTURING)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pair:
    """One engine over two nodes, at least one of its ranks running; the figures of both nodes are current."""

    head: EngineRank
    """The rank that serves requests."""
    worker: EngineRank
    nodes: tuple[str, str]
    """In the fleet's order."""

    @property
    def ranks(self) -> tuple[EngineRank, EngineRank]:
        return (self.head, self.worker)

    @property
    def name(self) -> str:
        """The head's name, by which the operator calls it."""
        return self.head.engine.name

    @property
    def is_whole(self) -> bool:
        """Whether both ranks run."""
        return all(is_alive(rank.engine) for rank in self.ranks)

    @property
    def is_up(self) -> bool:
        """Whether it serves: nothing has kept it from starting."""
        return self.is_whole and self.head.engine.state in _UP

    @property
    def is_coming(self) -> bool:
        """Whether it is starting."""
        return self.is_whole and not self.is_up and any(rank.engine.state in _COMING for rank in self.ranks)

    def other(self, rank: EngineRank) -> EngineRank:
        return self.worker if rank is self.head else self.head


def state_of(engine: Engine, pair: Pair | None) -> EngineState:
    """The engine's state; a worker rank is ready when its pair serves, as it answers no request itself."""
    is_worker = pair is not None and pair.is_up and engine is pair.worker.engine and engine.progress is None
    return EngineState.READY if is_worker else engine.state


@dataclass(frozen=True, slots=True, kw_only=True)
class Cable:
    """An RDMA port on each of two nodes, with addresses in one network."""

    network: IPv4Network
    ports: tuple[RdmaPort, RdmaPort]
    interfaces: tuple[Interface, Interface]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodePair:
    """The two nodes of a picture, which belong together."""

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
        head, worker = team
        names = [node.name for node in fleet.nodes if node in (head.node, worker.node)]
        return Pair(head=head, worker=worker, nodes=(names[0], names[1]))
    return None


@lru_cache(maxsize=2)
def node_pair(fleet: FleetState) -> NodePair | None:
    """The two watched nodes, where a cable or an engine joins them; separate machines may differ as they like."""
    if len(fleet.nodes) != 2 or not all(is_current(node) for node in fleet.nodes):
        return None
    first, second = fleet.nodes
    if is_one_machine(first, second):
        return None
    shared_cables = tuple(cables(first, second))
    pair = pair_of(fleet)
    return NodePair(nodes=(first, second), cables=shared_cables, pair=pair) if shared_cables or pair else None


def is_one_machine(first: NodeView, second: NodeView) -> bool:
    """Whether both names lead to one machine: it has one boot id."""
    return first.facts is not None and second.facts is not None and first.facts.boot_id == second.facts.boot_id


def cables(one: NodeView, other: NodeView) -> Iterator[Cable]:
    """Pairs of RDMA ports, one of each node, with addresses in the same network."""
    for port, interface, networks in _fabric(one):
        for far_port, far_interface, far_networks in _fabric(other):
            shared = next((network for network in networks if network in far_networks), None)
            if shared is not None:
                yield Cable(network=shared, ports=(port, far_port), interfaces=(interface, far_interface))


def _fabric(node: NodeView) -> Iterator[tuple[RdmaPort, Interface, frozenset[IPv4Network]]]:
    for port in node.rdma_ports:
        interface = next((candidate for candidate in node.interfaces if candidate.name == port.interface), None)
        if interface is not None and interface.addresses:
            yield port, interface, interface.networks


def addresses_of(node: NodeView) -> frozenset[str]:
    """Every known IPv4 address of a node, without prefix."""
    return frozenset[str]().union(*(interface.plain_addresses for interface in node.interfaces))


def variables(rank: EngineRank) -> Mapping[str, str]:
    """The rank's environment, as far as its container shows it; a shell may have set more."""
    container = rank.engine.container
    pairs = rank.engine.environment or (container.environment if container else ())
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


def knows_all_variables(rank: EngineRank) -> bool:
    """Whether an unseen variable is surely unset: not where a shell or `docker exec` may have set some."""
    engine = rank.engine
    if "environment" in engine.gaps or not (engine.environment or (engine.container and engine.container.environment)):
        return False
    command = engine.container.argv if engine.container else engine.argv
    return not any(re.search(r"\s(?:export\s|vllm\s|-m\s)|\.sh\b|^export\s", part) for part in command)


def said(rank: EngineRank, text: str) -> Evidence:
    """What an engine reports or was given, as evidence."""
    place = LogPlace(rank.node.name, rank.engine.name)
    return Evidence(source=f"{place.engine} @ {place.node}", text=text, log=place)
