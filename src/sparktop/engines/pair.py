"""Sparks that belong together: by an engine with ranks on each, or by a cable between two."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from ipaddress import IPv4Network

from sparktop.dataclass import dataclass
from sparktop.engines.ranks import EngineRank, is_alive, names_in_order, teams
from sparktop.model.engine import Engine, EngineState
from sparktop.model.finding import Evidence, LogPlace
from sparktop.model.fleet import FleetState, NodeView, is_current
from sparktop.model.telemetry import Interface, RdmaPort

MASK = "<masked>"
_UP = (EngineState.READY, EngineState.SERVING)
_COMING = (EngineState.STARTING, EngineState.LOADING, EngineState.CAPTURING)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Team:
    """One engine over several nodes, at least one of its ranks running; the figures of all nodes are current."""

    ranks: tuple[EngineRank, ...]
    """Head first: it serves the requests."""
    nodes: tuple[str, ...]
    """In the fleet's order."""

    @property
    def head(self) -> EngineRank:
        return self.ranks[0]

    @property
    def worker(self) -> EngineRank:
        """The other rank of a pair."""
        return self.ranks[1]

    @property
    def pairs(self) -> tuple[Team, ...]:
        """The head and each other rank, as a team of two: what two ranks must have in common is judged of each."""
        return tuple(
            replace(
                self,
                ranks=(self.head, other),
                nodes=tuple(name for name in self.nodes if name in (self.head.node.name, other.node.name)),
            )
            for other in self.ranks[1:]
        )

    @property
    def name(self) -> str:
        """The head's name, by which the operator calls it."""
        return self.head.engine.name

    @property
    def is_whole(self) -> bool:
        """Whether all ranks run."""
        return all(is_alive(rank.engine) for rank in self.ranks)

    @property
    def is_up(self) -> bool:
        """Whether it serves: nothing has kept it from starting."""
        return self.is_whole and self.head.engine.state in _UP

    @property
    def is_coming(self) -> bool:
        """Whether it is starting."""
        return self.is_whole and not self.is_up and any(rank.engine.state in _COMING for rank in self.ranks)

    def others(self, rank: EngineRank) -> tuple[EngineRank, ...]:
        return tuple(other for other in self.ranks if other is not rank)


def team_with(engine: Engine, spread: Sequence[Team]) -> Team | None:
    """The one of these teams that the engine is a further rank of."""
    return next((team for team in spread if any(engine is rank.engine for rank in team.ranks[1:])), None)


def state_of(engine: Engine, spread: Sequence[Team]) -> EngineState:
    """The engine's state; a worker rank is ready when its head serves, as it answers no request itself."""
    team = team_with(engine, spread)
    return EngineState.READY if team is not None and team.is_up and engine.progress is None else engine.state


@dataclass(frozen=True, slots=True, kw_only=True)
class Cable:
    """An RDMA port on each of two nodes, with addresses in one network."""

    network: IPv4Network
    ports: tuple[RdmaPort, RdmaPort]
    interfaces: tuple[Interface, Interface]


@lru_cache(maxsize=2)
def over_nodes(fleet: FleetState) -> tuple[Team, ...]:
    """The engines that run over several nodes; without those where a node's figures are old."""
    return tuple(
        Team(ranks=team, nodes=names_in_order(team, fleet))
        for team in teams(fleet)
        if len(team) > 1 and all(is_current(rank.node) for rank in team)
    )


def whole(fleet: FleetState) -> tuple[Team, ...]:
    """Those of which every rank runs."""
    return tuple(team for team in over_nodes(fleet) if team.is_whole)


@lru_cache(maxsize=2)
def node_groups(fleet: FleetState) -> tuple[tuple[NodeView, ...], ...]:
    """The watched nodes that a cable, a switch or an engine joins; separate machines may differ as they like.

    A group is in the fleet's order; a node whose figures are old, or that has two names here, is in none.
    """
    current = [node for node in fleet.nodes if is_current(node)]
    current = [
        node for node in current if not any(other is not node and is_one_machine(node, other) for other in current)
    ]
    networks = {node.name: frozenset[IPv4Network]().union(*(own for _, _, own in _fabric(node))) for node in current}
    spread = [set(team.nodes) for team in over_nodes(fleet)]
    groups: list[list[NodeView]] = []
    for node in current:
        joined = [
            group
            for group in groups
            if any(
                networks[node.name] & networks[other.name] or any({node.name, other.name} <= names for names in spread)
                for other in group
            )
        ]
        groups = [group for group in groups if group not in joined] + [
            [*(one for group in joined for one in group), node]
        ]
    order = {node.name: index for index, node in enumerate(fleet.nodes)}
    return tuple(tuple(sorted(group, key=lambda node: order[node.name])) for group in groups if len(group) > 1)


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


def mtus(node: NodeView) -> frozenset[int | None]:
    """The MTUs of the interfaces that RDMA ports have an address on."""
    return frozenset(interface.mtu for _, interface, _ in _fabric(node))


def _fabric(node: NodeView) -> Iterator[tuple[RdmaPort, Interface, frozenset[IPv4Network]]]:
    for port in node.rdma_ports:
        interface = node.interface_of(port)
        if interface.addresses:
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


def engine_evidence(rank: EngineRank, text: str) -> Evidence:
    """What an engine reports or was given, as evidence."""
    place = LogPlace(rank.node.name, rank.engine.name)
    return Evidence(source=f"{place.engine} @ {place.node}", text=text, log=place)
