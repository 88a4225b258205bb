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
from sparktop.diagnose.rules.pair.scopes import SPANNING_ENGINE
from sparktop.diagnose.rules.window import seen
from sparktop.engines.pair import Cable, NodePair, Pair, cables, is_one_machine, node_pair, pair_of, said
from sparktop.engines.ranks import EngineRank
from sparktop.model.change import INFINIBAND
from sparktop.model.event import Severity
from sparktop.model.finding import Confidence, Evidence, Finding, Phase, Remedy
from sparktop.model.fleet import FleetState, NodeView, current_nodes, is_current
from sparktop.model.telemetry import RdmaPort

TOKENS_PER_S = 3.0
"""A slower pair may just be between two requests."""
FLAT_BYTES_PER_TOKEN = 1000.0
"""A token's hidden state, passed on by pipeline stages, is about 10 kB; tensor parallel moves a thousand times that."""
IP_HEADER_BYTES = 28
"""Of IPv4 and ICMP, in each ping."""
TCP_RULES = ("nccl.tcp-between-nodes", "nccl.ib-none-found")
"""Log rules that report NCCL on TCP sockets."""


@check_rule(judge_mtu, Severity.WARNING)
def mtu_differs(fleet: FleetState) -> Iterable[Finding]:
    """cluster.mtu-differs: the two ends of a cable have different MTUs."""
    two = node_pair(fleet)
    differing = [
        cable
        for cable in (two.cables if two else ())
        if judge_mtu((cable.interfaces[0].mtu, cable.interfaces[1].mtu)).is_problem
    ]
    if two is None or not differing:
        return
    first = differing[0]
    sizes = [interface.mtu for interface in first.interfaces]
    name = first.interfaces[0].name
    yield Finding(
        rule=judge_mtu.id,
        severity=Severity.WARNING,
        title=f"The MTU differs at the ends of the cable: {sizes[0]} on {two.names[0]}, {sizes[1]} on {two.names[1]}",
        explanation=(
            "The smaller end drops the larger end's full packets. Short messages pass and long ones stall: ping and "
            "ssh work, but a transfer or a rank's start hangs. RDMA falls back to the smaller size. 1500 at both "
            "ends works; 9000 at both was 2 to 8 % faster."
        ),
        evidence=tuple(
            Evidence(source=f"{node} {interface.name}", text=f"mtu {interface.mtu}, network {cable.network}")
            for cable in differing
            for node, interface in zip(two.names, cable.interfaces, strict=True)
        ),
        remedies=(_raise_mtu(two, differing),),
        references=judge_link.sources,
        nodes=two.names,
        brief=f"{name}: {sizes[0]} and {sizes[1]}",
    )


def _raise_mtu(two: NodePair, differing: Sequence[Cable]) -> Remedy:
    """Give the ends with the smaller MTU that of their other ends."""
    mtu = max(end.mtu or 0 for cable in differing for end in cable.interfaces)
    smaller = {
        name: list(dict.fromkeys(end.name for cable in differing if ((end := cable.interfaces[index]).mtu or 0) < mtu))
        for index, name in enumerate(two.names)
    }
    where = {name: interfaces for name, interfaces in smaller.items() if interfaces}
    places = ", ".join(f"{' and '.join(interfaces)} on {name}" for name, interfaces in where.items())
    set_now = (
        f"on {name}: " + " && ".join(f"sudo ip link set {shlex.quote(end)} mtu {mtu}" for end in interfaces)
        for name, interfaces in where.items()
    )
    keep = f"write `mtu: {mtu}` into /etc/netplan/40-cx7.yaml on {' and '.join(where)}, and run `sudo netplan apply`"
    ping = f"ping -c1 -W1 -M do -s {mtu - IP_HEADER_BYTES} {_address(differing[0])}"
    return Remedy(
        title=f"Set MTU {mtu} on {places}",
        steps=(*set_now, keep, f"on {two.names[0]}: {ping}   # needs MTU {mtu} at both ends"),
        cost="a moment's pause of the link; an engine that hangs needs a restart",
    )


def _address(cable: Cable) -> str:
    """Address of the cable's second end, in the network of both."""
    end = cable.interfaces[1]
    own = (text for text in end.addresses if cable.network in replace(end, addresses=(text,)).networks)
    return next(own, "PEER").partition("/")[0]


@check_rule(judge_rate, Severity.WARNING, hold_s=10.0)
def link_slow(fleet: FleetState) -> Iterable[Finding]:
    """cluster.link-slow: a port of the cable is up at less than 200 Gb/s."""
    two = node_pair(fleet)
    if two is None:
        return
    for index, node in enumerate(two.nodes):
        slow = [
            port
            for port in (cable.ports[index] for cable in two.cables)
            if port.is_active and judge_rate(RateFacts(gbps=port.rate_gbps, is_spark=node.is_spark)).is_problem
        ]
        if not slow:
            continue
        rates = " and ".join(f"{port.device} {port.rate_gbps:.0f}" for port in _one_per_device(slow))
        yield Finding(
            rule=judge_rate.id,
            severity=Severity.WARNING,
            title=f"The cable runs slower than 200 Gb/s on {node.name}: {rates} Gb/s",
            explanation=(
                "A Spark's ConnectX-7 port links at 200 Gb/s, and tensor parallel moves megabytes for each token. "
                "The cable or transceiver is for a lower rate or isn't seated, or a switch port is set lower."
            ),
            evidence=tuple(
                Evidence(source=f"{node.name} {port.device}", text=f"{port.state} at {port.rate_gbps:.0f} Gb/s")
                for port in _one_per_device(slow)
            ),
            remedies=(
                Remedy(
                    title="Check the cable, then restart the link",
                    steps=(
                        f"ethtool {slow[0].interface or 'INTERFACE'} | grep -i speed   # 200000 on both nodes",
                        "reseat it at both ends; use the QSFP cable that NVIDIA lists for two Sparks",
                    ),
                    cost="what runs over the cable",
                ),
            ),
            references=judge_link.sources,
            nodes=(node.name,),
            brief=f"{rates} Gb/s",
        )


def _one_per_device(ports: Iterable[RdmaPort]) -> list[RdmaPort]:
    return list({port.device: port for port in ports}.values())


@check_rule(judge_link, Severity.CRITICAL, hold_s=2.0)
def link_down(fleet: FleetState) -> Iterable[Finding]:
    """cluster.link-down: an engine runs over both nodes, and none of its ports on one of them is up; else what joined
    two nodes has lost its carrier."""
    pair, down = pair_of(fleet), down_ports(fleet)
    if pair is None or not down:
        yield from _unplugged(fleet)
        return
    where = " and ".join(rank.node.name for rank, _ in down)
    yield Finding(
        rule=judge_link.id,
        severity=Severity.CRITICAL,
        title=f"{pair.name} lost its link: no port is up on {where}",
        explanation=(
            "Its ranks talk over these ports, and none is up. The next collective can't complete, so the ranks spin "
            f"until a watchdog kills them after ten minutes. {_why_down(pair, fleet)}"
        ),
        evidence=tuple(
            Evidence(
                source=f"{rank.node.name} {port.device}",
                text=f"{port.state or 'state unknown'}" + (f", {port.interface}" if port.interface else ""),
            )
            for rank, ports in down
            for port in ports
        ),
        remedies=(
            Remedy(
                title="Seat the cable, check that the ports are up on both nodes, then restart every rank together",
                steps=(
                    "cat /sys/class/infiniband/*/ports/1/state   # `4: ACTIVE` on the cabled port's two devices",
                    *(
                        f"on {rank.node.name}: "
                        + " && ".join(f"sudo ip link set {shlex.quote(name)} up" for name in interfaces)
                        for rank, ports in down
                        if (interfaces := [port.interface for port in ports if port.interface])
                    ),
                    "restart both ranks: they don't recover from a lost link",
                ),
                cost="the running requests; the time to load",
                action="safe-restart",
            ),
        ),
        references=judge_link.sources,
        nodes=pair.nodes,
        subject=pair.name,
        brief=f"no port on {where} is up",
    )


def _unplugged(fleet: FleetState) -> Iterator[Finding]:
    """Two nodes that no interface joins any more, as one of each pair that did has lost its carrier."""
    nodes = [node for node, _ in current_nodes(fleet)]
    for one, other in combinations(nodes, 2):
        joined = _networks(one) & _networks(other)
        ends = [
            (node, end, lost)
            for node, far in ((one, other), (other, one))
            for end in node.interfaces
            if (lost := (end.lost_networks & (_networks(far) | _networks(far, lost=True))) - joined)
        ]
        if not ends or is_one_machine(one, other):
            continue
        where = " and ".join(f"{end.name} of {node.name}" for node, end, _ in ends)
        yield Finding(
            rule=judge_link.id,
            severity=Severity.WARNING,
            title=f"{one.name} and {other.name} lost a link: no carrier on {where}",
            explanation=(
                "The cable is pulled or half seated, or the port at its other end is off. What runs on one node alone "
                "goes on. An engine over both can't start, and no model can be copied over this link."
            ),
            evidence=tuple(
                seen(node, end.name, f"no carrier; it led to {', '.join(sorted(map(str, lost)))}")
                for node, end, lost in ends
            ),
            remedies=(
                Remedy(
                    title="Seat the cable at both ends",
                    steps=tuple(
                        f"on {node.name}: ip -br link show {shlex.quote(end.name)}   # UP" for node, end, _ in ends
                    ),
                    cost="nothing",
                ),
            ),
            references=judge_link.sources,
            nodes=(one.name, other.name),
            brief=f"no carrier on {where}",
        )


def _networks(node: NodeView, *, lost: bool = False) -> frozenset[IPv4Network]:
    """Those that an interface leads to, or led to until its carrier went."""
    parts = ((end.lost_networks if lost else end.networks) for end in node.interfaces if lost or end.is_up is not False)
    return frozenset[IPv4Network]().union(*parts)


def _why_down(pair: Pair, fleet: FleetState) -> str:
    unplugged = [
        finding
        for finding in fleet.findings
        if finding.rule == "kernel.link-unplugged"
        and finding.phase is Phase.FIRING
        and set(finding.nodes) & {*pair.nodes}
    ]
    if unplugged:
        return "By the kernel log the cable was unplugged."
    reasons = "The cable is pulled or half seated, or a port is disabled"
    if all(is_current(rank.node) for rank in pair.ranks):
        return f"{reasons}."
    return f"{reasons}, or the other machine has no power."


def down_ports(fleet: FleetState) -> list[tuple[EngineRank, list[RdmaPort]]]:
    """Each rank of the pair that uses RDMA ports of which none is up, with those ports."""
    pair = pair_of(fleet)
    if pair is None or not pair.is_whole:
        return []
    used_ports = [(rank, _used_ports(pair, rank)) for rank in pair.ranks]
    return [
        (rank, ports)
        for rank, ports in used_ports
        if judge_link(LinkFacts(has_rdma=any(port.is_active for port in ports), needs_rdma=bool(ports))).is_problem
    ]


def _used_ports(pair: Pair, rank: EngineRank) -> list[RdmaPort]:
    """The ports a rank is configured to use, else those in a network with the peer's addresses."""
    ports = named_ports(hca_facts(pair, rank))
    if ports is not None:
        return ports
    return [cable.ports[0] for cable in cables(rank.node, pair.other(rank).node)]


ON_TCP = "cluster.nccl-on-tcp"


@live_rule(
    ON_TCP,
    "The ranks talk over TCP",
    Severity.WARNING,
    scope=SPANNING_ENGINE,
    sources=("field report 002", "NVIDIA/nccl"),
    hold_s=12.0,
    clear_s=15.0,
    follows=("cluster.no-infiniband-device", "cluster.hca-wrong"),
)
def nccl_on_tcp(fleet: FleetState) -> Iterable[Finding]:
    """cluster.nccl-on-tcp: tokens flow between the ranks but no RDMA traffic, or NCCL's log says so."""
    pair = pair_of(fleet)
    if pair is None or not pair.is_whole:
        return
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
    is_flat = len(known_flows) == 2 and speed >= TOKENS_PER_S and max(known_flows) < FLAT_BYTES_PER_TOKEN * speed
    if is_flowing or not (is_flat or tcp_findings):
        return
    yield Finding(
        rule=ON_TCP,
        severity=Severity.WARNING,
        confidence=Confidence.CONFIRMED,
        title=f"{pair.name} uses TCP between its nodes, not RDMA",
        explanation=(
            (
                f"It generates {speed:.0f} tokens a second over two nodes, but the RDMA ports carry almost nothing. "
                if is_flat
                else "NCCL logged at startup that it found no RDMA device and uses sockets. "
            )
            + (
                "NCCL falls back without an error, to some 2 GB/s and a busy core on each node. Most often the "
                "container lacks /dev/infiniband (`NET/IB : No device found`), or NCCL_IB_DISABLE=1 or NCCL_IB_HCA "
                "forbids it."
            )
        ),
        distinction=("Not idle: tokens come at this moment.",) if is_flat else (),
        evidence=(
            *(
                seen(rank.node, "RDMA", f"{flow / 1e6:.2f} MB/s both ways, ACTIVE: {', '.join(active[rank.node.name])}")
                for rank, flow in zip(pair.ranks, flows, strict=True)
                if flow is not None
            ),
            *((said(pair.head, f"{speed:.1f} tok/s"),) if is_flat else ()),
            *(evidence for _, log_finding in tcp_findings for evidence in log_finding.evidence[:2]),
        ),
        remedies=(
            Remedy(
                title="Give both containers the RDMA devices, and restart both ranks",
                steps=(
                    "--device=/dev/infiniband --ulimit memlock=-1   # or --privileged, as the two-node launchers do",
                    "leave NCCL_IB_DISABLE out (its default is 0)",
                    "NCCL_DEBUG=INFO shows `NET/IB : Using` when it works",
                ),
                cost="the time to load",
                action="relaunch",
                change=replace(INFINIBAND, environment={"NCCL_IB_DISABLE": None}),
            ),
        ),
        references=("field report 002", "NVIDIA/nccl net_ib/init.cc", "NVIDIA developer forum 366325"),
        nodes=pair.nodes,
        subject=pair.name,
        brief=f"{speed:.0f} tok/s, RDMA flat" if is_flat else "NET/Socket",
    )
