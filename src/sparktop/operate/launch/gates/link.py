"""Gates on several nodes: the link between them, what NCCL needs of it, and whether they reach each other. Pure.

What a pair has to have is judged of the head and each other node; in a ring also of each node and the next.

Facts: docs/facts/gb10.md section 5, docs/facts/engines.md 1C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations

from sparktop.checks.link import FULL_GBPS, LinkFacts, RateFacts, judge_link, judge_mtu, judge_rate
from sparktop.engines.pair import is_one_machine
from sparktop.model.fleet import FleetState
from sparktop.model.prospect import Gate
from sparktop.model.state import State
from sparktop.model.survey import Ask, Output, Survey
from sparktop.operate.launch.inputs.gate_inputs import GateInputs, failed, judged, passed, told, unknown, warned
from sparktop.operate.launch.inputs.link import Fabric, fabrics, rails
from sparktop.text.sentences import listed

USUAL_MTU = 1500
PING_LARGEST = 65507
"""Bytes of payload in the largest IPv4 packet."""
_ADDRESS_HELP = "docs.nvidia.com/dgx/dgx-spark: connect two Sparks; then on each: sudo netplan apply && ip -br -4 addr"
_TCP_PROBE = """\
import socket, sys
with socket.socket() as line:
    line.settimeout(2)
    try:
        line.bind((sys.argv[1], 0))
        line.connect((sys.argv[2], 22))
        print("open")
    except ConnectionRefusedError:
        print("refused")
    except OSError as error:
        print("failed:", error.strerror or error)
"""
"""Whether packets come back: a port that refuses has answered."""


# --- questions


def ping_ask(near: Fabric, far: Fabric) -> Output:
    """One small ping from one end of the link to the other."""
    return Output(node=near.node, argv=("ping", "-c1", "-W1", "-n", "-I", near.ip, far.ip), limit_s=5.0)


def large_ask(near: Fabric, far: Fabric) -> Output | None:
    """A ping of the whole MTU that may not be fragmented; None where the MTU isn't above the usual one."""
    sizes = [end.mtu for end in (near, far) if end.mtu]
    if len(sizes) < 2 or min(sizes) <= USUAL_MTU:
        return None
    payload = str(min(min(sizes) - 28, PING_LARGEST))
    argv = ("ping", "-c1", "-W1", "-n", "-M", "do", "-s", payload, "-I", near.ip, far.ip)
    return Output(node=near.node, argv=argv, limit_s=5.0)


def tcp_ask(near: Fabric, far: Fabric) -> Output:
    """A TCP connection, for a node without ping or a network that doesn't answer it."""
    return Output(node=near.node, argv=("python3", "-I", "-S", "-c", _TCP_PROBE, near.ip, far.ip), limit_s=6.0)


def asks(ends: Mapping[str, Fabric], survey: Survey) -> Iterator[Ask]:
    """Whether each end reaches the other, where both addresses are known."""
    for near, far in _directions(ends):
        ping = ping_ask(near, far)
        yield ping
        if (large := large_ask(near, far)) is not None:
            yield large
        if ping in survey.answers and not _came_back(survey, ping):
            yield tcp_ask(near, far)


def _directions(ends: Mapping[str, Fabric]) -> Iterator[tuple[Fabric, Fabric]]:
    """From the head to each other node, and back."""
    head, *others = ends.values() or (None,)
    for other in others:
        if head is not None and other is not None and head.ip and other.ip:
            yield from ((head, other), (other, head))


# --- gates


def gates(inputs: GateInputs) -> Iterator[Gate]:
    """Gates link, rate, mtu, hca, gid and peer; nothing for one node."""
    return pair_gates(inputs.nodes, inputs.picture, inputs.survey, wants_rdma=inputs.order.recipe.requires.rdma)


NAMES = ("link", "rate", "mtu", "hca", "gid", "peer")


def pair_gates(
    nodes: Sequence[str], picture: FleetState, survey: Survey, *, wants_rdma: bool, names: Sequence[str] = NAMES
) -> Iterator[Gate]:
    """Those gates for any nodes, with or without a recipe that wants RDMA."""
    ends = fabrics(nodes, picture, survey)
    if not ends:
        return
    is_addressed = all(end.ip for end in ends.values())
    made: Mapping[str, Callable[[], Iterator[Gate]]] = {
        "link": lambda: _link(picture, ends, wants_rdma=wants_rdma),
        "rate": lambda: _rate(picture, ends),
        "mtu": lambda: _mtu(picture, survey, ends),
        "hca": lambda: _hca(ends, wants_rdma=wants_rdma),
        "gid": lambda: _gid(ends),
        "peer": lambda: _peer(survey, ends),
    }
    for name in names:
        if name == "link" or is_addressed:
            yield from made[name]()


def _link(picture: FleetState, ends: Mapping[str, Fabric], *, wants_rdma: bool) -> Iterator[Gate]:
    views = [view for view in map(picture.node, ends) if view is not None]
    for one, other in combinations(views, 2):
        if is_one_machine(one, other):
            why = f"{one.name} and {other.name} are one machine (one boot id)"
            yield failed("link", "", why, f"sparktop {one.name} THE-OTHER-SPARK")
            return
    for end in ends.values():
        unread = (view := picture.node(end.node)) is None or view.network is None
        why = "; ".join(end.problems)
        if not end.ip:
            if unread or end.is_unread:
                yield unknown("link", end.node, why, "wait a minute: the probe reports interfaces once a minute")
            else:
                yield failed("link", end.node, why, f"give the cable's interfaces addresses: {_ADDRESS_HELP}")
            continue
        where = f"{end.interface or 'an interface'} {end.ip}"
        judgement = judge_link(
            LinkFacts(
                carrier=end.is_up,
                has_rdma=bool(end.hcas),
                needs_rdma=wants_rdma,
                is_same_network=end.is_same_network,
            )
        )
        yield told(
            "link",
            end.node,
            judge_link,
            judgement,
            where=where,
            interface=end.interface,
            hcas=end.hcas,
            others=tuple(node for node in ends if node != end.node),
            reason=why,
            address_help=_ADDRESS_HELP,
        )


def _rate(picture: FleetState, ends: Mapping[str, Fabric]) -> Iterator[Gate]:
    for end in ends.values():
        rate = end.rate_gbps if end.hcas else end.speed_mbps / 1000 if end.speed_mbps else None
        view = picture.node(end.node)
        judgement = judge_rate(RateFacts(gbps=rate, is_spark=view.is_spark if view is not None else None))
        device = " and ".join(end.hcas) or end.interface or "the interface"
        yield told(
            "rate",
            end.node,
            judge_rate,
            judgement,
            device=device,
            rate=rate,
            interface=end.interface,
            full=f"{FULL_GBPS:g}",
        )


_Port = tuple[str, str, int | None]
"""(node, interface, MTU)."""


def _hops(picture: FleetState, survey: Survey, ends: Mapping[str, Fabric]) -> Iterator[tuple[_Port, _Port]]:
    """What packets go over: from the head to each other node; in a ring, also each cable to the next node."""
    head, *others = ((end.node, end.interface, end.mtu) for end in ends.values())
    yield from ((head, other) for other in others)
    for near, far in _in_a_circle(ends):
        for rail in rails((near.node, far.node), picture, survey) if near.is_ring else ():
            yield (
                (near.node, rail.near.interface, rail.near.mtu),
                (far.node, rail.far.interface, rail.far.mtu),
            )


def _in_a_circle(ends: Mapping[str, Fabric]) -> Iterator[tuple[Fabric, Fabric]]:
    """Each node and the next, the last and the head too: as NCCL's ring sends."""
    nodes = tuple(ends.values())
    yield from zip(nodes, (*nodes[1:], nodes[0]), strict=True)


def _mtu(picture: FleetState, survey: Survey, ends: Mapping[str, Fabric]) -> Iterator[Gate]:
    told: dict[str, None] = {}
    for first, second in _hops(picture, survey, ends):
        judgement = judge_mtu((first[2], second[2]))
        if judgement.state is State.UNKNOWN:
            silent = " and ".join(interface or node for node, interface, mtu in (first, second) if mtu is None)
            yield judged("mtu", "", judgement, f"{silent} doesn't report its MTU")
        elif not judgement.is_problem:
            told[f"{first[2]} at both ends" if len(ends) == 2 else str(first[2])] = None
        else:
            low, high = sorted((first, second), key=lambda port: port[2] or 0)
            yield judged(
                "mtu",
                "",
                judgement,
                f"{first[2]} on {first[0]} ({first[1]}), {second[2]} on {second[0]} ({second[1]}): long messages "
                "of the larger end may be dropped, and a rank's start hangs",
                f"on {low[0]}: sudo ip link set {low[1]} mtu {high[2]}",
                "and in its netplan file",
            )
    if told:
        yield passed("mtu", "", " and ".join(told))


def _hca(ends: Mapping[str, Fabric], *, wants_rdma: bool) -> Iterator[Gate]:
    if not all(end.hcas for end in ends.values()):
        for end in ends.values():
            if end.hcas:
                yield passed("hca", end.node, " and ".join(end.hcas))
                continue
            why = "; ".join(end.problems) or f"no RDMA device of {end.node} is up"
            if wants_rdma:
                yield failed(
                    "hca", end.node, why, "ibdev2netdev   # (Up) on the cabled port's two devices, on every node"
                )
            else:
                yield passed("hca", end.node, f"none, and the recipe asks for none: {why}")
        return
    apart = [(near, far) for near, far in _in_a_circle(ends) if far.node not in near.neighbours]
    for near, far in apart:
        leads = f"RDMA of {near.node} leads to {listed(near.neighbours)}, not to {far.node}, the next rank"
        order = "name the nodes in the order of their cables, each after the one that it is cabled to"
        yield (failed if wants_rdma else warned)("hca", near.node, leads, order)
    if apart:
        return
    counts = ", ".join(f"{len(end.hcas)} on {end.node} ({', '.join(end.hcas)})" for end in ends.values())
    for end in ends.values():
        spare = end.idle_devices
        if len({len(each.hcas) for each in ends.values()}) > 1:
            yield warned(
                "hca",
                end.node,
                f"{counts}: only as many as all have are used" + "".join(f"; {problem}" for problem in spare),
                f"give each interface of the cable its own address on every node: {_ADDRESS_HELP}",
            )
        elif spare:
            yield warned(
                "hca",
                end.node,
                f"{', '.join(end.hcas)} of {len(end.hcas) + len(spare)} that are up: {'; '.join(spare)}",
                f"give it an address in a network of its own on every node: {_ADDRESS_HELP}",
            )
        else:
            yield passed("hca", end.node, f"{', '.join(end.hcas)}, found on it")


def _gid(ends: Mapping[str, Fabric]) -> Iterator[Gate]:
    for end in ends.values():
        if not end.hcas:
            continue
        if end.gid_index is not None:
            yield passed("gid", end.node, f"RoCE v2 at index {end.gid_index} of {' and '.join(end.hcas)}")
        elif end.has_several_gids:
            yield passed("gid", end.node, f"left to NCCL: {end.gid_reason}")
        else:
            yield warned(
                "gid",
                end.node,
                f"{end.gid_reason or 'no RoCE v2 entry'}; NCCL is left to find one",
                f"on {end.node}: show_gids   # an entry v2 with the address; sudo ip link set {end.interface} down, up",
            )


# --- reachability


def _peer(survey: Survey, ends: Mapping[str, Fabric]) -> Iterator[Gate]:
    for near, far in _directions(ends):
        ping, tcp, large = ping_ask(near, far), tcp_ask(near, far), large_ask(near, far)
        to = f"{far.node} at {far.ip} from {near.ip}"
        answer = survey.value(tcp)
        outcome = answer.strip() if isinstance(answer, str) else ""
        by_hand = f"on {near.node}: {' '.join(ping.argv)}"
        if not _came_back(survey, ping):
            if outcome in ("open", "refused"):
                yield passed("peer", near.node, f"reaches {to} (by TCP)")
            elif outcome.startswith("failed:") or _is_loss(survey, ping):
                why = outcome.removeprefix("failed:").strip() or "no answer within 1 s"
                yield failed("peer", near.node, f"does not reach {to}: {why}", by_hand, "ip -br -4 addr, on each")
            else:
                why = survey.problem(tcp) or survey.problem(ping) or "it was not asked"
                yield unknown("peer", near.node, f"whether it reaches {to} is not known: {why}", by_hand)
        elif large is not None and large in survey.answers and not _came_back(survey, large):
            size = min(end.mtu or 0 for end in (near, far))
            yield failed(
                "peer",
                near.node,
                f"reaches {to} with small packets and not with those of {size} bytes, its MTU",
                f"on {near.node}: {' '.join(large.argv)}",
                "set one MTU on both interfaces and on a switch between",
            )
        else:
            size_note = f", with packets of {min(end.mtu or 0 for end in (near, far))} bytes too" if large else ""
            yield passed("peer", near.node, f"reaches {to}{size_note}")


def _came_back(survey: Survey, ask: Output) -> bool:
    output = survey.value(ask)
    return isinstance(output, str) and not survey.problem(ask) and " 0% packet loss" in output


def _is_loss(survey: Survey, ask: Output) -> bool:
    output = survey.value(ask)
    return isinstance(output, str) and "packet loss" in output
