"""Rules on the cable between two Sparks: its MTU, its rate, whether it is up, and whether NCCL uses it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from ipaddress import IPv4Network
from itertools import combinations

from sparktop.checks.container import FLOWING_BYTES_PER_S
from sparktop.checks.link import LinkFacts, RateFacts, judge_link, judge_mtu, judge_rate
from sparktop.checks.nccl import named_ports
from sparktop.diagnose.rule import check_rule, live_rule
from sparktop.diagnose.rules.pair.nccl import hca_facts
from sparktop.diagnose.rules.window import seen
from sparktop.engines.pair import Cable, Team, cables, engine_evidence, is_one_machine, mtus, node_groups, whole
from sparktop.engines.ranks import EngineRank
from sparktop.knowledge.card import found
from sparktop.model.finding import Evidence, Finding, Phase
from sparktop.model.fleet import FleetState, NodeView, current_nodes
from sparktop.model.telemetry import RdmaPort

TOKENS_PER_S = 3.0
"""A slower pair may just be between two requests."""
FLAT_BYTES_PER_TOKEN = 1000.0
"""A token's hidden state, passed on by pipeline stages, is about 10 kB; tensor parallel moves a thousand times that."""
IP_HEADER_BYTES = 28
"""Of IPv4 and ICMP, in each ping."""
TCP_RULES = ("nccl.tcp-between-nodes", "nccl.ib-none-found")
"""Log rules that report NCCL on TCP sockets."""


@check_rule(judge_mtu)
def mtu_differs(fleet: FleetState) -> Iterable[Finding]:
    """cluster.mtu-differs: the two ends of a cable have different MTUs."""
    told: set[str] = set()
    groups = (group for group in node_groups(fleet) if len(frozenset[int | None]().union(*map(mtus, group))) > 1)
    for one, other in (pair for group in groups for pair in combinations(group, 2)):
        differing = [
            cable
            for cable in cables(one, other)
            if judge_mtu((cable.interfaces[0].mtu, cable.interfaces[1].mtu)).is_problem
        ]
        if not differing:
            continue
        finding, small = _mtu_finding((one.name, other.name), differing)
        if not small <= told:  # of many on a switch, each once
            told |= small
            yield finding


def _mtu_finding(names: tuple[str, str], differing: Sequence[Cable]) -> tuple[Finding, frozenset[str]]:
    """The finding, and the nodes with the smaller frames."""
    mtu = max(end.mtu or 0 for cable in differing for end in cable.interfaces)
    smaller = {
        name: tuple(dict.fromkeys(end.name for cable in differing if ((end := cable.interfaces[index]).mtu or 0) < mtu))
        for index, name in enumerate(names)
    }
    where = {name: interfaces for name, interfaces in smaller.items() if interfaces}
    finding = found(
        judge_mtu.id,
        "unequal",
        {
            "nodes": [*names],
            "sizes": [interface.mtu for interface in differing[0].interfaces],
            "interface": differing[0].interfaces[0].name,
            "mtu": mtu,
            "places": ", ".join(f"{' and '.join(interfaces)} on {name}" for name, interfaces in where.items()),
            "set_now": tuple(
                f"on {name}: " + " && ".join(f"sudo ip link set {shlex.quote(end)} mtu {mtu}" for end in interfaces)
                for name, interfaces in where.items()
            ),
            "small_on": tuple(where),
            "payload": mtu - IP_HEADER_BYTES,
            "address": _address(differing[0]),
        },
        evidence=tuple(
            Evidence(source=f"{node} {interface.name}", text=f"mtu {interface.mtu}, network {cable.network}")
            for cable in differing
            for node, interface in zip(names, cable.interfaces, strict=True)
        ),
        nodes=names,
    )
    return finding, frozenset(where)


def _address(cable: Cable) -> str:
    """Address of the cable's second end, in the network of both."""
    end = cable.interfaces[1]
    own = (text for text in end.addresses if cable.network in replace(end, addresses=(text,)).networks)
    return next(own, "PEER").partition("/")[0]


@check_rule(judge_rate, hold_s=10.0)
def link_slow(fleet: FleetState) -> Iterable[Finding]:
    """cluster.link-slow: a port of the cable is up at less than 200 Gb/s."""
    for node, group in ((node, joined) for joined in node_groups(fleet) for node in joined):
        slow = [
            port
            for port in node.rdma_ports
            if port.is_active and judge_rate(RateFacts(gbps=port.rate_gbps, is_spark=node.is_spark)).is_problem
        ]
        others = (other for other in group if other is not node and slow)
        slow = _one_per_device(
            cable.ports[0] for other in others for cable in cables(node, other) if cable.ports[0] in slow
        )
        if not slow:
            continue
        yield found(
            judge_rate.id,
            "slow",
            {
                "node": node.name,
                "rates": tuple(f"{port.device} {port.rate_gbps:.0f}" for port in slow),
                "interface": slow[0].interface or "INTERFACE",
            },
            evidence=tuple(
                Evidence(source=f"{node.name} {port.device}", text=f"{port.state} at {port.rate_gbps:.0f} Gb/s")
                for port in slow
            ),
            nodes=(node.name,),
        )


def _one_per_device(ports: Iterable[RdmaPort]) -> list[RdmaPort]:
    return list({port.device: port for port in ports}.values())


@check_rule(judge_link, hold_s=2.0)
def link_down(fleet: FleetState) -> Iterable[Finding]:
    """cluster.link-down: an engine runs over several nodes, and none of its ports on one is up; else what joined
    two nodes has lost its carrier."""
    lost = [(team, down) for team in whole(fleet) if (down := _down(team))]
    for team, down in lost:
        yield _under_an_engine(team, down, fleet)
    if not lost:
        yield from _unplugged(fleet)


def _under_an_engine(pair: Team, down: list[tuple[EngineRank, list[RdmaPort]]], fleet: FleetState) -> Finding:
    is_seen = any(
        told.rule == "kernel.link-unplugged" and told.phase is Phase.FIRING and {*told.nodes} & {*pair.nodes}
        for told in fleet.findings
    )
    return found(
        judge_link.id,
        "under-an-engine",
        {
            "pair": pair.name,
            "nodes": tuple(rank.node.name for rank, _ in down),
            "seen_unplugged": is_seen,
            "set_up": tuple(
                f"on {rank.node.name}: "
                + " && ".join(f"sudo ip link set {shlex.quote(name)} up" for name in interfaces)
                for rank, ports in down
                if (interfaces := [port.interface for port in ports if port.interface])
            ),
        },
        evidence=tuple(
            Evidence(
                source=f"{rank.node.name} {port.device}",
                text=f"{port.state or 'state unknown'}" + (f", {port.interface}" if port.interface else ""),
            )
            for rank, ports in down
            for port in ports
        ),
        nodes=pair.nodes,
        subject=pair.name,
    )


def _unplugged(fleet: FleetState) -> Iterator[Finding]:
    """Two nodes that no interface joins any more, as one of each pair that did has lost its carrier."""
    nodes = [node for node, _ in current_nodes(fleet)]
    # Each node's once: 32 nodes are 496 pairs.
    now = {node.name: _networks(node) for node in nodes}
    ever = {node.name: now[node.name] | _networks(node, lost=True) for node in nodes}
    cut = {node.name: [(end, end.lost_networks) for end in node.interfaces if end.lost_networks] for node in nodes}
    for one, other in combinations(nodes, 2):
        joined = now[one.name] & now[other.name]
        ends = [
            (node, end, lost)
            for node, far in ((one, other), (other, one))
            for end, networks in cut[node.name]
            if (lost := (networks & ever[far.name]) - joined)
        ]
        if not ends or is_one_machine(one, other):
            continue
        yield found(
            judge_link.id,
            "unplugged",
            {
                "nodes": (one.name, other.name),
                "where": tuple(f"{end.name} of {node.name}" for node, end, _ in ends),
                "looks": tuple(
                    f"on {node.name}: ip -br link show {shlex.quote(end.name)}   # UP" for node, end, _ in ends
                ),
            },
            evidence=tuple(
                seen(node, end.name, f"no carrier; it led to {', '.join(sorted(map(str, lost)))}")
                for node, end, lost in ends
            ),
            nodes=(one.name, other.name),
        )


def _networks(node: NodeView, *, lost: bool = False) -> frozenset[IPv4Network]:
    """Those that an interface leads to, or led to until its carrier went."""
    parts = ((end.lost_networks if lost else end.networks) for end in node.interfaces if lost or end.is_up is not False)
    return frozenset[IPv4Network]().union(*parts)


def down_ports(fleet: FleetState) -> list[tuple[EngineRank, list[RdmaPort]]]:
    """Each rank of an engine that uses RDMA ports of which none is up, with those ports."""
    return [down for team in whole(fleet) for down in _down(team)]


def _down(team: Team) -> list[tuple[EngineRank, list[RdmaPort]]]:
    used_ports = [(rank, _used_ports(team, rank)) for rank in team.ranks]
    return [
        (rank, ports)
        for rank, ports in used_ports
        if judge_link(LinkFacts(has_rdma=any(port.is_active for port in ports), needs_rdma=bool(ports))).is_problem
    ]


def _used_ports(pair: Team, rank: EngineRank) -> list[RdmaPort]:
    """The ports a rank is configured to use, else those in a network with another rank's addresses."""
    ports = named_ports(hca_facts(pair, rank))
    if ports is not None:
        return ports
    leading = (cable.ports[0] for other in pair.others(rank) for cable in cables(rank.node, other.node))
    return _one_per_device(leading)


ON_TCP = "cluster.nccl-on-tcp"


@live_rule(ON_TCP, hold_s=12.0, clear_s=15.0, follows=("cluster.no-infiniband-device", "cluster.hca-wrong"))
def nccl_on_tcp(fleet: FleetState) -> Iterable[Finding]:
    """cluster.nccl-on-tcp: tokens flow between the ranks but no RDMA traffic, or NCCL's log says so."""
    for team in whole(fleet):
        yield from _on_tcp(team)


def _on_tcp(pair: Team) -> Iterator[Finding]:
    active = {rank.node.name: [port.device for port in rank.node.rdma_ports if port.is_active] for rank in pair.ranks}
    if not all(active.values()):
        return  # nothing to fall back from
    tcp_findings = [
        (rank, log_finding)
        for rank in pair.ranks
        for log_finding in (rank.engine.log.findings if rank.engine.log else ())
        if log_finding.rule in TCP_RULES
    ]
    rates = pair.head.engine.rates
    speed = (rates.generation_tokens_per_s or 0.0) if rates else 0.0
    flows = [rank.node.rdma_bytes_per_s for rank in pair.ranks]
    known_flows = [flow for flow in flows if flow is not None]
    is_flowing = any(flow > FLOWING_BYTES_PER_S for flow in known_flows)
    is_flat = (
        len(known_flows) == len(flows) and speed >= TOKENS_PER_S and max(known_flows) < FLAT_BYTES_PER_TOKEN * speed
    )
    if is_flowing or not (is_flat or tcp_findings):
        return
    yield found(
        ON_TCP,
        "flat" if is_flat else "logged",
        {"pair": pair.name, "tokens_per_s": speed},
        evidence=(
            *(
                seen(rank.node, "RDMA", f"{flow / 1e6:.2f} MB/s both ways, ACTIVE: {', '.join(active[rank.node.name])}")
                for rank, flow in zip(pair.ranks, flows, strict=True)
                if flow is not None
            ),
            *((engine_evidence(pair.head, f"{speed:.1f} tok/s"),) if is_flat else ()),
            *(evidence for _, log_finding in tcp_findings for evidence in log_finding.evidence[:2]),
        ),
        nodes=pair.nodes,
        subject=pair.name,
    )
